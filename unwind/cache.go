// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
)

// The form of a cached table, all little-endian: the header below, the build
// id, the rules (24 bytes each), the rows (8 bytes each). Increase cacheVersion
// whenever the compiler or the form changes: an old table is then built anew.
const (
	cacheMagic   = "PPUW"
	cacheVersion = 2
	cacheSuffix  = ".unwind"
	headerBytes  = 48
	ruleBytes    = 24
	rowBytes     = 8
	// maxCacheFile is more than the largest libraries need (30 million rows).
	maxCacheFile = 256 << 20
	// maxCacheDir bounds the folder; the least recently written tables go first.
	maxCacheDir = 1 << 30
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// TableCache keeps compiled tables in a folder, by build id. It is safe for
// concurrent use, also by several processes.
type TableCache struct {
	dir                              string
	hits, built, damaged, notWritten atomic.Int64
}

// CacheStats counts what a [TableCache] did.
type CacheStats struct {
	Hits       int64 // tables that came from the folder
	Built      int64 // tables that were compiled
	Damaged    int64 // files in the folder that were not usable, and replaced
	NotWritten int64 // tables that could not be kept
}

// DefaultCacheDir is the folder of the user's tables.
func DefaultCacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find cache folder: %w", err)
	}
	return filepath.Join(dir, "pathprof"), nil
}

// OpenTableCache uses a folder, which it makes if need be.
func OpenTableCache(dir string) (*TableCache, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make cache folder: %w", err)
	}
	c := &TableCache{dir: dir}
	c.prune(maxCacheDir)
	return c, nil
}

// Stats returns the counts so far.
func (c *TableCache) Stats() CacheStats {
	return CacheStats{c.hits.Load(), c.built.Load(), c.damaged.Load(), c.notWritten.Load()}
}

// Table returns the table of the ELF file r with this build id (hex), from the
// folder or by [BuildTable]. The caller answers for the build id being r's. A
// file without a build id is built every time. That the folder cannot be
// written is no error, only counted.
func (c *TableCache) Table(buildID string, r io.ReaderAt) (*Table, error) {
	path := c.path(buildID)
	if path != "" {
		t, err := c.load(path, buildID)
		if err == nil {
			c.hits.Add(1)
			return t, nil
		}
		if !errors.Is(err, os.ErrNotExist) {
			c.damaged.Add(1)
		}
	}
	t, err := BuildTable(r)
	if err != nil {
		return nil, err
	}
	c.built.Add(1)
	if path != "" && c.store(path, encodeTable(t, buildID)) != nil {
		c.notWritten.Add(1)
	}
	return t, nil
}

// path is empty for a build id that is none: it names a file.
func (c *TableCache) path(buildID string) string {
	if len(buildID) < 4 || len(buildID) > 128 || !isHex(buildID) {
		return ""
	}
	return filepath.Join(c.dir, buildID+cacheSuffix)
}

func (c *TableCache) load(path, buildID string) (*Table, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxCacheFile {
		return nil, errors.New("not a table")
	}
	b := make([]byte, info.Size())
	if _, err := io.ReadFull(f, b); err != nil {
		return nil, fmt.Errorf("read table: %w", err)
	}
	return decodeTable(b, buildID)
}

