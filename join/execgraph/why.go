// SPDX-License-Identifier: Apache-2.0

package execgraph

import "pathprof/join/sched"

// Words of Cause.Why.
const (
	WhyLost      = "lost"            // events were lost meanwhile
	WhyNoWakeup  = "no-wakeup-seen"  // the task came back without a recorded wake-up
	WhyNoSwitch  = "no-switch-seen"  // events contradict each other: one is missing
	WhyOutside   = "outside"         // before the task's first event, or outside the recording
	WhyWaiting   = "still-waiting"   // the recording ends before the wait does
	WhyExited    = "exited"          // after the task's end
	WhyIdle      = "idle"            // by the idle task; in a preemption: the CPU was idle
	WhyNoContext = "unknown-context" // the wake-up's context was not recorded
	WhyHolder    = "no-holder-seen"  // who held the GIL is not known
)

// why is a word of Cause.Why in a byte.
type why uint8

const (
	whyNone why = iota
	whyLost
	whyNoWakeup
	whyNoSwitch
	whyOutside
	whyWaiting
	whyExited
	whyIdle
	whyNoContext
	whyHolder
)

var whyWords = [...]string{
	whyLost:      WhyLost,
	whyNoWakeup:  WhyNoWakeup,
	whyNoSwitch:  WhyNoSwitch,
	whyOutside:   WhyOutside,
	whyWaiting:   WhyWaiting,
	whyExited:    WhyExited,
	whyIdle:      WhyIdle,
	whyNoContext: WhyNoContext,
	whyHolder:    WhyHolder,
}

// unknown is a cause that is not known, for a reason.
func unknown(w why) Cause { return Cause{Kind: CauseUnknown, Why: whyWords[w]} }

// String returns the state's word, the same in every output.
func (s State) String() string {
	switch s {
	case Running:
		return "running"
	case Preempted:
		return "preempted"
	case Blocked:
		return "blocked"
	case Interrupted:
		return "interrupted"
	}
	return "unknown"
}

// causeOf is the cause a wake-up in context ctx stands for. A wake-up by a
// task gets its task from the caller.
func causeOf(ctx sched.Context, vector int32) Cause {
	c := Cause{Ctx: ctx, Vector: vector}
	switch ctx {
	case sched.ContextTask:
		return Cause{Kind: CauseTask, Ctx: ctx}
	case sched.ContextHardirq, sched.ContextIPI, sched.ContextNMI:
		c.Kind = CauseInterrupt
	case sched.ContextSoftirq:
		c.Kind = CauseSoftirq
	case sched.ContextHrtimer, sched.ContextTimer:
		c.Kind = CauseTimer
	case sched.ContextIdle:
		c.Kind, c.Why = CauseUnknown, WhyIdle
	default:
		c.Kind, c.Why = CauseUnknown, WhyNoContext
	}
	return c
}
