// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pathprof/join"
	"pathprof/perfevent/perftest"
)

// mergeVersions are the interpreters on which native and Python frames are held
// to be in order, namedVersions those of them that are not stripped.
var (
	mergeVersions = append(slices.Clone(namedVersions), "3.14", "3.15")
	namedVersions = []string{"3.8", "3.9", "3.10", "3.11", "3.12", "3.13"}
)

// chainProgram goes through three levels of Python and C functions.
const chainProgram = `
import sys
import chain
def f3():
    return chain.inner(None)
def f2():
    return chain.middle(f3)
def f1():
    return chain.outer(f2)
def work():
    while True:
        f1()
print("ready", flush=True)
work()
`

// chainOfProgram is the only stack the program can have, or a part of it from
// its outermost function on.
var chainOfProgram = []string{
	"<module>", "work", "f1", "outer", "ext_a", "ext_b", "f2", "middle", "ext_c", "ext_d", "f3", "inner", "ext_e", "ext_f",
}

// sysconfig of an interpreter, as far as building needs it.
type sysconfig struct {
	Include, LibDir, StaticDir, Version, Libs, Prefix string
}

func askSysconfig(t *testing.T, python string) (c sysconfig) {
	t.Helper()
	out, err := exec.Command(python, "-c", `
import json, sys, sysconfig as s
v = s.get_config_var
print(json.dumps(dict(Include=s.get_paths()["include"], LibDir=v("LIBDIR"), StaticDir=v("LIBPL"), Prefix=sys.prefix,
    Version=v("LDVERSION"), Libs=" ".join([v("LIBS") or "", v("SYSLIBS") or "", "-lm"]))))`).Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out, &c); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(c.Include, "Python.h")); err != nil {
		t.Skipf("needs the headers of %s: %v", python, err)
	}
	return c
}

// gcc compiles chain.c without frame pointers, and without making one function
// of equal ones.
func gcc(t *testing.T, out string, args ...string) {
	t.Helper()
	perftest.Require(t, perftest.Tool("gcc"))
	args = append([]string{"-O2", "-fomit-frame-pointer", "-fno-ipa-icf", "-w", "-o", out, "testdata/chain.c"}, args...)
	if text, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, text)
	}
}

