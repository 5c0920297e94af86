// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"io"
	"os"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"pathprof/perfevent"
	"pathprof/perfevent/perftest"
	"pathprof/perfevent/recording"
	"pathprof/pyframes"
	"pathprof/unwind"
	"pathprof/unwind/proc"
)

// steppedSource does a bit of everything: Python calling C calling Python,
// generators, exceptions, strings, recursion into a second chunk of frames.
const steppedSource = `
import functools, json, re, sys
def gen(n):
    for i in range(n):
        yield i
class Key:
    def __init__(self, k): self.k = k
    def __lt__(self, other): return self.k < other.k
def deep(n):
    return sum(gen(1000)) if n == 0 else deep(n - 1) + 1  # long enough to be met by chance
def work(i):
    try:
        sorted([Key(3), Key(i), Key(2)])
        re.sub("[a-c]+", lambda m: m.group(0) * 2, "xxabcyyab")
        json.loads(json.dumps({"a": [1, 2, {"b": i}]}))
        functools.reduce(lambda a, b: a + b, gen(10))
        deep(150 if i % 2 == 0 else 5)
        raise ValueError(i)
    except ValueError:
        pass
print("ready", flush=True)
i = 0
while True:
    work(i)
    i += 1
`

// Both walks are compared at runs of consecutive instructions, at moments of
// chance.
const (
	stepRuns = 60
	stepRun  = 40
)

// The walks in the kernel are those in Go: the same frames, positions and ends at
// thousands of instructions of a stopped program. The program stops at each
// instruction, and a stop is a switch: so the kernel takes its stack there, and
// ptrace shows the very same registers and memory to the Go walks.
func TestWalksEqualGo(t *testing.T) {
	perftest.Require(t, perftest.Root, perftest.BPF)
	for version, python := range perftest.Pythons(t) {
		t.Run(version, func(t *testing.T) {
			child := perftest.StartSource(t, python, "stepped", steppedSource)
			c := openFor(t, child.PID)
			tr := attachTracee(t, child.PID)
			for range stepRuns {
				if !tr.interrupt() {
					t.Fatal("the program ended")
				}
				tr.compare(t, c)
				for range stepRun {
					if !tr.step() {
						t.Fatal("the program ended")
					}
					tr.compare(t, c)
				}
				if t.Failed() {
					return
				}
			}
			t.Logf("%d positions, %d on the way into a function", tr.positions, tr.entered)
			if tr.positions < 1000 || tr.deepest < 100 || tr.whole < tr.positions*99/100 {
				t.Errorf("%d positions, at most %d frames deep, %d native stacks whole", tr.positions, tr.deepest, tr.whole)
			}
		})
	}
}

// walked is what the Go walks found at a stop.
type walked struct {
	native []uint64
	stop   unwind.StopReason
	python []pyframes.Frame
	err    error
}

// tracee is a stopped program.
type tracee struct {
	pid    int
	mem    *proc.Memory
	python *pyframes.Process
	in     *pyframes.Interp
	// resumed is when it went on last; its stack is newer than that.
	resumed int64

	// before are the frames where the program was last, if that was known.
	before []pyframes.Frame

	positions, deepest, whole, entered int
}

func attachTracee(t *testing.T, pid int) *tracee {
	t.Helper()
	runtime.LockOSThread() // ptrace knows threads
	t.Cleanup(runtime.UnlockOSThread)
	if err := syscall.PtraceAttach(pid); err != nil {
		t.Skip("needs ptrace: ", err)
	}
	tr := &tracee{pid: pid}
	tr.wait()
	var err error
	if tr.mem, err = proc.OpenMemory(pid); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tr.mem.Close() })
	if tr.in, err = pyframes.Find(pid, pyframes.NewCache()); err != nil {
		t.Fatal(err)
	}
	tr.python = pyframes.OpenProcess(tr.mem, tr.in)
	return tr
}

func (tr *tracee) wait() bool {
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(tr.pid, &status, 0, nil)
		if !errors.Is(err, syscall.EINTR) {
			return err == nil && status.Stopped()
		}
	}
}

// interrupt lets the program run for a moment and stops it.
func (tr *tracee) interrupt() bool {
	tr.resumed, tr.before = perfevent.MonotonicNow(), nil
	if syscall.PtraceCont(tr.pid, 0) != nil {
		return false
	}
	time.Sleep(time.Duration(500+tr.positions%7*300) * time.Microsecond)
	if syscall.Kill(tr.pid, syscall.SIGSTOP) != nil {
		return false
	}
	return tr.wait()
}

func (tr *tracee) step() bool {
	tr.resumed = perfevent.MonotonicNow()
	return syscall.PtraceSingleStep(tr.pid) == nil && tr.wait()
}

