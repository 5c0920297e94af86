// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

const (
	metaName = "meta.json"
	// metaReserve is kept free for the final meta.json, should the disk be full.
	metaReserve = 64 << 10
	// maxMeta bounds meta.json.
	maxMeta = 16 << 20
)

// writeMeta replaces the meta.json of a folder. On a full disk it is overwritten
// in place: room was reserved as white space, which JSON allows at the end. What
// does not fit there is left out. Without sync it may not outlive the machine.
func writeMeta(dir string, meta Meta, reserve int, sync bool) error {
	meta.Format = FormatVersion // whatever a copied one said: the streams have this form
	text, err := metaText(&meta)
	if err != nil {
		return err
	}
	path, temp := filepath.Join(dir, metaName), filepath.Join(dir, metaName+".new")
	padded := append(bytes.Clone(text), bytes.Repeat([]byte{' '}, reserve)...)
	err = writeFile(temp, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, padded, sync)
	if err == nil {
		if err = os.Rename(temp, path); err == nil {
			return nil
		}
	}
	os.Remove(temp)
	if inPlace := overwriteMeta(path, meta, text); inPlace != nil {
		return fmt.Errorf("write meta.json: %w", errors.Join(err, inPlace))
	}
	return nil
}

func metaText(meta *Meta) ([]byte, error) {
	text, err := json.MarshalIndent(meta, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write meta.json: %w", err)
	}
	if len(text) >= maxMeta {
		return nil, fmt.Errorf("write meta.json: %d bytes, of at most %d", len(text), maxMeta)
	}
	return append(text, '\n'), nil
}

// overwriteMeta writes into the room that meta.json has: no more blocks are asked
// of the file system.
func overwriteMeta(path string, meta Meta, text []byte) error {
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	for step := 0; int64(len(text)) > st.Size(); step++ {
		if step == len(metaCuts) {
			return fmt.Errorf("%d bytes have no room", len(text))
		}
		metaCuts[step].cut(&meta)
		meta.Warnings = append(meta.Warnings, "the disk was full: meta.json is without "+metaCuts[step].what)
		if text, err = metaText(&meta); err != nil {
			return err
		}
	}
	room := int(st.Size()) - len(text)
	return writeFile(path, os.O_WRONLY, append(text, bytes.Repeat([]byte{' '}, room)...), true)
}

// metaCuts make a meta.json shorter, the least missed first. Loss as a whole, the
// times and the reason to stop stay.
var metaCuts = []struct {
	what string
	cut  func(*Meta)
}{
	{"the loss per CPU", func(m *Meta) { m.LossPerCPU = nil }},
	{"the targets' commands", func(m *Meta) {
		targets := make([]Target, len(m.Targets))
		for i, t := range m.Targets {
			targets[i] = Target{PID: t.PID, Name: t.Name}
		}
		m.Targets = targets
	}},
	{"the interpreters", func(m *Meta) { m.Interpreters = nil }},
	{"all but 100 targets", func(m *Meta) { m.Targets = m.Targets[:min(len(m.Targets), 100)] }},
	{"the names of interrupts", func(m *Meta) { m.IRQs = nil }},
	{"earlier warnings", func(m *Meta) { m.Warnings = nil }},
	{"the targets", func(m *Meta) { m.Targets = nil }},
	{"the options", func(m *Meta) { m.Options = nil }},
}

func writeFile(path string, flag int, text []byte, sync bool) error {
	f, err := os.OpenFile(path, flag, 0o600)
	if err != nil {
		return err
	}
	if _, err = f.Write(text); err == nil && sync {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func readMeta(dir string) (m Meta, err error) {
	f, _, err := openRegular(filepath.Join(dir, metaName))
	if errors.Is(err, os.ErrNotExist) {
		if _, err := os.Stat(dir); err != nil {
			return m, fmt.Errorf("no recording %s", dir)
		}
		return m, fmt.Errorf("%s is not a recording: it has no %s", dir, metaName)
	}
	if err != nil {
		return m, fmt.Errorf("open recording: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxMeta))
	if err != nil {
		return m, fmt.Errorf("open recording: %w", err)
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return m, fmt.Errorf("recording %s: damaged %s: %w", dir, metaName, err)
	}
	switch {
	case m.Format > FormatVersion:
		return m, fmt.Errorf("recording %s has format %d; this pathprof reads up to %d", dir, m.Format, FormatVersion)
	case m.Format < 1:
		return m, fmt.Errorf("%s is not a recording: %s names no format", dir, metaName)
	}
	return m, nil
}

// openRegular opens a file, but not a pipe or a device, on which a reader would
// wait or never end.
func openRegular(path string) (*os.File, int64, error) {
	st, err := os.Stat(path)
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%s: not a regular file", filepath.Base(path))
	}
	if err != nil {
		return nil, 0, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	return f, st.Size(), nil
}
