// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"pathprof/join/sched"
	"pathprof/perfevent/perftest"
)

// A descriptor that is another file at each wait is known as that file.
func TestFiles(t *testing.T) {
	perftest.Require(t, perftest.BPF, perftest.Python("3.11"))
	child, process := startPython(t, "3.11", "files.py")
	c, err := Open(Config{OnlyTargets: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if err := c.SetProcess(int32(child.PID), process); err != nil {
		t.Fatal(err)
	}
	type file struct {
		at   int64
		line string
	}
	var files []file
	var rec Record
	poll := func() {
		if err := c.Poll(&rec, func(r *Record) error {
			if !r.Sample && r.Event.Kind == sched.KindObject && r.Event.Object == 77 {
				files = append(files, file{r.Event.Time, fileLine(&r.File)})
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan []string, 1)
	go func() { done <- child.Lines() }()
	child.Say("go")
	var want []string
	for want == nil {
		select {
		case want = <-done:
		case <-time.After(10 * time.Millisecond):
		}
		poll()
	}
	slices.SortFunc(files, func(a, b file) int { return cmp.Compare(a.at, b.at) }) // of several CPUs
	var got []string
	for _, f := range files {
		got = append(got, f.line)
	}
	if len(want) < 10 || !slices.Equal(got, want) {
		t.Errorf("got\n%q, want\n%q", got, want)
	}
}

// fileLine is a file as files.py prints it.
func fileLine(f *File) string {
	local, peer := "-", "-"
	if f.Local.IsValid() {
		local = f.Local.String()
	}
	if f.Peer.Port() != 0 {
		peer = f.Peer.String()
	}
	return fmt.Sprintf("%d %s %s", f.Inode, local, peer)
}
