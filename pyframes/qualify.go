// SPDX-License-Identifier: Apache-2.0

package pyframes

import "strings"

// Bounds of what is kept of the sources of a process.
const (
	maxIndexes   = 1024
	maxAllScopes = 4 * maxScopes
)

// qualify returns the qualified name of a code object of a version without
// co_qualname, its bare name where the source does not tell.
func (p *Process) qualify(c *Code) string {
	if p.Source == nil || strings.HasPrefix(c.Filename, "<") || c.Name == "<module>" {
		return c.Name
	}
	x, ok := p.scopes[c.Filename]
	if !ok {
		if len(p.scopes) >= maxIndexes || p.scopeCount >= maxAllScopes {
			clear(p.scopes)
			p.scopeCount = 0
		}
		if src, err := p.Source(c.Filename); err == nil {
			x = Qualify(src)
			p.scopeCount += len(x.scopes)
		}
		p.scopes[c.Filename] = x // nil: not asked again
	}
	if x != nil {
		if name, ok := x.Qualname(c.Name, int(c.FirstLine)); ok {
			return name
		}
	}
	return c.Name
}
