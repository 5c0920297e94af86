// SPDX-License-Identifier: Apache-2.0

// Package recording is the only thing between capture and analysis: a folder of
// Apache Arrow streams and a meta.json.
//
//	NAME.pathprof/
//	  meta.json            Meta; "complete" is false until the recorder finished
//	  events-cpuN.arrow    execution events of CPU N, almost in time order
//	  events-tasks.arrow   the task dump at the start
//	  samples.arrow        counter overflows
//	  stacks.arrow         what they refer to: lists of frame numbers
//	  frames.arrow         what those are
//	  index.arrow          where each batch lies, its times and rows
//
// Each stream is a schema and record batches (Arrow IPC streaming format, LZ4
// buffers), to be opened by pandas, polars or DuckDB. Columns are the fields of
// [sched.Event], [Sample], [Stack] and [Frame] in snake case, times with _ns;
// enumerations are small numbers whose words stand in the schema's metadata.
// Numbers of frames and stacks begin with 1, 0 is none.
//
// A batch is the unit of writing, of reading in parallel, and of loss: it is
// written with one call, frames before the stacks that name them, stacks before
// samples and events. So whatever a reader finds refers to what it finds, and a
// killed recorder loses at most the batches that were not flushed yet.
//
// Recordings are hostile input: sizes are checked against the file before
// memory is taken, and a damaged batch is counted and left out.
package recording
