// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"math"
	"testing"
)

// lines are texts with the events a person would read them as.
var lines = []struct {
	text  string
	event Event
}{
	{"1000 cpu0 switch task=12/10 next=14 state=S stack=3",
		Event{Time: 1000, Kind: KindSwitch, Task: Ref{12, 10}, Other: Ref{14, 14}, State: StateInterruptible, Stack: 3}},
	{"1001 cpu3 switch task=14 next=0 state=R+",
		Event{Time: 1001, CPU: 3, Kind: KindSwitch, Task: Ref{14, 14}, Preempt: true}},
	{"1002 cpu1 switch task=0 next=0 state=R",
		Event{Time: 1002, CPU: 1, Kind: KindSwitch}},
	{"1500 cpu1 waking task=12/10 by=14 ctx=task",
		Event{Time: 1500, CPU: 1, Kind: KindWaking, Task: Ref{12, 10}, Other: Ref{14, 14}, Ctx: ContextTask}},
	{"1600 cpu1 waking task=12/10 by=0 ctx=hardirq:33",
		Event{Time: 1600, CPU: 1, Kind: KindWaking, Task: Ref{12, 10}, Ctx: ContextHardirq, Vector: 33}},
	{"2500 cpu0 fork task=15 parent=14 name=python3",
		Event{Time: 2500, Kind: KindFork, Task: Ref{15, 15}, Other: Ref{14, 14}, Name: "python3"}},
	{`2600 cpu0 comm task=15 name="Web Content \"1\" = ä\xff"`,
		Event{Time: 2600, Kind: KindComm, Task: Ref{15, 15}, Name: "Web Content \"1\" = ä\xff"}},
	{"2700 cpu0 exit task=15", Event{Time: 2700, Kind: KindExit, Task: Ref{15, 15}}},
	{"5 cpu-1 task task=12/10 parent=1 state=running start=-77 name=python3",
		Event{Time: 5, CPU: -1, Kind: KindTask, Task: Ref{12, 10}, Other: Ref{1, 1}, State: StateRunning, Count: -77, Name: "python3"}},
	{"6 cpu0 task task=9/9 parent=2/2 state=D|I name=kworker/0:1-events",
		Event{Time: 6, Kind: KindTask, Task: Ref{9, 9}, Other: Ref{2, 2}, State: StateUninterruptible | StateIdle, Name: "kworker/0:1-events"}},
	{"3000 cpu0 lost count=17", Event{Time: 3000, Kind: KindLost, Count: 17}},
	{"3100 cpu0 switch task=12/10 next=0 state=S call=futex obj=0x7f00 timeout=5000000 lock=gil holder=14/10",
		Event{Time: 3100, Kind: KindSwitch, Task: Ref{12, 10}, State: StateInterruptible,
			Call: CallFutex, Object: 0x7f00, Timeout: 5000000, Lock: LockGIL, Holder: Ref{14, 10}}},
	{"3101 cpu0 switch task=12/10 next=0 state=S call=#1000 lock=77 holder=-1",
		Event{Time: 3101, Kind: KindSwitch, Task: Ref{12, 10}, State: StateInterruptible, Call: 1000, Lock: 77, Holder: Nobody}},
	{"3102 cpu0 switch task=12/10 next=0 state=D call=page_fault obj=0x7f3000",
		Event{Time: 3102, Kind: KindSwitch, Task: Ref{12, 10}, State: StateUninterruptible, Call: CallFault, Object: 0x7f3000}},
	{"3200 cpu0 object task=10 name=pipe:[33] obj=0x3", Event{Time: 3200, Kind: KindObject, Task: Ref{10, 10}, Object: 3, Name: "pipe:[33]"}},
	{"3300 cpu0 send by=12/10 ctx=task count=32 conn=0x99 seq=4000",
		Event{Time: 3300, Kind: KindSend, Other: Ref{12, 10}, Ctx: ContextTask, Count: 32, Conn: 0x99, Seq: 4000}},
	{"3400 cpu0 receive by=7 ctx=softirq:3 count=32 conn=0x99 seq=4000",
		Event{Time: 3400, Kind: KindReceive, Other: Ref{7, 7}, Ctx: ContextSoftirq, Vector: 3, Count: 32, Conn: 0x99, Seq: 4000}},
	{"3500 cpu0 queue by=12/10 ctx=task obj=0xffff", Event{Time: 3500, Kind: KindQueue, Other: Ref{12, 10}, Ctx: ContextTask, Object: 0xffff}},
	{"3600 cpu0 work task=5 name=wb_workfn obj=0xffff", Event{Time: 3600, Kind: KindWork, Task: Ref{5, 5}, Name: "wb_workfn", Object: 0xffff}},
	{"3700 cpu0 workend task=5 obj=0xffff", Event{Time: 3700, Kind: KindWorkEnd, Task: Ref{5, 5}, Object: 0xffff}},
	{"3800 cpu0 io task=9 ctx=hardirq:264241152 count=80000 name=vda",
		Event{Time: 3800, Kind: KindIO, Task: Ref{9, 9}, Ctx: ContextHardirq, Vector: 252 << 20, Count: 80000, Name: "vda"}},
	{"3900 cpu0 throttle count=9 name=/app obj=0x1312d00 timeout=100000000 conn=0x7 seq=3",
		Event{Time: 3900, Kind: KindThrottle, Count: 9, Name: "/app", Object: 20000000, Timeout: 100000000, Conn: 7, Seq: 3}},
	{"1 cpu0 switch task=1 next=2 state=D|X|0x4400", Event{Time: 1, Kind: KindSwitch, Task: Ref{1, 1}, Other: Ref{2, 2}, State: 0x4412}},
	{"-1 cpu0 200 task=1 other=2 ctx=99:-4 count=1",
		Event{Time: -1, Kind: 200, Task: Ref{1, 1}, Other: Ref{2, 2}, Ctx: 99, Vector: -4, Count: 1}},
}