// expect walks in Go.
func (tr *tracee) expect(t *testing.T, c *testCapture) (w walked) {
	t.Helper()
	var r syscall.PtraceRegs
	if err := syscall.PtraceGetRegs(tr.pid, &r); err != nil {
		t.Fatal(err)
	}
	regs := unwind.Regs{PC: r.Rip, SP: r.Rsp, FP: r.Rbp, Known: 1<<16 - 1}
	copy(regs.Other[:], []uint64{r.Rax, r.Rdx, r.Rcx, r.Rbx, r.Rsi, r.Rdi, r.Rbp, r.Rsp, r.R8, r.R9, r.R10, r.R11, r.R12, r.R13, r.R14, r.R15})
	frames, stop := unwind.Walk(regs, blocks{tr.mem, map[int64][]byte{}}, c.find, nil)
	for _, f := range frames {
		pc := f.PC
		if f.Exact {
			pc |= NativeExact
		}
		w.native = append(w.native, pc)
	}
	w.stop = stop
	w.python, w.err = tr.python.Frames(tr.pid, r.Fs_base, nil)
	return w
}

// blocks reads the memory of a stopped program a page at a time.
type blocks struct {
	mem  io.ReaderAt
	page map[int64][]byte
}

func (b blocks) ReadAt(p []byte, off int64) (int, error) {
	const size = 4096
	at := off &^ (size - 1)
	if off-at+int64(len(p)) > size {
		return b.mem.ReadAt(p, off)
	}
	page, ok := b.page[at]
	if !ok {
		page = make([]byte, size)
		if n, _ := b.mem.ReadAt(page, at); n < size {
			page = nil
		}
		b.page[at] = page
	}
	if page == nil {
		return 0, os.ErrNotExist
	}
	return copy(p, page[off-at:]), nil
}

var stopOf = map[unwind.StopReason]recording.StopReason{
	unwind.StopComplete: recording.StopComplete, unwind.StopDepth: recording.StopDepth,
	unwind.StopFault: recording.StopFault, unwind.StopBadFrame: recording.StopBadFrame,
	unwind.StopNoRule: recording.StopNoRule, unwind.StopUnsupported: recording.StopUnsupported,
	unwind.StopNoFramePtr: recording.StopNoFramePtr,
}

// compare walks both ways where the program has stopped, and says what differs.
// When ptrace shows the registers, the switch is over.
func (tr *tracee) compare(t *testing.T, c *testCapture) {
	t.Helper()
	want := tr.expect(t, c)
	got := c.lastStack(t, tr.resumed)
	tr.positions++
	tr.deepest = max(tr.deepest, len(want.python))
	if want.stop == unwind.StopComplete || want.stop == unwind.StopDepth {
		tr.whole++
	}
	if !slices.Equal(got.Native, want.native) || got.NativeStop != stopOf[want.stop] {
		t.Errorf("position %d: native: got %#x, %v\nwant %#x, %v", tr.positions, got.Native, got.NativeStop, want.native, want.stop)
	}
	python := tr.shown(got.Python)
	// 3.11 and 3.12 link their C frame before they have filled it in
	// (_PyEval_EvalFrameDefault). The Go walk has no stack pointers to know better
	// than what is there; the kernel's must find what ran before.
	if tr.inPrologue(want.native[0]&^NativeExact) && (want.err != nil || !slices.Equal(python, want.python)) {
		if tr.before != nil && !slices.Equal(python, tr.before) {
			t.Errorf("position %d: on the way into a function: got %v, want %v", tr.positions, python, tr.before)
		}
		tr.entered++
		return
	}
	tr.before = want.python
	if (want.err != nil) != (got.PythonStop == recording.StopFault) || !slices.Equal(python, want.python) {
		t.Errorf("position %d: python: got %v, %v\nwant %v, %v", tr.positions, python, got.PythonStop, want.python, want.err)
	}
}

// inPrologue tells the first instructions of the evaluation function's main part.
func (tr *tracee) inPrologue(pc uint64) bool {
	return tr.in.Runtime.Offsets.CFrameCurrent != pyframes.NoField &&
		slices.ContainsFunc(tr.in.EvalRanges, func(r [2]uint64) bool { return r[0] <= pc && pc < r[0]+512 && r[1]-r[0] > 4096 })
}

// shown leaves out frames that have not begun, as the Go walk does.
func (tr *tracee) shown(frames []pyframes.Frame) (list []pyframes.Frame) {
	o := &tr.in.Runtime.Offsets
	for _, f := range frames {
		if o.CodeFirstTraceable != pyframes.NoField {
			var b [4]byte
			if _, err := tr.mem.ReadAt(b[:], int64(f.Code.Addr)+int64(o.CodeFirstTraceable)); err != nil {
				continue
			}
			if first := int32(b[0]) | int32(b[1])<<8 | int32(b[2])<<16 | int32(b[3])<<24; f.Lasti < 2*first {
				continue
			}
		}
		list = append(list, f)
	}
	return list
}

// lastStack is the one that the program's stop has left since a time.
func (c *testCapture) lastStack(t *testing.T, since int64) (s Stack) {
	t.Helper()
	var rec Record
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		found := false
		if err := c.Poll(&rec, func(r *Record) error {
			ev := &r.Event
			if !r.Sample && r.HasStack && ev.Task.TID == c.pid && ev.State == stateTraced && ev.Time > since {
				found = true
				s = r.Stack
				s.Native, s.Python = slices.Clone(s.Native), slices.Clone(s.Python)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if found {
			return s
		}
	}
	t.Fatal("no stack of a stopped program")
	return s
}

// stateTraced is TASK_TRACED as sched_switch prints it.
const stateTraced = 8
