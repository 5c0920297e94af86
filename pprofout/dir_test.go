// SPDX-License-Identifier: Apache-2.0

package pprofout

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"pathprof/join"
	"pathprof/join/execgraph"
)

func TestWriteDir(t *testing.T) {
	// Times by hand: see the entries of example.
	tests := []struct {
		by   By
		want []string
	}{
		{ByClass, []string{
			"path.pb.gz 1600 7 everything",
			"01-running-app.pb.gz 400 3 running app/app",
			"02-blocked-timer-worker-in-wait-task.pb.gz 400 0 in wait (task app/worker): blocked (timer hrtimer) app/worker",
			"03-blocked-timer-worker.pb.gz 400 0 blocked (timer hrtimer) app/worker",
			"04-running-worker-in-wait-task.pb.gz 200 2 in wait (task app/worker): running app/worker",
			"05-running-worker.pb.gz 200 2 running app/worker",
		}},
		{ByState, []string{
			"path.pb.gz 1600 7 everything",
			"01-running.pb.gz 800 7 running",
			"02-blocked.pb.gz 800 0 blocked",
		}},
		{ByThread, []string{
			"path.pb.gz 1600 7 everything",
			"01-thread-app-worker.pb.gz 1200 4 app/worker (tid 11)",
			"02-thread-app-app.pb.gz 400 3 app/app (tid 10)",
		}},
		{ByProcess, []string{
			"path.pb.gz 1600 7 everything",
			"01-process-app-10.pb.gz 1600 7 app (pid 10)",
		}},
		{BySegment, []string{
			"path.pb.gz 1600 7 everything",
			"01-blocked-timer-worker-in-wait-task-at-0.000ms.pb.gz 400 0 in wait (task app/worker): blocked (timer hrtimer) app/worker, from 0.000000 s",
			"02-blocked-timer-worker-at-0.000ms.pb.gz 400 0 blocked (timer hrtimer) app/worker, from 0.000000 s",
			"03-running-app-at-0.000ms.pb.gz 300 3 running app/app, from 0.000000 s",
			"04-running-worker-in-wait-task-at-0.001ms.pb.gz 200 2 in wait (task app/worker): running app/worker, from 0.000001 s",
			"05-running-app-at-0.001ms.pb.gz 100 0 running app/app, from 0.000001 s",
			"06-running-worker-at-0.001ms.pb.gz 100 1 running app/worker, from 0.000001 s",
			"07-running-worker-at-0.001ms.pb.gz 100 1 running app/worker, from 0.000001 s",
		}},
	}
	for _, tt := range tests {
		t.Run(string(tt.by), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "new", "out")
			files, err := WriteDir(example(), dir, tt.by)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range files {
				got = append(got, fmt.Sprintf("%s %d %d %s", filepath.Base(f.Path), f.Ns, f.Samples, f.What))
				checkFile(t, f)
			}
			if g, w := strings.Join(got, "\n"), strings.Join(tt.want, "\n"); g != w {
				t.Errorf("got:\n%s\nwant:\n%s", g, w)
			}
			left, err := os.ReadDir(dir)
			if err != nil || len(left) != len(files) {
				t.Errorf("%d files in the directory, want %d (%v)", len(left), len(files), err)
			}
		})
	}
}

// checkFile reads a file back: mode, sums, at least the common comments.
func checkFile(t *testing.T, f File) {
	t.Helper()
	in, err := os.Open(f.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	st, err := in.Stat()
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%s: mode %v, %v", f.Path, st.Mode(), err)
	}
	p, err := profile.Parse(in)
	if err != nil {
		t.Fatal(err)
	}
	var ns, n int64
	for _, s := range p.Sample {
		ns += s.Value[0]
		n += s.Value[1]
	}
	if ns != f.Ns || n != f.Samples || len(p.Comments) < 8 {
		t.Errorf("%s: %d ns, %d samples, %d comments, want %d, %d", f.Path, ns, n, len(p.Comments), f.Ns, f.Samples)
	}
}

// A file of one class tells the margins of its functions.
func TestClassComments(t *testing.T) {
	p := example()
	c := &p.Paths[0].Classes[0]
	c.Functions = append(c.Functions, join.Function{Name: "parse", Estimate: join.Estimate{Samples: 40, Share: 0.4, Low: 0.31, High: 0.5, Method: join.MethodWilson}})
	for range maxFunctions {
		c.Functions = append(c.Functions, join.Function{Name: "small", Estimate: join.Estimate{Samples: 1, Share: 0.01, TooFew: true}})
	}
	c.Functions = append(c.Functions, join.Function{Name: "caller", TotalShare: 1})
	dir := t.TempDir()
	files, err := WriteDir(p, dir, ByClass)
	if err != nil {
		t.Fatal(err)
	}
	text := comment(t, files[1].Path)
	for _, want := range []string{
		"segment class: running app/app; 400 ns in 2 segments, 3 samples in 1 clusters, 100 ns unsampled",
		"function App.handle: 100.00 %, 3 of 3 samples: too few",
		"function parse: 40.00 % [31.00 %, 50.00 %] (wilson), 40 of 3 samples",
		"and 2 more functions",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "caller") {
		t.Errorf("a function without time of its own in\n%s", text)
	}
	if text := comment(t, files[2].Path); !strings.Contains(text, "function loop: 100.00 % of the time waited, exact") {
		t.Errorf("no exact wait in\n%s", text)
	}
}

