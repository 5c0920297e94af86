// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// kindWords are the words of the text form, by kind.
var kindWords = [...]string{
	KindInvalid: "invalid",
	KindSwitch:  "switch",
	KindWaking:  "waking",
	KindFork:    "fork",
	KindExec:    "exec",
	KindExit:    "exit",
	KindComm:    "comm",
	KindTask:    "task",
	KindLost:    "lost",

	KindObject:   "object",
	KindSend:     "send",
	KindReceive:  "receive",
	KindQueue:    "queue",
	KindWork:     "work",
	KindWorkEnd:  "workend",
	KindIO:       "io",
	KindThrottle: "throttle",
}

// lockWords are the words of the text form, by kind of lock.
var lockWords = [...]string{
	LockUnknown:   "unknown",
	LockGIL:       "gil",
	LockMutex:     "mutex",
	LockSemaphore: "sem",
	LockPyMutex:   "pymutex",
	LockCondition: "cond",
}

// contextWords are the words of the text form, by context.
var contextWords = [...]string{
	ContextUnknown: "unknown",
	ContextTask:    "task",
	ContextHardirq: "hardirq",
	ContextSoftirq: "softirq",
	ContextHrtimer: "hrtimer",
	ContextTimer:   "timer",
	ContextIPI:     "ipi",
	ContextNMI:     "nmi",
	ContextIdle:    "idle",
}

// stateWords are the letters ps(1) and sched_switch use (fs/proc/array.c), in
// the order of the bits.
var stateWords = []struct {
	bit  uint32
	word string
}{
	{StateInterruptible, "S"},
	{StateUninterruptible, "D"},
	{StateStopped, "T"},
	{StateTraced, "t"},
	{StateDead, "X"},
	{StateZombie, "Z"},
	{StateParked, "P"},
	{StateIdle, "I"},
	{StateRunning, "running"},
}

// String returns the kind's word in the text form, its number if it has none.
func (k Kind) String() string { return wordOf(kindWords[:], uint8(k)) }

// String returns the context's word in the text form, its number if it has none.
func (c Context) String() string { return wordOf(contextWords[:], uint8(c)) }

// String returns the lock's word in the text form, its number if it has none.
func (l LockKind) String() string { return wordOf(lockWords[:], uint8(l)) }

func wordOf(words []string, i uint8) string {
	if int(i) < len(words) {
		return words[i]
	}
	return strconv.Itoa(int(i))
}

// String returns the event's text form, one line without its end:
//
//	TIME cpuN KIND KEY=VALUE…
//
//	1000 cpu0 switch task=12/10 next=14 state=S stack=3
//	1500 cpu1 waking task=12/10 by=14 ctx=task
//	2000 cpu1 waking task=12/10 by=0 ctx=hardirq:33
//	2500 cpu0 fork task=15 parent=14 name=python3
//	3000 cpu0 lost count=17
//	3100 cpu0 switch task=12/10 next=0 state=S call=futex obj=0x7f00 timeout=5000000 lock=gil holder=14/10
//	3200 cpu0 object task=10 name=pipe:[33] obj=0x3
//	3300 cpu0 send by=12/10 ctx=task count=32 conn=0x99 seq=4000
//
// A task is TID/PID, or TID alone where both are the same. A state is the
// letters of ps(1) joined by |, with + for a preemption inside the kernel. A
// key that is left out has the zero value. [ParseEvent] reads it back exactly.
func (e Event) String() string {
	b := make([]byte, 0, 96)
	b = strconv.AppendInt(b, e.Time, 10)
	b = append(b, " cpu"...)
	b = strconv.AppendInt(b, int64(e.CPU), 10)
	b = append(b, ' ')
	b = append(b, e.Kind.String()...)
	pair := e.Kind == KindSwitch || e.Kind == KindWaking
	if pair || e.Task != (Ref{}) {
		b = appendRef(append(b, " task="...), e.Task)
	}
	if pair || e.Other != (Ref{}) {
		b = append(b, ' ')
		b = append(b, otherKey(e.Kind)...)
		b = appendRef(append(b, '='), e.Other)
	}
	if e.Kind == KindSwitch || e.Kind == KindTask || e.State != 0 || e.Preempt {
		b = appendState(append(b, " state="...), e.State, e.Preempt)
	}
	if e.Kind == KindWaking || e.Ctx != 0 || e.Vector != 0 {
		b = append(b, " ctx="...)
		b = append(b, e.Ctx.String()...)
		if e.Vector != 0 {
			b = strconv.AppendInt(append(b, ':'), int64(e.Vector), 10)
		}
	}
	if e.Stack != 0 {
		b = strconv.AppendUint(append(b, " stack="...), uint64(e.Stack), 10)
	}
	if e.Count != 0 {
		b = strconv.AppendInt(append(b, " "+countKey(e.Kind)+"="...), e.Count, 10)
	}
	if e.Name != "" {
		b = append(b, " name="...)
		if bare(e.Name) {
			b = append(b, e.Name...)
		} else {
			b = strconv.AppendQuote(b, e.Name)
		}
	}
	return string(appendCause(b, &e))
}

