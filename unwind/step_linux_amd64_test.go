// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"pathprof/perfevent/perftest"
)

// tracee is a program that runs one instruction at a time under a shadow stack:
// every call puts its return address on it, and a stack pointer above that
// takes it off. What a walk finds must be the shadow stack at every instruction,
// also in the middle of prologues, of the dynamic linker and of the PLT.
type tracee struct {
	t      testing.TB
	pid    int
	mem    *os.File
	code   *space
	regs   syscall.PtraceRegs
	shadow []shadowCall
}

type shadowCall struct{ sp, ra uint64 }

// pages reads the memory of a stopped program page by page: the walks of one
// step read the same page many times.
type pages struct {
	mem  io.ReaderAt
	page map[int64][]byte
}

func (p *pages) ReadAt(b []byte, off int64) (int, error) {
	const size = 4096
	if off%size+int64(len(b)) > size {
		return p.mem.ReadAt(b, off)
	}
	at := off - off%size
	page, ok := p.page[at]
	if !ok {
		page = make([]byte, size)
		if n, _ := p.mem.ReadAt(page, at); n != size {
			page = nil
		}
		p.page[at] = page
	}
	if page == nil {
		return 0, io.EOF
	}
	return copy(b, page[off-at:]), nil
}

// startTracee runs a program up to its first instruction. The test stays on its
// thread from then on, as ptrace demands.
func startTracee(t testing.TB, argv ...string) *tracee {
	t.Helper()
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	p, err := os.StartProcess(argv[0], argv, &os.ProcAttr{
		Files: []*os.File{null, null, null},
		Sys:   &syscall.SysProcAttr{Ptrace: true},
	})
	if err != nil {
		t.Skip("needs ptrace: ", err)
	}
	tr := &tracee{t: t, pid: p.Pid}
	t.Cleanup(func() {
		p.Kill()
		var status syscall.WaitStatus
		syscall.Wait4(tr.pid, &status, 0, nil)
	})
	tr.wait()
	tr.mem = open(t, fmt.Sprintf("/proc/%d/mem", tr.pid))
	tr.readMaps()
	return tr
}

// wait returns the signal that stopped the program, -1 at its end.
func (tr *tracee) wait() syscall.Signal {
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(tr.pid, &status, 0, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			tr.t.Fatal(err)
		}
		break
	}
	if !status.Stopped() {
		return -1
	}
	if err := syscall.PtraceGetRegs(tr.pid, &tr.regs); err != nil {
		tr.t.Fatal(err)
	}
	return status.StopSignal()
}

// runToStop lets the program run until it stops itself.
func (tr *tracee) runToStop() {
	for sig := syscall.Signal(0); sig != syscall.SIGSTOP; {
		if err := syscall.PtraceCont(tr.pid, 0); err != nil {
			tr.t.Fatal(err)
		}
		if sig = tr.wait(); sig == -1 {
			tr.t.Skip("needs hashlib, json, re and zlib")
		}
	}
	tr.readMaps()
}

func (tr *tracee) readMaps() {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", tr.pid))
	if err != nil {
		tr.t.Fatal(err)
	}
	var old map[string]*module
	if tr.code != nil {
		old = tr.code.modules
	}
	tr.code = newSpace(tr.t, string(maps))
	tr.code.vdso = tr.mem
	if old != nil {
		tr.code.modules = old
	}
}

// step runs an instruction and keeps the shadow stack. It returns false at the
// program's end.
func (tr *tracee) step() bool {
	before := tr.regs
	if err := syscall.PtraceSingleStep(tr.pid); err != nil {
		tr.t.Fatal(err)
	}
	switch sig := tr.wait(); sig {
	case -1:
		return false
	case syscall.SIGTRAP:
	default:
		tr.t.Fatalf("unexpected signal %v at %#x", sig, tr.regs.Rip)
	}
	sp := tr.regs.Rsp
	for n := len(tr.shadow); n > 0 && tr.shadow[n-1].sp < sp; n-- {
		tr.shadow = tr.shadow[:n-1]
	}
	if sp == before.Rsp-8 && tr.regs.Rip-before.Rip > 15 {
		ra, ok := (&walker{mem: tr.mem}).read(sp)
		if ok && ra-before.Rip <= 15 && ra != before.Rip {
			tr.shadow = append(tr.shadow, shadowCall{sp, ra})
		}
	}
	return true
}

