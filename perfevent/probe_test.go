// SPDX-License-Identifier: Apache-2.0

package perfevent

import (
	"errors"
	"testing"
)

func TestParseEffective(t *testing.T) {
	const status = "Name:\tx\nCapPrm:\t000001ffffffffff\nCapEff:\t%s\nCapBnd:\t0\n"
	tests := []struct {
		name, text         string
		bpf, ptrace, wrong bool
	}{
		{name: "root", text: "CapPrm:\t0\nCapEff:\t000001ffffffffff\n", bpf: true, ptrace: true},
		{name: "none", text: "CapPrm:\t000001ffffffffff\nCapEff:\t0000000000000000\n"},
		{name: "bpf", text: "CapEff:\t0000008000000000\n", bpf: true},
		{name: "sysadmin is bpf", text: "CapEff:\t0000000000200000\n", bpf: true},
		{name: "ptrace", text: "CapEff:\t0000000000080000", ptrace: true},
		{name: "no line", text: "CapPrm:\t0\n", wrong: true},
		{name: "no number", text: "CapEff:\txyz\n", wrong: true},
		{name: "empty", wrong: true},
		{name: "format", text: status, wrong: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			caps, err := parseEffective([]byte(tt.text))
			if (err != nil) != tt.wrong || caps.has(capBPF) != tt.bpf || caps.has(capSysPtrace) != tt.ptrace {
				t.Errorf("got %#x, %v; want %+v", caps, err, tt)
			}
		})
	}
}

func TestAtLeast(t *testing.T) {
	tests := []struct {
		release   string
		ok, wrong bool
	}{
		{release: "6.1.0-18-amd64", ok: true},
		{release: "6.1", ok: true},
		{release: "6.0.99"},
		{release: "5.15.0-91-generic"},
		{release: "4.18.0-553.el8.x86_64"},
		{release: "10.0-rc1", ok: true},
		{release: "5.9+"},
		{release: "", wrong: true},
		{release: "6", wrong: true},
		{release: "x.y", wrong: true},
		{release: "6.99999999999999999999", wrong: true},
	}
	for _, tt := range tests {
		ok, err := atLeast(tt.release, MinKernel)
		if ok != tt.ok || (err != nil) != tt.wrong {
			t.Errorf("%q: got %v, %v; want %v, error %v", tt.release, ok, err, tt.ok, tt.wrong)
		}
	}
}

func TestParseChoice(t *testing.T) {
	for text, want := range map[string]string{
		"none [integrity] confidentiality\n": "integrity",
		"[none] integrity":                   "none",
		"none integrity":                     "",
		"[]":                                 "",
		"]x[":                                "",
		"":                                   "",
	} {
		if got, ok := parseChoice(text); ok != (want != "") || ok && got != want {
			t.Errorf("%q: got %q, %v; want %q", text, got, ok, want)
		}
	}
}

func TestBlocking(t *testing.T) {
	features := []Feature{
		{Name: "kernel", Mode: ModeRecord, OK: true, Detail: "this is 6.1"},
		{Name: "PMU", Mode: ModeHardware, Detail: "none"},
		{Name: "privileges", Mode: ModeRecord, Detail: "needs root", Hint: "run with sudo"},
		{Name: "BTF", Mode: ModeRecord, Detail: "none"},
	}
	err := blocking(features)
	if err == nil || !errors.Is(err, ErrNotSupported) || err.Error() != "recording: needs root: run with sudo" {
		t.Errorf("got %v, want the privileges", err)
	}
	if err := blocking(features[:2]); err != nil {
		t.Errorf("got %v, want nil: the PMU is not needed", err)
	}
	old := []Feature{{Mode: ModeRecord, MinKernel: "5.15", Detail: "this is 5.4.0", Hint: "use a newer kernel"}}
	if got, want := blocking(old).Error(), "recording needs Linux 5.15: this is 5.4.0: use a newer kernel"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A probe that fails says how to help, one that does not keeps quiet.
func TestProbe(t *testing.T) {
	for _, f := range Probe() {
		if f.Name == "" || f.Mode == "" || f.OK != (f.Hint == "") {
			t.Errorf("%+v: want a name, a mode, and a hint just if not OK", f)
		}
	}
	if err := CheckRecord(); err != nil && !errors.Is(err, ErrNotSupported) {
		t.Errorf("got %v, want nil or ErrNotSupported", err)
	}
}

func FuzzProbeParsers(f *testing.F) {
	f.Add("CapEff:\t000001ffffffffff\n")
	f.Add("5.15.0-91-generic")
	f.Add("none [integrity]")
	f.Fuzz(func(t *testing.T, text string) {
		if caps, err := parseEffective([]byte(text)); err != nil && caps != 0 {
			t.Errorf("got both %#x and %v", caps, err)
		}
		if major, minor, err := parseRelease(text); err != nil && (major != 0 || minor != 0) {
			t.Errorf("got both %d.%d and %v", major, minor, err)
		}
		parseChoice(text)
	})
}
