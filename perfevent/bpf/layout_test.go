// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"unsafe"

	"pathprof/join/sched"
	"pathprof/perfevent/recording"
	"pathprof/pyframes"
	"pathprof/unwind"
)

// The decoder reads by offset what the C structs lay out.
func TestEventLayout(t *testing.T) {
	var e pathprofEvent
	var h pathprofStackHead
	var f pathprofPyFrame
	var file pathprofFileEvent
	for _, c := range []struct {
		name      string
		got, want uintptr
	}{
		{"sizeof event", unsafe.Sizeof(e), eventSize},
		{"event.value", unsafe.Offsetof(e.Value), 8},
		{"event.extra", unsafe.Offsetof(e.Extra), 16},
		{"event.holder", unsafe.Offsetof(e.Holder), 64},
		{"event.kind", unsafe.Offsetof(e.Kind), 24},
		{"event.context", unsafe.Offsetof(e.Context), 28},
		{"event.flags", unsafe.Offsetof(e.Flags), 32},
		{"event.vector", unsafe.Offsetof(e.Vector), 36},
		{"event.pid", unsafe.Offsetof(e.Pid), 40},
		{"event.tid", unsafe.Offsetof(e.Tid), 44},
		{"event.other_pid", unsafe.Offsetof(e.OtherPid), 48},
		{"event.other_tid", unsafe.Offsetof(e.OtherTid), 52},
		{"event.state", unsafe.Offsetof(e.State), 56},
		{"event.status", unsafe.Offsetof(e.Status), 60},
		{"sizeof file_event", unsafe.Sizeof(file), fileSize},
		{"file_event.family", unsafe.Offsetof(file.Family), 72},
		{"file_event.protocol", unsafe.Offsetof(file.Protocol), 74},
		{"file_event.local_port", unsafe.Offsetof(file.LocalPort), 76},
		{"file_event.peer_port", unsafe.Offsetof(file.PeerPort), 78},
		{"file_event.local", unsafe.Offsetof(file.Local), 80},
		{"file_event.peer", unsafe.Offsetof(file.Peer), 96},
		{"file_event.socket_state", unsafe.Offsetof(file.SocketState), 112},
		{"sizeof stack_head", unsafe.Sizeof(h), headSize},
		{"stack_head.native", unsafe.Offsetof(h.Native), 2},
		{"stack_head.python", unsafe.Offsetof(h.Python), 4},
		{"stack_head.kernel_stop", unsafe.Offsetof(h.KernelStop), 6},
		{"stack_head.native_stop", unsafe.Offsetof(h.NativeStop), 7},
		{"stack_head.python_stop", unsafe.Offsetof(h.PythonStop), 8},
		{"sizeof py_frame", unsafe.Sizeof(f), pyFrameSize},
		{"py_frame.line_table", unsafe.Offsetof(f.LineTable), 8},
		{"py_frame.first_line", unsafe.Offsetof(f.FirstLine), 16},
		{"py_frame.lasti", unsafe.Offsetof(f.Lasti), 20},
	} {
		if c.got != c.want {
			t.Errorf("%s: C has %d, Go %d", c.name, c.got, c.want)
		}
	}
}

// The words of both sides mean the same.
func TestEnums(t *testing.T) {
	for c, want := range map[pathprofContext]sched.Context{
		pathprofContextCONTEXT_UNKNOWN: sched.ContextUnknown,
		pathprofContextCONTEXT_TASK:    sched.ContextTask,
		pathprofContextCONTEXT_HARDIRQ: sched.ContextHardirq,
		pathprofContextCONTEXT_SOFTIRQ: sched.ContextSoftirq,
		pathprofContextCONTEXT_HRTIMER: sched.ContextHrtimer,
		pathprofContextCONTEXT_TIMER:   sched.ContextTimer,
		pathprofContextCONTEXT_IPI:     sched.ContextIPI,
		pathprofContextCONTEXT_NMI:     sched.ContextNMI,
		pathprofContextCONTEXT_IDLE:    sched.ContextIdle,
	} {
		if sched.Context(c) != want {
			t.Errorf("context: C has %d, Go %d", c, want)
		}
	}
	for c, want := range map[pathprofStop]recording.StopReason{
		pathprofStopSTOP_NONE:         recording.StopNone,
		pathprofStopSTOP_COMPLETE:     recording.StopComplete,
		pathprofStopSTOP_DEPTH:        recording.StopDepth,
		pathprofStopSTOP_FAULT:        recording.StopFault,
		pathprofStopSTOP_BAD_FRAME:    recording.StopBadFrame,
		pathprofStopSTOP_NO_INTERP:    recording.StopNoInterp,
		pathprofStopSTOP_NO_THREAD:    recording.StopNoThread,
		pathprofStopSTOP_NO_FRAME_PTR: recording.StopNoFramePtr,
		pathprofStopSTOP_THINNED:      recording.StopThinned,
		pathprofStopSTOP_UNSUPPORTED:  recording.StopUnsupported,
		pathprofStopSTOP_NO_RULE:      recording.StopNoRule,
		pathprofStopSTOP_NO_TABLE:     recording.StopNoTable,
	} {
		if recording.StopReason(c) != want {
			t.Errorf("stop reason: C has %d, Go %d", c, want)
		}
	}
	for c, want := range map[pathprofStatus]recording.GIL{
		pathprofStatusSTATUS_GIL_UNKNOWN: recording.GILUnknown,
		pathprofStatusSTATUS_GIL_OWN:     recording.GILOwn,
		pathprofStatusSTATUS_GIL_OTHER:   recording.GILOther,
		pathprofStatusSTATUS_GIL_FREE:    recording.GILFree,
	} {
		if recording.GIL(c) != want {
			t.Errorf("GIL: C has %d, Go %d", c, want)
		}
	}
	for want, style := range map[uint32]pyframes.Style{
		1: pyframes.StyleLastiByte, 2: pyframes.StyleLastiUnit,
		3: pyframes.StylePrevInstr, 4: pyframes.StyleInstrPtr,
	} {
		if uint32(style) != want {
			t.Errorf("style %d: c/python.h has %d", style, want)
		}
	}
}

