// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// silence ends a machine whose console says nothing for so long. Steps have
// shorter limits of their own.
const silence = 5 * time.Minute

// With icount an instruction takes instructionNs of the machine's time.
const (
	instructionShift = 2
	instructionNs    = 1 << instructionShift
)

// outcome is how a step of a machine ended.
type outcome struct {
	status         int
	lines          []string
	profile        *profile
	passed, failed []string
	skipped        map[string]string // test to reason
	took           time.Duration
}

// machine is one run of an emulated machine.
type machine struct {
	release string
	page    int // bytes
	steps   map[string]*outcome
	kernel  []string // warnings of the kernel
	console []string // the last lines that are not messages
	took    time.Duration
}

// emulator returns the command line for a kind.
func emulator(k kind, kernel, initrd string) []string {
	args := []string{
		"-smp", "2", "-m", "2560", "-nographic", "-nodefaults", "-no-reboot",
		"-serial", "stdio", "-kernel", kernel, "-initrd", initrd, "-append",
	}
	// loglevel: errors and lockups, should the machine hang. What the kernel writes
	// may tear a message apart, and /dev/kmsg has all.
	options := "rdinit=/init loglevel=4 panic=-1 " + k.options + " console="
	processor := []string{"-cpu", "max", "-accel", "tcg,thread=multi"}
	if k.icount {
		processor = []string{"-cpu", "max", "-accel", "tcg,thread=single", "-icount", fmt.Sprint("shift=", instructionShift)}
	}
	if k.arch == "arm64" {
		machine := append([]string{"qemu-system-aarch64", "-M", "virt,gic-version=3"}, processor...)
		return append(append(machine, args...), options+"ttyAMA0")
	}
	processor[1] += ",-cx16"           // see the package comment
	processor[3] = "tcg,thread=single" // here, too
	// A timer that a busy host delays is none to the kernel's check of it, which
	// then panics (check_timer in arch/x86/kernel/apic/io_apic.c).
	options = "no_timer_check " + options
	return append(append(append([]string{"qemu-system-x86_64"}, processor...), args...), options+"ttyS0")
}

// boot runs a machine to its end. progress hears of each step.
func boot(k kind, kernel, initrd string, progress func(string)) (*machine, error) {
	line := emulator(k, kernel, initrd)
	cmd := exec.Command(line[0], line[1:]...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	m := &machine{steps: map[string]*outcome{}}
	start := time.Now()
	watchdog := time.AfterFunc(silence, func() { cmd.Process.Kill() })
	done, err := m.follow(out, func() { watchdog.Reset(silence) }, progress)
	hung := !watchdog.Stop()
	werr := cmd.Wait()
	m.took = time.Since(start)
	switch {
	case hung:
		err = fmt.Errorf("silent for %v", silence)
	case err == nil && !done:
		err = fmt.Errorf("ended before its plan (%v)", werr)
	}
	if err != nil {
		return m, fmt.Errorf("machine: %w; the console's last lines:\n%s", err, strings.Join(m.console, "\n"))
	}
	return m, nil
}

// follow reads the console to its end and tells whether the plan was carried out.
func (m *machine) follow(console io.Reader, alive func(), progress func(string)) (done bool, err error) {
	lines := bufio.NewReader(console)
	begin := time.Now()
	for {
		line, rerr := lines.ReadString('\n')
		if rerr != nil {
			if !errors.Is(rerr, io.EOF) {
				err = errors.Join(err, rerr)
			}
			return done, err
		}
		alive()
		line = strings.TrimSpace(line)
		_, text, ok := strings.Cut(line, mark)
		if !ok {
			if line != "" {
				m.console = append(m.console[max(0, len(m.console)-200):], line)
			}
			continue
		}
		var msg message
		value := json.NewDecoder(strings.NewReader(text))
		if jerr := value.Decode(&msg); jerr != nil {
			err = errors.Join(err, fmt.Errorf("message %q: %w", line, jerr))
			continue
		}
		// The kernel may have written behind it.
		if rest := text[value.InputOffset():]; rest != "" {
			m.console = append(m.console, rest)
		}
		done = done || msg.Done
		m.take(msg, &begin, progress)
	}
}

func (m *machine) take(msg message, begin *time.Time, progress func(string)) {
	switch {
	case msg.Ready != "":
		m.release, m.page = msg.Ready, msg.Page
		progress(fmt.Sprintf("%s is up after %.0f s", msg.Ready, time.Since(*begin).Seconds()))
		*begin = time.Now()
		return
	case msg.Step == "":
		m.kernel = append(m.kernel, msg.Kernel...)
		if msg.Line != "" {
			m.console = append(m.console, msg.Line)
		}
		return
	}
	o := m.steps[msg.Step]
	if o == nil {
		o = &outcome{skipped: map[string]string{}}
		m.steps[msg.Step] = o
	}
	switch {
	case msg.Profile != nil:
		o.profile = msg.Profile
	case msg.Status != nil:
		o.status, o.took = *msg.Status, time.Since(*begin)
		*begin = time.Now()
		o.readTests()
		progress(fmt.Sprintf("%s: status %d, %d passed, %d failed, %d skipped, %.0f s",
			msg.Step, o.status, len(o.passed), len(o.failed), len(o.skipped), o.took.Seconds()))
	default:
		o.lines = append(o.lines, msg.Line)
	}
}

// readTests finds the verdicts of package testing in a step's output.
func (o *outcome) readTests() {
	said, test := map[string][]string{}, ""
	for _, line := range o.lines {
		trimmed := strings.TrimSpace(line)
		if strings.HasPrefix(trimmed, "=== ") { // RUN, CONT or NAME, and whose lines follow
			test = trimmed[strings.LastIndex(trimmed, " ")+1:]
			continue
		}
		verdict, rest, ok := strings.Cut(strings.TrimPrefix(trimmed, "--- "), ": ")
		if !ok || !strings.HasPrefix(trimmed, "--- ") {
			said[test] = append(said[test], trimmed)
			continue
		}
		name, _, _ := strings.Cut(rest, " ")
		switch verdict {
		case "PASS":
			o.passed = append(o.passed, name)
		case "FAIL":
			o.failed = append(o.failed, name)
		case "SKIP":
			o.skipped[name] = strings.Join(said[name], " ")
		}
	}
}

// The kernel writes before, between and behind messages.
func TestFollow(t *testing.T) {
	const said = "[    0.1] hello\n\n" + mark + `{"Ready":"6.1","Page":4096}` + "\n" + mark + `{"Step":"a","Line":"ok \u003e {}"}[  11.1] perf: slow` + "\n\n" +
		"[  12.0] noise" + mark + `{"Step":"a","Status":0}` + "\n" + mark + `{"Done":true}`
	m := &machine{steps: map[string]*outcome{}}
	done, err := m.follow(strings.NewReader(said+"\n"), func() {}, func(string) {})
	if err != nil || !done || m.release != "6.1" || m.page != 4096 {
		t.Errorf("got %v, %v, %+v", done, err, m)
	}
	if o := m.steps["a"]; o == nil || !slices.Equal(o.lines, []string{"ok > {}"}) || o.took == 0 {
		t.Errorf("step: %+v", o)
	}
	if got, want := strings.Join(m.console, "|"), "[    0.1] hello|[  11.1] perf: slow"; got != want {
		t.Errorf("console: got %q, want %q", got, want)
	}
	if _, err := m.follow(strings.NewReader(mark+`{"Step":"a",[ 13.0] torn`+"\n"), func() {}, func(string) {}); err == nil {
		t.Error("a torn message: no error")
	}
}