// appendCause writes what the event tells about why a task waits.
func appendCause(b []byte, e *Event) []byte {
	if e.Call != 0 {
		b = append(append(b, " call="...), e.Call.String()...)
	}
	if e.Object != 0 {
		b = strconv.AppendUint(append(b, " obj=0x"...), e.Object, 16)
	}
	if e.Timeout != 0 {
		b = strconv.AppendInt(append(b, " timeout="...), e.Timeout, 10)
	}
	if e.Lock != 0 {
		b = append(append(b, " lock="...), e.Lock.String()...)
	}
	if e.Holder != (Ref{}) {
		b = appendRef(append(b, " holder="...), e.Holder)
	}
	if e.Conn != 0 {
		b = strconv.AppendUint(append(b, " conn=0x"...), e.Conn, 16)
	}
	if e.Seq != 0 {
		b = strconv.AppendUint(append(b, " seq="...), uint64(e.Seq), 10)
	}
	return b
}

// otherKey is what Event.Other is called for a kind of event.
func otherKey(k Kind) string {
	switch k {
	case KindSwitch:
		return "next"
	case KindWaking, KindSend, KindReceive, KindQueue:
		return "by"
	case KindFork, KindTask:
		return "parent"
	case KindExec:
		return "old"
	}
	return "other"
}

// countKey is what Event.Count is called for a kind of event.
func countKey(k Kind) string {
	if k == KindTask {
		return "start"
	}
	return "count"
}

func appendRef(b []byte, r Ref) []byte {
	b = strconv.AppendInt(b, int64(r.TID), 10)
	if r.PID != r.TID {
		b = strconv.AppendInt(append(b, '/'), int64(r.PID), 10)
	}
	return b
}

func appendState(b []byte, state uint32, preempt bool) []byte {
	if state == StateRunnable {
		b = append(b, 'R')
	}
	sep := false
	for _, s := range stateWords {
		if state&s.bit == 0 {
			continue
		}
		if sep {
			b = append(b, '|')
		}
		b = append(b, s.word...)
		state &^= s.bit
		sep = true
	}
	if state != 0 {
		if sep {
			b = append(b, '|')
		}
		b = strconv.AppendUint(append(b, "0x"...), uint64(state), 16)
	}
	if preempt {
		b = append(b, '+')
	}
	return b
}

// bare tells whether a name needs no quotes.
func bare(s string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case strings.IndexByte("_-+./:@()[]#", c) >= 0:
		default:
			return false
		}
	}
	return s != ""
}

// ParseEvent reads the text form that [Event.String] writes. The order of the
// keys is free; an unknown or repeated key is an error.
func ParseEvent(line string) (Event, error) {
	var e Event
	words, err := split(line)
	if err != nil {
		return Event{}, fmt.Errorf("event: %w", err)
	}
	if len(words) < 3 {
		return Event{}, errors.New("event: want TIME cpuN KIND")
	}
	if e.Time, err = strconv.ParseInt(words[0], 10, 64); err != nil {
		return Event{}, fmt.Errorf("event time: %w", err)
	}
	cpu, ok := strings.CutPrefix(words[1], "cpu")
	if !ok {
		return Event{}, fmt.Errorf("event cpu: want cpuN, got %q", words[1])
	}
	if e.CPU, err = parseInt32(cpu); err != nil {
		return Event{}, fmt.Errorf("event cpu: %w", err)
	}
	kind, err := parseWord(kindWords[:], words[2])
	if err != nil {
		return Event{}, fmt.Errorf("event kind: %w", err)
	}
	e.Kind = Kind(kind)
	seen := make(map[string]bool, 8)
	for _, w := range words[3:] {
		key, value, ok := strings.Cut(w, "=")
		if !ok {
			return Event{}, fmt.Errorf("event: want KEY=VALUE, got %q", w)
		}
		if seen[key] {
			return Event{}, fmt.Errorf("event: key %s twice", key)
		}
		seen[key] = true
		if err := e.set(key, value); err != nil {
			return Event{}, fmt.Errorf("event %s: %w", key, err)
		}
	}
	return e, nil
}

