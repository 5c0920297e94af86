// SPDX-License-Identifier: Apache-2.0

package pyframes

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pathprof/perfevent/perftest"
	"pathprof/unwind/proc"
)

// ownFrame is a frame as the program itself sees it; see testdata/live.py.
type ownFrame struct {
	name, file         string
	first, lasti, line int32
	entry              *bool
}

func (f *ownFrame) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&f.name, &f.file, &f.first, &f.lasti, &f.line, &f.entry})
}

// String leaves out the entry, which is compared where the program knows it.
func (f ownFrame) String() string {
	return fmt.Sprintf("%s %s:%d first %d position %d", f.name, f.file, f.line, f.first, f.lasti)
}

type ownThread struct {
	tid    int
	frames []ownFrame
}

func (o *ownThread) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&o.tid, &o.frames})
}

// supported runs a test for each interpreter that can be read: a distribution's
// static one differs from a self-built one of the same version.
func supported(t *testing.T, test func(t *testing.T, python perftest.Interpreter)) {
	t.Helper()
	perftest.Pythons(t) // says what is missing
	for _, python := range perftest.Interpreters() {
		if !slices.Contains(perftest.Supported, python.Minor()) {
			continue
		}
		kind := "static"
		if python.Debug {
			kind = "debug"
		}
		if strings.Contains(python.Path, ".pyenv") {
			kind = "pyenv"
		}
		t.Run(python.Version+" "+kind, func(t *testing.T) { test(t, python) })
	}
}

// The frames read from outside are those that the program sees itself: names,
// files, lines and positions, whatever the threads wait for.
func TestFramesEqualTheProgramsOwn(t *testing.T) {
	supported(t, func(t *testing.T, python perftest.Interpreter) {
		t.Parallel()
		child := perftest.Start(t, python.Path, "testdata/live.py")
		in, err := Find(child.PID, NewCache())
		if err != nil {
			t.Fatal(err)
		}
		if in.Runtime.Version != python.Version {
			t.Errorf("version: got %s, want %s", in.Runtime.Version, python.Version)
		}
		mem, err := proc.OpenMemory(child.PID)
		if err != nil {
			t.Fatal(err)
		}
		defer mem.Close()
		p := OpenProcess(mem, in)
		diff := "the program never answered"
		for end := time.Now().Add(time.Minute); time.Now().Before(end); { // until each thread has come to its wait
			if diff = compareThreads(t, p, in, child); diff == "" {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if diff != "" {
			t.Error(diff)
		}
		t.Log(in.Runtime.Source)
	})
}

// compareThreads asks the program and reads its frames from outside.
func compareThreads(t *testing.T, p *Process, in *Interp, child *perftest.Child) string {
	var threads []ownThread
	child.Say("report")
	if err := json.Unmarshal([]byte(child.Line()), &threads); err != nil {
		t.Fatal(err)
	}
	if len(threads) < 20 {
		return fmt.Sprintf("%d threads", len(threads))
	}
	for _, thread := range threads {
		frames, err := p.Frames(thread.tid, 0, nil)
		if err != nil {
			return fmt.Sprintf("thread %d: %v", thread.tid, err)
		}
		got, err := describe(p, frames)
		if err != nil {
			return fmt.Sprintf("thread %d: %v", thread.tid, err)
		}
		if diff := compareFrames(got, thread.frames, in.Runtime.Offsets.Style); diff != "" {
			return fmt.Sprintf("thread %d: %s", thread.tid, diff)
		}
	}
	return ""
}

func describe(p *Process, frames []Frame) ([]ownFrame, error) {
	var list []ownFrame
	for _, f := range frames {
		c, err := p.ReadCode(f.Code)
		if err != nil {
			return nil, err
		}
		list = append(list, ownFrame{c.Name, c.Filename, c.FirstLine, f.Lasti, c.Lines.Line(f.Lasti), &f.Entry})
	}
	return list, nil
}

func compareFrames(got, want []ownFrame, style Style) string {
	if len(got) != len(want) || len(got) == 0 {
		return fmt.Sprintf("%d frames, want %d:\n%v\n%v", len(got), len(want), got, want)
	}
	for i, w := range want {
		if g := got[i]; g.String() != w.String() {
			return fmt.Sprintf("frame %d: got %v, want %v", i, g, w)
		}
		entry := w.entry
		if style <= StyleLastiUnit || i == len(want)-1 {
			yes := true // a C frame each, before 3.11; nothing calls the outermost
			entry = &yes
		}
		if entry != nil && *got[i].entry != *entry {
			return fmt.Sprintf("frame %d, %v: entry %v, want %v", i, w, *got[i].entry, *entry)
		}
	}
	return ""
}

// What cannot be read is refused by name, in one line.
func TestFindUnsupported(t *testing.T) {
	for _, minor := range []string{"2.7"} {
		t.Run(minor, func(t *testing.T) {
			perftest.Require(t, perftest.Python(minor))
			child := perftest.StartSource(t, perftest.PythonPath(t, minor), "wait",
				"import sys\nprint('ready')\nsys.stdout.flush()\nsys.stdin.readline()\n")
			_, err := Find(child.PID, NewCache())
			var refused *UnsupportedError
			if !errors.As(err, &refused) {
				t.Fatalf("got %v, want an *UnsupportedError", err)
			}
			if !strings.HasPrefix(refused.Version, minor+".") {
				t.Errorf("version: got %q, want %s", refused.Version, minor)
			}
			want := "CPython " + refused.Version + " is not supported: 3.6 to 3.15 are"
			if got := err.Error(); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

func TestFindNoPython(t *testing.T) {
	cache := NewCache()
	if _, err := Find(os.Getpid(), cache); !errors.Is(err, ErrNotPython) {
		t.Errorf("a Go program: got %v, want %v", err, ErrNotPython)
	}
	if _, err := Find(1<<22+1, cache); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no process: got %v, want %v", err, os.ErrNotExist)
	}
	const kthreadd = 2
	if name, err := os.ReadFile("/proc/2/comm"); err == nil && string(name) == "kthreadd\n" {
		if _, err := Find(kthreadd, cache); !errors.Is(err, ErrNotPython) {
			t.Errorf("a kernel thread: got %v, want %v", err, ErrNotPython)
		}
	}
}

// A program that was deleted or replaced while it runs is the mapped one still.
func TestFindDeleted(t *testing.T) {
	perftest.Require(t, perftest.Root)
	supported(t, func(t *testing.T, python perftest.Interpreter) {
		text, err := os.ReadFile(python.Path)
		if err != nil {
			t.Fatal(err)
		}
		copied := filepath.Join(t.TempDir(), "interpreter")
		if err := os.WriteFile(copied, text, 0o700); err != nil {
			t.Fatal(err)
		}
		t.Setenv("PYTHONHOME", filepath.Dir(filepath.Dir(python.Path)))
		child := perftest.StartSource(t, copied, "wait", "import sys\nprint('ready')\nsys.stdin.readline()\n")
		if err := os.Remove(copied); err != nil {
			t.Fatal(err)
		}
		in, err := Find(child.PID, NewCache())
		if err != nil {
			t.Fatal(err)
		}
		if in.Runtime.Version != python.Version {
			t.Errorf("version: got %s, want %s", in.Runtime.Version, python.Version)
		}
	})
}