// walk walks the stack of the present instruction.
func (tr *tracee) walk(dst []Frame) ([]Frame, StopReason) {
	r := &tr.regs
	regs := Regs{PC: r.Rip, SP: r.Rsp, FP: r.Rbp, Known: 1<<16 - 1}
	copy(regs.Other[:], []uint64{r.Rax, r.Rdx, r.Rcx, r.Rbx, r.Rsi, r.Rdi, r.Rbp, r.Rsp, r.R8, r.R9, r.R10, r.R11, r.R12, r.R13, r.R14, r.R15})
	return Walk(regs, &pages{tr.mem, make(map[int64][]byte)}, tr.code.find, dst)
}

// want is the stack as it must be, innermost first.
func (tr *tracee) want(dst []uint64) []uint64 {
	dst = append(dst, tr.regs.Rip)
	for _, c := range slices.Backward(tr.shadow) {
		dst = append(dst, c.ra)
	}
	return dst
}

// stepTally counts how walks compare with the shadow stack.
type stepTally struct {
	steps, complete int
	short           map[string]int // stop reason and function: correct but not whole
	wrong           map[string]int
}

// compare walks at each of many steps.
func (tr *tracee) compare(steps int, deadline time.Time) stepTally {
	tally := stepTally{short: make(map[string]int), wrong: make(map[string]int)}
	var frames []Frame
	var want []uint64
	for tally.steps < steps && time.Now().Before(deadline) && tr.step() {
		tally.steps++
		if _, _, ok := tr.code.at(tr.regs.Rip); !ok {
			tr.readMaps()
		}
		var stop StopReason
		frames, stop = tr.walk(frames[:0])
		want = tr.want(want[:0])
		same := 0
		for same < len(frames) && same < len(want) && frames[same].PC == want[same] {
			same++
		}
		switch last := tr.code.name(frames[max(same-1, 0)].PC - 1); {
		case same == len(want) && same == len(frames) && stop == StopComplete:
			tally.complete++
		case same == len(frames) && stop != StopComplete:
			tally.short[stop.String()+" in "+last]++
		default:
			key := fmt.Sprintf("%v behind %s (%d of %d)", stop, last, len(frames), len(want))
			if tally.wrong[key]++; tally.wrong[key] == 1 && len(tally.wrong) < 10 {
				tr.t.Errorf("at %#x in %s, after %d right frames: %v\n got %s\nwant %s", tr.regs.Rip,
					tr.code.name(tr.regs.Rip), same, stop, tr.names(pcsOf(frames)), tr.names(want))
			}
		}
	}
	return tally
}

func pcsOf(frames []Frame) (pcs []uint64) {
	for _, f := range frames {
		pcs = append(pcs, f.PC)
	}
	return pcs
}

func (tr *tracee) names(pcs []uint64) string {
	var b strings.Builder
	for i, pc := range pcs {
		fmt.Fprintf(&b, " %s(%x)", tr.code.name(pc-uint64(min(i, 1))), pc)
	}
	return b.String()
}

func (s stepTally) check(t *testing.T, minComplete float64) {
	t.Helper()
	t.Logf("%d steps, %d complete, short: %v", s.steps, s.complete, s.short)
	if len(s.wrong) > 0 {
		t.Errorf("wrong stacks: %v", s.wrong)
	}
	if share := float64(s.complete) / float64(max(s.steps, 1)); share < minComplete {
		t.Errorf("complete: got %.4f, want at least %.4f", share, minComplete)
	}
}

