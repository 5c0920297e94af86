// SPDX-License-Identifier: Apache-2.0

package pyframes

import "bytes"

// Bounds of formatted strings within expressions of others, and of fields within
// formats of others, for which CPython allows one level.
const (
	maxFormatted = 4
	maxFormats   = 2
)

// formatted scans the expressions in a formatted string, which is one token to
// CPython, too, until 3.12.
func (s *scopeScanner) formatted(t token) {
	if s.formats >= maxFormatted {
		return
	}
	s.formats++
	s.fields(t.inner, t.innerLine, t.raw, 0)
	s.formats--
}

// fields scans the replacement fields of a string, or of a field's format.
func (s *scopeScanner) fields(text []byte, line int, raw bool, level int) {
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\n':
			line++
		case c == '\\' && !raw && bytes.HasPrefix(text[i:], []byte(`\N{`)):
			if n := bytes.IndexByte(text[i:], '}'); n > 0 {
				i += n // the name of a character
			}
		case c == '{' && level == 0 && bytes.HasPrefix(text[i:], []byte("{{")):
			i++
		case c == '{':
			end, format := fieldEnd(text, i+1)
			s.expression(text[i+1:format], line)
			line += bytes.Count(text[i:format], []byte{'\n'})
			if level < maxFormats && format < end {
				s.fields(text[format+1:end], line, raw, level+1)
			}
			line += bytes.Count(text[format:end], []byte{'\n'})
			i = end
		}
	}
}

// expression scans the expression of a field, which CPython reads as if it stood
// in parentheses.
func (s *scopeScanner) expression(text []byte, line int) {
	lex, brackets, base := s.lex, s.brackets, len(s.nests)
	s.lex = lexer{src: text, line: line, inLine: true}
	s.brackets = 1
	s.nests = append(s.nests, nest{scope: s.add(scopeBracket, "(", line)})
	for len(s.nests) < maxNesting && len(s.nodes) < maxScopes {
		t := s.next()
		if t.kind == tokenEnd {
			break
		}
		switch t.text {
		case ";", "global":
		case ")", "]", "}":
			s.endLambdas(inParameters)
			if len(s.nests) > base+1 {
				s.nests = s.nests[:len(s.nests)-1]
			}
		case "(", "[", "{":
			s.nests = append(s.nests, nest{scope: s.add(scopeBracket, t.text, t.line)})
		default:
			s.token(t)
		}
	}
	s.nests = s.nests[:base]
	s.lex, s.brackets = lex, brackets
}

// fieldEnd finds the end of a replacement field, and that of the expression in
// it, which a conversion or format may follow.
func fieldEnd(text []byte, from int) (end, expression int) {
	depth, quote := 0, byte(0)
	expression = -1
	for i := from; i < len(text); i++ {
		c := text[i]
		switch {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case expression < 0 && (c == '"' || c == '\''):
			quote = c
		case c == '(' || c == '[' || c == '{':
			depth++
		case c == '}' && depth == 0:
			if expression < 0 {
				expression = i
			}
			return i, expression
		case c == ')' || c == ']' || c == '}':
			depth--
		case depth == 0 && expression < 0 && (c == ':' || c == '!' && !bytes.HasPrefix(text[i:], []byte("!="))):
			expression = i
		}
	}
	if expression < 0 {
		expression = len(text)
	}
	return len(text), expression
}
