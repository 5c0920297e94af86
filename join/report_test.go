// SPDX-License-Identifier: Apache-2.0

package join

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"pathprof/perfevent/recording"
)

// contract is the JSON contract: the keys of each object, by where it is.
var contract = map[string]string{
	"":                        "recording paths warnings",
	"recording":               "event period asked_hz achieved_hz samples lost throttled begin_ns end_ns interpreters",
	"paths":                   "pid tid thread begin_ns end_ns wall_ns classes modes asyncio readings migrations segments waits",
	"paths.readings":          "pid process tid thread state cause whole_ns causal_ns",
	"paths.readings.cause":    "kind detail",
	"paths.modes":             "mode ns extrapolated_ns",
	"paths.waits":             "begin_ns end_ns cause call in object timeout_ns pieces lock by holder held_ns took_ns work woken_in",
	"paths.waits.cause":       "kind detail",
	"paths.classes":           "wait in at state polling polling_for cause pid process tid thread ns share segments samples clusters functions lines",
	"paths.classes.wait":      "kind detail",
	"paths.classes.cause":     "kind detail",
	"paths.classes.functions": "name file line kind samples share low high ns ns_low ns_high method total_share too_few",
	"paths.classes.lines":     "function file line kind samples share low high ns ns_low ns_high method too_few",
	"paths.segments":          "begin_ns end_ns wait state cause pid tid thread depth samples",
	"paths.segments.wait":     "kind detail",
	"paths.segments.cause":    "kind detail",
}

// mayMiss are keys that are left out if they have nothing to say.
var mayMiss = map[string]bool{"extrapolated_ns": true, "too_few": true, "segments": true, "lines": true, "in": true, "at": true, "polling": true, "polling_for": true,
	"asyncio": true, "waits": true, "call": true, "object": true, "timeout_ns": true, "lock": true, "by": true,
	"holder": true, "held_ns": true, "took_ns": true, "work": true, "woken_in": true}

func exampleReport(t *testing.T, opt ReportOptions) Report {
	t.Helper()
	j, path := example(t)
	j.lines = opt.Segments
	got, err := j.join(path)
	if err != nil {
		t.Fatal(err)
	}
	got.path.Readings = j.names.compare(&path, &path)
	p := &Profile{
		Event: "cpu-clock", Unit: "nanoseconds", Period: 100, AskedHz: 1000, AchievedHz: 990.5,
		Samples: 10, EndNs: 1000, Paths: []ThreadPath{got.path},
	}
	meta := recording.Meta{Interpreters: []recording.Interpreter{{PID: 10, Version: "3.11.7", Path: "/py"}}}
	return NewReport(p, meta, opt)
}

func TestReportContract(t *testing.T) {
	b, err := json.Marshal(exampleReport(t, ReportOptions{Segments: true}))
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	checkKeys(t, "", v, seen)
	for where := range contract {
		if !seen[where] {
			t.Errorf("the example has no %q", where)
		}
	}
}

func checkKeys(t *testing.T, where string, v any, seen map[string]bool) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			checkKeys(t, where, e, seen)
		}
	case map[string]any:
		if where == "recording.interpreters" {
			return // the recording's own contract
		}
		seen[where] = true
		want := strings.Fields(contract[where])
		for _, k := range want {
			if _, ok := v[k]; !ok && !mayMiss[k] {
				t.Errorf("%q has no %q", where, k)
			}
		}
		for _, k := range slices.Sorted(maps.Keys(v)) {
			if !slices.Contains(want, k) {
				t.Errorf("%q has %q, which is not in the contract", where, k)
			}
			checkKeys(t, strings.TrimPrefix(where+"."+k, "."), v[k], seen)
		}
	}
}

func TestReportWords(t *testing.T) {
	b, err := json.Marshal(exampleReport(t, ReportOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	got := string(b)
	for _, want := range []string{
		`"warnings":[]`, `"functions":[]`, // never null
		`{"wait":null,"state":"running","cause":null,"pid":10,"process":"app","tid":10,"thread":"app","ns":707,"share":0.707,"segments":3,"samples":4,`,
		`{"wait":{"kind":"task","detail":"app/worker"},"state":"blocked","cause":{"kind":"timer","detail":"hrtimer"},"pid":10,"process":"app","tid":11,"thread":"worker","ns":83,`,
		`"cause":{"kind":"task","detail":"gzip/gzip"}`,
		`"name":"f","file":"/app/f.py","line":7,"kind":"python","samples":3,"share":0.75,`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in %s", want, got)
		}
	}
	if strings.Contains(got, "begin_ns\":317") {
		t.Error("segments without being asked for")
	}
	empty, err := json.Marshal(NewReport(&Profile{}, recording.Meta{}, ReportOptions{}))
	if err != nil || strings.Contains(string(empty), "null") {
		t.Errorf("empty report: %s, %v", empty, err)
	}
}

func TestReportSegments(t *testing.T) {
	segs := exampleReport(t, ReportOptions{Segments: true}).Paths[0].Segments
	if len(segs) != 6 {
		t.Fatalf("%d segments, want 6", len(segs))
	}
	if s := segs[4]; s.Samples != 3 || s.Depth != 1 || s.TID != 11 || s.State != "running" || s.Wait.Detail != "app/worker" || s.Cause != nil {
		t.Errorf("segment 4: %+v", s)
	}
	if s := segs[5]; s.Samples != 1 || s.Wait != nil || s.BeginNs != 600 || s.EndNs != 1000 {
		t.Errorf("segment 5: %+v", s)
	}
}
