// SPDX-License-Identifier: Apache-2.0

package pyframes

// Scopes is the structure of a source file.
type Scopes struct{}

// qualify returns the qualified name of a code object of a version without
// co_qualname, its bare name where the source does not tell.
func (p *Process) qualify(c *Code) string { return c.Name }
