// SPDX-License-Identifier: Apache-2.0

package perfevent

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

// event is ParseEvent for names that are right.
func event(t testing.TB, name string) EventSpec {
	t.Helper()
	e, err := ParseEvent(name)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestParseEvent(t *testing.T) {
	tests := []struct {
		name            string
		want, unit      string
		clock, hardware bool
	}{
		{name: "auto", want: "auto"},
		{name: "cycles", want: "cycles", unit: UnitCount, hardware: true},
		{name: "cpu-cycles", want: "cycles", unit: UnitCount, hardware: true},
		{name: "branch-instructions", want: "branches", unit: UnitCount, hardware: true},
		{name: "cpu-clock", want: "cpu-clock", unit: UnitNanoseconds, clock: true},
		{name: "task-clock", want: "task-clock", unit: UnitNanoseconds, clock: true},
		{name: "page-faults", want: "page-faults", unit: UnitCount},
		{name: "cs", want: "context-switches", unit: UnitCount},
		{name: "r01c2", want: "r01c2", unit: UnitCount, hardware: true},
		{name: "rffffffffffffffff", want: "rffffffffffffffff", unit: UnitCount, hardware: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e, err := ParseEvent(tt.name)
			if err != nil {
				t.Fatal(err)
			}
			if e.String() != tt.want || e.Unit() != tt.unit || e.IsClock() != tt.clock || e.IsHardware() != tt.hardware {
				t.Errorf("got %s, unit %q, clock %v, hardware %v; want %+v", e, e.Unit(), e.IsClock(), e.IsHardware(), tt)
			}
		})
	}
	for _, name := range []string{"", "cycle", "r", "rxyz", "r10000000000000000", "sched:sched_switch", "AUTO"} {
		if e, err := ParseEvent(name); err == nil {
			t.Errorf("%q: got %v, want an error", name, e)
		}
	}
}

// Every name that is listed is taken, and has a period that is possible.
func TestEventNames(t *testing.T) {
	for _, name := range EventNames() {
		if name == "rHEX" {
			continue // the form of names
		}
		e := event(t, name)
		if e.String() != name {
			t.Errorf("%s: parsed as %s", name, e)
		}
		if !e.IsAuto() {
			if err := (Period{Value: e.DefaultPeriod()}).check(e); err != nil {
				t.Errorf("%s: default period: %v", name, err)
			}
		}
	}
	if Cycles.String() != "cycles" || CPUClock.String() != "cpu-clock" {
		t.Errorf("got %v and %v, want cycles and cpu-clock", Cycles, CPUClock)
	}
}

