// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"encoding/binary"
	"maps"
	"strings"
	"testing"
)

const (
	inetTable = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 423262 1 0 100 0 0 10 0
   1: 0100007F:1F90 0200000A:C000 01 00000000:00000000 00:00000000 00000000     0        0 423263 1 0 20 4 30 10 -1
   3: 0100007F:0051 0200000A:C003 01 00000000:00000000 00:00000000 00000000     0        0 423264 1 0 20 4 30 10 -1
   2: 0100007F:1F90 0200000A:C001 06 00000000:00000000 03:00000000 00000000     0        0 0 3 0
`
	// A server on [::]:81 takes connections of IPv4, too.
	inet6Table = `  sl  local_address remote_address st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000000000000000000001000000:0050 00000000000000000000000001000000:0051 01 00000000:00000000 00:00000000 00000000     0        0 77 1 0
   1: 00000000000000000000000000000000:0051 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 78 1 0
`
	unixTable = `Num       RefCount Protocol Flags    Type St Inode Path
000000006f3247a3: 00000003 00000000 00000000 0001 03  1678
000000006f3247a4: 00000002 00000000 00010000 0001 01  1679 /run/a b
000000006f3247a5: 00000002 00000000 00010000 0001 01  1680 @abstract
`
)

func TestSockets(t *testing.T) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("the tables are of a little-endian machine")
	}
	got := newSockets()
	for _, err := range []error{
		got.parseInet(strings.NewReader(inetTable), "tcp"),
		got.parseInet(strings.NewReader(inet6Table), "tcp"),
		got.parseUnix(strings.NewReader(unixTable)),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	got.nameConnected()
	want := map[uint64]string{
		423262: "tcp 127.0.0.1:8080 listening",
		423263: "tcp 127.0.0.1:8080<10.0.0.2:49152",
		423264: "tcp 127.0.0.1:81<10.0.0.2:49155",
		78:     "tcp [::]:81 listening",
		77:     "tcp [::1]:80>[::1]:81",
		1678:   "unix", 1679: "unix /run/a b", 1680: "unix @abstract",
	}
	if !maps.Equal(got.Names, want) {
		t.Errorf("got %v, want %v", got.Names, want)
	}
}

// Tables are the kernel's, but a reader of text never panics, and names what it reads.
func FuzzSockets(f *testing.F) {
	for _, text := range []string{inetTable, inet6Table, unixTable, "x\n0: :0 0:0 1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s := newSockets()
		err := s.parseInet(strings.NewReader(text), "tcp")
		err2 := s.parseUnix(strings.NewReader(text))
		s.nameConnected()
		if err == nil && err2 == nil && len(s.Names) > 2*strings.Count(text, "\n")+2 {
			t.Errorf("%d names from %q", len(s.Names), text)
		}
	})
}
