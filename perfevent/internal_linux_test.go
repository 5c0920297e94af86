// SPDX-License-Identifier: Apache-2.0

package perfevent

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/elastic/go-perf"
	"golang.org/x/sys/unix"
)

// The numbers repeated for other systems are the kernel's.
func TestNumbers(t *testing.T) {
	tests := []struct {
		name      string
		got, want uint64
	}{
		{"hardware", typeHardware, unix.PERF_TYPE_HARDWARE},
		{"software", typeSoftware, unix.PERF_TYPE_SOFTWARE},
		{"raw", typeRaw, unix.PERF_TYPE_RAW},
		{"cycles", event(t, "cycles").config, unix.PERF_COUNT_HW_CPU_CYCLES},
		{"instructions", event(t, "instructions").config, unix.PERF_COUNT_HW_INSTRUCTIONS},
		{"cache-references", event(t, "cache-references").config, unix.PERF_COUNT_HW_CACHE_REFERENCES},
		{"cache-misses", event(t, "cache-misses").config, unix.PERF_COUNT_HW_CACHE_MISSES},
		{"branches", event(t, "branches").config, unix.PERF_COUNT_HW_BRANCH_INSTRUCTIONS},
		{"branch-misses", event(t, "branch-misses").config, unix.PERF_COUNT_HW_BRANCH_MISSES},
		{"cpu-clock", event(t, "cpu-clock").config, unix.PERF_COUNT_SW_CPU_CLOCK},
		{"task-clock", event(t, "task-clock").config, unix.PERF_COUNT_SW_TASK_CLOCK},
		{"page-faults", event(t, "page-faults").config, unix.PERF_COUNT_SW_PAGE_FAULTS},
		{"context-switches", event(t, "context-switches").config, unix.PERF_COUNT_SW_CONTEXT_SWITCHES},
		{"cpu-migrations", event(t, "cpu-migrations").config, unix.PERF_COUNT_SW_CPU_MIGRATIONS},
		{"minor-faults", event(t, "minor-faults").config, unix.PERF_COUNT_SW_PAGE_FAULTS_MIN},
		{"major-faults", event(t, "major-faults").config, unix.PERF_COUNT_SW_PAGE_FAULTS_MAJ},
		{"record lost", recordLost, unix.PERF_RECORD_LOST},
		{"record comm", recordComm, unix.PERF_RECORD_COMM},
		{"record exit", recordExit, unix.PERF_RECORD_EXIT},
		{"record throttle", recordThrottle, unix.PERF_RECORD_THROTTLE},
		{"record unthrottle", recordUnthrottle, unix.PERF_RECORD_UNTHROTTLE},
		{"record fork", recordFork, unix.PERF_RECORD_FORK},
		{"record sample", recordSample, unix.PERF_RECORD_SAMPLE},
		{"record mmap2", recordMmap2, unix.PERF_RECORD_MMAP2},
		{"record lost samples", recordLostSamples, unix.PERF_RECORD_LOST_SAMPLES},
		{"cap ipc lock", capIPCLock, unix.CAP_IPC_LOCK},
		{"cap ptrace", capSysPtrace, unix.CAP_SYS_PTRACE},
		{"cap sys admin", capSysAdmin, unix.CAP_SYS_ADMIN},
		{"cap perfmon", capPerfmon, unix.CAP_PERFMON},
		{"cap bpf", capBPF, unix.CAP_BPF},
	}
	for _, tt := range tests {
		if tt.got != tt.want {
			t.Errorf("%s: got %d, want %d", tt.name, tt.got, tt.want)
		}
	}
}

func TestPrecise(t *testing.T) {
	// go-perf looks at 0x01 and 0x10.
	for level, want := range []perf.Skid{0, 0x01, 0x10, 0x11} {
		if got := precise(level); got != want {
			t.Errorf("precise(%d): got %#x, want %#x", level, got, want)
		}
	}
}

