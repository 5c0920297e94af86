// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Mapping is one line of /proc/PID/maps.
type Mapping struct {
	// Start and End of the addresses, [Start, End); Offset in the file.
	Start, End, Offset uint64
	Exec, Write        bool
	// Dev (major<<20 | minor, the kernel's own packing) and Inode of the file, 0 if there is none.
	Dev, Inode uint64
	// Path as the process sees it, or a name in brackets such as [vdso]; empty
	// for anonymous memory. Deleted: the file has no name any more.
	Path    string
	Deleted bool
}

// maxMaps bounds the mappings read of one process: vm.max_map_count is 65530
// by default and rarely raised above a million.
const maxMaps = 1 << 20

// ParseMaps reads the text of a maps file (fs/proc/task_mmu.c, show_map_vma).
func ParseMaps(r io.Reader) ([]Mapping, error) {
	var maps []Mapping
	in := bufio.NewScanner(r)
	in.Buffer(make([]byte, 0, 4096), 1<<16)
	for in.Scan() {
		m, err := parseMapping(in.Text())
		if err != nil {
			return maps, err
		}
		if len(maps) == maxMaps {
			return maps, fmt.Errorf("more than %d mappings", maxMaps)
		}
		maps = append(maps, m)
	}
	if err := in.Err(); err != nil {
		return maps, fmt.Errorf("read maps: %w", err)
	}
	return maps, nil
}

// parseMapping reads "start-end perms offset major:minor inode   path".
func parseMapping(line string) (m Mapping, err error) {
	fields := [5]string{}
	rest := line
	for i := range fields {
		fields[i], rest, _ = strings.Cut(strings.TrimLeft(rest, " "), " ")
	}
	start, end, ok1 := strings.Cut(fields[0], "-")
	major, minor, ok2 := strings.Cut(fields[3], ":")
	if !ok1 || !ok2 || len(fields[1]) != 4 {
		return m, fmt.Errorf("mapping %q: malformed", line)
	}
	var dev [2]uint64
	for _, f := range []struct {
		text string
		base int
		to   *uint64
	}{
		{start, 16, &m.Start}, {end, 16, &m.End}, {fields[2], 16, &m.Offset},
		{major, 16, &dev[0]}, {minor, 16, &dev[1]}, {fields[4], 10, &m.Inode},
	} {
		if *f.to, err = strconv.ParseUint(f.text, f.base, 64); err != nil {
			return m, fmt.Errorf("mapping %q: %w", line, err)
		}
	}
	if m.End <= m.Start || dev[0] >= 1<<12 || dev[1] >= 1<<20 {
		return m, fmt.Errorf("mapping %q: malformed", line)
	}
	m.Dev = dev[0]<<20 | dev[1]
	m.Exec, m.Write = fields[1][2] == 'x', fields[1][1] == 'w'
	m.Path = unescape(strings.TrimLeft(rest, " "))
	m.Path, m.Deleted = strings.CutSuffix(m.Path, " (deleted)")
	return m, nil
}

// unescape undoes the one escape that maps has: a newline in a path is \012.
func unescape(path string) string { return strings.ReplaceAll(path, `\012`, "\n") }
