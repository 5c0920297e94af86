// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pathprof/join/sched"
	"pathprof/perfevent"
)

// limits follows the CPU limits of the targets' control groups and of all above
// them: a limit holds for everything below it.
type limits struct {
	groups map[string]*limit // by folder
	met    map[uint64]bool   // numbers of groups that kept a task from running
	read   time.Time
}

// limit is what a control group's files said.
type limit struct {
	id            uint64 // the group's number: the inode of its folder
	name          string
	quota, period int64 // ns; quota 0: no limit
	// since boot, and when recording began.
	periods, throttled           int64
	periodsBefore, throttledThen int64
	told                         bool
}

// limitsEvery is how often the files are read.
const limitsEvery = 100 * time.Millisecond

// maxGroups bounds how many control groups are followed.
const maxGroups = 256

func newLimits() *limits { return &limits{groups: map[string]*limit{}, met: map[uint64]bool{}} }

// meet follows a group that keeps a task of a process from running, if it is new:
// that of a child, or one that the process was moved to.
func (l *limits) meet(pid int32, group uint64) {
	if l.met[group] || len(l.met) >= maxGroups {
		return
	}
	l.met[group] = true
	if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid)); err == nil {
		l.follow(cgroupRoot, string(text))
	}
}

// follow adds the control groups of a process. root is where the file system
// lies, text its /proc/PID/cgroup; v1 has a line for each controller, v2 one.
func (l *limits) follow(root, text string) {
	for line := range strings.Lines(text) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		base := root
		if f[1] != "" {
			if !strings.Contains(","+f[1]+",", ",cpu,") {
				continue
			}
			base = path.Join(root, f[1])
		}
		for name := path.Clean("/" + f[2]); ; name = path.Dir(name) {
			l.add(path.Join(base, name), name)
			if name == "/" {
				break
			}
		}
	}
}

func (l *limits) add(dir, name string) {
	if l.groups[dir] != nil || len(l.groups) >= maxGroups {
		return
	}
	var st unix.Stat_t
	if unix.Stat(path.Join(dir, "cpu.stat"), &st) != nil || unix.Stat(dir, &st) != nil {
		return // no controller of CPU time here
	}
	g := &limit{id: st.Ino, name: name}
	l.groups[dir] = g
	g.update(dir)
	g.periodsBefore, g.throttledThen = g.periods, g.throttled
}

// poll returns an event for each limit that is new, was changed, or took effect.
func (l *limits) poll() (list []sched.Event) {
	if time.Since(l.read) < limitsEvery {
		return nil
	}
	l.read = time.Now()
	now := perfevent.MonotonicNow()
	for dir, g := range l.groups {
		changed := g.update(dir)
		if g.quota == 0 && !g.told || g.told && !changed {
			continue
		}
		g.told = true
		list = append(list, sched.Event{
			Kind: sched.KindThrottle, Time: now, CPU: -1, Conn: g.id, Name: g.name,
			Object: uint64(g.quota), Timeout: g.period,
			Seq: uint32(g.periods - g.periodsBefore), Count: g.throttled - g.throttledThen,
		})
	}
	return list
}

// update reads the files of the group, and tells whether they say something new.
// Of v1 the units are µs for the limit and ns for the time, of v2 µs for both
// (kernel/sched/core.c, cpu_cfs_stat_show and cpu_extra_stat_show).
func (g *limit) update(dir string) bool {
	before := *g
	if text, err := os.ReadFile(path.Join(dir, "cpu.max")); err == nil {
		g.quota, g.period = 0, 0
		if f := strings.Fields(string(text)); len(f) == 2 && f[0] != "max" {
			g.quota, g.period = number(f[0])*1000, number(f[1])*1000
		}
	} else {
		g.quota, g.period = max(0, readNumber(path.Join(dir, "cpu.cfs_quota_us"))*1000), 0
		if g.quota > 0 {
			g.period = readNumber(path.Join(dir, "cpu.cfs_period_us")) * 1000
		}
	}
	f, err := os.Open(path.Join(dir, "cpu.stat"))
	if err != nil {
		return *g != before // the group is gone
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), " ")
		switch key {
		case "nr_throttled":
			g.periods = number(value)
		case "throttled_usec":
			g.throttled = number(value) * 1000
		case "throttled_time":
			g.throttled = number(value)
		}
	}
	return *g != before
}

// number reads a number of a kernel file, 0 if it is none.
func number(text string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func readNumber(name string) int64 {
	text, err := os.ReadFile(name)
	if err != nil {
		return 0
	}
	return number(string(text))
}

// cgroupRoot is where control groups are mounted on every distribution.
const cgroupRoot = "/sys/fs/cgroup"

// pollLimits writes what the targets' CPU limits did.
func (s *session) pollLimits() error {
	for _, ev := range s.limits.poll() {
		if err := s.out.Event(ev); err != nil {
			return err
		}
		s.events++
	}
	return nil
}

// followLimits finds the control groups of the targets.
func (s *session) followLimits() {
	for _, t := range s.targets.list() {
		if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", t.pid)); err == nil {
			s.limits.follow(cgroupRoot, string(text))
		}
	}
}
