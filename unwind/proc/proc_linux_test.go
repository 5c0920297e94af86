// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"pathprof/perfevent/perftest"
)

// gonePID is above every process number (PID_MAX_LIMIT, include/linux/threads.h).
const gonePID = 1<<22 + 1

func TestMapsOfSelf(t *testing.T) {
	maps, err := Maps(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	here := uint64(uintptr(unsafe.Pointer(&programData)))
	i := slices.IndexFunc(maps, func(m Mapping) bool { return m.Start <= here && here < m.End })
	if i < 0 || !maps[i].Write {
		t.Errorf("a variable at %#x: mapping %d of %d", here, i, len(maps))
	}
	exe, _ := os.Executable()
	if !slices.ContainsFunc(maps, func(m Mapping) bool { return m.Exec && m.Path == exe }) {
		t.Errorf("no executable mapping of %s", exe)
	}
	if !slices.IsSortedFunc(maps, func(a, b Mapping) int {
		if a.Start < b.Start {
			return -1
		}
		return 1
	}) {
		t.Error("not sorted")
	}
	if _, err := Maps(gonePID); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no process: got %v, want os.ErrNotExist", err)
	}
}

var programData byte // a variable of the program, for its address

func TestMemory(t *testing.T) {
	for name, open := range map[string]func(int) (*Memory, error){"file": OpenMemory, "number": openByNumber} {
		t.Run(name, func(t *testing.T) {
			m, err := open(os.Getpid())
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			checkMemory(t, m)
		})
	}
	if _, err := OpenMemory(gonePID); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no process: got %v, want os.ErrNotExist", err)
	}
}

// By number, memory ends with its process, and is not the next one's.
func TestMemoryByNumber(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	m, err := openByNumber(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	cmd.Process.Kill()
	cmd.Wait()
	m.pid = os.Getpid() // as if the number were in use again
	word := uint64(1)
	if n, err := m.ReadAt(make([]byte, 8), int64(uintptr(unsafe.Pointer(&word)))); n != 0 || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %d bytes, %v, want os.ErrNotExist", n, err)
	}
	runtime.KeepAlive(&word)
	if _, err := openByNumber(gonePID); err == nil {
		t.Error("no process: no error")
	}
}

func checkMemory(t *testing.T, m *Memory) {
	t.Helper()
	page := unix.Getpagesize()
	area, err := unix.Mmap(-1, 0, 2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(area)
	copy(area[page-8:], "8 bytes.")
	base := int64(uintptr(unsafe.Pointer(&area[0])))
	got := make([]byte, 8)
	if n, err := m.ReadAt(got, base+int64(page)-8); n != 8 || err != nil || string(got) != "8 bytes." {
		t.Errorf("got %q, %d, %v", got, n, err)
	}
	if _, _, errno := unix.Syscall(unix.SYS_MUNMAP, uintptr(base)+uintptr(page), uintptr(page), 0); errno != 0 {
		t.Fatal(errno)
	}
	got = make([]byte, 16)
	n, err := m.ReadAt(got, base+int64(page)-8)
	if n != 8 || err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%#x", base+int64(page)-8)) {
		t.Errorf("over the end: got %d bytes, %v, want 8 and an error with the address", n, err)
	}
	for _, addr := range []int64{0, -1, -1 << 63, 1<<63 - 1} {
		if n, err := m.ReadAt(got, addr); n != 0 || err == nil {
			t.Errorf("address %#x: got %d, %v, want an error", addr, n, err)
		}
	}
	if n, err := m.ReadAt(nil, 0); n != 0 || err != nil {
		t.Errorf("no bytes: got %d, %v", n, err)
	}
	runtime.KeepAlive(area)
}

// copyOf makes an executable copy of a program, to be deleted or replaced.
func copyOf(t *testing.T, program string) string {
	t.Helper()
	perftest.Require(t, perftest.Tool(program))
	path, err := exec.LookPath(program)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// A path with a space, and the program's own name: it may be one of many that
	// one file is (BusyBox), which goes by it.
	to := filepath.Join(t.TempDir(), "a copy", program)
	if err := os.Mkdir(filepath.Dir(to), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, data, 0o700); err != nil {
		t.Fatal(err)
	}
	return to
}

