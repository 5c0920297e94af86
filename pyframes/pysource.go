// SPDX-License-Identifier: Apache-2.0

package pyframes

import "bytes"

// maxOpen bounds what is open at once: CPython allows 100 levels of indentation
// and 200 of brackets (Parser/tokenizer.c).
const maxOpen = 512

// scanner finds the scopes of a source file from its tokens, without a grammar:
// def, class, lambda, for and brackets are enough.
type scanner struct {
	lexer
	scopes []scope
	stack  []open
	// decorator is the line of the first decorator of the definition to come, 0
	// without one; co_firstlineno is this line.
	decorator int32
	globals   bool // within a global statement
	depth     int  // of strings with expressions within such
}

// open is a construct whose end was not seen yet.
type open struct {
	kind  scopeKind
	scope int32
	// outside: what comes now belongs to the scope around: the head of a
	// definition, a lambda's parameters, a comprehension's first iterable.
	outside bool
	column  int // of a block's first word; its body is what is indented deeper
	globals map[string]bool
	// Of brackets:
	bracket byte
	colon   bool // {key: value
	target  bool // between the first for and its in
}

// scan reads the source to its end, or as far as it is nested sanely.
func (s *scanner) scan() {
	for len(s.stack) < maxOpen {
		t := s.next()
		switch t.kind {
		case tokenEnd:
			return
		case tokenLine:
			s.newline()
		case tokenName:
			if t.first {
				s.dedent(t.column)
				if s.statement(t) {
					continue
				}
			}
			s.word(t)
		case tokenString:
			if t.first {
				s.dedent(t.column)
			}
			s.expressions(t)
		case tokenOp:
			if t.first {
				s.dedent(t.column)
				if t.op == '@' && s.decorator == 0 {
					s.decorator = t.line
				} else if t.op != '@' {
					s.decorator = 0
				}
			}
			s.operator(t)
		}
	}
}

func (s *scanner) top() *open {
	if len(s.stack) == 0 {
		return nil
	}
	return &s.stack[len(s.stack)-1]
}

func (s *scanner) pop() { s.stack = s.stack[:len(s.stack)-1] }

// around is the scope that a new one lies in.
func (s *scanner) around() int32 {
	o := s.top()
	switch {
	case o == nil:
		return module
	case o.outside:
		return s.scopes[o.scope].parent
	}
	return o.scope
}

// push opens a construct with a scope entry.
func (s *scanner) push(o open, name string, line int32) {
	s.scopes = append(s.scopes, scope{name: name, line: line, parent: s.around(), kind: o.kind})
	o.scope = int32(len(s.scopes) - 1)
	s.stack = append(s.stack, o)
}

// newline ends a statement.
func (s *scanner) newline() {
	s.endLambdas(true)
	s.globals = false
}

// dedent ends the blocks that a statement at this column does not lie in.
func (s *scanner) dedent(column int) {
	for o := s.top(); o != nil; o = s.top() {
		if (o.kind == inFunction || o.kind == inClass) && o.column < column {
			return
		}
		s.pop()
	}
}

// statement takes the begin of a definition.
func (s *scanner) statement(t token) bool {
	line, column := t.line, t.column
	if t.text == "async" {
		if t = s.peek(); t.text != "def" {
			return false
		}
		s.next()
	}
	if t.text != "def" && t.text != "class" {
		s.decorator = 0
		return false
	}
	name := s.peek()
	if name.kind != tokenName {
		return false
	}
	s.next()
	if s.decorator != 0 {
		line = s.decorator
	}
	s.decorator = 0
	global := false
	if o := s.top(); o != nil {
		global = o.globals[name.text]
	}
	kind := inFunction
	if t.text == "class" {
		kind = inClass
	}
	s.push(open{kind: kind, outside: true, column: column}, name.text, line)
	s.scopes[len(s.scopes)-1].global = global
	return true
}

// word takes a name or keyword within a statement.
func (s *scanner) word(t token) {
	o := s.top()
	switch {
	case s.globals:
		if o != nil && (o.kind == inFunction || o.kind == inClass) {
			if o.globals == nil {
				o.globals = map[string]bool{}
			}
			o.globals[t.text] = true
		}
	case t.text == "global":
		s.globals = true
	case t.text == "lambda":
		s.push(open{kind: inLambda, outside: true}, "<lambda>", t.line)
	case t.text == "for", t.text == "async" && s.peek().text == "for":
		s.comprehension()
	case o == nil || o.kind != inBracket && o.kind != inComprehension:
	case t.text == "in" && o.target:
		o.target, o.outside = false, true
	case t.text == "if" && !o.target:
		o.outside = false
	}
}

