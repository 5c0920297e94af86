// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/ulikunitz/xz"
)

// Bounds of MiniDebugInfo. Real ones hold some megabytes, packed with a
// dictionary of 8 MiB (xz -6), at most 64 MiB (xz -9).
const (
	maxMiniDebug = 128 << 20
	maxDictByte  = 28 // (2|b&1) << (b/2+11) bytes: 64 MiB
)

var errXZ = errors.New("not a plain xz file")

// miniDebug opens the ELF file inside .gnu_debugdata, which distributions of the
// Red Hat family leave in stripped files for their .symtab; nil if there is none.
func (f *elfFile) miniDebug() (*elfFile, error) {
	packed, err := f.section(".gnu_debugdata")
	if err != nil || len(packed) == 0 {
		return nil, err
	}
	b, err := unpackXZ(packed)
	if err != nil {
		return nil, fmt.Errorf("read .gnu_debugdata: %w", err)
	}
	return openELF(bytes.NewReader(b))
}

// unpackXZ unpacks a file of one stream with one block, as xz makes of files
// this small. The library takes memory for a dictionary of whatever size a block
// asks for, so the sizes are looked at first, and only that block is given to it.
func unpackXZ(b []byte) ([]byte, error) {
	block, size, err := onlyBlock(b)
	if err != nil {
		return nil, err
	}
	if size > maxMiniDebug {
		return nil, fmt.Errorf("%d bytes are too many", size)
	}
	if err := checkDictionary(b[12:block]); err != nil {
		return nil, err
	}
	r, err := xz.ReaderConfig{SingleStream: true}.NewReader(bytes.NewReader(b[:block]))
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	// Not a byte more: behind the block is nothing to read.
	if _, err := io.CopyN(&out, r, int64(size)); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// onlyBlock reads the footer and the index of a stream (the .xz file format,
// sections 2.1.2 and 4). It returns where the block ends and its unpacked size.
func onlyBlock(b []byte) (end, size uint64, err error) {
	const head, foot = 12, 12
	n := uint64(len(b))
	if n < head+foot || string(b[:6]) != "\xfd7zXZ\x00" || string(b[n-2:]) != "YZ" {
		return 0, 0, errXZ
	}
	index := (uint64(binary.LittleEndian.Uint32(b[n-8:])) + 1) * 4
	if index > n-head-foot {
		return 0, 0, errXZ
	}
	rest := b[n-foot-index : n-foot]
	var fields [4]uint64 // indicator 0, number of records, unpadded size, unpacked size
	for i := range fields {
		v, k := binary.Uvarint(rest)
		if k <= 0 {
			return 0, 0, errXZ
		}
		fields[i], rest = v, rest[k:]
	}
	room := n - head - foot - index
	if fields[0] != 0 || fields[1] != 1 || fields[2] < 8 || fields[2] > room {
		return 0, 0, errXZ
	}
	return head + min(room, (fields[2]+3)&^3), fields[3], nil
}

// checkDictionary reads a block's header (section 3.1) for its only filter.
func checkDictionary(b []byte) error {
	size := (int(b[0]) + 1) * 4
	if size > len(b) || b[1]&3 != 0 {
		return errXZ
	}
	rest := b[2:size]
	for _, present := range []byte{0x40, 0x80} { // sizes, packed and unpacked
		if b[1]&present == 0 {
			continue
		}
		_, k := binary.Uvarint(rest)
		if k <= 0 {
			return errXZ
		}
		rest = rest[k:]
	}
	if len(rest) < 3 || rest[0] != 0x21 || rest[1] != 1 { // LZMA2, one byte of properties
		return errXZ
	}
	if rest[2] > maxDictByte {
		return errors.New("xz dictionary too large")
	}
	return nil
}