func comment(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p, err := profile.ParseData(b)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(p.Comments, "\n")
}

func TestWriteDirErrors(t *testing.T) {
	p := example()
	if _, err := WriteDir(p, t.TempDir(), "colour"); err == nil {
		t.Error("by colour: no error")
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := WriteDir(p, file, ByClass); err == nil {
		t.Error("directory is a file: no error")
	}
	path := &p.Paths[0]
	for range maxFiles {
		path.Path.Segments = append(path.Path.Segments, path.Path.Segments[3])
		path.ClassOf = append(path.ClassOf, 0)
		path.Entries = append(path.Entries, join.Entry{Stack: path.Entries[0].Stack, Segment: len(path.ClassOf) - 1})
	}
	dir := t.TempDir()
	if _, err := WriteDir(p, dir, BySegment); !errors.Is(err, ErrTooManyFiles) {
		t.Errorf("too many segments: %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("%d files were written all the same", len(left))
	}
}

func TestSlug(t *testing.T) {
	tests := []struct{ in, want string }{
		{"worker", "worker"},
		{"../../etc/passwd", "_.._etc_passwd"},
		{".hidden", "hidden"},
		{"a b\n\x00é/", "a_b____"},
		{"-rf", "rf"},
		{"", "unnamed"},
		{"...", "unnamed"},
		{strings.Repeat("x", 100), strings.Repeat("x", maxSlug)},
	}
	for _, tt := range tests {
		if got := slug(tt.in); got != tt.want {
			t.Errorf("slug(%q) = %q, want %q", tt.in, got, tt.want)
		}
	}
}

// The tool people use must read the files.
func TestGoToolPprof(t *testing.T) {
	if testing.Short() {
		t.Skip("builds go tool pprof")
	}
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("no go command")
	}
	files, err := WriteDir(example(), t.TempDir(), ByClass)
	if err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		cmd := exec.Command(goTool, append([]string{"tool", "pprof"}, args...)...)
		cmd.Env = append(os.Environ(), "PPROF_TMPDIR="+t.TempDir(), "GOPROXY=off", "GOTOOLCHAIN=local")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("go tool pprof %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return strings.Join(strings.Fields(string(out)), " ")
	}
	contains := func(out string, wants ...string) {
		t.Helper()
		for _, want := range wants {
			if !strings.Contains(out, want) {
				t.Errorf("no %q in\n%s", want, out)
			}
		}
	}
	// By hand: loop holds 400+400 blocked and 200+200 running of 1600 ns.
	contains(run("-top", "-unit=ns", files[0].Path), "Type: path", "800ns 50.00%", "schedule",
		"0 0% 100% 1200ns 75.00% loop", "100ns 6.25% 93.75% 300ns 18.75% App.handle", "300ns 18.75% <module>")
	contains(run("-top", "-unit=ns", "-tagfocus=path_tid=10", files[0].Path), "1000ns, 62.50% of 1600ns total")
	contains(run("-top", "-unit=ns", "-tagfocus=state=blocked", files[0].Path), "800ns, 50.00% of 1600ns total")
	contains(run("-tags", "-unit=ns", files[0].Path), "timer hrtimer", "in wait (task app/worker): running app/worker", "web1")
	contains(run("-top", "-sample_index=samples", files[0].Path), "Type: samples")
	contains(run("-top", "-sample_index=cpu", files[0].Path), "Type: cpu")
	contains(run("-comments", files[1].Path), "function App.handle: 100.00 %, 3 of 3 samples: too few")
	contains(run("-top", "-unit=ns", "-diff_base="+files[2].Path, files[3].Path), "Type: path")
	contains(run("-top", "-unit=ns", "-tagroot=thread", files[0].Path), "1200ns 75.00% worker")
}

// On a busy machine hundreds of tasks preempt: that is one file.
func TestPreemptionsAreOneClass(t *testing.T) {
	p := example()
	for i, who := range []string{"gzip/gzip", "make/make"} {
		k := &p.Paths[0].Classes[i+1].Key
		*k = p.Paths[0].Classes[0].Key
		k.State = execgraph.Preempted
		k.Cause = join.Reason{Kind: execgraph.CauseTask, Detail: who}
	}
	p.Paths = p.Paths[:1]
	files, err := WriteDir(p, t.TempDir(), ByClass)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 3 || files[1].What != "preempted app/app" || files[1].Ns != 600 || files[2].Ns != 400 {
		t.Fatalf("files %+v", files)
	}
	b, err := os.ReadFile(files[1].Path)
	if err != nil {
		t.Fatal(err)
	}
	prof, err := profile.ParseData(b)
	if err != nil {
		t.Fatal(err)
	}
	causes := make(map[string]int64)
	for _, s := range prof.Sample {
		causes[s.Label["cause"][0]] += s.Value[0]
	}
	if causes["task gzip/gzip"] != 400 || causes["task make/make"] != 200 {
		t.Errorf("causes %v", causes)
	}
}
