// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"encoding/binary"
	"maps"
	"runtime"

	"pathprof/join/sched"
)

// waitRule says how a system call tells what it waits on: struct wait_rule of
// c/wait.h.
type waitRule struct {
	Object, Width, Time, Timeout, File uint8
}

// enum wait_time of c/wait.h.
const (
	timeNone = iota
	timeMS
	timeSpec
	timeVal
	timeRealtime
	timeFutex
	timeClock
)

// enum wait_width of c/wait.h.
const (
	widthLong = iota
	widthInt
	widthPoll
)

// lockShift is FLAG_LOCK_SHIFT of c/event.h.
const lockShift = 8

// maxCalls is how many system calls c/wait.h has room for.
const maxCalls = 512

// fileCalls wait on a file descriptor, their first argument.
var fileCalls = []string{
	"read", "write", "pread64", "pwrite64", "readv", "writev", "preadv", "pwritev", "preadv2", "pwritev2",
	"sendfile", "splice", "tee", "vmsplice", "copy_file_range", "recvfrom", "recvmsg", "recvmmsg", "sendto",
	"sendmsg", "sendmmsg", "accept", "accept4", "connect", "shutdown", "close", "fsync", "fdatasync",
	"sync_file_range", "syncfs", "ftruncate", "fallocate", "flock", "fcntl", "ioctl", "fstat", "getdents64",
	"fadvise64", "epoll_wait", "epoll_pwait", "epoll_pwait2", "io_uring_enter",
	"mq_timedreceive", "mq_timedsend",
}

// timedCalls are those with a timeout: its form and the number of its argument
// (man 2 of each).
var timedCalls = map[string]waitRule{
	"poll":            {Width: widthPoll, Time: timeMS, Timeout: 2},
	"ppoll":           {Width: widthPoll, Time: timeSpec, Timeout: 2},
	"select":          {Time: timeVal, Timeout: 4},
	"pselect6":        {Time: timeSpec, Timeout: 4},
	"epoll_wait":      {Width: widthInt, Time: timeMS, Timeout: 3},
	"epoll_pwait":     {Width: widthInt, Time: timeMS, Timeout: 3},
	"epoll_pwait2":    {Width: widthInt, Time: timeSpec, Timeout: 3},
	"nanosleep":       {Time: timeSpec, Timeout: 0},
	"clock_nanosleep": {Time: timeClock, Timeout: 2},
	"futex":           {Time: timeFutex, Timeout: 3},
	"rt_sigtimedwait": {Time: timeSpec, Timeout: 2},
	"semtimedop":      {Width: widthInt, Time: timeSpec, Timeout: 3},
	"mq_timedreceive": {Width: widthInt, Time: timeRealtime, Timeout: 4},
	"mq_timedsend":    {Width: widthInt, Time: timeRealtime, Timeout: 4},
	"recvmmsg":        {Width: widthInt, Time: timeSpec, Timeout: 4},
	"io_getevents":    {Time: timeSpec, Timeout: 4},
}

// waitRules returns the rules by the numbers of an architecture.
func waitRules(arch string) *[maxCalls]waitRule {
	byName := map[string]waitRule{
		"waitid": {Object: 1, Width: widthInt}, "wait4": {Width: widthInt}, "semop": {Width: widthInt},
	}
	maps.Copy(byName, timedCalls)
	for _, name := range fileCalls {
		r := byName[name]
		r.Width, r.File = widthInt, 1
		byName[name] = r
	}
	for _, name := range []string{"poll", "ppoll"} {
		r := byName[name]
		r.File = 1
		byName[name] = r
	}
	rules := new([maxCalls]waitRule)
	for n := range rules {
		if c, ok := sched.CallOf(arch, n); ok {
			rules[n] = byName[c.String()]
		}
	}
	return rules
}

// decodeWait reads what a switch says of the wait that begins. realtime is
// CLOCK_REALTIME minus CLOCK_MONOTONIC.
func decodeWait(raw []byte, ev *sched.Event, realtime int64) {
	le := binary.LittleEndian
	flags := pathprofEventFlags(le.Uint32(raw[32:]))
	if number := int(le.Uint32(raw[36:])); number == int(sched.CallFault) {
		ev.Call, ev.Object = sched.CallFault, le.Uint64(raw[8:])
	} else if number > 0 {
		if call, ok := sched.CallOf(runtime.GOARCH, number-1); ok {
			ev.Call = call
			ev.Object = le.Uint64(raw[8:])
		}
	}
	if timeout := int64(le.Uint64(raw[16:])); timeout > 0 && ev.Call != 0 {
		switch {
		case flags&pathprofEventFlagsFLAG_MONOTONIC != 0:
			timeout = max(1, timeout-ev.Time)
		case flags&pathprofEventFlagsFLAG_REALTIME != 0:
			timeout = max(1, timeout-realtime-ev.Time)
		}
		ev.Timeout = timeout
	}
	ev.Lock = sched.LockKind(flags & pathprofEventFlagsFLAG_LOCK >> lockShift)
	switch tid := int32(le.Uint32(raw[64:])); {
	case tid < 0:
		ev.Holder = sched.Nobody
	case tid == 0:
	case flags&pathprofEventFlagsFLAG_SHARED != 0 && ev.Lock != sched.LockGIL:
		ev.Holder = sched.Ref{TID: tid} // of any process
	default:
		ev.Holder = sched.Ref{TID: tid, PID: ev.Task.PID}
	}
}
