// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"unsafe"
)

// The layout that table.go promises to the BPF program.
func TestLayout(t *testing.T) {
	if got := unsafe.Sizeof(Row{}); got != rowBytes {
		t.Errorf("row: got %d bytes, want %d", got, rowBytes)
	}
	if got := unsafe.Sizeof(Rule{}); got != ruleBytes {
		t.Errorf("rule: got %d bytes, want %d", got, ruleBytes)
	}
	var r Rule
	offsets := map[string][2]uintptr{
		"CFAOff": {unsafe.Offsetof(r.CFAOff), 0}, "CFAAdd": {unsafe.Offsetof(r.CFAAdd), 4},
		"FPOff": {unsafe.Offsetof(r.FPOff), 8}, "RAOff": {unsafe.Offsetof(r.RAOff), 12},
		"CFA": {unsafe.Offsetof(r.CFA), 16}, "CFAReg": {unsafe.Offsetof(r.CFAReg), 17},
		"FP": {unsafe.Offsetof(r.FP), 18}, "FPReg": {unsafe.Offsetof(r.FPReg), 19},
		"RA": {unsafe.Offsetof(r.RA), 20}, "RAReg": {unsafe.Offsetof(r.RAReg), 21},
		"Flags": {unsafe.Offsetof(r.Flags), 22},
	}
	for name, o := range offsets {
		if o[0] != o[1] {
			t.Errorf("%s: got offset %d, want %d", name, o[0], o[1])
		}
	}
}

func callTable(t testing.TB) []byte {
	t.Helper()
	return tinyELF(ehFrame(
		cieBytes("zR", 0x1b, 0x0c, 7, 8, 0x90, 1),
		fdeBytes{begin: tinyAddr, size: 32, code: []byte{0x41, 0x0e, 16, 0x86, 2}},
	), nil)
}

func TestTableCache(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	c, err := OpenTableCache(dir)
	if err != nil {
		t.Fatal(err)
	}
	const id = "0123456789abcdef"
	file := bytes.NewReader(callTable(t))
	want, err := c.Table(id, file)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, id+cacheSuffix)
	check := func(when string, stats CacheStats) {
		t.Helper()
		got, err := c.Table(id, file)
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", when, got, want)
		}
		if c.Stats() != stats {
			t.Errorf("%s: got %+v, want %+v", when, c.Stats(), stats)
		}
	}
	check("cached", CacheStats{Hits: 1, Built: 1})
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode: got %v, %v", info.Mode(), err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	stats := CacheStats{Hits: 1, Built: 1}
	for i := range len(whole) {
		damaged := bytes.Clone(whole)
		damaged[i] ^= 0x10
		for _, b := range [][]byte{damaged, whole[:i]} {
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			stats.Built++
			stats.Damaged++
			check("damaged", stats)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("files left: %v, %v", left, err)
	}
}

func TestTableCacheBuildIDs(t *testing.T) {
	dir := t.TempDir()
	c, err := OpenTableCache(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"", "ab", "../../../../tmp/x", "0123/4567", "ABCDEF"} {
		if _, err := c.Table(id, bytes.NewReader(callTable(t))); err != nil {
			t.Errorf("%q: %v", id, err)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("files for bad build ids: %v", left)
	}
	// A table renamed to another build id is not taken.
	if _, err := c.Table("aaaa", bytes.NewReader(callTable(t))); err != nil {
		t.Fatal(err)
	}
	os.Rename(filepath.Join(dir, "aaaa"+cacheSuffix), filepath.Join(dir, "bbbb"+cacheSuffix))
	if _, err := c.Table("bbbb", bytes.NewReader(callTable(t))); err != nil || c.Stats().Damaged != 1 {
		t.Errorf("got %+v, %v", c.Stats(), err)
	}
}

func TestTableCachePrune(t *testing.T) {
	dir := t.TempDir()
	c, err := OpenTableCache(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"aaaa", "bbbb", "cccc"} {
		if _, err := c.Table(id, bytes.NewReader(callTable(t))); err != nil {
			t.Fatal(err)
		}
	}
	os.WriteFile(filepath.Join(dir, "other"), make([]byte, 4096), 0o600)
	info, _ := os.Stat(filepath.Join(dir, "aaaa"+cacheSuffix))
	c.prune(2 * info.Size())
	if left, _ := os.ReadDir(dir); len(left) != 3 {
		t.Errorf("got %v, want two tables and the other file", left)
	}
}

// A decoded table is fit for the kernel, whatever the bytes, and encodes to them.
func FuzzDecodeTable(f *testing.F) {
	table, err := BuildTable(bytes.NewReader(callTable(f)))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(encodeTable(table, "abcd"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 12 { // else the checksum stops everything
			binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b[12:], castagnoli))
		}
		table, err := decodeTable(b, "abcd")
		if err != nil {
			return
		}
		if err := table.check(); err != nil {
			t.Error(err)
		}
		again, err := decodeTable(encodeTable(table, "abcd"), "abcd")
		if err != nil || !reflect.DeepEqual(again, table) {
			t.Errorf("got %+v (%v), want %+v", again, err, table)
		}
	})
}

func BenchmarkTableCache(b *testing.B) {
	c, err := OpenTableCache(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	for _, path := range elfFiles(b)[:1] {
		f := open(b, path)
		for b.Loop() {
			if _, err := c.Table("0123456789", f); err != nil {
				b.Fatal(err)
			}
		}
	}
}
