// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestParseMaps(t *testing.T) {
	for _, c := range []struct {
		name, line string
		want       Mapping
	}{
		{"file", "7f0000001000-7f0000003000 r-xp 00002000 fd:01 1234                       /usr/lib/libc.so.6",
			Mapping{Start: 0x7f0000001000, End: 0x7f0000003000, Offset: 0x2000, Exec: true, Dev: 0xfd<<20 | 1, Inode: 1234, Path: "/usr/lib/libc.so.6"}},
		{"deleted", "1000-2000 rw-p 00000000 00:00 7 /a b/c (deleted)",
			Mapping{Start: 0x1000, End: 0x2000, Write: true, Inode: 7, Path: "/a b/c", Deleted: true}},
		{"anonymous", "1000-2000 rw-p 00000000 00:00 0 ", Mapping{Start: 0x1000, End: 0x2000, Write: true}},
		{"anonymous without blank", "1000-2000 rw-p 00000000 00:00 0", Mapping{Start: 0x1000, End: 0x2000, Write: true}},
		{"name in brackets", "1000-2000 r-xp 00000000 00:00 0                  [vdso]", Mapping{Start: 0x1000, End: 0x2000, Exec: true, Path: "[vdso]"}},
		{"highest address", "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]",
			Mapping{Start: 0xffffffffff600000, End: 0xffffffffff601000, Exec: true, Path: "[vsyscall]"}},
		{"newline in name", `1000-2000 r--p 00000000 00:1f 5 /tmp/a\012b`, Mapping{Start: 0x1000, End: 0x2000, Dev: 0x1f, Inode: 5, Path: "/tmp/a\nb"}},
		{"deleted in the name", "1000-2000 r--p 00000000 00:1f 5 /tmp/x (deleted) (deleted)",
			Mapping{Start: 0x1000, End: 0x2000, Dev: 0x1f, Inode: 5, Path: "/tmp/x (deleted)", Deleted: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := ParseMaps(strings.NewReader(c.line + "\n"))
			if err != nil || len(got) != 1 || got[0] != c.want {
				t.Errorf("got %+v, %v, want %+v", got, err, c.want)
			}
		})
	}
}

func TestParseMapsMalformed(t *testing.T) {
	for _, line := range []string{
		"", "nonsense", "1000 r-xp 0 00:00 0", "2000-1000 r-xp 0 00:00 0", "1000-1000 r-xp 0 00:00 0",
		"1000-2000 r-x 0 00:00 0", "1000-2000 r-xp zz 00:00 0", "1000-2000 r-xp 0 0000 0", "1000-2000 r-xp 0 00:00 x",
		"1000-2000 r-xp 0 1000:00 0", "1000-2000 r-xp 0 00:100000 0", "10000000000000000-2 r-xp 0 00:00 0",
	} {
		if got, err := ParseMaps(strings.NewReader(line + "\n")); err == nil {
			t.Errorf("%q: got %+v, want an error", line, got)
		}
	}
	if _, err := ParseMaps(strings.NewReader(strings.Repeat("x", 1<<17))); err == nil {
		t.Error("endless line: got no error")
	}
}

// What a mapping says is what its line said: written again it reads the same.
func FuzzParseMaps(f *testing.F) {
	f.Add("7f0000001000-7f0000003000 r-xp 00002000 fd:01 1234   /usr/lib/libc.so.6\n")
	f.Add("1000-2000 rw-p 00000000 00:00 0 \n2000-3000 ---p 00000000 00:00 0 [heap]\n")
	f.Add("1000-2000 r--p 00000000 00:1f 5 /tmp/a\\012b (deleted)\n")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ParseMaps(strings.NewReader(text))
		if err != nil {
			return
		}
		var again strings.Builder
		for _, m := range got {
			if m.End <= m.Start {
				t.Fatalf("empty mapping %+v", m)
			}
			if m.Path == "" && m.Deleted || strings.ContainsAny(m.Path, "\n\r") || strings.HasPrefix(m.Path, " ") {
				return // names no kernel writes
			}
			again.WriteString(mapsLine(m))
		}
		same, err := ParseMaps(strings.NewReader(again.String()))
		if err != nil || !slices.Equal(got, same) {
			t.Errorf("written again: got %+v, %v, want %+v", same, err, got)
		}
	})
}

func mapsLine(m Mapping) string {
	perms := []byte("r--p")
	if m.Write {
		perms[1] = 'w'
	}
	if m.Exec {
		perms[2] = 'x'
	}
	line := fmt.Sprintf("%x-%x %s %08x %02x:%02x %d %s", m.Start, m.End, perms, m.Offset, m.Dev>>20, m.Dev&(1<<20-1), m.Inode, m.Path)
	if m.Deleted {
		line += " (deleted)"
	}
	return line + "\n"
}