// store writes a file beside its place and moves it there, so that nobody reads
// half of one.
func (c *TableCache) store(path string, b []byte) error {
	if len(b) > maxCacheFile {
		return errors.New("table too large")
	}
	f, err := os.CreateTemp(c.dir, "new-*"+cacheSuffix) // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	err = cmp.Or(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// prune removes the oldest tables until the rest fits.
func (c *TableCache) prune(limit int64) {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return
	}
	var files []os.FileInfo
	var total int64
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() || !strings.HasSuffix(e.Name(), cacheSuffix) {
			continue
		}
		files = append(files, info)
		total += info.Size()
	}
	slices.SortFunc(files, func(a, b os.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, f := range files {
		if total <= limit {
			return
		}
		if os.Remove(filepath.Join(c.dir, f.Name())) == nil {
			total -= f.Size()
		}
	}
}

// encodeTable is the inverse of [decodeTable]. The header is: magic, version
// u32, checksum u32 of all that follows, machine u16, length of the build id
// u16, base u64, rows u32, rules u32, functions u32, skipped u32, unsupported
// u32, zero u32.
func encodeTable(t *Table, buildID string) []byte {
	le := binary.LittleEndian
	b := make([]byte, 0, headerBytes+len(buildID)+ruleBytes*len(t.Rules)+rowBytes*len(t.Rows))
	b = append(b, cacheMagic...)
	b = le.AppendUint32(b, cacheVersion)
	b = le.AppendUint32(b, 0)
	b = le.AppendUint16(b, uint16(t.Machine))
	b = le.AppendUint16(b, uint16(len(buildID)))
	b = le.AppendUint64(b, t.Base)
	for _, n := range []int{len(t.Rows), len(t.Rules), t.Functions, t.Skipped, t.Unsupported, 0} {
		b = le.AppendUint32(b, uint32(n))
	}
	b = append(b, buildID...)
	for _, r := range t.Rules {
		for _, v := range []int32{r.CFAOff, r.CFAAdd, r.FPOff, r.RAOff} {
			b = le.AppendUint32(b, uint32(v))
		}
		b = append(b, byte(r.CFA), byte(r.CFAReg), byte(r.FP), byte(r.FPReg), byte(r.RA), byte(r.RAReg), byte(r.Flags), 0)
	}
	for _, r := range t.Rows {
		b = le.AppendUint32(le.AppendUint32(b, r.PC), r.Rule)
	}
	le.PutUint32(b[8:], crc32.Checksum(b[12:], castagnoli))
	return b
}

// decodeTable checks everything that the kernel's walk relies on, not only the
// checksum.
func decodeTable(b []byte, buildID string) (*Table, error) {
	le := binary.LittleEndian
	if len(b) < headerBytes || string(b[:4]) != cacheMagic || le.Uint32(b[4:]) != cacheVersion {
		return nil, errors.New("not a table of this version")
	}
	if le.Uint32(b[8:]) != crc32.Checksum(b[12:], castagnoli) {
		return nil, errors.New("wrong checksum")
	}
	rows, rules, idLen := int(le.Uint32(b[24:])), int(le.Uint32(b[28:])), int(le.Uint16(b[14:]))
	if len(b) != headerBytes+idLen+ruleBytes*rules+rowBytes*rows {
		return nil, errors.New("wrong length")
	}
	t := &Table{
		Machine: elf.Machine(le.Uint16(b[12:])), Base: le.Uint64(b[16:]),
		Rows: make([]Row, rows), Rules: make([]Rule, rules),
		Functions: int(le.Uint32(b[32:])), Skipped: int(le.Uint32(b[36:])), Unsupported: int(le.Uint32(b[40:])),
	}
	if b = b[headerBytes:]; !bytes.Equal(b[:idLen], []byte(buildID)) {
		return nil, errors.New("another build id")
	}
	b = b[idLen:]
	for i := range t.Rules {
		n := func(at int) int32 { return int32(le.Uint32(b[at:])) }
		t.Rules[i] = Rule{
			CFAOff: n(0), CFAAdd: n(4), FPOff: n(8), RAOff: n(12),
			CFA: CFAKind(b[16]), CFAReg: Reg(b[17]), FP: Place(b[18]), FPReg: Reg(b[19]),
			RA: Place(b[20]), RAReg: Reg(b[21]), Flags: RuleFlags(b[22]),
		}
		b = b[ruleBytes:]
	}
	for i := range t.Rows {
		t.Rows[i] = Row{le.Uint32(b), le.Uint32(b[4:])}
		b = b[rowBytes:]
	}
	if err := t.check(); err != nil {
		return nil, err
	}
	return t, nil
}
