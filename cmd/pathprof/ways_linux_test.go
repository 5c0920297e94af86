// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pathprof/perfevent/perftest"
	"pathprof/perfevent/recording"
)

// way is a way in which testdata/ways.py is run.
type way struct {
	name string
	// under is the command that runs the interpreter, which it gets as arguments.
	under []string
	// begins says of each chain, by its letter, which of the program's functions
	// may call its first one; none: it is the outermost. Functions of other files
	// may stand between where "…" is one.
	begins map[byte]string
	procs  int // processes that run chains
	says   int // that say when they are done
}

// under a mount and pid namespace of its own, with the interpreter where only
// that namespace has it.
var elsewhere = []string{"unshare", "-pfm", "--mount-proc", "--kill-child", "sh", "-c",
	`at=$1; shift; mount --bind "$at" /mnt && LD_LIBRARY_PATH=/mnt/lib exec /mnt/bin/"$@"`, "sh"}

var ways = []way{
	{name: "spawn", procs: 2, says: 2, begins: map[byte]string{'w': "work", 'v': "work"}},
	{name: "execs", procs: 1, says: 1, begins: map[byte]string{'w': "execs", 'x': "executed"}},
	{name: "fork", procs: 2, says: 2, begins: map[byte]string{'w': "work", 'v': "work"}},
	{name: "plain", under: elsewhere, procs: 1, says: 1, begins: map[byte]string{'w': "work", 'v': "work"}},
	{name: "prefork", procs: 2, says: 1, begins: map[byte]string{'w': "handle", 'v': "handle"}},
	{name: "generators", procs: 1, says: 1, begins: map[byte]string{'w': "g2", 'v': "generators", 'g': "generators"}},
	{name: "coroutines", procs: 1, says: 1, begins: map[byte]string{
		'w': "t2 u2", 'v': "t2 u0", 't': "coroutines everything …", 'u': "coroutines everything …",
	}},
	{name: "interpreters", procs: 1, says: 1, begins: map[byte]string{
		'w': "uses work", 'v': "work", 's': "<module>",
	}},
}

// greenlets switch between stacks of their own.
var greenlets = way{name: "greenlets", procs: 1, says: 1, begins: map[byte]string{'w': "a1 b2", 'v': "greenlets", 'a': "", 'b': ""}}

// startWay starts a way's program, and returns the processes to record; those to
// come are theirs.
func startWay(t *testing.T, w *way, python string) (child *perftest.Child, pids []string) {
	t.Helper()
	script, err := filepath.Abs("testdata/ways.py")
	if err != nil {
		t.Fatal(err)
	}
	command := []string{python, script, w.name, otherPython(t, python)}
	if w.under != nil {
		perftest.Require(t, perftest.Root, perftest.Tool("unshare"))
		prefix := filepath.Dir(filepath.Dir(python))
		command = slices.Concat(w.under, []string{prefix, filepath.Base(python)}, command[1:])
	}
	child = perftest.Start(t, command[0], command[1:]...)
	for _, pid := range family(t, child.PID) {
		if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err == nil && strings.Contains(filepath.Base(exe), "python") {
			pids = append(pids, "-p", strconv.Itoa(pid))
		}
	}
	return child, pids
}

// otherPython is an interpreter of another version.
func otherPython(t *testing.T, python string) string {
	t.Helper()
	for _, minor := range []string{"3.13", "3.11", "3.12", "3.14"} {
		for _, in := range perftest.Interpreters() {
			if in.Minor() == minor && !in.Debug && !strings.Contains(python, minor) {
				return in.Path
			}
		}
	}
	return python
}

// family is a process and those that descend from it.
func family(t *testing.T, pid int) []int {
	t.Helper()
	list := []int{pid}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range strings.Fields(string(text)) {
		child, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, family(t, child)...)
	}
	return list
}

// waySample is a sample of the program, outermost function first; cut says why its
// Python part is not complete.
type waySample struct {
	names []string
	own   []bool // the program's own function
	chain byte   // letter of the outermost chain, 0 for none
	cut   recording.StopReason
}

// waySamples returns the samples of a recording, in order, by process.
func waySamples(t *testing.T, dir string) (list map[int32][]waySample) {
	t.Helper()
	r, err := recording.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	frames, err1 := r.Frames()
	stacks, err2 := r.Stacks()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	list = map[int32][]waySample{}
	for s, err := range r.Samples() {
		if err != nil {
			t.Fatal(err)
		}
		m := waySample{}
		if st := &stacks[s.Stack]; st.PythonStop != recording.StopComplete {
			m.cut = st.PythonStop
		} else {
			for _, id := range slices.Backward(st.Python) {
				m.add(&frames[id])
			}
		}
		list[s.PID] = append(list[s.PID], m)
	}
	return list
}

// add takes the next frame, whose name need not be qualified.
func (m *waySample) add(f *recording.Frame) {
	name := f.Name[strings.LastIndexByte(f.Name, '.')+1:]
	if f.File == "" {
		name = unread
	}
	own := filepath.Base(f.File) == "ways.py" || strings.HasPrefix(f.File, "<") && !strings.HasPrefix(f.File, "<frozen")
	if own && m.chain == 0 && isChain(name) {
		m.chain = name[0]
	}
	m.names, m.own = append(m.names, name), append(m.own, own)
}

// unread stands for a function that was gone before it was read, as the text that
// a sub-interpreter runs once.
const unread = "[unread]"

