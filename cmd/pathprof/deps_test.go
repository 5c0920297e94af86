// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// module is the module's path; its folder is two above this one.
const (
	module     = "pathprof"
	moduleRoot = "../.."
)

// doors says which packages may import a third-party module. One package knows
// its traps; the others see our own types. A module that is not listed may not
// be imported at all: a new dependency is a decision, not an accident.
var doors = map[string][]string{
	"github.com/elastic/go-perf":                {"perfevent"},
	"github.com/cilium/ebpf":                    {"perfevent/bpf"},
	"github.com/apache/arrow-go/v18":            {"perfevent/recording"},
	"github.com/klauspost/compress":             {"perfevent/recording"},
	"github.com/go-delve/delve/pkg/dwarf/frame": {"unwind"},
	"github.com/ianlancetaylor/demangle":        {"unwind"},
	"github.com/ulikunitz/xz":                   {"unwind"},
	"github.com/prometheus/procfs":              {"unwind/proc"},
	"github.com/google/pprof/profile":           {"pprofout"},
	"gonum.org/v1/gonum":                        {"calibrate", "join"}, // join: Student's distribution
	"gonum.org/v1/plot":                         {"calibrate"},
	"github.com/spf13/cobra":                    {"cmd/pathprof"},
	"github.com/spf13/pflag":                    {"cmd/pathprof"},
	"github.com/jedib0t/go-pretty/v6":           {"cmd/pathprof"},
	"github.com/schollz/progressbar/v3":         {"cmd/pathprof"},
	"golang.org/x/term":                         {"cmd/pathprof"},
	"golang.org/x/sys":                          {"perfevent", "perfevent/bpf", "perfevent/perftest", "unwind/proc", "cmd/pathprof", "calibrate", "calibrate/peers"},
	"golang.org/x/sync":                         {"*"},
}

// mayImport says which of our packages a package may import. What is missing
// here is missing on purpose: unwind and pyframes do not know each other, what
// analyses a recording does not know what captured it, nobody imports cmd, and
// perftest is for tests.
var mayImport = map[string][]string{
	"join/sched":            {},
	"join/execgraph":        {"join/sched"},
	"unwind/proc":           {},
	"unwind":                {"unwind/proc"},
	"pyframes":              {"unwind/proc"},
	"perfevent":             {},
	"perfevent/perftest":    {"perfevent"},
	"perfevent/perftest/vm": {},
	"perfevent/recording":   {"join/sched", "perfevent"},
	"perfevent/bpf":         {"join/sched", "perfevent", "perfevent/recording", "pyframes", "unwind", "unwind/proc"},
	"join":                  {"join/sched", "join/execgraph", "perfevent/recording"},
	"pprofout":              {"join", "join/sched", "join/execgraph", "perfevent/recording"},
	"calibrate":             {"*"},
	"calibrate/kit":         {},
	"calibrate/peers":       {"calibrate", "perfevent", "perfevent/recording"},
	"cmd/pathprof":          {"*"},
}

// pure packages analyse; they do so on any system, from files.
var pure = []string{"join", "join/sched", "join/execgraph", "pprofout", "perfevent/recording"}

// portable packages hold types and decoders next to Linux code, and build
// everywhere.
var portable = []string{"perfevent", "unwind", "unwind/proc", "pyframes"}

// impure imports reach for the operating system.
var impure = []string{"syscall", "unsafe", "os/exec", "golang.org/x/sys", "github.com/cilium/ebpf", "C"}

// listed is what the test reads of go list's answer.
type listed struct {
	ImportPath string
	Name       string
	Imports    []string
	GoFiles    []string
	Standard   bool
	Module     *struct{ Path string }
}

func (p listed) short() string { return strings.TrimPrefix(p.ImportPath, module+"/") }

