// SPDX-License-Identifier: Apache-2.0

package pyframes

import (
	"slices"
	"strings"
)

// ScopeIndex tells the qualified names of the functions, classes, lambdas and
// comprehensions of one source file. It is safe for concurrent use.
type ScopeIndex struct {
	// names are made when they are asked for: together they may be longer than
	// the source squared.
	scopes map[scopeKey][]*scope
}

type scopeKey struct {
	name string
	line int
}

// Bounds of one file: a source is the target's word.
const (
	maxScopes = 1 << 18
	maxAlike  = 8 // scopes of one name on one line
)

// Qualify reads the structure of a Python source file (3.6 to 3.10), as far as
// qualified names need it. Damaged or other text yields an index that knows
// less, never an error: ask for a name together with its line.
func Qualify(src []byte) *ScopeIndex {
	s := scopeScanner{lex: lexer{src: src, line: 1}, root: &scope{kind: scopeModule}}
	s.scan()
	x := &ScopeIndex{scopes: make(map[scopeKey][]*scope, len(s.nodes))}
	for _, n := range s.nodes {
		key := scopeKey{n.name(), n.line}
		if alike := x.scopes[key]; len(alike) < maxAlike && !slices.ContainsFunc(alike, n.sibling) {
			x.scopes[key] = append(alike, n)
		}
	}
	return x
}

// Qualname returns the qualified name of the code object with a bare name and a
// first line (a function's is its first decorator's), false if the line defines
// no such name, or several.
func (x *ScopeIndex) Qualname(name string, firstLine int) (string, bool) {
	qualified := ""
	for _, n := range x.scopes[scopeKey{name, firstLine}] {
		q := n.qualname()
		if q == "" || qualified != "" && qualified != q {
			return "", false
		}
		qualified = q
	}
	return qualified, qualified != ""
}

type scopeKind uint8

const (
	scopeModule scopeKind = iota
	scopeFunction
	scopeClass
	scopeLambda
	scopeBracket // not known to be a comprehension: no scope of its own
	scopeList
	scopeSet
	scopeDict
	scopeGenerator
)

// scope is a part of the program that becomes a code object of its own.
type scope struct {
	kind    scopeKind
	word    string // name of a function or class
	line    int
	parent  *scope
	globals map[string]bool // names that a global statement lists
}

func (n *scope) name() string {
	switch n.kind {
	case scopeFunction, scopeClass:
		return n.word
	case scopeLambda:
		return "<lambda>"
	case scopeList:
		return "<listcomp>"
	case scopeSet:
		return "<setcomp>"
	case scopeDict:
		return "<dictcomp>"
	case scopeGenerator:
		return "<genexpr>"
	}
	return ""
}

// sibling tells whether a scope of the same name has the same qualified name for
// lying in the same one.
func (n *scope) sibling(o *scope) bool { return n.around() == o.around() && n.global() == o.global() }

// around is the scope that n lies in.
func (n *scope) around() *scope {
	p := n.parent
	for p.kind == scopeBracket {
		p = p.parent
	}
	return p
}

// global tells whether a global statement makes the name one of the module.
func (n *scope) global() bool {
	return (n.kind == scopeFunction || n.kind == scopeClass) && n.around().globals[n.word]
}

// maxNesting bounds the chain of scopes; CPython stops at 100 indents and 200
// brackets.
const maxNesting = 512

// qualname builds the name as compiler_set_qualname does (Python/compile.c,
// 3.10): a comprehension adds no "<locals>". It is empty if too long.
func (n *scope) qualname() string {
	parts := []string{n.name()}
	size := len(n.word)
	for !n.global() && n.around().kind != scopeModule {
		n = n.around()
		if n.kind == scopeFunction || n.kind == scopeLambda {
			parts = append(parts, "<locals>")
		}
		parts = append(parts, n.name())
		if size += len(n.word) + len(".<locals>.<listcomp>"); size > maxName {
			return ""
		}
	}
	slices.Reverse(parts)
	return strings.Join(parts, ".")
}

// block is a function or class whose body or header the scanner is in.
type block struct {
	scope  *scope // nil until its header has ended: that belongs to the scope around
	indent int    // of its first line: a line no deeper ends it
}

// frameState is where in a bracket or lambda the scanner is.
type frameState uint8

const (
	inElement    frameState = iota // in a bracket, before any "for"
	inTarget                       // after the first "for"
	inFirst                        // the first iterable: belongs to the scope around
	inRest                         // the rest of the comprehension
	inParameters                   // of a lambda: belong to the scope around
	inBody                         // of a lambda
)

// nest is an open bracket or a lambda.
type nest struct {
	scope *scope
	state frameState
	colon bool // of a brace: a ':' came before any "for", so it is a dict
}

type scopeScanner struct {
	lex    lexer
	root   *scope
	nodes  []*scope
	blocks []block
	nests  []nest

	brackets  int    // open ones: line ends within mean nothing
	decorator int    // first line of the decorators above, 0: none
	header    *scope // a def or class whose colon has not come
	global    bool   // in a global statement
	formats   int    // formatted strings around
}

func (s *scopeScanner) next() token { return s.lex.next(s.brackets > 0) }