func isChain(name string) bool {
	return len(name) == 2 && name[0] >= 'a' && name[0] <= 'z' && name[1] >= '0' && name[1] <= '9'
}

// wrong says what is wrong with a complete stack.
func (w *way) wrong(m *waySample) string {
	inside := false
	for i, name := range m.names {
		switch {
		case !m.own[i] || !isChain(name):
			if inside && m.own[i] && name[0] != '<' && name != "more" {
				return name + " within a chain"
			}
			continue
		case name[1] > '0':
			if before := string([]byte{name[0], name[1] - 1}); i == 0 || m.names[i-1] != before {
				return name + " not called by " + before
			}
		case !w.mayBegin(m, i):
			return name + " begins where it cannot"
		}
		inside = true
	}
	return ""
}

// mayBegin tells whether a chain may begin with frame i.
func (w *way) mayBegin(m *waySample, i int) bool {
	callers, ok := w.begins[m.names[i][0]]
	words := strings.Fields(callers)
	switch {
	case !ok:
		return false
	case i == 0:
		return len(words) == 0
	case m.names[i-1] == unread:
		return slices.Contains(words, "<module>")
	case m.own[i-1]:
		return slices.Contains(words, m.names[i-1])
	case !slices.Contains(words, "…"):
		return false
	}
	outer := i - 1
	for outer >= 0 && !m.own[outer] {
		outer--
	}
	return outer >= 0 && slices.Contains(words, m.names[outer])
}

// wayTally is what the samples of a way show.
type wayTally struct {
	processes    int // that ran a chain
	whole, short int // samples in chains, and those between them that are not complete
	chains       map[byte]bool
	cut          map[recording.StopReason]int
}

// add counts the samples of a process from where it is first seen in a chain to
// where it is last: outside it may have no interpreter yet.
func (c *wayTally) add(list []waySample) {
	first, last := map[byte]int{}, map[byte]int{}
	for i := range list {
		if chain := list[i].chain; chain != 0 {
			if _, ok := first[chain]; !ok {
				first[chain] = i
			}
			last[chain] = i
			c.whole++
			c.chains[chain] = true
		}
	}
	if len(first) > 0 {
		c.processes++
	}
	for i := range list {
		for chain := range first {
			if list[i].cut != 0 && i > first[chain] && i < last[chain] {
				c.cut[list[i].cut]++
				c.short++
				break
			}
		}
	}
}

// check demands that every complete stack is legal, and that at most one in a
// hundred is not complete.
func (w *way) check(t *testing.T, processes [][]waySample) {
	t.Helper()
	c := wayTally{chains: map[byte]bool{}, cut: map[recording.StopReason]int{}}
	for _, list := range processes {
		for i := range list {
			if why := w.wrong(&list[i]); why != "" {
				t.Errorf("%s: %s", why, strings.Join(list[i].names, ";"))
			}
		}
		c.add(list)
	}
	t.Logf("%d stacks in chains of %d processes, %d not complete %v", c.whole, c.processes, c.short, c.cut)
	if c.processes != w.procs || c.whole < 100 || c.short*100 > c.whole+c.short {
		t.Errorf("%d stacks in chains of %d processes, want %d processes; %d not complete: %v", c.whole, c.processes, w.procs, c.short, c.cut)
	}
	for chain := range w.begins {
		if !c.chains[chain] && !w.inner(chain) {
			t.Errorf("chain %c was never seen", chain)
		}
	}
}

// inner tells whether a chain begins within other chains only.
func (w *way) inner(chain byte) bool {
	for _, caller := range strings.Fields(w.begins[chain]) {
		if !isChain(caller) {
			return false
		}
	}
	return w.begins[chain] != ""
}

// checkWays records all ways in one recording.
func checkWays(t *testing.T, python string, ways []way) {
	t.Helper()
	var children []*perftest.Child
	args := []string{"--children", "--scope", "process", "--period", "250us"}
	for i := range ways {
		child, pids := startWay(t, &ways[i], python)
		children, args = append(children, child), append(args, pids...)
	}
	cmd, dir := startRecorder(t, args...)
	for i, c := range children { // one after another: so many programs need all CPUs
		c.Say("go")
		for range ways[i].says {
			c.Line()
		}
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	samples := waySamples(t, dir)
	for i := range ways {
		t.Run(ways[i].name, func(t *testing.T) {
			var processes [][]waySample
			for _, pid := range family(t, children[i].PID) {
				processes = append(processes, samples[int32(pid)])
			}
			ways[i].check(t, processes)
		})
	}
}

// However Python is run, complete stacks are legal ones, and nearly all are
// complete.
func TestWays(t *testing.T) {
	needRecorder(t)
	minors := []string{"3.11", "3.14"}
	if os.Getenv("PATHPROF_FULL") == "1" {
		minors = versions
	}
	for _, minor := range minors {
		list := ways
		if minor == "3.6" || minor == "3.7" { // have no module for sub-interpreters
			list = slices.DeleteFunc(slices.Clone(ways), func(w way) bool { return w.name == "interpreters" })
		}
		t.Run(minor, func(t *testing.T) { checkWays(t, perftest.PythonPath(t, minor), list) })
	}
}

// So it is with stacks that a program switches itself.
func TestGreenlets(t *testing.T) {
	needRecorder(t)
	checkWays(t, perftest.PythonWith(t, "greenlet"), []way{greenlets})
}
