// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"bufio"
	"os"
	"strconv"
	"strings"
	"testing"

	"pathprof/perfevent/perftest"
)

// The programs know the addresses of the kernel's variables that /proc/kallsyms
// tells, and none that it does not.
func TestFindSymbols(t *testing.T) {
	perftest.Require(t, perftest.Root, perftest.BPF)
	c, err := Open(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	told := kallsyms(t)
	if len(told) == 0 {
		t.Skip("the kernel hides the addresses of its symbols")
	}
	o := &c.objects.pathprofVariables
	for name, v := range map[string]interface{ Get(any) error }{
		"__per_cpu_offset": o.CpuOffsetsAt, "__preempt_count": o.PreemptCountAt, "pcpu_hot": o.PcpuHotAt,
	} {
		var at uint64
		if err := v.Get(&at); err != nil {
			t.Fatal(err)
		}
		if at != told[name] {
			t.Errorf("%s at %#x, want %#x", name, at, told[name])
		}
	}
}

// kallsyms are the addresses of the kernel's own symbols; empty if they are hidden.
func kallsyms(t *testing.T) map[string]uint64 {
	t.Helper()
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	told := map[string]uint64{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		at, err := strconv.ParseUint(fields[0], 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		if at != 0 && len(fields) == 3 {
			told[fields[2]] = at
		}
	}
	return told
}