func TestParseEvent(t *testing.T) {
	for _, c := range lines {
		t.Run(c.text, func(t *testing.T) {
			got, err := ParseEvent(c.text)
			if err != nil || got != c.event {
				t.Fatalf("ParseEvent = %+v, %v\nwant %+v", got, err, c.event)
			}
			back, err := ParseEvent(got.String())
			if err != nil || back != got {
				t.Errorf("%q reads back as %+v, %v", got.String(), back, err)
			}
		})
	}
}

func TestString(t *testing.T) {
	for i, c := range lines {
		if got := c.event.String(); got != c.text && i != 9 { // 9 is not in its shortest form
			t.Errorf("String = %s\nwant     %s", got, c.text)
		}
	}
}

func TestParseEventErrors(t *testing.T) {
	for _, text := range []string{
		"", "1000", "1000 cpu0", "x cpu0 exit", "1 0 exit", "1 cpux exit", "1 cpu99999999999 exit",
		"1 cpu0 nonsense", "1 cpu0 exit task", "1 cpu0 exit task=", "1 cpu0 exit task=1/", "1 cpu0 exit task=1/2/3",
		"1 cpu0 exit task=1 task=1", "1 cpu0 exit next=1", "1 cpu0 switch state=Q", "1 cpu0 switch state=",
		"1 cpu0 switch state=0x1ffffffff", `1 cpu0 comm name="open`, `1 cpu0 comm name="a"b"`, "1 cpu0 comm name=a=b",
		"1 cpu0 comm name=", "1 cpu0 waking ctx=hardirq:", "1 cpu0 lost start=3", "1 cpu0 switch stack=-1",
		"1 cpu0 switch call=no_such", "1 cpu0 switch call=#70000", "1 cpu0 switch call=", "1 cpu0 switch obj=-1",
		"1 cpu0 switch timeout=1ms", "1 cpu0 switch lock=spin", "1 cpu0 switch holder=nobody", "1 cpu0 send conn=z",
		"1 cpu0 send seq=4294967296", "1 cpu0 object by=1",
	} {
		if e, err := ParseEvent(text); err == nil {
			t.Errorf("ParseEvent(%q) = %v, want an error", text, e)
		}
	}
}

// FuzzParseEvent: text never panics, and what parses survives the way back.
func FuzzParseEvent(f *testing.F) {
	for _, c := range lines {
		f.Add(c.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := ParseEvent(text)
		if err != nil {
			return
		}
		back, err := ParseEvent(e.String())
		if err != nil || back != e {
			t.Fatalf("%q -> %+v -> %q -> %+v, %v", text, e, e.String(), back, err)
		}
	})
}