func TestParsePeriod(t *testing.T) {
	tests := []struct {
		text, event string
		want        Period
		err         string // part of the error; empty: none
	}{
		{"1ms", "cpu-clock", Period{1e6, true}, ""},
		{"100us", "task-clock", Period{1e5, true}, ""},
		{"1.5ms", "cpu-clock", Period{1.5e6, true}, ""},
		{"10us", "cpu-clock", Period{1e4, true}, ""},
		{"1000000", "cpu-clock", Period{1e6, false}, ""},
		{"1000000", "cycles", Period{1e6, false}, ""},
		{"1M", "cycles", Period{1e6, false}, ""},
		{"20k", "page-faults", Period{2e4, false}, ""},
		{"3G", "cycles", Period{3e9, false}, ""},
		{"1", "major-faults", Period{1, false}, ""},
		{"1ms", "auto", Period{1e6, true}, ""},
		{"500k", "auto", Period{5e5, false}, ""},
		{"1ms", "cycles", Period{}, "cycles counts events, not time"},
		{"100us", "page-faults", Period{}, "--event cpu-clock"},
		{"0", "cycles", Period{}, "above zero"},
		{"0ms", "cpu-clock", Period{}, "above zero"},
		{"-1ms", "cpu-clock", Period{}, "above zero"},
		{"-5", "cycles", Period{}, "neither"},
		{"5us", "cpu-clock", Period{}, "no less than 10µs"},
		{"9999", "cpu-clock", Period{}, "no less than 10µs"},
		{"1m", "cpu-clock", Period{}, "1M"},
		{"20G", "cpu-clock", Period{}, "longer than 10s"},
		{"18446744073709551616", "cycles", Period{}, "too large"},
		{"18446744073709551615", "cycles", Period{}, "too large"},
		{"18446744073709551615k", "cycles", Period{}, "too large"},
		{"", "cycles", Period{}, "neither"},
		{"fast", "cycles", Period{}, "neither"},
		{"1x", "cpu-clock", Period{}, "neither"},
	}
	for _, tt := range tests {
		t.Run(tt.text+" "+tt.event, func(t *testing.T) {
			got, err := ParsePeriod(tt.text, event(t, tt.event))
			if tt.err == "" {
				if err != nil || got != tt.want {
					t.Errorf("got %+v, %v; want %+v", got, err, tt.want)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("got %+v, %v; want an error with %q", got, err, tt.err)
			}
		})
	}
}

func TestParseFreq(t *testing.T) {
	for text, want := range map[string]uint64{"1000": 1000, "4k": 4000, "99": 99} {
		if got, err := ParseFreq(text); err != nil || got != want {
			t.Errorf("%q: got %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "0", "-1", "1.5", "1kHz", "99999999999999999999"} {
		if got, err := ParseFreq(text); err == nil {
			t.Errorf("%q: got %d, want an error", text, got)
		}
	}
}

// A period that was read is possible, and its text form reads as the same.
func FuzzParsePeriod(f *testing.F) {
	for _, text := range []string{"1ms", "1000000", "100us", "20k", "1G", "-1", "0", "1h", "18446744073709551615k"} {
		for i := range len(events) + 1 {
			f.Add(text, i)
		}
	}
	f.Fuzz(func(t *testing.T, text string, i int) {
		e := Auto
		if i >= 0 && i < len(events) {
			e = events[i]
		}
		p, err := ParsePeriod(text, e)
		if err != nil {
			return
		}
		if p.Value == 0 || p.Value > math.MaxInt64 {
			t.Errorf("%q: got %+v", text, p)
		}
		if again, err := ParsePeriod(p.String(), e); err != nil || again != p {
			t.Errorf("%q: got %+v, whose text %q reads as %+v, %v", text, p, p, again, err)
		}
	})
}

func TestResolve(t *testing.T) {
	none := errors.New("none")
	clock, faults := CPUClock, event(t, "page-faults")
	ms := func(n uint64) Period { return Period{n * 1e6, true} }
	tests := []struct {
		name string
		cfg  Config
		pmu  error
		want Info
		err  string
	}{
		{name: "auto with PMU", want: Info{Event: Cycles, Period: 1e6}},
		{name: "auto without", pmu: none,
			want: Info{Event: clock, Period: 1e6, AskedHz: 1000, Note: "no hardware counter here (none): using cpu-clock"}},
		{name: "auto in time", cfg: Config{Period: ms(2)},
			want: Info{Event: clock, Period: 2e6, AskedHz: 500, Note: "a period in time needs a clock: using cpu-clock"}},
		{name: "auto in counts", cfg: Config{Period: Period{Value: 5000}}, want: Info{Event: Cycles, Period: 5000}},
		{name: "auto in counts without PMU", cfg: Config{Period: Period{Value: 5000}}, pmu: none, err: "no less than"},
		{name: "auto at a frequency", cfg: Config{FreqHz: 99}, want: Info{Event: Cycles, FreqHz: 99, AskedHz: 99}},
		{name: "clock at a frequency", cfg: Config{Event: clock, FreqHz: 250}, want: Info{Event: clock, Period: 4e6, AskedHz: 250}},
		{name: "clock at a high frequency", cfg: Config{Event: clock, FreqHz: 100_001}, err: "no more than 100000"},
		{name: "faults", cfg: Config{Event: faults}, want: Info{Event: faults, Period: 100}},
		{name: "faults in time", cfg: Config{Event: faults, Period: ms(1)}, err: "not time"},
		{name: "period and frequency", cfg: Config{Period: ms(1), FreqHz: 1}, err: "choose one"},
		{name: "precise", cfg: Config{Event: Cycles, Precise: 2}, want: Info{Event: Cycles, Period: 1e6, Precise: 2}},
		{name: "precise clock", cfg: Config{Event: clock, Precise: 2}, want: Info{Event: clock, Period: 1e6, AskedHz: 1000}},
		{name: "too precise", cfg: Config{Event: Cycles, Precise: 4}, err: "0 to 3"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.cfg.resolve(func() error { return tt.pmu })
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("got %+v, %v; want an error with %q", got, err, tt.err)
				}
				return
			}
			tt.want.AskedEvent = tt.cfg.Event
			if err != nil || !sameInfo(got, tt.want) {
				t.Errorf("got %+v, %v; want %+v", got, err, tt.want)
			}
		})
	}
}

