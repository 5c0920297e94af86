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

	"pathprof/perfevent/perftest"
	"pathprof/unwind/proc"
)

// blockedFrame is a frame as the interpreter tells it; qualname is empty where it
// does not know.
type blockedFrame struct {
	name, qualname, file string
	line                 int32
}

func (f *blockedFrame) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&f.name, &f.qualname, &f.file, &f.line})
}

type blockedThread struct {
	tid    int
	frames []blockedFrame
}

func (l *blockedThread) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&l.tid, &l.frames})
}

// eachBuild runs a test for all interpreters of supported versions: builds of
// one version differ, too.
func eachBuild(t *testing.T, test func(t *testing.T, i perftest.Interpreter)) {
	perftest.Pythons(t) // none is a reason to skip, or to fail
	for _, i := range perftest.Interpreters() {
		if !slices.Contains(perftest.Supported, i.Minor()) {
			continue
		}
		name := i.Version
		if filepath.Dir(i.Path) == "/usr/bin" {
			name += "-system"
		}
		t.Run(name, func(t *testing.T) { test(t, i) })
	}
}

func openProcess(t *testing.T, pid int) *Process {
	t.Helper()
	in, err := Find(pid, NewCache())
	if err != nil {
		t.Fatal(err)
	}
	mem, err := proc.OpenMemory(pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mem.Close() })
	return OpenProcess(mem, in)
}

// The frames of threads that are blocked are those the interpreter itself tells.
func TestFramesOfBlockedThreads(t *testing.T) {
	eachBuild(t, func(t *testing.T, i perftest.Interpreter) {
		child := perftest.Start(t, i.Path, "testdata/blocked.py")
		var want []blockedThread
		if err := json.Unmarshal([]byte(child.Line()), &want); err != nil {
			t.Fatal(err)
		}
		p := openProcess(t, child.PID)
		if states, err := p.ThreadStates(); err != nil || len(states) != len(want) {
			t.Errorf("got %d thread states, %v, want %d", len(states), err, len(want))
		}
		for _, thread := range want {
			got, err := p.Frames(thread.tid, 0, nil)
			if err != nil {
				t.Errorf("frames of %s: %v", thread.frames[0].name, err)
				continue
			}
			compareBlocked(t, p, got, thread.frames)
			compareEntries(t, p, got, i.Minor())
		}
		if got, err := p.Frames(os.Getpid(), 0, nil); !errors.Is(err, ErrNoThread) {
			t.Errorf("thread of another process: got %v, %v, want ErrNoThread", got, err)
		}
	})
}

func compareBlocked(t *testing.T, p *Process, got []Frame, want []blockedFrame) {
	t.Helper()
	var texts, wants []string
	for n, f := range got {
		code, err := p.ReadCode(f.Code)
		if err != nil {
			t.Errorf("code object of frame %d: %v", n, err)
			continue
		}
		file := filepath.Base(code.Filename)
		texts = append(texts, fmt.Sprintf("%s %s:%d", code.Name, file, code.Lines.Line(f.Lasti)))
		if n < len(want) && want[n].qualname == "" && strings.HasSuffix(code.Name, want[n].name) {
			want[n].qualname = code.Name // nobody else knows it
		}
	}
	for _, f := range want {
		wants = append(wants, fmt.Sprintf("%s %s:%d", f.qualname, filepath.Base(f.file), f.line))
	}
	if !slices.Equal(texts, wants) {
		t.Errorf("got\n  %s\nwant\n  %s", strings.Join(texts, "\n  "), strings.Join(wants, "\n  "))
	}
}