// set stores one key of the text form.
func (e *Event) set(key, value string) (err error) {
	switch key {
	case "task":
		e.Task, err = parseRef(value)
	case otherKey(e.Kind):
		e.Other, err = parseRef(value)
	case "state":
		e.State, e.Preempt, err = parseState(value)
	case "ctx":
		word, vector, ok := strings.Cut(value, ":")
		if ok {
			if e.Vector, err = parseInt32(vector); err != nil {
				return err
			}
		}
		var c uint8
		c, err = parseWord(contextWords[:], word)
		e.Ctx = Context(c)
	case "stack":
		var n uint64
		n, err = strconv.ParseUint(value, 10, 32)
		e.Stack = uint32(n)
	case countKey(e.Kind):
		e.Count, err = strconv.ParseInt(value, 10, 64)
	case "name":
		e.Name = value
		if strings.HasPrefix(value, `"`) {
			e.Name, err = strconv.Unquote(value)
		} else if !bare(value) {
			err = fmt.Errorf("%q needs quotes", value)
		}
	default:
		return e.setCause(key, value)
	}
	return err
}

// setCause stores one key of those that [appendCause] writes.
func (e *Event) setCause(key, value string) (err error) {
	switch key {
	case "call":
		e.Call, err = parseCall(value)
	case "obj":
		e.Object, err = strconv.ParseUint(value, 0, 64)
	case "timeout":
		e.Timeout, err = strconv.ParseInt(value, 10, 64)
	case "lock":
		var l uint8
		l, err = parseWord(lockWords[:], value)
		e.Lock = LockKind(l)
	case "holder":
		e.Holder, err = parseRef(value)
	case "conn":
		e.Conn, err = strconv.ParseUint(value, 0, 64)
	case "seq":
		var n uint64
		n, err = strconv.ParseUint(value, 10, 32)
		e.Seq = uint32(n)
	default:
		err = errors.New("unknown key")
	}
	return err
}

// split cuts a line at blanks outside double quotes.
func split(line string) ([]string, error) {
	var words []string
	start, quoted := -1, false
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case quoted && c == '\\':
			i++ // the escaped byte ends no quote
		case c == '"':
			quoted = !quoted
			if start < 0 {
				start = i
			}
		case !quoted && (c == ' ' || c == '\t'):
			if start >= 0 {
				words = append(words, line[start:i])
				start = -1
			}
		case start < 0:
			start = i
		}
	}
	if quoted {
		return nil, errors.New("quote not closed")
	}
	if start >= 0 {
		words = append(words, line[start:])
	}
	return words, nil
}

// parseWord finds a word's number; a number without a word stands for itself.
func parseWord(words []string, s string) (uint8, error) {
	for i, w := range words {
		if s == w {
			return uint8(i), nil
		}
	}
	n, err := strconv.ParseUint(s, 10, 8)
	return uint8(n), err
}

func parseRef(s string) (Ref, error) {
	tid, pid, ok := strings.Cut(s, "/")
	t, err := parseInt32(tid)
	if err != nil {
		return Ref{}, err
	}
	if !ok {
		return Ref{TID: t, PID: t}, nil
	}
	p, err := parseInt32(pid)
	return Ref{TID: t, PID: p}, err
}

func parseState(s string) (state uint32, preempt bool, err error) {
	s, preempt = strings.CutSuffix(s, "+")
	if s == "R" {
		return StateRunnable, preempt, nil
	}
next:
	for w := range strings.SplitSeq(s, "|") {
		for _, known := range stateWords {
			if w == known.word {
				state |= known.bit
				continue next
			}
		}
		hex, ok := strings.CutPrefix(w, "0x")
		if !ok {
			return 0, false, fmt.Errorf("unknown state %q", w)
		}
		n, err := strconv.ParseUint(hex, 16, 32)
		if err != nil {
			return 0, false, err
		}
		state |= uint32(n)
	}
	return state, preempt, nil
}

func parseInt32(s string) (int32, error) {
	n, err := strconv.ParseInt(s, 10, 32)
	return int32(n), err
}
