// SPDX-License-Identifier: Apache-2.0

package perfevent

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strconv"
)

// Kind says what happened.
type Kind uint8

// The kinds of side-band records.
const (
	KindInvalid Kind = iota
	// KindMmap: executable memory was mapped, or mapped memory made so.
	KindMmap
	// KindComm: a thread got a new name, by exec if Exec is set.
	KindComm
	// KindFork: a process or a thread was made.
	KindFork
	// KindExit: a thread ended.
	KindExit
	// KindLost: records of this CPU found no room.
	KindLost
)

// String is the kind in lower case.
func (k Kind) String() string {
	names := [...]string{"invalid", "mmap", "comm", "fork", "exit", "lost"}
	if int(k) < len(names) {
		return names[k]
	}
	return "kind" + strconv.Itoa(int(k))
}

// Record is one side-band record. A field is set where its comment names no
// kind or the record's own; else it is zero.
type Record struct {
	Kind Kind
	// CPU whose ring held the record.
	CPU int
	// Time of the event, CLOCK_MONOTONIC in nanoseconds.
	Time int64
	// PID and TID of the task: the new one (fork), the ended one (exit), the
	// one that mapped or was named. They are 0 or -1 for tasks outside the
	// opener's pid namespace. Of KindLost: not set.
	PID, TID int32
	// PPID and PTID: the process and thread that made the task (fork), or
	// that is its parent (exit).
	PPID, PTID int32
	// Addr, Len and Pgoff of a mapping, in bytes (mmap).
	Addr, Len, Pgoff uint64
	// Prot are the PROT_ bits of a mapping (mmap).
	Prot uint32
	// Name is the file's path as the process sees it, or a name in
	// brackets or with slashes such as "//anon" (mmap); the thread's new name
	// (comm).
	Name string
	// Exec: the name changed because a program was executed (comm).
	Exec bool
	// Lost is how many records had no room (lost).
	Lost uint64
}

// IsThread tells, of a fork, that a thread was made and not a process.
func (r *Record) IsThread() bool { return r.Kind == KindFork && r.PID == r.PPID }

// Types of records, and bits of their header's misc field, from
// include/uapi/linux/perf_event.h.
const (
	recordLost        = 2
	recordComm        = 3
	recordExit        = 4
	recordThrottle    = 5
	recordUnthrottle  = 6
	recordFork        = 7
	recordSample      = 9
	recordMmap2       = 10
	recordLostSamples = 13

	miscCommExec = 1 << 13
)

// sampleIDSize is the size of the trailer sample_id_all adds, with the
// sample_type TID | TIME | CPU: pid, tid, time, cpu, reserved.
const sampleIDSize = 24

// errShortRecord means that a record ends before its fields do, or lacks the
// end of a string.
var errShortRecord = errors.New("record too short")

// errUnknownRecord means that a record is of a type nobody asked for.
var errUnknownRecord = errors.New("unknown record type")

// decodeRecord decodes the body of a record, which is a perf record without
// its header, followed by a sampleIDSize trailer. Fields are in the byte
// order of this machine, which wrote them. CPU is left alone.
func decodeRecord(typ uint32, misc uint16, body []byte, rec *Record) error {
	cpu := rec.CPU
	*rec = Record{CPU: cpu}
	if len(body) < sampleIDSize {
		return errShortRecord
	}
	at := len(body) - sampleIDSize
	rec.Time = int64(binary.NativeEndian.Uint64(body[at+8:]))
	body = body[:at]
	var err error
	switch typ {
	case recordMmap2:
		err = rec.decodeMmap2(body)
	case recordComm:
		err = rec.decodeComm(misc, body)
	case recordFork:
		err = rec.decodeTask(KindFork, body)
	case recordExit:
		err = rec.decodeTask(KindExit, body)
	case recordLost:
		err = rec.decodeLost(body)
	default:
		err = errUnknownRecord
	}
	if err != nil {
		*rec = Record{CPU: cpu}
	}
	return err
}

// decodeMmap2: pid, tid, addr, len, pgoff, 24 bytes of inode or build id, prot,
// flags, filename (perf_event_mmap_output in kernel/events/core.c).
func (r *Record) decodeMmap2(b []byte) error {
	const fixed = 64
	if len(b) < fixed {
		return errShortRecord
	}
	name, ok := cString(b[fixed:])
	if !ok {
		return errShortRecord
	}
	r.Kind, r.Name = KindMmap, name
	r.PID, r.TID = int32At(b, 0), int32At(b, 4)
	r.Addr = binary.NativeEndian.Uint64(b[8:])
	r.Len = binary.NativeEndian.Uint64(b[16:])
	r.Pgoff = binary.NativeEndian.Uint64(b[24:])
	r.Prot = binary.NativeEndian.Uint32(b[56:])
	return nil
}

func (r *Record) decodeComm(misc uint16, b []byte) error {
	if len(b) < 8 {
		return errShortRecord
	}
	name, ok := cString(b[8:])
	if !ok {
		return errShortRecord
	}
	r.Kind, r.Name, r.Exec = KindComm, name, misc&miscCommExec != 0
	r.PID, r.TID = int32At(b, 0), int32At(b, 4)
	return nil
}

// decodeTask: pid, ppid, tid, ptid, time. That time is when the event happened;
// the trailer's is when it was written.
func (r *Record) decodeTask(kind Kind, b []byte) error {
	if len(b) < 24 {
		return errShortRecord
	}
	r.Kind = kind
	r.PID, r.PPID = int32At(b, 0), int32At(b, 4)
	r.TID, r.PTID = int32At(b, 8), int32At(b, 12)
	r.Time = int64(binary.NativeEndian.Uint64(b[16:]))
	return nil
}

func (r *Record) decodeLost(b []byte) error {
	if len(b) < 16 {
		return errShortRecord
	}
	r.Kind, r.Lost = KindLost, binary.NativeEndian.Uint64(b[8:])
	return nil
}

// ringRecord is a record of a counter's own ring.
type ringRecord struct {
	typ  uint32
	time uint64 // throttle, unthrottle
	lost uint64 // lost
}

// decodeRingRecord decodes a record of a counter, whose attributes ask for no
// trailer.
func decodeRingRecord(typ uint32, body []byte) (ringRecord, error) {
	rec := ringRecord{typ: typ}
	switch typ {
	case recordThrottle, recordUnthrottle: // time, id, stream id
		if len(body) < 24 {
			return ringRecord{}, errShortRecord
		}
		rec.time = binary.NativeEndian.Uint64(body)
	case recordLost: // id, lost
		if len(body) < 16 {
			return ringRecord{}, errShortRecord
		}
		rec.lost = binary.NativeEndian.Uint64(body[8:])
	case recordLostSamples: // lost
		if len(body) < 8 {
			return ringRecord{}, errShortRecord
		}
		rec.lost = binary.NativeEndian.Uint64(body)
	case recordSample:
	default:
		return ringRecord{}, errUnknownRecord
	}
	return rec, nil
}

func int32At(b []byte, at int) int32 { return int32(binary.NativeEndian.Uint32(b[at:])) }

// cString is the text before the first zero byte; ok is false without one.
func cString(b []byte) (text string, ok bool) {
	n := bytes.IndexByte(b, 0)
	if n < 0 {
		return "", false
	}
	return string(b[:n]), true
}
