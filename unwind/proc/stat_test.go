// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"fmt"
	"testing"
)

// stat is the text of a stat file with a name, flags and start time.
func statText(comm string, flags, ticks uint64) string {
	return fmt.Sprintf("42 (%s) S 7 42 42 0 -1 %d 1 2 3 4 5 6 7 8 20 0 3 0 %d 1000 200 18446744073709551615 0\n", comm, flags, ticks)
}

func TestParseStat(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       Task
	}{
		{"plain", statText("python3", 0, 250), Task{TID: 42, Comm: "python3", State: 'S', PPID: 7, StartTime: 2_500_000_000}},
		{"blanks and parentheses", statText("a) R 1 (b", 0, 1), Task{TID: 42, Comm: "a) R 1 (b", State: 'S', PPID: 7, StartTime: 10_000_000}},
		{"empty name", statText("", 0, 0), Task{TID: 42, State: 'S', PPID: 7}},
		{"kernel thread", statText("kworker/0:1", 0x00208040, 0), Task{TID: 42, Comm: "kworker/0:1", State: 'S', PPID: 7, Kernel: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := parseStat([]byte(c.text))
			if err != nil || got != c.want {
				t.Errorf("got %+v, %v, want %+v", got, err, c.want)
			}
		})
	}
	for _, text := range []string{"", "42", "42 (x", ")(", "x (y) S 1", "42 (x) S 7 42", "42 (x) SS" + statText("", 0, 0)[6:],
		statText("x", 1<<33, 0), statText("x", 0, 1<<60)} {
		if got, err := parseStat([]byte(text)); err == nil {
			t.Errorf("%q: got %+v, want an error", text, got)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte(statText("a) (b", 0x200000, 77)))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := parseStat(text)
		if err == nil && (got.StartTime < 0 || got.StartTime%(1e9/ticksPerSecond) != 0) {
			t.Errorf("start time %d", got.StartTime)
		}
	})
}

func TestParseStatus(t *testing.T) {
	const text = "Name:\tpython3\nUmask:\t0022\nTgid:\t900\nPid:\t901\nNStgid:\t900\t1\nNSpid:\t901\t2\n" +
		"voluntary_ctxt_switches:\t20\nnonvoluntary_ctxt_switches:\t3\n"
	if got, err := parseSwitches([]byte(text)); err != nil || got != 23 {
		t.Errorf("switches: got %d, %v, want 23", got, err)
	}
	for _, c := range []struct {
		field string
		want  int
	}{{"Tgid", 900}, {"NSpid", 2}, {"NStgid", 1}} {
		if got, err := parseLast([]byte(text), c.field); err != nil || got != c.want {
			t.Errorf("%s: got %d, %v, want %d", c.field, got, err, c.want)
		}
	}
	for _, text := range []string{"", "Tgid:\n", "Tgid:\tx\n", "xTgid:\t1\n"} {
		if got, err := parseLast([]byte(text), "Tgid"); err == nil {
			t.Errorf("%q: got %d, want an error", text, got)
		}
	}
	if _, err := parseSwitches([]byte("voluntary_ctxt_switches:\t20\n")); err == nil {
		t.Error("one count of two: got no error")
	}
}