// The words of waits, too.
func TestWaitEnums(t *testing.T) {
	header := ""
	for _, name := range []string{"c/event.h", "c/wait.h"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		header += string(text)
	}
	for enum, want := range map[string]map[string]int{
		"lock": {
			"LOCK_UNKNOWN": int(sched.LockUnknown), "LOCK_GIL": int(sched.LockGIL), "LOCK_MUTEX": int(sched.LockMutex),
			"LOCK_SEMAPHORE": int(sched.LockSemaphore), "LOCK_PYMUTEX": int(sched.LockPyMutex),
			"LOCK_CONDITION": int(sched.LockCondition),
		},
		"wait_time": {
			"TIME_NONE": timeNone, "TIME_MS": timeMS, "TIME_SPEC": timeSpec, "TIME_VAL": timeVal,
			"TIME_REALTIME": timeRealtime, "TIME_FUTEX": timeFutex, "TIME_CLOCK": timeClock,
		},
		"wait_width": {"WIDTH_LONG": widthLong, "WIDTH_INT": widthInt, "WIDTH_POLL": widthPoll},
	} {
		compareEnum(t, header, enum, want)
	}
	if !strings.Contains(header, fmt.Sprintf("#define FLAG_LOCK_SHIFT %d\n", lockShift)) ||
		!strings.Contains(header, fmt.Sprintf("#define CALLS %d\n", maxCalls)) {
		t.Error("FLAG_LOCK_SHIFT or CALLS differ")
	}
	if got, want := unsafe.Sizeof(pathprofWaitRule{}), unsafe.Sizeof(waitRule{}); got != want {
		t.Errorf("wait rule: C has %d bytes, Go %d", got, want)
	}
}

// The unwinder's words and sizes are those of the Go package.
func TestUnwindLayout(t *testing.T) {
	if got, want := unsafe.Sizeof(pathprofUnwindRule{}), unsafe.Sizeof(unwind.Rule{}); got != want {
		t.Errorf("rule: C has %d bytes, Go %d", got, want)
	}
	if got, want := unsafe.Sizeof(pathprofUnwindRow{}), unsafe.Sizeof(unwind.Row{}); got != want {
		t.Errorf("row: C has %d bytes, Go %d", got, want)
	}
	header, err := os.ReadFile("c/native.h")
	if err != nil {
		t.Fatal(err)
	}
	for enum, want := range map[string]map[string]int{
		"cfa_kind": {
			"CFA_NONE": int(unwind.CFANone), "CFA_UNSUPPORTED": int(unwind.CFAUnsupported),
			"CFA_REGISTER": int(unwind.CFARegister), "CFA_DEREF": int(unwind.CFADeref), "CFA_PLT": int(unwind.CFAPLT),
		},
		"place": {
			"PLACE_SAME": int(unwind.PlaceSame), "PLACE_UNDEFINED": int(unwind.PlaceUndefined),
			"PLACE_CFA": int(unwind.PlaceCFA), "PLACE_MEM": int(unwind.PlaceMem),
			"PLACE_IN_REG": int(unwind.PlaceInReg), "PLACE_UNSUPPORTED": int(unwind.PlaceUnsupported),
		},
	} {
		compareEnum(t, string(header), enum, want)
	}
	if unwind.RegSP != 0 || unwind.RegFP != 1 || unwind.RegOther != 2 || unwind.FlagSignal != 1 {
		t.Error("registers or flags differ from c/native.h")
	}
}

// compareEnum finds an enum of one line in a header, and compares its words.
func compareEnum(t *testing.T, header, enum string, want map[string]int) {
	t.Helper()
	m := regexp.MustCompile(`enum ` + enum + ` \{ ([A-Z_, ]+) \};`).FindStringSubmatch(header)
	if m == nil {
		t.Fatalf("no enum %s", enum)
	}
	words := strings.Split(m[1], ", ")
	if len(words) != len(want) {
		t.Errorf("%s: C has %d words, Go %d", enum, len(words), len(want))
	}
	for got, word := range words {
		if n, ok := want[word]; !ok || n != got {
			t.Errorf("%s: C has %d, Go %d", word, got, n)
		}
	}
}
