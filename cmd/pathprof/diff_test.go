// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os/exec"
	"regexp"
	"testing"

	"golang.org/x/tools/txtar"
)

// TestDiffPair: a pair that diff writes has equal lengths, and says of each function
// what is known of its difference.
func TestDiffPair(t *testing.T) {
	archive, err := txtar.ParseFile("testdata/diff.txtar")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	for _, f := range archive.Files[:2] {
		makeRecording(t, f.Name, f.Data)
	}
	a, b := archive.Files[0].Name, archive.Files[1].Name
	// The last wait has no known cause, and is no part of what is faster. For half as
	// many requests, everything of B counts twice: render takes 0.96 s and 1.6 s.
	for _, test := range []struct {
		diff, pprof []string
		want        string
	}{
		{nil, nil, `(?m)^ +640ms .* render$`},
		{nil, []string{"-tagfocus=difference=slower"}, `(?m)^ +640ms .* render$`},
		{nil, []string{"-tagfocus=difference=faster"}, `(?m)^ +-6[24]0ms .* main$`},
		{[]string{"--requests", "20,10"}, []string{"-tagfocus=state=running"}, `(?m)^ +2240ms .* render$`},
	} {
		args := append([]string{"diff", a, b, "--pprof", "pair"}, test.diff...)
		if r := runTest(args...); r.status != 0 {
			t.Fatal(r.stderr)
		}
		args = append([]string{"tool", "pprof", "-top", "-diff_base=pair/a.pb.gz"}, append(test.pprof, "pair/b.pb.gz")...)
		out, err := exec.Command("go", args...).CombinedOutput()
		if err != nil || !regexp.MustCompile(test.want).Match(out) {
			t.Errorf("%v: %v, want %s in\n%s", args, err, test.want, out)
		}
	}
}

// TestDiffBase: go tool pprof subtracts two of our profiles right, though the
// numbers of processes and threads differ.
func TestDiffBase(t *testing.T) {
	archive, err := txtar.ParseFile("testdata/diff.txtar")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	for _, f := range archive.Files[:2] {
		makeRecording(t, f.Name, f.Data)
		if r := runTest("pprof", f.Name, "-o", "out-"+f.Name); r.status != 0 {
			t.Fatal(r.stderr)
		}
	}
	base, after := "out-before.pathprof/path.pb.gz", "out-after.pathprof/path.pb.gz"
	// As the text says: in 3.2 s, render takes 0.64 s more, and the sleep less.
	for _, test := range []struct {
		args []string
		want string
	}{
		{nil, `(?m)^ +640ms .* render$`},
		{nil, `(?m)^ +-640ms .* main$`},
		{[]string{"-tagfocus=state=running"}, `(?m)^ +640ms .* render$`},
		{[]string{"-sample_index=samples"}, `(?m)^ +64(ms)? .* render$`},
	} {
		args := append([]string{"tool", "pprof", "-top", "-unit=ms", "-diff_base=" + base}, append(test.args, after)...)
		out, err := exec.Command("go", args...).CombinedOutput()
		if err != nil || !regexp.MustCompile(test.want).Match(out) {
			t.Errorf("%v: %v, want %s in\n%s", args, err, test.want, out)
		}
		if regexp.MustCompile(`(?m)[1-9]\S* .* parse$`).Match(out) {
			t.Errorf("%v: parse did not change\n%s", args, out)
		}
	}
}