// compareEntries checks the marks of frames that the program's shape tells.
func compareEntries(t *testing.T, p *Process, got []Frame, version string) {
	t.Helper()
	old := version == "3.8" || version == "3.9" || version == "3.10"
	viaContext := version == "3.14" || version == "3.15" // Context.run, which is C, calls Thread.run
	for n, f := range got {
		code, err := p.ReadCode(f.Code)
		if err != nil {
			continue // told already
		}
		want := old || viaContext && strings.HasSuffix(code.Name, ".run")
		switch base := code.Name[strings.LastIndexByte(code.Name, '.')+1:]; base {
		case "_bootstrap", "key", "<module>", "made":
			want = want || base == "_bootstrap" || base == "key" || base == "<module>" // C calls them
		case "récursion", "méthode", "函数", "𐐀", "local", "run", "_bootstrap_inner", "wait", "main":
		default:
			continue
		}
		if f.Entry != want {
			t.Errorf("frame %d, %s: entry is %v", n, code.Name, f.Entry)
		}
	}
}

// A forked child has the numbers of its own thread.
func TestFramesAfterFork(t *testing.T) {
	const source = `
import os, time
def child():
    print("ready", os.getpid(), sep="\n", flush=True)
    time.sleep(1000)
if os.fork() == 0:
    child()
else:
    time.sleep(1000)
`
	eachBuild(t, func(t *testing.T, i perftest.Interpreter) {
		parent := perftest.StartSource(t, i.Path, "forks", source)
		var pid int
		if _, err := fmt.Sscan(parent.Line(), &pid); err != nil {
			t.Fatal(err)
		}
		waitBlocked(t, pid)
		p := openProcess(t, pid)
		got, err := p.Frames(pid, 0, nil)
		if err != nil || len(got) != 2 {
			t.Fatalf("got %d frames, %v, want 2", len(got), err)
		}
		compareBlocked(t, p, got, []blockedFrame{
			{"child", "child", "forks.py", 5}, {"<module>", "<module>", "forks.py", 7},
		})
	})
}

// waitBlocked waits until the first thread of a process sleeps for good: the
// output it made before lets nothing be said of its next instruction.
func waitBlocked(t *testing.T, pid int) {
	t.Helper()
	for same, last := 0, uint64(0); same < 20; {
		st, err := proc.Stat(pid, pid)
		if err != nil {
			t.Fatal(err)
		}
		n, err := proc.Switches(pid, pid)
		if err != nil {
			t.Fatal(err)
		}
		if st.State == 'S' && n == last {
			same++
		} else {
			same = 0
		}
		last = n
	}
}

// Each interpreter is found with the version it says it has, and nothing else is
// taken for one.
func TestFindPlaces(t *testing.T) {
	cache := NewCache()
	eachBuild(t, func(t *testing.T, i perftest.Interpreter) {
		child := perftest.StartSource(t, i.Path, "idle", "print('ready', flush=True)\ninput()\n")
		for range 2 { // the second time from the cache
			in, err := Find(child.PID, cache)
			if err != nil {
				t.Fatal(err)
			}
			if in.Runtime.Version != i.Version {
				t.Errorf("version: got %s, want %s", in.Runtime.Version, i.Version)
			}
			if len(in.BuildID) < 16 || in.RuntimeAddr == 0 || len(in.EvalRanges) == 0 {
				t.Errorf("incomplete: %+v", in)
			}
			maps, err := proc.Maps(child.PID)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range in.EvalRanges {
				if !slices.ContainsFunc(maps, func(m proc.Mapping) bool {
					return m.Exec && m.Path == in.Path && m.Start <= r[0] && r[1] <= m.End
				}) {
					t.Errorf("evaluation function at %#x is in no executable mapping of %s", r, in.Path)
				}
			}
			t.Log(in.Runtime.Version, in.Path, in.Runtime.Source)
		}
	})
}

// Looking at a process that is no Python must cost little: it is done for every
// process of the machine.
func BenchmarkFind(b *testing.B) {
	cache := NewCache()
	for b.Loop() {
		if _, err := Find(os.Getpid(), cache); !errors.Is(err, ErrNotPython) {
			b.Fatal(err)
		}
	}
}