func sameInfo(a, b Info) bool {
	a.CPUs, b.CPUs = nil, nil
	return a.Event == b.Event && a.AskedEvent == b.AskedEvent && a.Note == b.Note && a.Period == b.Period &&
		a.FreqHz == b.FreqHz && a.AskedHz == b.AskedHz && a.Precise == b.Precise
}

func TestCheckRate(t *testing.T) {
	tests := []struct {
		name   string
		info   Info
		refuse bool
		note   bool
	}{
		{"below", Info{FreqHz: 999, AskedHz: 999}, false, false},
		{"at the limit", Info{FreqHz: 1000, AskedHz: 1000}, false, false},
		{"frequency above", Info{FreqHz: 1001, AskedHz: 1001}, true, false},
		{"period above", Info{Period: 1e5, AskedHz: 1e4}, false, true},
		{"counts", Info{Period: 1}, false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.info.checkRate(1000)
			if errors.Is(err, ErrNotSupported) != tt.refuse || (tt.info.Note != "") != tt.note {
				t.Errorf("got %v, note %q; want refusal %v, note %v", err, tt.info.Note, tt.refuse, tt.note)
			}
		})
	}
}

func TestFeatureError(t *testing.T) {
	cause := errors.New("cause")
	err := error(&FeatureError{Feature: "ring", MinKernel: "5.8", Hint: "update", Err: cause})
	if got, want := err.Error(), "ring needs Linux 5.8: cause: update"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if !errors.Is(err, cause) || !errors.Is(err, ErrNotSupported) {
		t.Errorf("%v is not both its cause and ErrNotSupported", err)
	}
}

func TestCounts(t *testing.T) {
	c := Counts{
		{CPU: 0, Value: 10, Enabled: 2 * time.Second, Running: time.Second},
		{CPU: 1, Value: 20, Enabled: 2 * time.Second, Running: 2 * time.Second},
	}
	share, ok := c.RunningShare()
	hz, ok2 := c.AchievedHz(600)
	if c.Value() != 30 || share != 0.75 || hz != 200 || !ok || !ok2 {
		t.Errorf("got value %d, share %v, %v Hz; want 30, 0.75, 200", c.Value(), share, hz)
	}
	if _, ok := (Counts{}).RunningShare(); ok {
		t.Error("no counts: a share, want none")
	}
}

func TestThrottleState(t *testing.T) {
	var s throttleState
	for _, r := range []ringRecord{
		{typ: recordThrottle, time: 100},
		{typ: recordUnthrottle, time: 150},
		{typ: recordUnthrottle, time: 160}, // its stop was lost
		{typ: recordThrottle, time: 200},
		{typ: recordLost, lost: 7},         // maybe the restart
		{typ: recordUnthrottle, time: 900}, // of some stop
		{typ: recordThrottle, time: 1000},
		{typ: recordUnthrottle, time: 999}, // clocks do not go back
		{typ: recordSample},
	} {
		s.add(&r)
	}
	want := Throttles{Throttled: 3, Stopped: 50, Lost: 7, Samples: 1}
	if s.Throttles != want {
		t.Errorf("got %+v, want %+v", s.Throttles, want)
	}
}

func TestParseCPUList(t *testing.T) {
	tests := []struct {
		text string
		want int // CPUs; -1: an error
	}{
		{"0-3\n", 4}, {"0", 1}, {"0-1,4,6-7", 5}, {"", 0}, {"\n", 0},
		{"3-1", -1}, {"a", -1}, {"0,", -1}, {"-1", -1}, {"0-99999", -1}, {"0-65535,0-65535", -1},
	}
	for _, tt := range tests {
		got, err := parseCPUList(tt.text)
		if (err != nil) != (tt.want < 0) || err == nil && len(got) != tt.want {
			t.Errorf("%q: got %v, %v; want %d CPUs", tt.text, got, err, tt.want)
		}
	}
}

func FuzzParseCPUList(f *testing.F) {
	f.Add("0-3,6")
	f.Fuzz(func(t *testing.T, text string) {
		cpus, err := parseCPUList(text)
		if err != nil && cpus != nil || len(cpus) > maxCPUs {
			t.Errorf("%q: got %d CPUs, %v", text, len(cpus), err)
		}
	})
}
