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
	for _, i := range []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12} {
		if got := lines[i].event.String(); got != lines[i].text {
			t.Errorf("String = %s\nwant     %s", got, lines[i].text)
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
	f.Add(int64(1), int32(2), uint8(3), uint8(4), int32(5), true, int32(6), int32(7), uint32(8), uint32(9), "n a=\"m\\e\x00\xfe", int64(10))
	f.Add(int64(math.MinInt64), int32(math.MinInt32), uint8(255), uint8(255), int32(math.MinInt32), false, int32(-1), int32(0),
		uint32(math.MaxUint32), uint32(math.MaxUint32), "\"", int64(math.MinInt64))
	f.Fuzz(func(t *testing.T, time int64, cpu int32, kind, ctx uint8, vector int32, preempt bool, tid, pid int32, state, stack uint32, name string, count int64) {
		e := Event{time, cpu, Kind(kind), Context(ctx), vector, preempt, Ref{tid, pid}, Ref{pid, tid}, state, stack, name, count}
		back, err := ParseEvent(e.String())
		if err != nil || back != e {
			t.Fatalf("%+v -> %q -> %+v, %v", e, e.String(), back, err)
		}
	})
}