// comprehension takes a for: within brackets it makes them a comprehension.
func (s *scanner) comprehension() {
	s.endLambdas(false)
	o := s.top()
	if o == nil || o.kind == inComprehension {
		if o != nil {
			o.outside = false // a further for
		}
		return
	}
	if o.kind != inBracket {
		return
	}
	sc := &s.scopes[o.scope]
	o.kind, sc.kind, o.target = inComprehension, inComprehension, true
	switch {
	case o.bracket == '[':
		sc.name = "<listcomp>"
	case o.bracket == '(':
		sc.name = "<genexpr>"
	case o.colon:
		sc.name = "<dictcomp>"
	default:
		sc.name = "<setcomp>"
	}
}

// endLambdas ends the lambdas whose body cannot go on; all of them if whole.
func (s *scanner) endLambdas(whole bool) {
	for o := s.top(); o != nil && o.kind == inLambda && (whole || !o.outside); o = s.top() {
		s.pop()
	}
}

// operator takes punctuation.
func (s *scanner) operator(t token) {
	switch t.op {
	case '(', '[', '{':
		s.push(open{kind: inBracket, bracket: t.op}, "", t.line)
	case ')', ']', '}':
		s.endLambdas(true)
		if o := s.top(); o != nil && (o.kind == inBracket || o.kind == inComprehension) {
			s.pop()
		}
	case ',':
		s.endLambdas(false)
	case ';':
		s.newline()
	case ':':
		s.endLambdas(false)
		if o := s.top(); o != nil {
			switch o.kind {
			case inLambda, inFunction, inClass:
				o.outside = false
			case inBracket:
				o.colon = true
			}
		}
	}
}

// maxStrings bounds strings with expressions within the expressions of others.
const maxStrings = 4

// expressions scans what stands in the braces of a formatted string. Until 3.11
// such a string is one token to CPython, too.
func (s *scanner) expressions(t token) {
	if !t.format || s.depth >= maxStrings {
		return
	}
	s.depth++
	s.fields([]byte(t.text), t.line, t.raw, 0)
	s.depth--
}

// fields scans the replacement fields of a string, or of a field's format.
func (s *scanner) fields(text []byte, line int32, raw bool, level int) {
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\n':
			line++
		case c == '\\' && !raw && bytes.HasPrefix(text[i:], []byte(`\N{`)):
			if n := bytes.IndexByte(text[i:], '}'); n > 0 {
				i += n
			}
		case c == '{' && i+1 < len(text) && text[i+1] == '{' && level == 0:
			i++
		case c == '{':
			end, format := fieldEnd(text, i+1)
			s.expression(text[i+1:format], line)
			line += int32(bytes.Count(text[i:format], []byte{'\n'}))
			if level < 2 && format < end {
				s.fields(text[format+1:end], line, raw, level+1)
			}
			line += int32(bytes.Count(text[format:end], []byte{'\n'}))
			i = end
		}
	}
}

// expression scans one expression, which CPython puts in parentheses.
func (s *scanner) expression(text []byte, line int32) {
	saved, base := s.lexer, len(s.stack)
	s.lexer = lexer{src: text, line: line, nested: 1}
	s.push(open{kind: inBracket, bracket: '('}, "", line)
	for len(s.stack) < maxOpen {
		t := s.next()
		if t.kind == tokenEnd {
			break
		}
		switch t.kind {
		case tokenName:
			s.word(t)
		case tokenString:
			s.expressions(t)
		case tokenOp:
			if len(s.stack) > base+1 || t.op != ')' {
				s.operator(t)
			}
		}
	}
	s.stack = s.stack[:base]
	s.lexer = saved
}

// fieldEnd finds the end of a replacement field and of the expression in it,
// which a format or a conversion may follow.
func fieldEnd(text []byte, from int) (end, expr int) {
	depth, quote := 0, byte(0)
	expr = -1
	for i := from; i < len(text); i++ {
		c := text[i]
		switch {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case expr < 0 && (c == '"' || c == '\''):
			quote = c
		case c == '(' || c == '[' || c == '{':
			depth++
		case c == '}' && depth == 0:
			if expr < 0 {
				expr = i
			}
			return i, expr
		case c == ')' || c == ']' || c == '}':
			depth--
		case depth == 0 && expr < 0 && (c == ':' || c == '!' && (i+1 == len(text) || text[i+1] != '=')):
			expr = i
		}
	}
	if expr < 0 {
		expr = len(text)
	}
	return len(text), expr
}