// FuzzEventString: any event whatever survives its text form.
func FuzzEventString(f *testing.F) {
	f.Add(int64(1), int32(2), uint8(3), uint8(4), int32(5), true, int32(6), int32(7), uint32(8), uint32(9), "n a=\"m\\e\x00\xfe", int64(10),
		uint16(203), uint64(11), int64(12), uint8(1), int32(13), uint64(14), uint32(15))
	f.Add(int64(math.MinInt64), int32(math.MinInt32), uint8(255), uint8(255), int32(math.MinInt32), false, int32(-1), int32(0),
		uint32(math.MaxUint32), uint32(math.MaxUint32), "\"", int64(math.MinInt64),
		uint16(math.MaxUint16), uint64(math.MaxUint64), int64(math.MinInt64), uint8(255), int32(-1), uint64(math.MaxUint64), uint32(math.MaxUint32))
	f.Fuzz(func(t *testing.T, time int64, cpu int32, kind, ctx uint8, vector int32, preempt bool, tid, pid int32, state, stack uint32, name string, count int64,
		call uint16, object uint64, timeout int64, lock uint8, holder int32, conn uint64, seq uint32) {
		e := Event{time, cpu, Kind(kind), Context(ctx), vector, preempt, Ref{tid, pid}, Ref{pid, tid}, state, stack, name, count,
			Call(call), object, timeout, LockKind(lock), Ref{holder, pid}, conn, seq}
		back, err := ParseEvent(e.String())
		if err != nil || back != e {
			t.Fatalf("%+v -> %q -> %+v, %v", e, e.String(), back, err)
		}
	})
}

// The calls that analysis names have the names of the kernel's table, and arm64's
// other numbers lead to the same ones.
func TestCalls(t *testing.T) {
	for _, c := range []struct {
		call         Call
		name         string
		amd64, arm64 int
	}{
		// amd64: arch/x86/entry/syscalls/syscall_64.tbl; arm64: include/uapi/asm-generic/unistd.h.
		{CallRead, "read", 0, 63}, {CallWrite, "write", 1, 64}, {CallPoll, "poll", 7, -1}, {CallPread64, "pread64", 17, 67},
		{CallReadv, "readv", 19, 65}, {CallWritev, "writev", 20, 66}, {CallSelect, "select", 23, -1},
		{CallSchedYield, "sched_yield", 24, 124}, {CallNanosleep, "nanosleep", 35, 101}, {CallConnect, "connect", 42, 203},
		{CallAccept, "accept", 43, 202}, {CallSendto, "sendto", 44, 206}, {CallRecvfrom, "recvfrom", 45, 207},
		{CallSendmsg, "sendmsg", 46, 211}, {CallRecvmsg, "recvmsg", 47, 212}, {CallWait4, "wait4", 61, 260},
		{CallFlock, "flock", 73, 32}, {CallFsync, "fsync", 74, 82}, {CallFdatasync, "fdatasync", 75, 83},
		{CallFutex, "futex", 202, 98}, {CallClockNanosleep, "clock_nanosleep", 230, 115}, {CallEpollWait, "epoll_wait", 232, -1},
		{CallWaitid, "waitid", 247, 95}, {CallPselect6, "pselect6", 270, 72}, {CallPpoll, "ppoll", 271, 73},
		{CallEpollPwait, "epoll_pwait", 281, 22}, {CallAccept4, "accept4", 288, 242}, {CallEpollPwait2, "epoll_pwait2", 441, 441},
	} {
		if c.call.String() != c.name {
			t.Errorf("call %d is %s, want %s", c.call, c.call, c.name)
		}
		if got, ok := CallOf("amd64", c.amd64); !ok || got != c.call {
			t.Errorf("%s on amd64: got %v, %v", c.name, got, ok)
		}
		if got, ok := CallOf("arm64", c.arm64); ok != (c.arm64 >= 0) || ok && got != c.call {
			t.Errorf("%s on arm64: got %v, %v", c.name, got, ok)
		}
	}
	for n, name := range callsARM64 {
		if _, ok := CallOf("arm64", n); ok != (name != "") {
			t.Errorf("arm64's %s has no number of amd64", name)
		}
	}
	if _, ok := CallOf("riscv64", 1); ok {
		t.Error("an unknown architecture has calls")
	}
}
