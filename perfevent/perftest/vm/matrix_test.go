// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

// sizeEnv says how much to run: "short" or "full"; nothing without it.
const sizeEnv = "PATHPROF_VM"

// kind is one row of the matrix.
type kind struct {
	name   string
	arch   string
	suite  string // of the kernel
	kernel string // its package, see archive.packages
	world  string // the suite of CPython and the rest
	event  string // what auto must choose
	short  bool   // part of the short form
	plan   func(kind) plan
	judge  func(*testing.T, *machine) // nil: each step must succeed
	// icount: instructions are counted, and time goes by their number. One
	// processor runs at a time then.
	icount  bool
	options string // of the kernel
	image   string // of a kernel that is no package
}

var kinds = []kind{
	{name: "amd64-6.1", arch: "amd64", suite: "bookworm", kernel: "linux-image-cloud-amd64*", world: "bookworm", event: "cpu-clock", short: true, plan: everything},
	{name: "arm64-6.1", arch: "arm64", suite: "bookworm", kernel: "linux-image-arm64*", world: "bookworm", event: "cycles", plan: everything},
	{name: "arm64-6.1-instructions", arch: "arm64", suite: "bookworm", kernel: "linux-image-arm64*", world: "bookworm", event: "instructions", icount: true, plan: profileOnly},
	{name: "amd64-6.1-rt", arch: "amd64", suite: "bookworm", kernel: "linux-image-rt-amd64*", world: "bookworm", event: "cpu-clock", plan: profileOnly},
	{name: "amd64-6.12", arch: "amd64", suite: "bookworm-backports", kernel: "linux-image-cloud-amd64*", world: "bookworm", event: "cpu-clock", plan: capture},
	{name: "arm64-6.12-16k", arch: "arm64", suite: "trixie", kernel: "linux-image-arm64-16k*", world: "trixie", event: "cycles", plan: capture},
	{name: "amd64-newest", arch: "amd64", suite: "trixie-backports", kernel: "linux-image-cloud-amd64*", world: "trixie", event: "cpu-clock", plan: capture},
	{name: "amd64-5.10", arch: "amd64", suite: "bullseye", kernel: "linux-image-cloud-amd64*", world: "bookworm", plan: refusalPlan, judge: judgeRefusal},
	{name: "arm64-5.10", arch: "arm64", suite: "bullseye", kernel: "linux-image-cloud-arm64*", world: "bookworm", plan: refusalPlan, judge: judgeRefusal},
	{name: "amd64-6.1-rights", arch: "amd64", suite: "bookworm", kernel: "linux-image-cloud-amd64*", world: "bookworm", plan: rightsPlan, judge: judgeRights},
}

// A kernel of one's own, for what no package has (pages of 64 K, pseudo NMIs).
var (
	ownKernel  = flag.String("kernel", "", "run this arm64 `image` only, in the world of bookworm")
	ownOptions = flag.String("options", "", "`options` of that kernel")
)

// chosen are the machines to run.
func chosen(size string) []kind {
	if *ownKernel != "" {
		return []kind{{name: "own", arch: "arm64", world: "bookworm", event: "cycles", plan: everything, image: *ownKernel, options: *ownOptions}}
	}
	return slices.DeleteFunc(slices.Clone(kinds), func(k kind) bool { return size == "short" && !k.short })
}

// root is the module's.
const root = "../../.."

// tests are the test binaries of a machine, which of their tests to run, and names
// of those to leave out. What they may skip, allowedSkips says.
// The seconds are for a busy host: an idle one takes a sixth.
var tests = []struct {
	pkg, run, skip string
	seconds        int
}{
	{pkg: "perfevent", seconds: 240},
	{pkg: "perfevent/bpf", seconds: 580},
	{pkg: "unwind/proc", seconds: 120},
	{pkg: "pyframes", run: "Frames|Find|Detect|ReadCode|NotYet|Hidden", seconds: 240},
	{pkg: "unwind", run: "Kallsyms|Walk|SignalReturn|ARM64", skip: "TestWalkAtEveryInstruction TestWalkInPython", seconds: 240},
	{pkg: "cmd/pathprof", run: "TestWaits/3.11", seconds: 240},
}

// allowedSkips are needs that a machine is not meant to meet: other interpreters
// than its own, and compilers.
var allowedSkips = regexp.MustCompile(`needs (Python \d\.\d+:|tool (musl-gcc|gcc|gdb|objcopy|objdump|readelf|strip|go|unshare):|aarch64-linux-gnu-gcc)|the program holds the runtime itself|lies on no whole block device|no control group with a CPU limit can be made here`)

func testName(pkg string) string { return strings.ReplaceAll(pkg, "/", "_") + ".test" }

// capture is everything about capturing: what depends on kernel and processor.
func capture(k kind) plan {
	p := everything(k)
	p.Steps = slices.DeleteFunc(p.Steps, func(s step) bool {
		return !slices.Contains([]string{"check", "profile10", "throttled", "shared", "perfevent/bpf"}, s.Name)
	})
	return p
}

