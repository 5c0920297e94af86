// SPDX-License-Identifier: Apache-2.0

package main

import (
	"pathprof/join/sched"
	"pathprof/perfevent"
	"pathprof/pyframes"
	"pathprof/unwind/proc"
)

// dumpTasks writes the state of every task: one that never runs during the
// recording is a task with a state all the same. A blocked thread of a target
// leaves its Python stack: nobody else can tell where it waits.
func (s *session) dumpTasks() error {
	for st, err := range proc.AllTasks() {
		if err != nil {
			continue // gone meanwhile
		}
		if s.opt.onlyTargets && !s.targets.has(int32(st.PID)) {
			continue
		}
		ev := sched.Event{
			Kind: sched.KindTask, CPU: -1, Time: perfevent.MonotonicNow(),
			Task:  sched.Ref{PID: int32(st.PID), TID: int32(st.TID)},
			Other: sched.Ref{PID: int32(st.PPID)},
			Name:  st.Comm, Count: st.StartTime, State: dumpedState(st.State),
		}
		if ev.State != sched.StateRunning && s.targets.has(ev.Task.PID) {
			id, err := s.blockedStack(st.PID, st.TID)
			if err != nil {
				return err
			}
			ev.Stack = id
		}
		if err := s.out.Event(ev); err != nil {
			return err
		}
		s.events++
	}
	return nil
}

// dumpedState turns the letter of /proc/PID/stat into state bits
// (fs/proc/array.c, task_state_array).
func dumpedState(letter byte) uint32 {
	switch letter {
	case 'S':
		return sched.StateInterruptible
	case 'D':
		return sched.StateUninterruptible
	case 'T':
		return sched.StateStopped
	case 't':
		return sched.StateTraced
	case 'X':
		return sched.StateDead
	case 'Z':
		return sched.StateZombie
	case 'P':
		return sched.StateParked
	case 'I':
		return sched.StateIdle
	}
	return sched.StateRunning
}

// blockedStack reads the Python frames of a thread from outside. They are those
// of its wait only if it did not run meanwhile: its count of switches tells.
func (s *session) blockedStack(pid, tid int) (uint32, error) {
	p := s.resolve.process(int32(pid))
	if p.python == nil {
		return 0, nil
	}
	before, err := proc.Switches(pid, tid)
	if err != nil {
		return 0, nil
	}
	frames, err := p.python.Frames(tid, 0, make([]pyframes.Frame, 0, 32))
	if err != nil || len(frames) == 0 {
		return 0, nil
	}
	if after, err := proc.Switches(pid, tid); err != nil || after != before {
		return 0, nil
	}
	return s.resolve.pythonStack(int32(pid), frames)
}