// mergedStacks returns the stacks of a process' samples.
func mergedStacks(t *testing.T, dir string, pid int, keep join.FrameSet) []join.Stack {
	t.Helper()
	r, err := openNamed(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	frames, err1 := r.Frames()
	stacks, err2 := r.Stacks()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	var list []join.Stack
	for s, err := range r.Samples() {
		if err != nil {
			t.Fatal(err)
		}
		if int(s.PID) == pid {
			list = append(list, join.Merge(&stacks[s.Stack], frameOf(frames), keep))
		}
	}
	return list
}

// namesOf are a stack's functions, outermost first, without the kernel's.
func namesOf(s *join.Stack) (names []string) {
	for _, f := range slices.Backward(s.Frames) {
		if f.Kind != join.KindKernel {
			names = append(names, f.Name)
		}
	}
	return names
}

// onChain says what is wrong with a stack. Between two known functions stands
// nothing else, unless others are allowed; within the innermost anything may.
func onChain(names, chain []string, others bool) string {
	next, last := 0, -1
	for i, name := range names {
		switch at := slices.Index(chain, name); {
		case at < 0:
		case at != next:
			return name + " is out of order"
		case !others && last >= 0 && last != i-1:
			return "something between " + chain[next-1] + " and " + name
		default:
			next, last = next+1, i
		}
	}
	if next == 0 {
		return "no known function"
	}
	return ""
}

// checkChain demands that all samples but one in a thousand show the chain, whole
// and in order, and that the rest says why not.
func checkChain(t *testing.T, dir string, pid int, keep join.FrameSet, chain []string) {
	t.Helper()
	whole, deep := 0, 0
	list := mergedStacks(t, dir, pid, keep)
	for i := range list {
		s := &list[i]
		names := namesOf(s)
		if s.Verdict != join.Merged || s.Reason != "" {
			if t.Logf("%s (%s): %s", s.Verdict, s.Reason, strings.Join(names, ";")); s.Reason == "" {
				t.Errorf("neither whole nor a reason")
			}
			continue
		}
		whole++
		if why := onChain(names, chain, keep == join.FramesAll); why != "" {
			t.Fatalf("%s frames: %s: %s", keep, why, strings.Join(names, ";"))
		}
		if slices.Contains(names, "ext_f") {
			deep++
		}
	}
	t.Logf("%s frames: %d of %d samples whole, %d in the innermost function", keep, whole, len(list), deep)
	if len(list) < 100 || deep < len(list)/10 || (len(list)-whole)*1000 > len(list) {
		t.Errorf("%s frames: %d of %d samples whole, %d in the innermost function", keep, whole, len(list), deep)
	}
}

// recordChain records a program for a while.
func recordChain(t *testing.T, child *perftest.Child) (dir string) {
	t.Helper()
	cmd, dir := startRecorder(t, "-p", strconv.Itoa(child.PID), "--period", "250us", "-d", "1s", "--scope", "process")
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	child.Kill()
	return dir
}

// The stack of a C extension without frame pointers, with Python functions on
// three levels around and within it, is the known one.
func TestExtensionChain(t *testing.T) {
	needRecorder(t)
	for _, minor := range mergeVersions {
		t.Run(minor, func(t *testing.T) {
			python := perftest.PythonPath(t, minor)
			c := askSysconfig(t, python)
			lib := t.TempDir()
			gcc(t, filepath.Join(lib, "chain.so"), "-fPIC", "-shared", "-I"+c.Include, "-I"+filepath.Dir(c.Include))
			child := perftest.StartSource(t, python, "chain_main.py", "import sys; sys.path.insert(0, sys.argv[1])\n"+chainProgram, lib)
			dir := recordChain(t, child)
			checkChain(t, dir, child.PID, join.FramesPython, chainOfProgram)
			checkChain(t, dir, child.PID, join.FramesAll, chainOfProgram)
		})
	}
}

// So it is with the trampolines of -X perf in between, which have the names that
// the interpreter gave them.
func TestPerfTrampolines(t *testing.T) {
	needRecorder(t)
	for _, minor := range []string{"3.12", "3.13"} {
		t.Run(minor, func(t *testing.T) {
			python := perftest.PythonPath(t, minor)
			lib, script := t.TempDir(), filepath.Join(t.TempDir(), "main.py")
			gcc(t, filepath.Join(lib, "chain.so"), "-fPIC", "-shared", "-I"+askSysconfig(t, python).Include)
			source := "import sys; sys.path.insert(0, sys.argv[1])\n" + chainProgram
			if err := os.WriteFile(script, []byte(source), 0o600); err != nil {
				t.Fatal(err)
			}
			child := perftest.Start(t, python, "-X", "perf", script, lib)
			t.Cleanup(func() { os.Remove("/tmp/perf-" + strconv.Itoa(child.PID) + ".map") })
			dir := recordChain(t, child)
			checkChain(t, dir, child.PID, join.FramesPython, chainOfProgram)
			list := mergedStacks(t, dir, child.PID, join.FramesNative)
			named := 0
			for i := range list {
				if slices.Contains(namesOf(&list[i]), "py::f1:"+script) {
					named++
				}
			}
			if named < len(list)/2 {
				t.Errorf("%d of %d samples in the trampoline of f1", named, len(list))
			}
		})
	}
}

// So is that of an extension that is loaded while the recording goes on, and whose
// file is deleted at once.
func TestLateAndDeletedExtension(t *testing.T) {
	needRecorder(t)
	python := perftest.PythonPath(t, "3.12")
	lib := t.TempDir()
	gcc(t, filepath.Join(lib, "chain.so"), "-fPIC", "-shared", "-I"+askSysconfig(t, python).Include)
	child := perftest.StartSource(t, python, "late", `
import os, sys
print("ready", flush=True)
sys.stdin.readline()
sys.path.insert(0, sys.argv[1])
import chain
os.unlink(chain.__file__)
`+strings.Replace(chainProgram, `print("ready", flush=True)`, "", 1), lib)
	cmd, dir := startRecorder(t, "-p", strconv.Itoa(child.PID), "--period", "250us", "-d", "2s", "--scope", "process")
	child.Say("go")
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	child.Kill()
	// The first samples may come before the tables.
	list := mergedStacks(t, dir, child.PID, join.FramesPython)
	if len(list) < 100 {
		t.Fatalf("%d samples", len(list))
	}
	deep := 0
	for _, s := range list[len(list)/5:] {
		names := namesOf(&s)
		if why := onChain(names, chainOfProgram, false); s.Verdict != join.Merged || why != "" {
			t.Fatalf("%s (%s): %s: %s", s.Verdict, s.Reason, why, strings.Join(names, ";"))
		}
		if slices.Contains(names, "ext_f") {
			deep++
		}
	}
	if deep < len(list)/20 {
		t.Errorf("%d of %d samples in the innermost function", deep, len(list))
	}
}

// So is the stack of a C program that has the interpreter in a library, or in
// itself.
func TestEmbeddedChain(t *testing.T) {
	needRecorder(t)
	chain := append([]string{"main", "run_a", "run_b"}, chainOfProgram...)
	for _, minor := range namedVersions {
		for _, kind := range []string{"shared", "static"} {
			t.Run(minor+" "+kind, func(t *testing.T) {
				python := perftest.PythonPath(t, minor)
				c := askSysconfig(t, python)
				t.Setenv("PYTHONHOME", c.Prefix)
				program := filepath.Join(t.TempDir(), "embeds-python")
				args := []string{"-DEMBED", "-I" + c.Include}
				library := filepath.Join(c.LibDir, "libpython"+c.Version+".so")
				if kind == "static" {
					library = filepath.Join(c.StaticDir, "libpython"+c.Version+".a")
					args = append(args, "-rdynamic")
				}
				if _, err := os.Stat(library); err != nil {
					t.Skipf("needs a %s library of %s: %v", kind, python, err)
				}
				args = append(args, library, "-Wl,-rpath,"+c.LibDir)
				gcc(t, program, append(args, strings.Fields(c.Libs)...)...)
				child := perftest.Start(t, program, chainProgram)
				dir := recordChain(t, child)
				checkChain(t, dir, child.PID, join.FramesAll, chain)
				if kind == "shared" { // else the program's functions stand in the interpreter's file
					checkChain(t, dir, child.PID, join.FramesPython, chainOfProgram)
				}
			})
		}
	}
}