// profileOnly is the least that a machine must do.
func profileOnly(k kind) plan {
	event := "auto"
	if k.icount {
		event = k.event
	}
	return plan{Steps: []step{
		{Name: "check", Args: []string{"/usr/bin/pathprof", "check"}, Seconds: 60},
		{Name: "profile10", Profile: &profileStep{Event: event, Period: period(k.event), Seconds: 4}, Seconds: 280, Limits: unthrottled},
	}}
}

func everything(k kind) plan {
	p := profileOnly(k)
	if k.event == "cycles" {
		p.Steps = append(p.Steps,
			// Ten thousand samples a second where a thousand are allowed.
			step{Name: "throttled", Profile: &profileStep{Event: "cycles", Period: "100000", Seconds: 2, Throttled: true},
				Seconds: 280, Limits: limits{Sysctls: map[string]string{maxSampleRate: "1000"}}},
			step{Name: "shared", Profile: &profileStep{Event: "cycles", Period: period(k.event), Seconds: 2, Rivals: 9},
				Seconds: 280, Limits: unthrottled},
		)
	}
	for _, t := range tests {
		s := step{
			Name: t.pkg, Dir: "/src/" + t.pkg, Seconds: t.seconds,
			Args: []string{"/tests/" + testName(t.pkg), "-test.v", "-test.short", "-test.timeout", fmt.Sprintf("%ds", t.seconds-10)},
			Env:  []string{"PATHPROF_PROGRAM=/usr/bin/pathprof"},
		}
		if t.run != "" {
			s.Args = append(s.Args, "-test.run", t.run)
		}
		skip := strings.Fields(t.skip)
		if k.event == "cpu-clock" && t.pkg == "perfevent/bpf" {
			// Its timer's interrupts are not throttled by what they take, so a host
			// with no time for the machine makes it do nothing else.
			skip = append(skip, "TestNested")
		}
		if k.arch == "arm64" && t.pkg == "unwind" {
			skip = append(skip, "TestSignalReturnOfLibc") // it lies in the vDSO there
		}
		if len(skip) > 0 {
			s.Args = append(s.Args, "-test.skip", strings.Join(skip, "|"))
		}
		p.Steps = append(p.Steps, s)
	}
	return p
}

const maxSampleRate = "kernel.perf_event_max_sample_rate"

// unthrottled keeps the kernel from lowering the rate of emulated counters, whose
// interrupts take it long: what is throttled is not sampled evenly.
var unthrottled = limits{Sysctls: map[string]string{"kernel.perf_cpu_time_max_percent": "0"}}

// period is some 100 samples a second. A sample takes an emulated processor long,
// and ten times as long where the host has no time for it: were that more than the
// period, the machine would do nothing else, not even stop the counter.
func period(event string) string {
	switch event {
	case "cycles":
		return "10000000"
	case "instructions": // of 4 ns each
		return "2500000"
	}
	return "10ms"
}

var only = flag.String("steps", "", "run only the steps whose names this expression matches")

// planned is the plan of a machine, cut down to what was asked for.
func (k kind) planned() (plan, error) {
	p := k.plan(k)
	match, err := regexp.Compile(*only)
	p.Steps = slices.DeleteFunc(p.Steps, func(s step) bool {
		tooLong := os.Getenv(sizeEnv) == "short" && s.Name == "cmd/pathprof"
		return err == nil && (tooLong || !match.MatchString(s.Name))
	})
	return p, err
}

// TestMatrix boots every kind of machine and holds what it does against what it
// should.
func TestMatrix(t *testing.T) {
	size := os.Getenv(sizeEnv)
	if size != "short" && size != "full" {
		t.Skipf("%s is not set: short or full", sizeEnv)
	}
	programs = t.TempDir()
	machines := chosen(size)
	rows := make([]string, len(machines))
	t.Cleanup(func() { t.Logf("\n%s\n%s", tableHead, strings.Join(slices.DeleteFunc(rows, empty), "\n")) })
	for i, k := range machines {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			lanes <- struct{}{}
			defer func() { <-lanes }()
			m, err := run(t, k)
			if err != nil {
				t.Error(err)
			}
			if m != nil {
				if k.judge != nil {
					k.judge(t, m)
				} else {
					judge(t, k, m)
				}
				rows[i] = m.row(k, t.Failed())
			}
		})
	}
}

// lanes are how many machines run at a time: most keep one processor busy.
var lanes = make(chan struct{}, min(2, runtime.NumCPU()))

func empty(s string) bool { return s == "" }

// run builds a machine's file system and boots it.
func run(t *testing.T, k kind) (*machine, error) {
	image := k.image
	if image == "" {
		kernels, err := openArchive(k.suite, k.arch)
		if err != nil {
			return nil, err
		}
		if image, err = kernels.kernel(k.kernel); err != nil {
			return nil, err
		}
	}
	initrd := filepath.Join(t.TempDir(), "initrd")
	if err := buildRoot(initrd, k); err != nil {
		return nil, err
	}
	defer os.Remove(initrd)
	return boot(k, image, initrd, func(s string) { t.Log(s) })
}

