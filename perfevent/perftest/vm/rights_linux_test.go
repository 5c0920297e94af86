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
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pathprof/perfevent"
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
	want   tried
}

// tried is what a case came to.
type tried struct {
	Works  bool
	Python bool // names of Python functions, of a process of one's own
	Others bool // of another user's process
	Kernel bool // names of kernel functions
	Says   string
	// Step is set where the program itself did not start.
	Failed bool
}

var (
	all     = tried{Works: true, Python: true, Others: true, Kernel: true}
	refused = tried{}

	container = uintptr(syscall.CLONE_NEWNS | syscall.CLONE_NEWPID)
	three     = []int{capBPF, capPerfmon, capSysPtrace}
	four      = append(slices.Clone(three), capSyslog)
)

const (
	paranoidName     = "kernel.perf_event_paranoid"
	unprivilegedName = "kernel.unprivileged_bpf_disabled"
)

// rightsCases: what stays comes last (unprivileged_bpf_disabled=1, lockdown).
var rightsCases = []rightsCase{
	{"root", limits{}, all},
	{"root, perf_event_paranoid 2", sysctl(paranoidName, "2"), all},
	{"user, perf_event_paranoid 2", user("2"), refused},
	{"user, perf_event_paranoid 1", user("1"), refused},
	{"user, perf_event_paranoid 0", user("0"), refused},
	{"user, perf_event_paranoid -1", user("-1"), refused},
	{"user, CAP_BPF", user("2", capBPF), refused},
	{"user, CAP_BPF CAP_PERFMON", user("2", capBPF, capPerfmon), tried{Works: true, Python: true}},
	{"user, CAP_BPF CAP_PERFMON CAP_SYS_PTRACE", user("2", three...), tried{Works: true, Python: true, Others: true}},
	{"user, those and CAP_SYSLOG", user("2", four...), all},
	{"user, those four, perf_event_paranoid 3 (Debian)", user("3", four...), refused},
	{"user, those four, perf_event_paranoid -1", user("-1", four...), all},
	{"root, kptr_restrict 2", sysctl("kernel.kptr_restrict", "2"), tried{Works: true, Python: true, Others: true}},
	{"root, no BTF", limits{Hide: []string{"/sys/kernel/btf"}}, refused},
	{"root, no tracefs", limits{Hide: []string{"/sys/kernel/tracing"}}, all},
	{"root, own mount namespace", limits{Namespaces: syscall.CLONE_NEWNS}, all},
	{"root, own pid and mount namespace", limits{Namespaces: container}, refused},
	{"root, own user namespace", limits{Namespaces: container | syscall.CLONE_NEWUSER}, refused},
	{"user, those four, unprivileged_bpf_disabled 0", with(user("2", four...), unprivilegedName, "0"), all},
	{"user, those four, unprivileged_bpf_disabled 1", with(user("2", four...), unprivilegedName, "1"), all},
	{"root, lockdown integrity", limits{Lockdown: "integrity"}, all},
	{"root, lockdown confidentiality", limits{Lockdown: "confidentiality"}, refused},
}

func sysctl(name, value string) limits {
	return limits{Sysctls: map[string]string{name: value}}
}

// user is not root. Kernel addresses are for CAP_SYSLOG only, as they are where
// kptr_restrict is 1.
func user(paranoid string, caps ...int) limits {
	return limits{User: true, Caps: caps, Sysctls: map[string]string{paranoidName: paranoid, "kernel.kptr_restrict": "1"}}
}

func with(l limits, name, value string) limits {
	l.Sysctls[name] = value
	return l
}

// rightsPlan tries each case.
func rightsPlan(kind) plan {
	var p plan
	for _, c := range rightsCases {
		p.Steps = append(p.Steps, step{
			Name: c.name, Limits: c.limits, Args: []string{"/init"}, Seconds: 240, Beside: true,
			Env: []string{rightsEnv + "=1", "HOME=/tmp"},
		})
	}
	return p
}

// try makes a small recording and prints what came of it.
func try() {
	var result tried
	if err := result.record(); err != nil {
		result.Says, result.Failed = err.Error(), true
	}
	text, err := json.Marshal(result)
	if err != nil {
		text = []byte(err.Error())
	}
	fmt.Println(string(text))
}

// record attaches to another user's process while a program of its own runs.
func (r *tried) record() error {
	if os.Getpid() == 1 { // of a namespace, whose /proc is still the outer one
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return err
		}
		if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 220*time.Second)
	defer cancel()
	dir, err := os.MkdirTemp("", "rights")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	recording := filepath.Join(dir, "r")
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "/usr/bin/pathprof", "record", "-o", recording, "--period", "10ms", "--",
		"/usr/bin/python3", "/src/calibrate/workloads/profile10.py", "3", "--cpu")
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		r.Says = strings.TrimSpace(stderr.String())
		return nil
	}
	r.Works = true
	for line := range strings.Lines(stderr.String()) {
		if warning, ok := strings.CutPrefix(line, "warning: "); ok && hint.MatchString(warning) {
			r.Says = strings.TrimPrefix(r.Says+"; "+strings.TrimSpace(warning), "; ")
		}
	}
	out, err := output(ctx, "/usr/bin/pathprof", "dump", "--samples", "--frames", "all", recording)
	if err != nil {
		return err
	}
	r.Python, r.Others = bytes.Contains(out, []byte(";f0")), bytes.Contains(out, []byte(";of_others"))
	r.Kernel = bytes.Contains(out, []byte("asm_")) || bytes.Contains(out, []byte("do_syscall")) || bytes.Contains(out, []byte("el0"))
	return nil
}

// judgeRights holds what was tried against what should be.
func judgeRights(t *testing.T, m *machine) {
	rows := []string{"| as | records | Python names | of other users | kernel names | what it says |", "|---|---|---|---|---|---|"}
	for _, c := range rightsCases {
		o := m.steps[c.name]
		var got tried
		if o == nil || len(o.lines) == 0 || json.Unmarshal([]byte(o.lines[len(o.lines)-1]), &got) != nil || got.Failed {
			t.Errorf("%s: no answer: %+v", c.name, o)
			continue
		}
		says := strings.TrimPrefix(got.Says, "pathprof: ")
		same := got
		same.Says = ""
		complete := c.want == all
		switch {
		case same != c.want:
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		case complete != (says == ""):
			t.Errorf("%s: it says %q", c.name, says)
		case strings.Contains(says, "\n") || !complete && !hint.MatchString(says):
			t.Errorf("%s: no clear line with a hint: %q", c.name, says)
		}
		rows = append(rows, fmt.Sprintf("| %s | %s | %s | %s | %s | %s |", c.name, yes(got.Works), yes(got.Python), yes(got.Others),
			yes(got.Kernel), says))
	}
	t.Logf("\n%s", strings.Join(rows, "\n"))
}

// hint is what a line says that would help.
var hint = regexp.MustCompile(`sudo|use a kernel|boot with|sysctl|run outside|give CAP`)

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
func judgeRefusal(t *testing.T, m *machine) {
	o := m.steps["refused"]
	switch {
	case o == nil:
		t.Error("no answer")
	case o.status != 1 || len(o.lines) != 1 || !strings.Contains(o.lines[0], "needs Linux "+perfevent.MinKernel):
		t.Errorf("status %d, want 1 and one line: %q", o.status, o.lines)
	default:
		t.Log(o.lines[0])
	}
}
