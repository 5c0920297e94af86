// SPDX-License-Identifier: Apache-2.0

package pyframes

import (
	"bytes"
	"strings"
)

// tokenKind is what a token of Python source is, as far as scopes need it.
type tokenKind uint8

const (
	tokenEnd tokenKind = iota
	tokenNewline
	tokenWord  // a name or keyword
	tokenOther // an operator or a literal
)

// token is one token of Python source.
type token struct {
	kind   tokenKind
	text   string // of a word or one-character operator
	line   int    // from 1 on
	column int    // of the first token of a logical line: its indentation
	// Of a formatted string: what stands between its quotes, and where.
	inner     []byte
	innerLine int
	raw       bool
}

// lexer splits Python source (Parser/tokenizer.c, 3.10) into tokens, leaving out
// what scopes do not need: comments, blank lines, contents of literals but of
// formatted strings.
type lexer struct {
	src      []byte
	at, line int
	inLine   bool // a token of the current logical line came
}

// next returns the next token. In brackets line ends mean nothing.
func (l *lexer) next(brackets bool) token {
	column := 0
	if !l.inLine {
		column = l.indentation()
	}
	for l.at < len(l.src) {
		switch c := l.src[l.at]; {
		case c == '\n' || c == '\r':
			t := token{kind: tokenNewline, line: l.line}
			l.lineEnd()
			if brackets {
				continue
			}
			if l.inLine {
				l.inLine = false
				return t
			}
			column = l.indentation()
		case c == ' ' || c == '\t' || c == '\f':
			l.at++
		case c == '#':
			l.skipComment()
		case c == '\\' && l.at+1 < len(l.src) && (l.src[l.at+1] == '\n' || l.src[l.at+1] == '\r'):
			l.at++
			l.lineEnd()
		default:
			l.inLine = true
			t := token{kind: tokenOther, line: l.line, column: column}
			l.lexeme(&t, c)
			return t
		}
	}
	return token{kind: tokenEnd, line: l.line}
}

// indentation skips and measures the blanks that begin a line: a tab goes to the
// next multiple of eight, a form feed starts over.
func (l *lexer) indentation() (column int) {
	if l.at == 0 {
		l.src = bytes.TrimPrefix(l.src, []byte("\xef\xbb\xbf"))
	}
	for ; l.at < len(l.src); l.at++ {
		switch l.src[l.at] {
		case ' ':
			column++
		case '\t':
			column = column/8*8 + 8
		case '\f':
			column = 0
		default:
			return column
		}
	}
	return column
}

// lineEnd passes one line end: "\n", "\r\n" or "\r".
func (l *lexer) lineEnd() {
	if l.src[l.at] == '\r' && l.at+1 < len(l.src) && l.src[l.at+1] == '\n' {
		l.at++
	}
	l.at++
	l.line++
}

func (l *lexer) skipComment() {
	for l.at < len(l.src) && l.src[l.at] != '\n' && l.src[l.at] != '\r' {
		l.at++
	}
}

// lexeme reads the token that begins with c.
func (l *lexer) lexeme(t *token, c byte) {
	switch {
	case c == '"' || c == '\'':
		l.skipString()
	case c >= '0' && c <= '9' || c == '.' && l.at+1 < len(l.src) && isDigit(l.src[l.at+1]):
		l.skipNumber()
	case isWord(c):
		from := l.at
		for l.at < len(l.src) && (isWord(l.src[l.at]) || isDigit(l.src[l.at])) {
			l.at++
		}
		word := string(l.src[from:l.at])
		if l.at < len(l.src) && (l.src[l.at] == '"' || l.src[l.at] == '\'') && isPrefix(word) {
			inner := l.skipString()
			if strings.ContainsAny(word, "fF") {
				t.inner, t.innerLine, t.raw = inner, t.line, strings.ContainsAny(word, "rR")
			}
			return
		}
		t.kind, t.text = tokenWord, word
	case c == ':' && l.at+1 < len(l.src) && l.src[l.at+1] == '=':
		l.at += 2
	default:
		t.text = string(l.src[l.at : l.at+1])
		l.at++
	}
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// isWord tells whether a name may begin with c. Bytes above ASCII are letters of
// some encoding.
func isWord(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}

// isPrefix tells whether a word before a quote belongs to the literal.
func isPrefix(word string) bool {
	switch strings.ToLower(word) {
	case "r", "u", "b", "f", "br", "rb", "fr", "rf":
		return true
	}
	return false
}

// skipString passes a literal whose first quote is next, and returns its inside. A backslash keeps the
// next character from ending it, in raw literals, too. One that is not closed
// ends with its line, or, with three quotes, with the file.
func (l *lexer) skipString() []byte {
	quote := l.src[l.at : l.at+1]
	if triple := bytes.Repeat(quote, 3); bytes.HasPrefix(l.src[l.at:], triple) {
		quote = triple
	}
	l.at += len(quote)
	from := l.at
	for l.at < len(l.src) {
		switch c := l.src[l.at]; {
		case bytes.HasPrefix(l.src[l.at:], quote):
			l.at += len(quote)
			return l.src[from : l.at-len(quote)]
		case c == '\n' || c == '\r':
			if len(quote) == 1 {
				return l.src[from:l.at]
			}
			l.lineEnd()
		case c == '\\' && l.at+1 < len(l.src):
			l.at++
			if c := l.src[l.at]; c == '\n' || c == '\r' {
				l.lineEnd()
			} else {
				l.at++
			}
		default:
			l.at++
		}
	}
	return l.src[from:l.at]
}

// skipNumber passes a number, but not a keyword right behind it: "1if x" is two
// tokens, "0xfor" is 0xf and "or".
func (l *lexer) skipNumber() {
	digits := "0123456789_."
	if l.src[l.at] == '0' && l.at+1 < len(l.src) && strings.IndexByte("xXoObB", l.src[l.at+1]) >= 0 {
		l.at += 2
		digits = "0123456789abcdefABCDEF_"
	}
	l.skipAny(digits)
	if digits[len(digits)-1] != '.' {
		return
	}
	if rest := l.src[l.at:]; len(rest) > 1 && rest[0]|0x20 == 'e' &&
		(isDigit(rest[1]) || len(rest) > 2 && (rest[1] == '+' || rest[1] == '-') && isDigit(rest[2])) {
		l.at += 2
		l.skipAny("0123456789_")
	}
	if l.at < len(l.src) && l.src[l.at]|0x20 == 'j' {
		l.at++
	}
}

func (l *lexer) skipAny(set string) {
	for l.at < len(l.src) && strings.IndexByte(set, l.src[l.at]) >= 0 {
		l.at++
	}
}
