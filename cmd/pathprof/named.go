// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"pathprof/perfevent/recording"
	"pathprof/unwind/proc"
)

// named is a recording whose native frames get the names that the recorder left
// out, from files of this machine with the same build ids.
type named struct {
	*recording.Reader
	once   sync.Once
	frames []recording.Frame
	err    error
	absent []string // files that would have been needed
}

// openNamed opens a recording for analysis.
func openNamed(dir string) (*named, error) {
	r, err := recording.Open(dir)
	if err != nil {
		return nil, err
	}
	return &named{Reader: r}, nil
}

// Frames returns the frames by number, with names as far as they can be had.
func (n *named) Frames() ([]recording.Frame, error) {
	n.once.Do(func() {
		if n.frames, n.err = n.Reader.Frames(); n.err == nil {
			n.err = n.resolve()
		}
	})
	return n.frames, n.err
}

// Warnings adds the files whose functions have no names for want of the file.
func (n *named) Warnings() []string {
	meta := n.Reader.Meta()
	list := n.Reader.Warnings()
	if meta.Complete && meta.Options["embed-symbols"] != "false" {
		return list // where names are missing, the recorder did not find them either
	}
	const most = 5
	for _, name := range n.absent[:min(len(n.absent), most)] {
		list = append(list, "functions of "+name+" have no names: the file is not here, nor its debug file")
	}
	if more := len(n.absent) - most; more > 0 {
		list = append(list, fmt.Sprintf("nor have those of %s", count(int64(more), "more file")))
	}
	return list
}

// fileID is a file as a recording knows it.
type fileID struct{ path, buildID string }

// resolve asks the files of frames without a name. A path alone proves nothing:
// without a build id there is no telling whether a file is the same.
func (n *named) resolve() error {
	places := map[fileID][]codePlace{}
	var order []fileID
	for i := range n.frames {
		f := &n.frames[i]
		if f.Kind != recording.FrameNative || f.Name != "" && !isPlace(f.Name) || f.BuildID == "" {
			continue
		}
		id := fileID{f.File, f.BuildID}
		if places[id] == nil {
			order = append(order, id)
		}
		places[id] = append(places[id], codePlace{f.ID, f.Address})
	}
	var files []codeFile
	for _, id := range order {
		file, debug := id.open()
		if file == nil && debug == nil && isPlace(n.frames[places[id][0].frame].Name) {
			continue // they can at least be told apart
		}
		if file == nil && debug == nil {
			n.absent = append(n.absent, printable(filepath.Base(id.path))+" (build id "+id.buildID+")")
			continue
		}
		closeAll(file, debug)
		files = append(files, codeFile{path: id.path, open: id.open, places: places[id]})
	}
	slices.Sort(n.absent)
	return symbolize(files, func(list []recording.Symbol) error {
		recording.AddSymbols(n.frames, list)
		return nil
	})
}

// open looks for the file and its debug file on this machine.
func (id fileID) open() (file, debug *os.File) {
	if filepath.IsAbs(id.path) {
		file = openRegular(id.path)
	}
	if file != nil {
		if have, err := proc.BuildID(file); err != nil || have != id.buildID {
			file.Close()
			file = nil
		}
	}
	return file, openDebug("", id.path, id.buildID, file)
}
