// SPDX-License-Identifier: Apache-2.0

package pyframes

import (
	"bytes"
	"strings"
)

type tokenKind uint8

const (
	tokenEnd tokenKind = iota
	tokenLine
	tokenName
	tokenString
	tokenOp
)

// token is a word of Python source. Numbers are left out.
type token struct {
	kind   tokenKind
	text   string // of a name; the inner part of a formatted string
	op     byte
	line   int32
	first  bool // of a statement that begins a line
	column int  // of the first one
	// Of strings:
	format, raw bool
}

// lexer splits Python source into tokens as CPython does to 3.11
// (Parser/tokenizer.c).
type lexer struct {
	src    []byte
	pos    int
	line   int32
	nested int // brackets around: lines do not end a statement
	begin  bool
	column int
}

// start prepares for the begin of a file.
func (l *lexer) start() {
	l.src = bytes.TrimPrefix(l.src, []byte("\ufeff"))
	l.begin = true
}

// peek returns the next token without taking it.
func (l *lexer) peek() token {
	saved := *l
	t := l.next()
	*l = saved
	return t
}

func (l *lexer) at(i int) byte {
	if i < len(l.src) {
		return l.src[i]
	}
	return 0
}

// newline steps over the end of a line, of any kind.
func (l *lexer) newline() {
	if l.at(l.pos) == '\r' && l.at(l.pos+1) == '\n' {
		l.pos++
	}
	l.pos++
	l.line++
}

// next returns the next token.
func (l *lexer) next() token {
	for l.pos < len(l.src) {
		if l.begin {
			l.indent()
		}
		switch c := l.at(l.pos); {
		case l.pos >= len(l.src):
		case c == '\n' || c == '\r':
			blank := l.begin
			t := token{kind: tokenLine, line: l.line}
			l.newline()
			if l.nested > 0 {
				continue
			}
			l.begin = true
			if !blank {
				return t
			}
		case c == '\\' && (l.at(l.pos+1) == '\n' || l.at(l.pos+1) == '\r'):
			l.pos++
			l.newline()
			l.begin = false
		case c == '#':
			for l.pos < len(l.src) && l.src[l.pos] != '\n' && l.src[l.pos] != '\r' {
				l.pos++
			}
		case c == ' ' || c == '\t' || c == '\f':
			l.pos++
		case c >= '0' && c <= '9' || c == '.' && isDigit(l.at(l.pos+1)):
			l.begin = false
			l.number()
		default:
			return l.word(c)
		}
	}
	return token{kind: tokenEnd, line: l.line}
}

// indent measures the blanks before a statement.
func (l *lexer) indent() {
	l.column = 0
	for ; l.pos < len(l.src); l.pos++ {
		switch l.src[l.pos] {
		case ' ':
			l.column++
		case '\t':
			l.column = (l.column/8 + 1) * 8
		case '\f':
			l.column = 0
		default:
			return
		}
	}
}

// word takes a name, string or punctuation.
func (l *lexer) word(c byte) token {
	t := token{line: l.line, first: l.begin, column: l.column}
	l.begin = false
	if isName(c) {
		from := l.pos
		for l.pos < len(l.src) && (isName(l.src[l.pos]) || isDigit(l.src[l.pos])) {
			l.pos++
		}
		t.kind, t.text = tokenName, string(l.src[from:l.pos])
		if q := l.at(l.pos); q != '"' && q != '\'' || !isPrefix(t.text) {
			return t
		}
		return l.quoted(t, t.text)
	}
	if c == '"' || c == '\'' {
		return l.quoted(t, "")
	}
	t.kind, t.op = tokenOp, c
	l.pos++
	switch c {
	case '(', '[', '{':
		l.nested++
	case ')', ']', '}':
		l.nested = max(l.nested-1, 0)
	case ':':
		if l.at(l.pos) == '=' { // := is none
			t.op = '='
			l.pos++
		}
	}
	return t
}

// quoted takes a string. One in single quotes ends with its line.
func (l *lexer) quoted(t token, prefix string) token {
	t.kind, t.text = tokenString, ""
	prefix = strings.ToLower(prefix)
	t.format, t.raw = strings.Contains(prefix, "f"), strings.Contains(prefix, "r")
	quote := l.src[l.pos : l.pos+1]
	if c := quote[0]; l.at(l.pos+1) == c && l.at(l.pos+2) == c {
		quote = l.src[l.pos : l.pos+3]
	}
	l.pos += len(quote)
	from := l.pos
	for l.pos < len(l.src) {
		switch c := l.src[l.pos]; {
		case c == '\\':
			l.pos++
			if n := l.at(l.pos); n == '\n' || n == '\r' {
				l.newline()
			} else {
				l.pos = min(l.pos+1, len(l.src))
			}
		case c == '\n' || c == '\r':
			if len(quote) == 1 {
				return t // not closed: damaged
			}
			l.newline()
		case bytes.HasPrefix(l.src[l.pos:], quote):
			if t.format {
				t.text = string(l.src[from:l.pos])
			}
			l.pos += len(quote)
			return t
		default:
			l.pos++
		}
	}
	return t
}

// number steps over a number: a word may follow at once, as in 1if x else 2.
func (l *lexer) number() {
	if l.at(l.pos) == '0' {
		digits := ""
		switch l.at(l.pos+1) | 0x20 {
		case 'x':
			digits = "0123456789abcdefABCDEF_"
		case 'o':
			digits = "01234567_"
		case 'b':
			digits = "01_"
		}
		if digits != "" {
			l.pos = min(l.pos+2, len(l.src))
			l.skip(digits)
			return
		}
	}
	l.skip("0123456789_")
	if l.at(l.pos) == '.' {
		l.pos++
		l.skip("0123456789_")
	}
	if l.at(l.pos)|0x20 == 'e' {
		sign := l.at(l.pos+1) == '+' || l.at(l.pos+1) == '-'
		switch {
		case isDigit(l.at(l.pos + 1)):
			l.pos++
		case sign && isDigit(l.at(l.pos+2)):
			l.pos += 2
		}
		l.skip("0123456789_")
	}
	if l.at(l.pos)|0x20 == 'j' {
		l.pos++
	}
}

func (l *lexer) skip(set string) {
	for l.pos < len(l.src) && strings.IndexByte(set, l.src[l.pos]) >= 0 {
		l.pos++
	}
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// isName takes every byte beyond ASCII as part of a name: no other token may
// have one.
func isName(c byte) bool {
	return c == '_' || 'a' <= c|0x20 && c|0x20 <= 'z' || c >= 0x80
}

func isPrefix(word string) bool {
	switch strings.ToLower(word) {
	case "r", "b", "u", "f", "br", "rb", "fr", "rf":
		return true
	}
	return false
}
