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
//	  symbols.arrow        names of native frames
//	  index.arrow          where each batch lies, its times, rows and checksum
//
// Each stream is a schema and record batches (Arrow IPC streaming format, LZ4
// buffers, nothing is null), to be opened by pandas, polars or DuckDB.
//
// # Columns
//
// Times are CLOCK_MONOTONIC nanoseconds. Enumerations are small numbers whose
// words stand in the schema's metadata, key "words". Numbers of frames and stacks
// begin with 1; 0 is none. Text is UTF-8; what was not has U+FFFD.
//
// Events, see [sched.Event]:
//
//	| time_ns      int64         when
//	| cpu          int32         where; -1 in the task dump
//	| kind         uint8         switch, waking, fork, exec, exit, comm, task, lost …
//	| ctx          uint8         context of a waking
//	| vector       int32         number of the interrupt or softirq
//	| preempt      bool          the switch was a preemption in the kernel
//	| tid          int32         the task it is about
//	| pid          int32         its process
//	| other_tid    int32         next task, waker, parent
//	| other_pid    int32         its process
//	| state        uint32        kernel's state of the task
//	| stack        uint32        where it blocked, or woke the task
//	| name         utf8          new name of the task
//	| count        int64         events lost; start time of a dumped task; bytes …
//	| call         uint16        system call in which it blocked: 1 + amd64's number
//	| object       uint64        what it waits on: address, file descriptor …
//	| timeout_ns   int64         of a timed wait
//	| lock         uint8         kind of lock: gil, mutex, sem, pymutex, cond
//	| holder_tid   int32         who holds it; -1 nobody, 0 not known
//	| holder_pid   int32         its process
//	| conn         uint64        one direction of a connection; a cgroup
//	| seq          uint32        number of a packet's first byte
//
// Samples, see [Sample]:
//
//	| time_ns      int64         when
//	| cpu          int32         where
//	| pid          int32         the process
//	| tid          int32         the thread
//	| stack        uint32        its stack
//	| value        int64         events or ns that it stands for
//	| kernel_mode  bool          the CPU was in kernel mode
//	| ctx          uint8         in an interrupt or not
//	| gil          uint8         who had the GIL: unknown, own, other, free
//	| collecting   bool          the thread was collecting garbage
//	| counter      int64         the CPU's counter at that moment
//
// Stacks, see [Stack]; lists are innermost first:
//
//	| id           uint32        number
//	| kernel       list<uint32>  frames
//	| native       list<uint32>  frames
//	| python       list<uint32>  frames
//	| python_entry list<bool>    the Python frame entered the interpreter from C
//	| kernel_stop  uint8         why the walk ended
//	| native_stop  uint8         why the walk ended
//	| python_stop  uint8         why the walk ended
//
// Frames, see [Frame]:
//
//	| id           uint32        number
//	| kind         uint8         python, native, kernel
//	| name         utf8          function
//	| file         utf8          source file, or mapped file
//	| line         int32         executing line, 0 if not known
//	| first_line   int32         the function's first line
//	| address      uint64        of the code
//	| build_id     utf8          of the mapped file, hex
//	| eval         bool          inside CPython's evaluation function
//
// Symbols, see [Symbol]; where code was inlined a frame has several, innermost
// first. They are written when the recording ends. Without them (killed recorder,
// --embed-symbols=false) native frames are addresses in files with build ids:
//
//	| frame        uint32        number of the native frame
//	| name         utf8          function
//	| file         utf8          source file
//	| line         int32         executing line, 0 if not known
//	| first_line   int32         the function's first line
//
// Recordings of format 2 end the samples' columns with collecting, those of format
// 1 with ctx, and the events' with count; they are read as well.
//
// Index, one row for each batch of the streams above, in the order of writing:
//
//	| stream       utf8          name of the file
//	| offset       int64         of the batch's message, bytes
//	| length       int64         of the message and its body, bytes
//	| rows         int64         of the batch
//	| first_ns     int64         earliest time, 0 for streams without
//	| last_ns      int64         latest time
//	| lost         int64         events lost, as its lost rows say
//	| crc32c       uint32        of those bytes (Castagnoli)
//
// # Loss
//
// A batch is the unit of writing, of reading in parallel, and of loss: it is
// written with one call, frames before the stacks that name them, stacks before
// samples and events. So whatever a reader finds refers to what it finds, and a
// killed recorder loses at most the batches that were not flushed yet. When the
// disk is full, the recording ends with the last flush, and meta.json is
// overwritten in room that was kept for it.
//
// Recordings are hostile input. Messages are checked before Arrow's decoder sees
// them, for it takes memory by the counts within; it is given our own schema,
// never the file's. A batch that differs from its checksum, or from what the index
// says of it, is left out: its rows count as loss in [Reader.Meta], a warning says
// so, and of events a [sched.KindLost] stands at its place. Where there is no
// index, batches are found by their framing, and have no checksum.
package recording
