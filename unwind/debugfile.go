// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"path"
	"strings"
)

// DebugRoot is where distributions put separate debug files.
const DebugRoot = "/usr/lib/debug"

// DebugFile returns the path of the separate debug file of a build id below
// root, such as [DebugRoot]: root/.build-id/xx/yyyy.debug. It does not look
// whether the file exists. An implausible build id gives an empty path.
func DebugFile(root, buildID string) string {
	if len(buildID) < 4 || !isHex(buildID) {
		return ""
	}
	return strings.TrimSuffix(root, "/") + "/.build-id/" + buildID[:2] + "/" + buildID[2:] + ".debug"
}

func isHex(s string) bool {
	return strings.Trim(s, "0123456789abcdef") == "" && len(s)%2 == 0
}

// DebugLink is what a file says of its separate debug file (.gnu_debuglink).
type DebugLink struct {
	Name string // without a folder
	CRC  uint32 // of the debug file (IEEE)
}

// maxDebugFile bounds the files whose checksum is taken.
const maxDebugFile = 4 << 30

// ReadDebugLink reads the link of an ELF file; ok is false if it has none.
func ReadDebugLink(r io.ReaderAt) (link DebugLink, ok bool, err error) {
	defer guard("read .gnu_debuglink", &err)
	f, err := openELF(r)
	if err != nil {
		return DebugLink{}, false, err
	}
	b, err := f.section(".gnu_debuglink")
	if err != nil {
		return DebugLink{}, false, err
	}
	n := bytes.IndexByte(b, 0)
	crc := (n + 4) &^ 3 // the name's zero, then up to the next multiple of four
	if n <= 0 || crc+4 > len(b) {
		return DebugLink{}, false, nil
	}
	link = DebugLink{Name: string(b[:n]), CRC: binary.LittleEndian.Uint32(b[crc:])}
	return link, !strings.Contains(link.Name, "/"), nil
}

// Paths lists where the debug file of a file may be, likeliest first (GDB
// manual, "Separate Debug Files").
func (l DebugLink) Paths(file string) []string {
	dir := path.Dir(file)
	return []string{
		path.Join(dir, l.Name), path.Join(dir, ".debug", l.Name), path.Join(DebugRoot, dir, l.Name),
	}
}

// Fits says whether a file is the one that was linked: the path proves nothing.
func (l DebugLink) Fits(r io.Reader) (bool, error) {
	sum := crc32.NewIEEE()
	n, err := io.Copy(sum, io.LimitReader(r, maxDebugFile+1))
	if err != nil {
		return false, fmt.Errorf("read debug file: %w", err)
	}
	return n <= maxDebugFile && sum.Sum32() == l.CRC, nil
}