func (s *scopeScanner) scan() {
	for start := true; len(s.nests)+len(s.blocks) < maxNesting && len(s.nodes) < maxScopes; {
		t := s.next()
		switch {
		case t.kind == tokenEnd:
			return
		case t.kind == tokenNewline:
			s.nests, s.header, s.global = s.nests[:0], nil, false
			start = true
		case start:
			start = !s.beginLine(t)
		default:
			s.token(t)
		}
	}
}

// beginLine handles the first token of a logical line. It returns false if the
// line has ended already.
func (s *scopeScanner) beginLine(t token) bool {
	for n := len(s.blocks); n > 0 && s.blocks[n-1].indent >= t.column; n-- {
		s.blocks = s.blocks[:n-1]
	}
	if t.text == "@" {
		if s.decorator == 0 {
			s.decorator = t.line
		}
		return true
	}
	line, indent := t.line, t.column
	if s.decorator != 0 {
		line, s.decorator = s.decorator, 0
	}
	if t.text == "async" {
		t = s.next()
	}
	kind := scopeFunction
	switch t.text {
	case "class":
		kind = scopeClass
	case "def":
	default:
		if t.kind != tokenWord && t.kind != tokenOther {
			return t.kind != tokenNewline
		}
		s.token(t)
		return true
	}
	name := s.next()
	if name.kind == tokenWord {
		s.header = s.add(kind, name.text, line)
		s.blocks = append(s.blocks, block{nil, indent})
	}
	return name.kind != tokenNewline
}

// add makes a scope inside the current one.
func (s *scopeScanner) add(kind scopeKind, word string, line int) *scope {
	n := &scope{kind: kind, word: word, line: line, parent: s.around()}
	if kind != scopeBracket { // which may become one
		s.nodes = append(s.nodes, n)
	}
	return n
}

// around is the scope that an expression here belongs to.
func (s *scopeScanner) around() *scope {
	for i := len(s.nests) - 1; i >= 0; i-- {
		if f := s.nests[i]; f.state != inFirst && f.state != inParameters {
			return f.scope
		}
	}
	for i := len(s.blocks) - 1; i >= 0; i-- {
		if s.blocks[i].scope != nil {
			return s.blocks[i].scope
		}
	}
	return s.root
}

// token handles a token inside of a logical line.
func (s *scopeScanner) token(t token) {
	if t.inner != nil {
		s.formatted(t)
		return
	}
	switch t.text {
	case "(", "[", "{":
		s.brackets++
		s.nests = append(s.nests, nest{scope: s.add(scopeBracket, t.text, t.line)})
	case ")", "]", "}":
		s.brackets = max(s.brackets-1, 0)
		s.endLambdas(inParameters)
		s.nests = s.nests[:max(len(s.nests)-1, 0)]
	case "lambda":
		s.nests = append(s.nests, nest{scope: s.add(scopeLambda, "", t.line), state: inParameters})
	case ",":
		s.endLambdas(inBody)
	case ";":
		s.nests, s.global = s.nests[:0], false
	case ":":
		s.colon()
	case "for":
		s.endLambdas(inParameters)
		s.comprehension()
	case "in":
		if f := s.top(); f != nil && f.state == inTarget {
			f.state = inFirst
		}
	case "if":
		if f := s.top(); f != nil && f.state == inFirst {
			f.state = inRest
		}
	case "global":
		s.global = true
	default:
		if s.global && t.kind == tokenWord {
			s.around().declareGlobal(t.text)
		}
	}
}

func (n *scope) declareGlobal(name string) {
	if n.globals == nil {
		n.globals = map[string]bool{}
	}
	n.globals[name] = true
}

// top is the innermost open bracket or lambda, nil if there is none.
func (s *scopeScanner) top() *nest {
	if len(s.nests) == 0 {
		return nil
	}
	return &s.nests[len(s.nests)-1]
}

// endLambdas ends the innermost lambdas: those in their body, which a comma or
// colon ends, and from inParameters on all.
func (s *scopeScanner) endLambdas(from frameState) {
	for f := s.top(); f != nil && f.state >= from; f = s.top() {
		s.nests = s.nests[:len(s.nests)-1]
	}
}

// colon may begin a lambda's body, make a brace a dict, or end a header.
func (s *scopeScanner) colon() {
	s.endLambdas(inBody)
	switch f := s.top(); {
	case f == nil && s.header != nil:
		s.blocks[len(s.blocks)-1].scope, s.header = s.header, nil
	case f == nil:
	case f.state == inParameters:
		f.state = inBody
	case f.state == inElement:
		f.colon = true
	}
}

// comprehension handles "for" in the innermost bracket.
func (s *scopeScanner) comprehension() {
	f := s.top()
	if f == nil {
		return // a statement
	}
	if f.state != inElement {
		f.state = inRest
		return
	}
	f.state = inTarget
	s.nodes = append(s.nodes, f.scope)
	switch {
	case f.scope.word == "[":
		f.scope.kind = scopeList
	case f.scope.word == "(":
		f.scope.kind = scopeGenerator
	case f.colon:
		f.scope.kind = scopeDict
	default:
		f.scope.kind = scopeSet
	}
}