func buildRoot(name string, k kind) error {
	dir, err := compile(k.arch)
	if err != nil {
		return err
	}
	world, err := openArchive(k.world, k.arch)
	if err != nil {
		return err
	}
	debs, err := world.packages("python3", "busybox-static")
	if err != nil {
		return err
	}
	i, err := createInitramfs(name)
	if err != nil {
		return err
	}
	for _, deb := range debs {
		if err := i.addPackage(deb); err != nil {
			return err
		}
	}
	for _, tool := range strings.Fields("sh sleep true false cat ls ip mount umount kill ps uname dmesg grep") {
		if !i.has("usr/bin/" + tool) {
			i.link("usr/bin/"+tool, "busybox")
		}
	}
	if err := i.addTree("src", root, fixtures); err != nil {
		return err
	}
	if err := i.addPrograms(dir); err != nil {
		return err
	}
	p, err1 := k.planned()
	text, err2 := json.Marshal(p)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	i.add("plan.json", 0o644, text)
	i.add("etc/passwd", 0o644, []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n"))
	return i.close()
}

// fixtures tells which files of the module tests read: not the sources.
func fixtures(name string, d fs.DirEntry) bool {
	if d.IsDir() {
		return name == "." || !strings.HasPrefix(d.Name(), ".") && !strings.HasSuffix(name, ".pathprof")
	}
	return strings.Contains(name, "testdata/") || slices.Contains([]string{".py", ".o", ".h"}, filepath.Ext(name))
}

func (i *initramfs) addPrograms(dir string) error {
	if err := i.addFile("init", filepath.Join(dir, testName("perfevent/perftest/vm"))); err != nil {
		return err
	}
	if err := i.addFile("usr/bin/pathprof", filepath.Join(dir, "pathprof")); err != nil {
		return err
	}
	for _, t := range tests {
		i.mkdir("src/" + t.pkg)
		if err := i.addFile("tests/"+testName(t.pkg), filepath.Join(dir, testName(t.pkg))); err != nil {
			return err
		}
	}
	return nil
}

// programs is the folder of the compiled ones, which goes with TestMatrix.
var programs string

var compiled = map[string]func() (string, error){"amd64": compiler("amd64"), "arm64": compiler("arm64")}

func compile(arch string) (string, error) { return compiled[arch]() }

// compiler compiles all tests and the program for a processor, once.
func compiler(arch string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		dir, err := os.MkdirTemp(programs, arch)
		if err != nil {
			return "", err
		}
		build := func(args ...string) error {
			cmd := exec.Command("go", args...)
			cmd.Dir = root
			cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+arch, "CGO_ENABLED=0")
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
			}
			return nil
		}
		if err := build("build", "-o", filepath.Join(dir, "pathprof"), "./cmd/pathprof"); err != nil {
			return "", err
		}
		packages := []string{"perfevent/perftest/vm"}
		for _, t := range tests {
			packages = append(packages, t.pkg)
		}
		for _, pkg := range packages {
			if err := build("test", "-c", "-o", filepath.Join(dir, testName(pkg)), "./"+pkg); err != nil {
				return "", err
			}
		}
		return dir, nil
	})
}

// judge fails the test for whatever should not be.
func judge(t *testing.T, k kind, m *machine) {
	for _, line := range m.kernel {
		t.Errorf("the kernel warns: %s", line)
	}
	p, err := k.planned()
	if err != nil {
		t.Error(err)
	}
	for _, s := range p.Steps {
		o := m.steps[s.Name]
		switch {
		case o == nil:
			t.Errorf("%s: no word of it", s.Name)
			continue
		case o.took == 0:
			t.Errorf("%s: did not end; it said last:\n%s", s.Name, strings.Join(o.lines[max(0, len(o.lines)-20):], "\n"))
			continue
		case o.status != 0:
			t.Errorf("%s: status %d\n%s", s.Name, o.status, strings.Join(o.failures(), "\n"))
		case s.Dir != "" && len(o.passed) == 0:
			t.Errorf("%s: no test passed", s.Name)
		}
		if s.Profile != nil && o.profile != nil {
			o.profile.judge(t, k, s)
		}
		for _, name := range slices.Sorted(maps.Keys(o.skipped)) {
			if reason := o.skipped[name]; !allowedSkips.MatchString(reason) && o.status == 0 {
				t.Errorf("%s: %s skipped: %s", s.Name, name, reason)
			}
		}
	}
}

// failures are the lines that help with a failed step.
func (o *outcome) failures() []string {
	if len(o.failed) == 0 {
		return o.lines[max(0, len(o.lines)-60):]
	}
	said, test := map[string][]string{}, ""
	for _, line := range o.lines {
		trimmed := strings.TrimSpace(line)
		if strings.HasPrefix(trimmed, "=== ") { // RUN, CONT or NAME, and whose lines follow
			test = trimmed[strings.LastIndex(trimmed, " ")+1:]
		} else if !strings.HasPrefix(trimmed, "--- ") {
			said[test] = append(said[test], line)
		}
	}
	var out []string
	for _, name := range o.failed {
		lines := said[name]
		out = append(append(out, lines[max(0, len(lines)-90):]...), "--- FAIL: "+name)
	}
	return out
}