// goList runs go list over the module for a system.
func goList(t *testing.T, goos string) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Name,Imports,GoFiles,Standard,Module", "./...")
	cmd.Dir = moduleRoot
	cmd.Env = append(os.Environ(), "GOOS="+goos, "CGO_ENABLED=0")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	var packages []listed
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}

func TestImports(t *testing.T) {
	for _, goos := range []string{"linux", "darwin"} {
		for _, p := range goList(t, goos) {
			allowed, known := mayImport[p.short()]
			if !known && len(p.GoFiles) > 0 {
				t.Errorf("%s is not in the import table: what may it import?", p.short())
				continue
			}
			for _, path := range p.Imports {
				if msg := judgeImport(p.short(), allowed, path); msg != "" {
					t.Errorf("%s (%s): %s", p.short(), goos, msg)
				}
			}
		}
	}
}

// judgeImport says what is wrong with a package importing a path.
func judgeImport(pkg string, allowed []string, path string) string {
	if slices.Contains(pure, pkg) && slices.ContainsFunc(impure, func(i string) bool { return under(path, i) }) {
		return "imports " + path + ", but analyses recordings on any system"
	}
	if ours, ok := strings.CutPrefix(path, module+"/"); ok {
		switch {
		case strings.HasPrefix(ours, "cmd/"):
			return "imports " + path + ": nobody imports a command"
		case ours == "perfevent/perftest":
			return "imports " + path + " outside of a test"
		case !slices.Contains(allowed, ours) && !slices.Contains(allowed, "*"):
			return "imports " + path + " against the table"
		}
		return ""
	}
	if host, _, _ := strings.Cut(path, "/"); !strings.Contains(host, ".") {
		return "" // the standard library
	}
	for _, door := range slices.Sorted(maps.Keys(doors)) {
		if under(path, door) {
			if users := doors[door]; slices.Contains(users, pkg) || slices.Contains(users, "*") {
				return ""
			}
			return "imports " + path + ", whose door is " + strings.Join(doors[door], ", ")
		}
	}
	return "imports " + path + ", which has no door"
}

// under tells whether an import path is a module or package or lies in it.
func under(path, parent string) bool {
	return path == parent || strings.HasPrefix(path, parent+"/")
}

func TestJudgeImport(t *testing.T) {
	for _, test := range []struct {
		pkg, path string
		ok        bool
	}{
		{"join", "sort", true},
		{"join", "syscall", false},
		{"join", "pathprof/join/sched", true},
		{"join", "pathprof/pyframes", false},
		{"pyframes", "pathprof/unwind", false},
		{"unwind", "pathprof/pyframes", false},
		{"unwind", "pathprof/unwind/proc", true},
		{"perfevent", "pathprof/perfevent/perftest", false},
		{"calibrate", "pathprof/cmd/pathprof", false},
		{"perfevent", "github.com/elastic/go-perf", true},
		{"perfevent/bpf", "github.com/cilium/ebpf/link", true},
		{"perfevent", "github.com/cilium/ebpf", false},
		{"join", "github.com/google/pprof/profile", false},
		{"pprofout", "github.com/google/pprof/profile", true},
		{"pprofout", "github.com/google/pprof/driver", false},
		{"cmd/pathprof", "example.org/new", false},
	} {
		msg := judgeImport(test.pkg, mayImport[test.pkg], test.path)
		if got := msg == ""; got != test.ok {
			t.Errorf("%s imports %s: got %q, want allowed: %v", test.pkg, test.path, msg, test.ok)
		}
	}
}

// TestPortable builds for another system what has to run there.
func TestPortable(t *testing.T) {
	if testing.Short() {
		t.Skip("builds for another system")
	}
	args := []string{"build"}
	for _, p := range slices.Concat(pure, portable) {
		args = append(args, module+"/"+p)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = moduleRoot
	cmd.Env = append(os.Environ(), "GOOS=darwin", "GOARCH=arm64", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("go build for darwin: %v\n%s", err, out)
	}
}
