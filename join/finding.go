// SPDX-License-Identifier: Apache-2.0

package join

// Finding is what a comparison knows of a difference, in a word or two.
type Finding string

// The findings.
const (
	FoundSlower Finding = "slower"   // in B, significantly
	FoundFaster Finding = "faster"   // in B, significantly
	FoundNone   Finding = "not seen" // tested; it may be chance
	FoundTooFew Finding = "too few samples"
	NotTested   Finding = "not tested" // nothing tells whether it is chance
)

// Finding of one difference.
func (d *Difference) Finding() Finding {
	switch {
	case d.Significant && d.Time.By > 0:
		return FoundSlower
	case d.Significant:
		return FoundFaster
	case d.TooFew:
		return FoundTooFew
	case d.P == nil:
		return NotTested
	}
	return FoundNone
}

// rowKey finds a row of a comparison again.
type rowKey struct {
	thread string
	class  diffClass
	functionKey
}

// Findings returns how to look up what the comparison says of an entry of a path of
// A or B: of its innermost function within its class, or of its class where it shows
// no function.
func (c *Comparison) Findings() func(*ThreadPath, *Entry) Finding {
	rows := make(map[rowKey]Finding)
	for i := range c.Threads {
		t := &c.Threads[i]
		for j := range t.Rows {
			d := &t.Rows[j]
			key := rowKey{thread: t.Thread, class: diffClass{d.Wait, d.State, d.Cause, d.Task}}
			if d.Function != "" {
				key.functionKey = functionKey{d.Function, d.File, d.Line, d.Kind}
			}
			rows[key] = d.Finding()
		}
	}
	return func(t *ThreadPath, e *Entry) Finding {
		key := rowKey{thread: plain(t.Thread.String()), class: diffClassOf(&t.Classes[t.ClassOf[e.Segment]].Key)}
		at := top
		if !onCPU(t.Path.Segments[e.Segment].State) {
			at = waitTop
		}
		if f := at(e.Stack); f != nil {
			key.functionKey = keyOf(f)
		}
		if v, ok := rows[key]; ok {
			return v
		}
		return NotTested
	}
}

// Factor brings B to the length of A: what a time of B is multiplied with to be that
// of as many seconds, or requests, as A has. It is 0 if either has none.
func (c *Comparison) Factor() float64 {
	a, b := float64(c.A.WallNs), float64(c.B.WallNs)
	if c.Unit == "request" {
		a, b = float64(c.A.Requests), float64(c.B.Requests)
	}
	if a <= 0 || b <= 0 {
		return 0
	}
	return a / b
}