// start runs a program until the test ends and returns it once it is itself,
// not the fork of this one.
func start(t *testing.T, path string, args ...string) int {
	t.Helper()
	cmd := exec.Command(path, args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	// Start returns when exec has closed the files, before it has set up the
	// arguments and the first mappings (fs/exec.c, begin_new_exec).
	for {
		if args, err := Cmdline(cmd.Process.Pid); err != nil || len(args) > 0 {
			return cmd.Process.Pid
		}
		if st, err := Stat(cmd.Process.Pid, cmd.Process.Pid); err != nil || st.State == 'Z' {
			t.Fatalf("%s ended: %v", path, err)
		}
	}
}

func TestOpenMapped(t *testing.T) {
	perftest.Require(t, perftest.Root) // map_files
	for _, c := range []struct {
		name   string
		change func(path string) error
	}{
		{"there", func(string) error { return nil }},
		{"deleted", os.Remove},
		{"replaced", func(path string) error {
			other := path + ".new"
			if err := os.WriteFile(other, []byte("another"), 0o700); err != nil {
				return err
			}
			return os.Rename(other, path)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := copyOf(t, "sleep")
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			pid := start(t, path, "100")
			if err := c.change(path); err != nil {
				t.Fatal(err)
			}
			maps, err := Maps(pid)
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(maps, func(m Mapping) bool { return m.Path == path })
			if i < 0 {
				t.Fatalf("%s is not among %+v", path, maps)
			}
			if got := c.name != "there"; maps[i].Deleted != got {
				t.Errorf("deleted: got %v", maps[i].Deleted)
			}
			f, err := OpenMapped(pid, maps[i])
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			got, err := io.ReadAll(f)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes, %v: not the file that is mapped", len(got), err)
			}
		})
	}
	if _, err := OpenMapped(os.Getpid(), Mapping{Path: "[heap]"}); err == nil {
		t.Error("[heap]: got no error")
	}
}

func TestTaskFacts(t *testing.T) {
	pid := start(t, copyOf(t, "sleep"), "100", "0")
	st, err := Stat(pid, pid)
	if err != nil || st.PID != pid || st.TID != pid || st.PPID != os.Getpid() || st.Kernel {
		t.Errorf("stat: got %+v, %v", st, err)
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		t.Fatal(err)
	}
	// It began after this test did: the clock ticks of /proc are 10 ms.
	if age := now.Nano() - st.StartTime; age < -int64(20*time.Millisecond) || age > int64(10*time.Minute) {
		t.Errorf("start time is %v ago", time.Duration(age))
	}
	if got, err := Tasks(pid); err != nil || !slices.Equal(got, []int{pid}) {
		t.Errorf("tasks: got %v, %v", got, err)
	}
	for name, f := range map[string]func(int) (int, error){"ProcessOf": ProcessOf, "InnerTID": InnerTID} {
		if got, err := f(pid); err != nil || got != pid {
			t.Errorf("%s: got %d, %v, want %d", name, got, err, pid)
		}
	}
	if got, err := Cmdline(pid); err != nil || len(got) != 3 || got[1] != "100" || got[2] != "0" {
		t.Errorf("command line: got %q, %v", got, err)
	}
	if _, err := Switches(pid, pid); err != nil {
		t.Errorf("switches: %v", err)
	}
	for name, f := range map[string]func() error{
		"Stat":      func() error { _, err := Stat(gonePID, gonePID); return err },
		"Tasks":     func() error { _, err := Tasks(gonePID); return err },
		"Cmdline":   func() error { _, err := Cmdline(gonePID); return err },
		"Switches":  func() error { _, err := Switches(gonePID, gonePID); return err },
		"ProcessOf": func() error { _, err := ProcessOf(gonePID); return err },
	} {
		if err := f(); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s without a process: got %v, want os.ErrNotExist", name, err)
		}
	}
}

// A thread other than the first is found by its own number.
func TestThreadOfSelf(t *testing.T) {
	done := make(chan struct{})
	tids := make(chan int)
	go func() {
		runtime.LockOSThread()
		tids <- unix.Gettid()
		<-done
	}()
	defer close(done)
	tid := <-tids
	if got, err := ProcessOf(tid); err != nil || got != os.Getpid() {
		t.Errorf("process of thread %d: got %d, %v, want %d", tid, got, err, os.Getpid())
	}
	all, err := Tasks(os.Getpid())
	if err != nil || !slices.Contains(all, tid) {
		t.Errorf("tasks: %v, %v lack %d", all, err, tid)
	}
	found := false
	for task, err := range AllTasks() {
		if err == nil && task.TID == tid {
			found = task.PID == os.Getpid() && task.PPID == os.Getppid()
		}
	}
	if !found {
		t.Errorf("all tasks lack thread %d of %d", tid, os.Getpid())
	}
}

// A count of switches grows when a thread sleeps.
func TestSwitchesGrow(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := Switches(os.Getpid(), unix.Gettid())
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		ts := unix.NsecToTimespec(1e6)
		unix.Nanosleep(&ts, nil)
	}
	after, err := Switches(os.Getpid(), unix.Gettid())
	if err != nil || after < before+3 {
		t.Errorf("after 3 sleeps: got %d, %v, before %d", after, err, before)
	}
}

func TestBuildID(t *testing.T) {
	perftest.Require(t, perftest.Tool("readelf"), perftest.Tool("sleep"))
	path, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("readelf", "-n", path).Output()
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(out), "Build ID: ")
	if !ok {
		t.Skipf("%s has no build id", path)
	}
	want := strings.Fields(rest)[0]
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got, err := BuildID(f); err != nil || got != want {
		t.Errorf("got %s, %v, readelf has %s", got, err, want)
	}
	if _, err := BuildID(strings.NewReader("no ELF")); err == nil {
		t.Error("no ELF file: got no error")
	}
}

func BenchmarkAllTasks(b *testing.B) {
	n := 0
	for b.Loop() {
		n = 0
		for range AllTasks() {
			n++
		}
	}
	b.ReportMetric(float64(n), "tasks")
}
