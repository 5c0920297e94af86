// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"pathprof/perfevent/recording"
)

var update = flag.Bool("update", false, "rewrite what commands are expected to print")

// prompt begins a command in a script and in the manual.
const prompt = "$ pathprof "

// TestScripts runs the commands of testdata/*.txtar. A section is either a
// recording in its text form, called NAME.pathprof, or a command, called by its
// command line, with what it prints: standard output, then standard error with
// "stderr: " before each line, then "status: N" if it is not 0. All commands of a
// file run in one folder, in their order.
func TestScripts(t *testing.T) {
	scripts, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("got %v, %v; want scripts", scripts, err)
	}
	for _, path := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			here, err := os.Getwd()
			if err != nil {
				t.Fatal(err)
			}
			t.Chdir(t.TempDir())
			for i := range archive.Files {
				f := &archive.Files[i]
				args, isCommand := strings.CutPrefix(f.Name, prompt)
				if !isCommand {
					makeRecording(t, f.Name, f.Data)
					continue
				}
				got := printed(runTest(strings.Fields(args)...))
				if *update {
					f.Data = []byte(got)
				} else if want := string(f.Data); got != want {
					t.Errorf("%s: got\n%s\nwant\n%s", f.Name, got, want)
				}
			}
			if *update {
				if err := os.WriteFile(filepath.Join(here, path), txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// printed is a result as a script shows it.
func printed(r result) string {
	var b strings.Builder
	b.WriteString(r.stdout)
	for line := range strings.Lines(r.stderr) {
		b.WriteString("stderr: " + line)
	}
	if r.status != 0 {
		fmt.Fprintf(&b, "status: %d\n", r.status)
	}
	return b.String()
}

// makeRecording writes a recording from its text form.
func makeRecording(t *testing.T, dir string, text []byte) {
	t.Helper()
	d, err := recording.ParseText(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("%s: %v", dir, err)
	}
	w, err := recording.Create(dir, d.About, recording.Options{})
	if err != nil {
		t.Fatal(err)
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	frames, err := d.Frames()
	check(err)
	for _, f := range frames[min(1, len(frames)):] {
		check(w.Frame(f))
	}
	stacks, err := d.Stacks()
	check(err)
	for _, s := range stacks[min(1, len(stacks)):] {
		check(w.Stack(s))
	}
	for _, s := range d.SampleList {
		check(w.Sample(s))
	}
	for _, ev := range d.EventList {
		check(w.Event(ev))
	}
	check(w.Close(d.About))
}

// TestManual runs the commands of doc.go, on the recordings of the scripts, and
// compares what they print with what it says. A line "…" stands for lines that
// are left out.
func TestManual(t *testing.T) {
	manual, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	archive, err := txtar.ParseFile("testdata/shop.txtar")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	for _, f := range archive.Files {
		if !strings.HasPrefix(f.Name, prompt) {
			makeRecording(t, f.Name, f.Data)
		}
	}
	commands := 0
	for command, want := range examples(string(manual)) {
		commands++
		got := printed(runTest(strings.Fields(command)...))
		if !matches(got, want) {
			t.Errorf("%s%s: got\n%s\nwant\n%s", prompt, command, got, want)
		}
	}
	if commands == 0 {
		t.Error("the manual has no command")
	}
}

// examples yields the commands of a manual with what they print: the lines of
// a code block from the prompt to the next prompt or the block's end.
func examples(manual string) func(yield func(command, want string) bool) {
	return func(yield func(command, want string) bool) {
		command, want := "", ""
		flush := func() bool {
			ok := command == "" || yield(command, strings.TrimRight(want, "\n")+"\n")
			command, want = "", ""
			return ok
		}
		for line := range strings.Lines(manual) {
			line = strings.TrimRight(line, "\n")
			code, inBlock := strings.CutPrefix(line, "//\t")
			next, isCommand := strings.CutPrefix(code, prompt)
			switch {
			case isCommand:
				if !flush() {
					return
				}
				command = next
			case inBlock && command != "":
				want += code + "\n"
			case line == "//" && command != "":
				want += "\n"
			case !flush():
				return
			}
		}
		flush()
	}
}

// matches compares line by line; a line "…" stands for any number of lines.
func matches(got, want string) bool {
	parts := strings.Split(want, "…\n")
	if !strings.HasPrefix(got, parts[0]) {
		return false
	}
	got = got[len(parts[0]):]
	for i, part := range parts[1:] {
		at := strings.Index(got, part)
		if i == len(parts)-2 && strings.HasSuffix(got, part) {
			at = len(got) - len(part)
		}
		if at < 0 || at > 0 && got[at-1] != '\n' {
			return false
		}
		got = got[at+len(part):]
	}
	return got == ""
}

func TestMatches(t *testing.T) {
	for _, test := range []struct {
		got, want string
		ok        bool
	}{
		{"a\nb\n", "a\nb\n", true},
		{"a\nb\n", "a\n", false},
		{"a\nb\nc\n", "a\n…\nc\n", true},
		{"a\nb\nc\n", "a\n…\n", true},
		{"a\nb\nc\n", "…\nb\n…\n", true},
		{"a\nb\nc\nb\n", "a\n…\nb\n", true},
		{"a\nb\nc\n", "a\n…\nd\n", false},
		{"a\nxb\n", "a\n…\nb\n", false},
	} {
		if got := matches(test.got, test.want); got != test.ok {
			t.Errorf("%q, %q: got %v, want %v", test.got, test.want, got, test.ok)
		}
	}
}
