// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// writeGroup writes the files of a control group.
func writeGroup(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// A limit is told once, and again when it took effect; what was before counts not.
func TestLimits(t *testing.T) {
	for _, c := range []struct {
		name, cgroup, dir string
		before, after     map[string]string
	}{
		{"v2", "0::/a/b\n", "a",
			map[string]string{"cpu.max": "20000 100000\n", "cpu.stat": "usage_usec 5\nnr_throttled 7\nthrottled_usec 100\n"},
			map[string]string{"cpu.stat": "usage_usec 9\nnr_throttled 9\nthrottled_usec 160100\n"}},
		{"v1", "5:memory:/x\n4:cpu,cpuacct:/a/b\n", "cpu,cpuacct/a",
			map[string]string{"cpu.cfs_quota_us": "20000\n", "cpu.cfs_period_us": "100000\n",
				"cpu.stat": "nr_periods 9\nnr_throttled 7\nthrottled_time 100000\n"},
			map[string]string{"cpu.stat": "nr_periods 20\nnr_throttled 9\nthrottled_time 160100000\n"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			dir := filepath.Join(root, c.dir)
			writeGroup(t, dir, c.before)
			writeGroup(t, filepath.Join(dir, "b"), map[string]string{"cpu.max": "max 100000\n", "cpu.stat": "nr_throttled 0\n"})
			l := newLimits()
			l.follow(root, c.cgroup)
			first := l.poll()
			if len(first) != 1 || first[0].Name != "/a" || first[0].Object != 20e6 || first[0].Timeout != 100e6 ||
				first[0].Seq != 0 || first[0].Count != 0 || first[0].Conn == 0 {
				t.Errorf("at the begin: %v", first)
			}
			l.read = time.Time{}
			if list := l.poll(); len(list) != 0 {
				t.Errorf("nothing happened: %v", list)
			}
			writeGroup(t, dir, c.after)
			l.read = time.Time{}
			list := l.poll()
			if len(list) != 1 || list[0].Seq != 2 || list[0].Count != 160e6 {
				t.Errorf("after: %v", list)
			}
			if list := l.poll(); len(list) != 0 {
				t.Errorf("read again at once: %v", list)
			}
		})
	}
}
