// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// lines calls do with each line of a text.
func lines(r io.Reader, do func(line string) error) error {
	in := bufio.NewScanner(r)
	in.Buffer(nil, 16<<20)
	for n := 1; in.Scan(); n++ {
		if err := do(in.Text()); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	return in.Err()
}

// cutNumber splits "what number" at the last space.
func cutNumber(line string) (what string, n int64, err error) {
	at := strings.LastIndexByte(line, ' ')
	n, err = strconv.ParseInt(line[at+1:], 10, 64)
	return line[:max(at, 0)], n, err
}

// maxCount bounds what one line may stand for.
const maxCount = 10_000_000

// parseRaw reads py-spy's raw format: "<module> (a.py:3);f (a.py:1) 17", without
// times; the number is how many samples were so.
func parseRaw(r io.Reader) (t trace, err error) {
	err = lines(r, func(line string) error {
		what, n, err := cutNumber(line)
		if err != nil || n < 0 || n > maxCount || len(t.samples) > maxCount {
			return fmt.Errorf("%q: want stack and count", line)
		}
		var s sample
		for frame := range strings.SplitSeq(what, ";") {
			name, _, _ := strings.Cut(frame, " (")
			s.stack = append(s.stack, name)
		}
		for range n {
			t.samples = append(t.samples, s)
		}
		return nil
	})
	return t, err
}

// parseAustin reads the text format of austin 3, a sample a line:
// "P12;T0:12;a.py:<module>:3;a.py:f:1 1064". The number is the time since the sample
// before, in µs.
func parseAustin(r io.Reader) (t trace, err error) {
	t.clock = clockOwn
	var now int64
	err = lines(r, func(line string) error {
		if line == "" || line[0] == '#' {
			return nil
		}
		what, us, err := cutNumber(line)
		parts := strings.Split(what, ";")
		if err != nil || us < 0 || us > math.MaxInt64/2000-now/1000 || len(parts) < 2 || !strings.HasPrefix(parts[0], "P") {
			return fmt.Errorf("%q: want process, thread, stack and time", line)
		}
		now += us * 1000
		s := sample{at: now}
		for _, frame := range parts[2:] {
			fields := strings.Split(frame, ":")
			if len(fields) >= 3 {
				s.stack = append(s.stack, fields[len(fields)-2])
			}
		}
		t.samples = append(t.samples, s)
		return nil
	})
	return t, err
}

// chromeEvent is a begin or an end of a frame in py-spy's chrometrace.
type chromeEvent struct {
	Name string  `json:"name"`
	Ph   string  `json:"ph"`
	Ts   float64 `json:"ts"` // µs
	Tid  int64   `json:"tid"`
}

// parseChromeTrace reads the changes of the stack of the first thread. A sample at
// which nothing changed is not in the format, so only changes are samples here.
func parseChromeTrace(text []byte) (t trace, err error) {
	var events []chromeEvent
	if err := json.Unmarshal(text, &events); err != nil {
		return t, fmt.Errorf("chrometrace: %w", err)
	}
	t.clock = clockOwn
	var stack []string
	for i := 0; i < len(events); {
		at := events[i].Ts
		for ; i < len(events) && events[i].Ts == at; i++ {
			e := &events[i]
			switch {
			case e.Tid != events[0].Tid:
			case e.Ph == "B":
				stack = append(stack, e.Name)
			case e.Ph == "E" && len(stack) > 0:
				stack = stack[:len(stack)-1]
			}
		}
		if len(stack) > 0 && at >= 0 && at < math.MaxInt64/2000 {
			t.samples = append(t.samples, sample{int64(at * 1000), slices.Clone(stack)})
		}
	}
	return t, nil
}

// parsePerf reads what perf script prints of tid, time, ip and sym: a line
// "  123 77.000001234:", one for each frame, innermost first, and an empty one. Frames
// of Python functions are "py::NAME:FILE".
func parsePerf(r io.Reader) (t trace, err error) {
	t.clock = clockSystem
	var s *sample
	err = lines(r, func(line string) error {
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
			s = nil
		case s == nil:
			if len(words) < 2 {
				return fmt.Errorf("%q: want thread and time", line)
			}
			at, err := parseSeconds(strings.TrimSuffix(words[1], ":"))
			if err != nil {
				return err
			}
			t.samples = append(t.samples, sample{at: at})
			s = &t.samples[len(t.samples)-1]
		case len(words) >= 2:
			if name, ok := strings.CutPrefix(words[1], "py::"); ok {
				name, _, _ = strings.Cut(name, ":")
				s.stack = slices.Insert(s.stack, 0, name)
			}
		}
		return nil
	})
	return t, err
}

// parseSeconds reads seconds with nine digits behind the point as nanoseconds.
func parseSeconds(text string) (int64, error) {
	whole, part, _ := strings.Cut(text, ".")
	s, err1 := strconv.ParseInt(whole, 10, 32)
	ns, err2 := strconv.ParseInt(part, 10, 64)
	if err1 != nil || err2 != nil || len(part) != 9 || ns < 0 || s < 0 {
		return 0, fmt.Errorf("%q: want seconds with nanoseconds", text)
	}
	return s*1e9 + ns, nil
}
