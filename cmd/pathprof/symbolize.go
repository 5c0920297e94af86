// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"pathprof/perfevent/recording"
	"pathprof/unwind"
	"pathprof/unwind/proc"
)

// codeFile is a file with code of which some places need names.
type codeFile struct {
	path string
	// open returns the file and its separate debug file, nil where there is none.
	open  func() (file, debug *os.File)
	image io.ReaderAt // instead of a file: code that was in memory
	// names of code made at run time, instead of both.
	made   func() []*unwind.PerfMap
	places []codePlace
}

// codePlace is an address, as the linker gave it, of a native frame.
type codePlace struct {
	frame uint32
	vaddr uint64
}

// maxNamers bounds how many files are read at a time, and with it the memory.
const maxNamers = 4

// symbolize finds the names of all places, several files at a time, and writes
// them in the order of the files.
func symbolize(files []codeFile, write func([]recording.Symbol) error) error {
	found := make([]chan [][]recording.Symbol, len(files))
	for i := range found {
		found[i] = make(chan [][]recording.Symbol, 1)
	}
	turns := make(chan struct{}, min(runtime.GOMAXPROCS(0), maxNamers))
	go func() {
		for i := range files {
			turns <- struct{}{}
			go func() {
				found[i] <- files[i].symbols()
				<-turns
			}()
		}
	}()
	var err error
	for _, c := range found {
		for _, list := range <-c { // also after an error: the files want to be closed
			if err == nil {
				err = write(list)
			}
		}
	}
	return err
}

// symbols returns those of each place that has some.
func (f *codeFile) symbols() (out [][]recording.Symbol) {
	if f.made != nil {
		return f.madeSymbols()
	}
	n := namer{base: filepath.Base(f.path)}
	if f.image != nil {
		n.symbols, _ = unwind.OpenSymbols(f.image)
	} else {
		file, debug := f.open()
		n.openFiles(file, debug)
		defer closeAll(file, debug)
	}
	for _, p := range f.places {
		if list := n.at(p); len(list) > 0 {
			out = append(out, list)
		}
	}
	return out
}

// madeSymbols asks the maps of a process and of those it was forked from.
func (f *codeFile) madeSymbols() (out [][]recording.Symbol) {
	maps := f.made()
	for _, p := range f.places {
		for _, m := range maps {
			if s, ok := m.Lookup(p.vaddr); ok {
				out = append(out, []recording.Symbol{{Frame: p.frame, Name: s.Name}})
				break
			}
		}
	}
	return out
}

func closeAll(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

// namer names addresses of one file by its symbols and, where there are some,
// its source lines.
type namer struct {
	base    string // of the file's path
	symbols *unwind.Symbols
	lines   *unwind.Lines
	// functions of a stripped file, read when a place has no name.
	file      io.ReaderAt
	functions *unwind.Functions
}

// openFiles reads what the file and its debug file tell. Either alone will do;
// what neither has stays an address.
func (n *namer) openFiles(file, debug *os.File) {
	if file != nil {
		n.file = file
	}
	switch {
	case file != nil && debug != nil:
		var err error
		if n.symbols, err = unwind.OpenSymbolsWithDebug(file, debug); err != nil {
			n.symbols, _ = unwind.OpenSymbols(file)
		}
	case file != nil:
		n.symbols, _ = unwind.OpenSymbols(file)
	case debug != nil:
		n.symbols, _ = unwind.OpenSymbols(debug)
	}
	for _, f := range []*os.File{debug, file} {
		if f != nil && n.lines == nil {
			n.lines, _ = unwind.OpenLines(f)
		}
	}
}

// at returns the symbols of a place. The function that has the code is named by
// the file's symbols: they know it also where compilers folded several into one.
func (n *namer) at(p codePlace) []recording.Symbol {
	var out []recording.Symbol
	if n.lines != nil {
		for _, l := range n.lines.At(p.vaddr) {
			out = append(out, recording.Symbol{Frame: p.frame, Name: l.Function, File: l.File, Line: l.Line, FirstLine: l.FirstLine})
		}
	}
	name, ok := n.function(p.vaddr)
	switch {
	case !ok:
	case len(out) == 0:
		out = append(out, recording.Symbol{Frame: p.frame, Name: name})
	default:
		out[len(out)-1].Name = name
	}
	return out
}

// function names the function at an address; one without a name by its place in
// the file, see [isPlace].
func (n *namer) function(vaddr uint64) (string, bool) {
	if n.symbols != nil {
		if s, ok := n.symbols.Lookup(vaddr); ok {
			return s.Name, true
		}
	}
	if n.file == nil || n.lines != nil {
		return "", false
	}
	if n.functions == nil {
		var err error
		if n.functions, err = unwind.OpenFunctions(n.file); err != nil {
			n.functions = &unwind.Functions{}
		}
	}
	start, ok := n.functions.Start(vaddr)
	return fmt.Sprintf("[%s+%#x]", n.base, start), ok
}

// isPlace tells a name that is none: the place of a function in a stripped file.
func isPlace(name string) bool { return strings.HasPrefix(name, "[") }

// openDebug opens the separate debug file of a file, below a root such as that
// of a process: by its build id, else by its link. nil if there is none.
func openDebug(root, path, buildID string, file *os.File) *os.File {
	if p := unwind.DebugFile(unwind.DebugRoot, buildID); p != "" {
		if f := openRegular(root + p); f != nil {
			if id, err := proc.BuildID(f); err == nil && id == buildID {
				return f
			}
			f.Close()
		}
	}
	if file == nil {
		return nil
	}
	link, ok, err := unwind.ReadDebugLink(file)
	if !ok || err != nil {
		return nil
	}
	for _, p := range link.Paths(path) {
		f := openRegular(root + p)
		if f == nil {
			continue
		}
		if fits, err := link.Fits(f); fits && err == nil {
			return f
		}
		f.Close()
	}
	return nil
}

// openRegular opens a file if it is one: a path may name a pipe, which blocks.
func openRegular(path string) *os.File {
	if st, err := os.Stat(path); err != nil || !st.Mode().IsRegular() {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	return f
}
