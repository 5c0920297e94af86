// SPDX-License-Identifier: Apache-2.0

package pyframes

import "strings"

// Scopes is the structure of a Python source file: which code object lies in
// which. It is for versions without co_qualname, 3.8 to 3.10.
type Scopes struct {
	all []scope
	// places lists the code objects by what a code object tells of itself. There
	// is more than one only where their qualified names may differ.
	places map[place][]int32
}

type place struct {
	name string
	line int32
}

// scope is a piece of source that may have a code object.
type scope struct {
	name   string
	line   int32
	parent int32 // index, or module
	kind   scopeKind
	// global: the name was declared global, so it is not qualified.
	global bool
}

// module is the parent of what lies in no other scope.
const module = int32(-1)

type scopeKind uint8

const (
	inBracket scopeKind = iota // no scope of its own
	inClass
	inFunction
	inLambda
	inComprehension
)

// Qualify scans Python source. What it cannot follow it leaves out: names of
// damaged or other source are not found.
func Qualify(src []byte) *Scopes {
	s := &scanner{lexer: lexer{src: src, line: 1}}
	s.lexer.start()
	s.scan()
	out := &Scopes{all: s.scopes, places: map[place][]int32{}}
	for i, sc := range out.all {
		if sc.kind == inBracket {
			continue
		}
		at := place{sc.name, sc.line}
		if list := out.places[at]; len(list) < maxAlike && !out.siblings(list, sc) {
			out.places[at] = append(list, int32(i))
		}
	}
	return out
}

// maxAlike bounds how many code objects of one name on one line are compared.
const maxAlike = 8

// siblings reports whether a scope in list has the qualified name of sc for
// being in the same one.
func (s *Scopes) siblings(list []int32, sc scope) bool {
	for _, i := range list {
		if s.all[i].parent == sc.parent && s.all[i].global == sc.global {
			return true
		}
	}
	return false
}

// Qualname returns the qualified name of a code object by its co_name and
// co_firstlineno. It is false if the source has no such code object there, or
// several of different qualified names.
func (s *Scopes) Qualname(name string, firstLine int32) (string, bool) {
	if name == "<module>" {
		return name, true
	}
	found := ""
	for _, i := range s.places[place{name, firstLine}] {
		q, ok := s.qualname(i)
		if !ok || found != "" && found != q {
			return "", false
		}
		found = q
	}
	return found, found != ""
}

// qualname joins the names of the scopes around one, as compiler_set_qualname
// does (Python/compile.c, 3.10): only functions and lambdas add <locals>.
func (s *Scopes) qualname(i int32) (string, bool) {
	parts, size := []string{s.all[i].name}, 0
	for sc := s.all[i]; !sc.global && sc.parent != module; {
		sc = s.all[sc.parent]
		switch sc.kind {
		case inBracket:
			continue
		case inFunction, inLambda:
			parts = append(parts, "<locals>")
		}
		parts = append(parts, sc.name)
		if size += len(sc.name); size > maxName {
			return "", false
		}
	}
	var b strings.Builder
	for n := len(parts) - 1; n >= 0; n-- {
		b.WriteString(parts[n])
		if n > 0 {
			b.WriteByte('.')
		}
	}
	return b.String(), true
}

// maxSourceFiles bounds the scanned files that are kept.
const maxSourceFiles = 4096

// qualify returns the qualified name of a code object of a version without
// co_qualname, its bare name where the source does not tell.
func (p *Process) qualify(c *Code) string {
	if p.Source == nil || c.Filename == "" || c.Filename[0] == '<' {
		return c.Name
	}
	s, ok := p.scopes[c.Filename]
	if !ok {
		if len(p.scopes) >= maxSourceFiles {
			clear(p.scopes)
		}
		if src, err := p.Source(c.Filename); err == nil {
			s = Qualify(src)
		}
		p.scopes[c.Filename] = s // nil: not readable, and not tried again
	}
	if s == nil {
		return c.Name
	}
	if name, ok := s.Qualname(c.Name, c.FirstLine); ok {
		return name
	}
	return c.Name
}