func TestCorePMU(t *testing.T) {
	dir := t.TempDir()
	write := func(path, text string) {
		t.Helper()
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("cpu_core/cpus", "0-7\n")
	write("cpu_core/type", "4\n")
	write("cpu_atom/cpus", "8-11\n")
	write("cpu_atom/type", "10\n")
	write("broken/cpus", "12\n")
	write("broken/type", "x\n")
	write("untyped/cpus", "13\n")
	write("garbage/cpus", "?\n")
	write("software/type", "1\n")
	for cpu, want := range map[int]uint32{0: 4, 7: 4, 8: 10, 11: 10} {
		if got, ok := corePMU(dir, cpu); !ok || got != want {
			t.Errorf("CPU %d: got %d, %v; want %d", cpu, got, ok, want)
		}
	}
	for _, cpu := range []int{12, 13, 14} {
		if got, ok := corePMU(dir, cpu); ok {
			t.Errorf("CPU %d: got %d, want none", cpu, got)
		}
	}
}

// What can go wrong with perf_event_open has a hint, except surprises.
func TestExplainOpen(t *testing.T) {
	tests := []struct {
		event string
		err   error
		want  string // part of the text
		plain bool   // not a FeatureError
	}{
		{"cpu-clock", unix.EACCES, "CAP_PERFMON", false},
		{"cpu-clock", unix.EPERM, "run as root", false},
		{"cycles", unix.ENOENT, "--event cpu-clock", false},
		{"cycles", unix.EOPNOTSUPP, "--event cpu-clock", false},
		{"rffff", unix.EINVAL, "processor", false},
		{"cycles", unix.EBUSY, "nmi_watchdog", false},
		{"cpu-clock", unix.EMFILE, "ulimit -n", false},
		{"cpu-clock", unix.ENOSYS, "seccomp", false},
		{"page-faults", unix.ENOENT, "kernel", false},
		{"cpu-clock", unix.EINVAL, "open event cpu-clock", true},
		{"cpu-clock", unix.EFAULT, "open event cpu-clock", true},
	}
	for _, tt := range tests {
		err := explainOpen(event(t, tt.event), os.NewSyscallError("perf_event_open", tt.err))
		if !errors.Is(err, tt.err) || !strings.Contains(err.Error(), tt.want) || errors.Is(err, ErrNotSupported) == tt.plain {
			t.Errorf("%s, %v: got %v; want %q in it", tt.event, tt.err, err, tt.want)
		}
	}
}

func TestSchedule(t *testing.T) {
	counters := []*counter{{cpu: 0}, {cpu: 1}, {cpu: 2}, {cpu: 3}}
	clock := Counters{info: Info{Event: CPUClock, Period: 1e6}}
	last := time.Duration(0)
	seen := make(map[int]bool)
	for _, s := range clock.schedule(counters) {
		if s.after < last || s.after >= time.Millisecond || seen[s.cpu] {
			t.Errorf("CPU %d after %v: want each once, in order, within a period", s.cpu, s.after)
		}
		last, seen[s.cpu] = s.after, true
	}
	if len(seen) != len(counters) {
		t.Errorf("got %d counters, want %d", len(seen), len(counters))
	}
	for _, info := range []Info{{Event: Cycles, Period: 1e6}, {Event: CPUClock, Period: 10e9}} {
		c := Counters{info: info}
		for _, s := range c.schedule(counters) {
			if s.after >= maxPhase || !info.Event.IsClock() && s.after != 0 {
				t.Errorf("%v: CPU %d after %v", info.Event, s.cpu, s.after)
			}
		}
	}
}

func TestClock(t *testing.T) {
	a := MonotonicNow()
	offset, uncertainty := RealtimeOffset()
	b := MonotonicNow()
	if a <= 0 || b <= a {
		t.Errorf("monotonic clock went from %d to %d", a, b)
	}
	if uncertainty <= 0 || uncertainty > b-a {
		t.Errorf("uncertainty: got %d ns, want 1 to %d", uncertainty, b-a)
	}
	// A second source: Go's own reading of the wall clock.
	if diff := time.Now().UnixNano() - (MonotonicNow() + offset); diff < -1e9 || diff > 1e9 {
		t.Errorf("offset is wrong by %v", time.Duration(diff))
	}
	if ClockSource() == "" {
		t.Error("no clock source")
	}
}

func TestIRQNames(t *testing.T) {
	names, err := IRQNames()
	if err != nil {
		t.Fatal(err)
	}
	for number, name := range names {
		// Where the kernel tells per interrupt, too, it says the same.
		actions, err := os.ReadFile("/sys/kernel/irq/" + strconv.Itoa(int(number)) + "/actions")
		if err != nil {
			continue
		}
		want := strings.ReplaceAll(strings.TrimSpace(string(actions)), ",", ", ")
		if name != want {
			t.Errorf("interrupt %d: got %q, want %q", number, name, want)
		}
	}
	t.Logf("%d interrupts", len(names))
}

func TestSizes(t *testing.T) {
	if got := binary.Size(struct {
		PID, TID uint32
		Time     uint64
		CPU, Res uint32
	}{}); got != sampleIDSize {
		t.Errorf("trailer: got %d bytes, want %d", got, sampleIDSize)
	}
	if unsafe.Sizeof(progLoadAttr{}) != 64 {
		t.Errorf("bpf_attr: got %d bytes, want 64", unsafe.Sizeof(progLoadAttr{}))
	}
}
