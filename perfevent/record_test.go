// SPDX-License-Identifier: Apache-2.0

package perfevent

import (
	"encoding/binary"
	"errors"
	"testing"
)

// body builds the body of a record: uint32, uint64 and string fields, then a
// trailer with the given time.
func body(time uint64, fields ...any) []byte {
	var b []byte
	for _, f := range append(fields, uint32(1), uint32(2), time, uint32(3), uint32(0)) {
		switch f := f.(type) {
		case uint32:
			b = binary.NativeEndian.AppendUint32(b, f)
		case uint64:
			b = binary.NativeEndian.AppendUint64(b, f)
		case string:
			b = append(b, f...)
		}
	}
	return b
}

func mmapBody(name string) []byte {
	return body(77, uint32(10), uint32(11), uint64(0x1000), uint64(0x2000), uint64(0x3000),
		uint32(8), uint32(1), uint64(5), uint64(6), uint32(5), uint32(2), name)
}

func TestDecodeRecord(t *testing.T) {
	task := func() []byte {
		return body(99, uint32(20), uint32(21), uint32(22), uint32(23), uint64(88))
	}
	tests := []struct {
		name string
		typ  uint32
		misc uint16
		body []byte
		want Record
		err  error
	}{
		{"mmap", recordMmap2, 2, mmapBody("/bin/python3\x00\x00\x00\x00"),
			Record{Kind: KindMmap, Time: 77, PID: 10, TID: 11, Addr: 0x1000, Len: 0x2000, Pgoff: 0x3000, Prot: 5, Name: "/bin/python3"}, nil},
		{"comm", recordComm, 0, body(5, uint32(7), uint32(8), "worker\x00\x00"),
			Record{Kind: KindComm, Time: 5, PID: 7, TID: 8, Name: "worker"}, nil},
		{"exec", recordComm, miscCommExec, body(5, uint32(7), uint32(8), "sh\x00\x00\x00\x00\x00\x00"),
			Record{Kind: KindComm, Time: 5, PID: 7, TID: 8, Name: "sh", Exec: true}, nil},
		{"fork", recordFork, 0, task(),
			Record{Kind: KindFork, Time: 88, PID: 20, PPID: 21, TID: 22, PTID: 23}, nil},
		{"exit", recordExit, 0, task(),
			Record{Kind: KindExit, Time: 88, PID: 20, PPID: 21, TID: 22, PTID: 23}, nil},
		{"outside the namespace", recordExit, 0, body(9, ^uint32(0), uint32(0), ^uint32(0), uint32(0), uint64(8)),
			Record{Kind: KindExit, Time: 8, PID: -1, TID: -1}, nil},
		{"lost", recordLost, 0, body(6, uint64(1), uint64(42)), Record{Kind: KindLost, Time: 6, Lost: 42}, nil},

		{"no body", recordComm, 0, nil, Record{}, errShortRecord},
		{"trailer only", recordMmap2, 0, body(1), Record{}, errShortRecord},
		{"mmap without end", recordMmap2, 0, mmapBody("/bin/pyth"), Record{}, errShortRecord},
		{"comm without end", recordComm, 0, body(5, uint32(7), uint32(8), "workers!"), Record{}, errShortRecord},
		{"short fork", recordFork, 0, task()[8:], Record{}, errShortRecord},
		{"short lost", recordLost, 0, body(6, uint64(1)), Record{}, errShortRecord},
		{"switch", 14, 0, body(6), Record{}, errUnknownRecord},
		{"no type", 0, 0, body(6), Record{}, errUnknownRecord},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := Record{CPU: 9, Name: "old", Lost: 1}
			err := decodeRecord(tt.typ, tt.misc, tt.body, &got)
			tt.want.CPU = 9
			if !errors.Is(err, tt.err) || got != tt.want {
				t.Errorf("got %+v, %v; want %+v, %v", got, err, tt.want, tt.err)
			}
		})
	}
}

func TestKindString(t *testing.T) {
	for k := KindInvalid; k <= KindLost; k++ {
		if s := k.String(); s == "" || s[0] == 'k' {
			t.Errorf("kind %d has no name: %q", k, s)
		}
	}
	if got, want := Kind(99).String(), "kind99"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Either a record or an error, and never a name longer than the record.
func FuzzDecodeRecord(f *testing.F) {
	f.Add(uint32(recordMmap2), uint16(0), mmapBody("/bin/python3\x00\x00\x00\x00"))
	f.Add(uint32(recordComm), uint16(miscCommExec), body(5, uint32(7), uint32(8), "worker\x00\x00"))
	f.Add(uint32(recordFork), uint16(0), body(99, uint32(20), uint32(21), uint32(22), uint32(23), uint64(88)))
	f.Add(uint32(recordLost), uint16(0), body(6, uint64(1), uint64(42)))
	f.Add(uint32(recordThrottle), uint16(0), body(6, uint64(1), uint64(42)))
	f.Fuzz(func(t *testing.T, typ uint32, misc uint16, data []byte) {
		rec := Record{CPU: 3}
		err := decodeRecord(typ, misc, data, &rec)
		if (err == nil) != (rec.Kind != KindInvalid) || len(rec.Name) > len(data) || rec.CPU != 3 {
			t.Errorf("got %+v, %v", rec, err)
		}
		if ring, err := decodeRingRecord(typ, data); err != nil && ring != (ringRecord{}) {
			t.Errorf("got both %+v and %v", ring, err)
		}
	})
}

func TestDecodeRingRecord(t *testing.T) {
	u64 := func(values ...uint64) (b []byte) {
		for _, v := range values {
			b = binary.NativeEndian.AppendUint64(b, v)
		}
		return b
	}
	tests := []struct {
		name string
		typ  uint32
		body []byte
		want ringRecord
		err  error
	}{
		{"throttle", recordThrottle, u64(5, 1, 1), ringRecord{typ: recordThrottle, time: 5}, nil},
		{"unthrottle", recordUnthrottle, u64(6, 1, 1), ringRecord{typ: recordUnthrottle, time: 6}, nil},
		{"lost", recordLost, u64(1, 9), ringRecord{typ: recordLost, lost: 9}, nil},
		{"lost samples", recordLostSamples, u64(8), ringRecord{typ: recordLostSamples, lost: 8}, nil},
		{"sample", recordSample, nil, ringRecord{typ: recordSample}, nil},
		{"short throttle", recordThrottle, u64(5, 1), ringRecord{}, errShortRecord},
		{"short lost", recordLost, u64(1), ringRecord{}, errShortRecord},
		{"short lost samples", recordLostSamples, nil, ringRecord{}, errShortRecord},
		{"mmap", recordMmap2, nil, ringRecord{}, errUnknownRecord},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := decodeRingRecord(tt.typ, tt.body)
			if got != tt.want || !errors.Is(err, tt.err) {
				t.Errorf("got %+v, %v; want %+v, %v", got, err, tt.want, tt.err)
			}
		})
	}
}