// Every instruction of a small program, from the first one of the dynamic
// linker on.
func TestWalkAtEveryInstruction(t *testing.T) {
	for _, tt := range []struct {
		name     string
		flags    []string
		complete float64
	}{
		// Calls through the resolver of the dynamic linker, whose frame depends on
		// a register that is not followed, end early.
		{"lazy", []string{"-Wl,-z,lazy"}, 0.9},
		{"static", []string{"-static"}, 0.99},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tr := startTracee(t, buildWalkProgram(t, tt.flags...), "step")
			tr.compare(1_000_000, time.Now().Add(10*time.Second)).check(t, tt.complete)
		})
	}
}

// stepScript stops itself in the middle of work that goes through many parts of
// the interpreter and of C extensions.
const stepScript = `
import os, signal, json, re, hashlib, zlib
class C:
    def __init__(self, n): self.n = n
    @property
    def twice(self): return self.n * 2
def gen(n):
    for i in range(n):
        yield C(i).twice
def work():
    text = json.dumps({"a": list(gen(5)), "b": [1.5, None, "x" * 10]}, sort_keys=True)
    json.loads(text)
    re.sub(r"(\d+)", lambda m: str(int(m.group(1)) + 1), text)
    hashlib.sha256(text.encode() * 50).hexdigest()
    zlib.compress(text.encode())
    try:
        sorted([C(3), C(1)], key=lambda c: c.n)[2]
    except IndexError:
        pass
work()
os.kill(os.getpid(), signal.SIGSTOP)
work()
`

// Python interpreters, from some point on: the frames outside that point are
// the same in every walk, those inside it equal the shadow stack.
func TestWalkInPython(t *testing.T) {
	for _, python := range perftest.Interpreters() {
		if !slices.Contains(perftest.Supported, python.Minor()) {
			continue
		}
		t.Run(python.Version+" "+strconv.Itoa(len(python.Path)), func(t *testing.T) {
			head := make([]byte, 4)
			if _, err := io.ReadFull(open(t, python.Path), head); err != nil || !bytes.Equal(head, []byte("\x7fELF")) {
				t.Skip("needs an ELF file")
			}
			tr := startTracee(t, python.Path, "-S", "-c", stepScript)
			tr.runToStop()
			frames, stop := tr.walk(nil)
			if stop != StopComplete {
				t.Fatalf("first walk: %v, %s", stop, tr.names(pcsOf(frames)))
			}
			tr.anchor(frames)
			tr.compare(20_000, time.Now().Add(3*time.Second)).check(t, 0.999)
		})
	}
}

// anchor makes the shadow stack of a first walk, whose frames are returned to.
// The slot of a return address lies right below the caller's stack pointer.
func (tr *tracee) anchor(frames []Frame) {
	tr.shadow = tr.shadow[:0]
	for i := len(frames) - 1; i > 0; i-- {
		tr.shadow = append(tr.shadow, shadowCall{frames[i].SP - 8, frames[i].PC})
	}
}

// gdb is the second opinion on the anchor of [TestWalkInPython]: a stopped
// interpreter has the stack gdb shows.
func TestWalkAgreesWithGDB(t *testing.T) {
	perftest.Require(t, perftest.Tool("gdb"))
	tr := startTracee(t, perftest.PythonPath(t, "3.11"), "-S", "-c", stepScript)
	tr.runToStop()
	frames, stop := tr.walk(nil)
	if stop != StopComplete {
		t.Fatal(stop)
	}
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PTRACE, syscall.PTRACE_DETACH, uintptr(tr.pid), 0, uintptr(syscall.SIGSTOP), 0, 0); errno != 0 {
		t.Fatal(errno)
	}
	out, err := exec.Command("gdb", "-nx", "-batch", "-ex", "bt", "-p", strconv.Itoa(tr.pid)).Output()
	if err != nil {
		t.Skip("gdb does not attach: ", err)
	}
	// Lines without an address are inlined functions.
	var want, got []string
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) > 1 && strings.HasPrefix(f[0], "#") && strings.HasPrefix(f[1], "0x") {
			want = append(want, strings.TrimLeft(f[1], "0x"))
		}
	}
	for _, f := range frames {
		got = append(got, strconv.FormatUint(f.PC, 16))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v\n%s", got, want, tr.names(pcsOf(frames)))
	}
}
