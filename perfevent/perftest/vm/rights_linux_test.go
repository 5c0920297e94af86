// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// rightsEnv marks the process that tries a recording with the rights it was
// given.
const rightsEnv = "PATHPROF_VM_RIGHTS"

// Numbers of capabilities, from include/uapi/linux/capability.h.
const (
	capSysPtrace = 19
	capSyslog    = 34
	capPerfmon   = 38
	capBPF       = 39
)

// rightsCase is one row of the table of rights.
type rightsCase struct {
	name   string
	limits limits
	works  bool
	python bool // functions of Python
	kernel bool // names of kernel functions
}

var (
	noCaps    = limits{User: true, Sysctls: map[string]string{"kernel.perf_event_paranoid": "-1"}}
	container = uintptr(syscall.CLONE_NEWNS | syscall.CLONE_NEWPID)
)

// rightsCases: lockdown comes last, for it stays.
var rightsCases = []rightsCase{
	{"root", limits{}, true, true, true},
	{"root, perf_event_paranoid 2", paranoid("2"), true, true, true},
	{"user, perf_event_paranoid -1", noCaps, false, false, false},
	{"user, CAP_BPF CAP_PERFMON", user(capBPF, capPerfmon), false, false, false},
	{"user, … CAP_SYS_PTRACE", user(capBPF, capPerfmon, capSysPtrace), false, false, false},
	{"user, … CAP_SYSLOG", user(capBPF, capPerfmon, capSysPtrace, capSyslog), true, true, true},
	{"user, CAP_BPF only", user(capBPF), false, false, false},
	{"root, no BTF", limits{Hide: []string{"/sys/kernel/btf"}}, false, false, false},
	{"root, no tracefs", limits{Hide: []string{"/sys/kernel/tracing"}}, true, true, true},
	{"root, own mount and pid namespace", limits{Namespaces: container}, false, false, false},
	{"root, own user namespace", limits{Namespaces: container | syscall.CLONE_NEWUSER}, false, false, false},
	{"root, lockdown integrity", limits{Lockdown: "integrity"}, true, true, true},
	{"root, lockdown confidentiality", limits{Lockdown: "confidentiality"}, false, false, false},
}

func paranoid(level string) limits {
	return limits{Sysctls: map[string]string{"kernel.perf_event_paranoid": level}}
}

func user(caps ...int) limits {
	return limits{User: true, Caps: caps, Sysctls: map[string]string{"kernel.perf_event_paranoid": "2"}}
}

// rightsPlan tries each case.
func rightsPlan(kind) plan {
	var p plan
	for _, c := range rightsCases {
		p.Steps = append(p.Steps, step{
			Name: c.name, Limits: c.limits, Args: []string{"/init"}, Seconds: 120,
			Env: []string{rightsEnv + "=1", "HOME=/tmp"},
		})
	}
	return p
}

// tried is what a case came to.
type tried struct {
	Works, Python, Kernel bool
	Says                  string
}

// try makes a small recording and prints what came of it.
func try() {
	var result tried
	if err := result.record(); err != nil {
		result.Says = err.Error()
	}
	text, err := json.Marshal(result)
	if err != nil {
		text = []byte(err.Error())
	}
	fmt.Println(string(text))
}

func (r *tried) record() error {
	if os.Getpid() == 1 { // of a namespace, whose /proc is still the outer one
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return err
		}
		if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Second)
	defer cancel()
	dir, err := os.MkdirTemp("", "rights")
	if err != nil {
		return err
	}
	recording := filepath.Join(dir, "r")
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "/usr/bin/pathprof", "record", "-o", recording, "--period", "4ms", "--",
		"/usr/bin/python3", "/src/calibrate/workloads/profile10.py", "2")
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s", strings.TrimSpace(stderr.String()))
	}
	r.Works = true
	out, err := output(ctx, "/usr/bin/pathprof", "dump", "--samples", "--frames", "all", recording)
	if err != nil {
		return err
	}
	r.Python = bytes.Contains(out, []byte(";f0"))
	r.Kernel = bytes.Contains(out, []byte("asm_")) || bytes.Contains(out, []byte("do_syscall")) || bytes.Contains(out, []byte("el0"))
	return nil
}

// judgeRights holds what was tried against what should be.
func judgeRights(t *testing.T, m *machine) {
	rows := []string{"| as | records | Python | kernel names | what it says |", "|---|---|---|---|---|"}
	for _, c := range rightsCases {
		o := m.steps[c.name]
		var got tried
		if o == nil || len(o.lines) == 0 || json.Unmarshal([]byte(o.lines[len(o.lines)-1]), &got) != nil {
			t.Errorf("%s: no answer: %+v", c.name, o)
			continue
		}
		if got.Works != c.works || got.Python != c.python || got.Kernel != c.kernel {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c)
		}
		if !got.Works && strings.Contains(got.Says, "\n") {
			t.Errorf("%s: more than one line: %q", c.name, got.Says)
		}
		rows = append(rows, fmt.Sprintf("| %s | %s | %s | %s | %s |", c.name, yes(got.Works), yes(got.Python), yes(got.Kernel),
			strings.TrimPrefix(got.Says, "pathprof: ")))
	}
	t.Logf("\n%s", strings.Join(rows, "\n"))
}

func yes(ok bool) string {
	if ok {
		return "yes"
	}
	return "no"
}

// refusalPlan tries what an old kernel must refuse.
func refusalPlan(kind) plan {
	return plan{Steps: []step{
		{Name: "refused", Args: []string{"/usr/bin/pathprof", "record", "-o", "/tmp/r", "--", "true"}, Seconds: 60},
	}}
}

// judgeRefusal demands one line that says what would help: a newer kernel.
func judgeRefusal(oldest string) func(*testing.T, *machine) {
	return func(t *testing.T, m *machine) {
		o := m.steps["refused"]
		switch {
		case o == nil:
			t.Error("no answer")
		case o.status != 1 || len(o.lines) != 1 || !strings.Contains(o.lines[0], oldest):
			t.Errorf("status %d, want 1 and one line: %q", o.status, o.lines)
		default:
			t.Log(o.lines[0])
		}
	}
}
