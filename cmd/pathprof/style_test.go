// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	maxFileLines     = 800
	maxFuncLines     = 120  // none is longer
	longFuncLines    = 60   // few are longer
	maxLongFuncShare = 0.05 // that few
)

// panics lists the places that may panic, by file: a mistake of the programmer,
// never input. Each has a comment that says so.
var panics = map[string]int{
	"perfevent/clock_linux.go":      1, // a clock every Linux has
	"perfevent/recording/decode.go": 1, // out of arrow's allocator, recovered at once
}

// source is one Go file of the module.
type source struct {
	path      string // from the module's root
	text      []byte
	set       *token.FileSet
	file      *ast.File
	generated bool
}

func (s source) test() bool { return strings.HasSuffix(s.path, "_test.go") }

func (s source) line(n ast.Node) int { return s.set.Position(n.Pos()).Line }

func (s source) lines(n ast.Node) int {
	return s.set.Position(n.End()).Line - s.set.Position(n.Pos()).Line + 1
}

// sources parses all Go files of the module.
func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	eachFile(t, func(path string, text []byte) {
		if filepath.Ext(path) != ".go" {
			return
		}
		s := source{path: path, text: text, set: token.NewFileSet()}
		var err error
		if s.file, err = parser.ParseFile(s.set, path, text, parser.ParseComments|parser.SkipObjectResolution); err != nil {
			t.Fatal(err)
		}
		s.generated = ast.IsGenerated(s.file)
		all = append(all, s)
	})
	return all
}

// eachFile calls do for every file of the module but hidden ones and test data.
func eachFile(t *testing.T, do func(path string, text []byte)) {
	t.Helper()
	err := filepath.WalkDir(moduleRoot, func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && name != ".." && (strings.HasPrefix(name, ".") || name == "testdata" || name == "out" ||
			strings.HasSuffix(name, ".pathprof")):
			return filepath.SkipDir
		case !d.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(moduleRoot, path)
		do(filepath.ToSlash(rel), text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestLicenceLine(t *testing.T) {
	comment := map[string]string{".go": "//", ".c": "//", ".h": "//", ".py": "#"}
	eachFile(t, func(path string, text []byte) {
		mark, ok := comment[filepath.Ext(path)]
		if !ok || bytes.Contains(text[:min(len(text), 200)], []byte("Code generated")) {
			return
		}
		first, _, _ := strings.Cut(string(text), "\n")
		first = strings.TrimSuffix(strings.Replace(first, "/* ", "// ", 1), " */") // headers
		if want := mark + " SPDX-License-Identifier: "; !strings.HasPrefix(first, want) {
			t.Errorf("%s: first line: got %q, want %s…", path, first, want)
		}
	})
}

func TestFormat(t *testing.T) {
	for _, s := range sources(t) {
		formatted, err := format.Source(s.text)
		if err != nil {
			t.Errorf("%s: %v", s.path, err)
		} else if !bytes.Equal(formatted, s.text) {
			t.Errorf("%s: not gofmt'ed", s.path)
		}
		if n := bytes.Count(s.text, []byte("\n")); n > maxFileLines && !s.generated {
			t.Errorf("%s: %d lines, at most %d", s.path, n, maxFileLines)
		}
	}
}

func TestFunctionLength(t *testing.T) {
	var functions int
	var long []string
	for _, s := range sources(t) {
		if s.test() || s.generated {
			continue
		}
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			functions++
			n := s.lines(f)
			if n > longFuncLines {
				long = append(long, fmt.Sprintf("%s:%d: %s has %d lines", s.path, s.line(f), f.Name.Name, n))
			}
			if n > maxFuncLines {
				t.Errorf("%s:%d: %s has %d lines, at most %d", s.path, s.line(f), f.Name.Name, n, maxFuncLines)
			}
		}
	}
	if most := maxLongFuncShare * float64(functions); float64(len(long)) > most {
		t.Errorf("%d of %d functions have more than %d lines:\n%s",
			len(long), functions, longFuncLines, strings.Join(long, "\n"))
	}
}

func TestDocumented(t *testing.T) {
	documented := make(map[string]bool) // folders with a package comment
	folders := make(map[string]bool)
	for _, s := range sources(t) {
		if s.test() || s.generated {
			continue
		}
		dir := filepath.Dir(s.path)
		folders[dir] = true
		if s.file.Doc != nil {
			documented[dir] = true
		}
		for _, d := range s.file.Decls {
			for _, name := range undocumented(d) {
				t.Errorf("%s:%d: %s has no comment that begins with its name", s.path, s.line(d), name)
			}
		}
	}
	for dir := range folders {
		if !documented[dir] {
			t.Errorf("%s: no package comment", dir)
		}
	}
}

// undocumented returns the exported names of a declaration without a comment. A
// group of constants or variables may have one for all.
func undocumented(d ast.Decl) []string {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && exportedReceiver(d) && !begins(d.Doc, d.Name.Name) {
			return []string{d.Name.Name}
		}
	case *ast.GenDecl:
		var names []string
		for _, spec := range d.Specs {
			names = append(names, undocumentedSpec(d, spec)...)
		}
		return names
	}
	return nil
}

func undocumentedSpec(d *ast.GenDecl, spec ast.Spec) []string {
	switch spec := spec.(type) {
	case *ast.TypeSpec:
		doc := spec.Doc
		if doc == nil {
			doc = d.Doc
		}
		if spec.Name.IsExported() && !begins(doc, spec.Name.Name) {
			return []string{spec.Name.Name}
		}
	case *ast.ValueSpec:
		if d.Doc != nil || spec.Doc != nil || spec.Comment != nil {
			return nil
		}
		var names []string
		for _, name := range spec.Names {
			if name.IsExported() {
				names = append(names, name.Name)
			}
		}
		return names
	}
	return nil
}

func exportedReceiver(f *ast.FuncDecl) bool {
	if f.Recv == nil {
		return true
	}
	exported := false
	ast.Inspect(f.Recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			exported = exported || id.IsExported()
		}
		return true
	})
	return exported
}

// begins tells whether a comment's first word, after an article, is the name.
func begins(doc *ast.CommentGroup, name string) bool {
	words := strings.Fields(doc.Text())
	if len(words) > 1 && slices.Contains([]string{"A", "An", "The"}, words[0]) {
		words = words[1:]
	}
	return len(words) > 0 && strings.TrimRight(words[0], ":,.'s") == strings.TrimRight(name, "s")
}

func TestWords(t *testing.T) {
	banned := []string{"TODO", "FIXME", "XXX"}
	for _, s := range sources(t) {
		if s.generated {
			continue
		}
		for _, group := range s.file.Comments {
			for _, word := range strings.Fields(group.Text()) {
				if slices.Contains(banned, strings.Trim(word, ":().")) {
					t.Errorf("%s:%d: %s in a comment", s.path, s.line(group), word)
				}
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING || s.test() {
				return true
			}
			for _, phrase := range []string{"failed to", "could not", "unable to"} {
				if strings.HasPrefix(strings.Trim(lit.Value, "`\""), phrase) {
					t.Errorf("%s:%d: message begins with %q", s.path, s.line(n), phrase)
				}
			}
			return true
		})
	}
}

func TestPanics(t *testing.T) {
	found := make(map[string]int)
	for _, s := range sources(t) {
		if s.test() || s.generated {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if f, ok := call.Fun.(*ast.Ident); ok && f.Name == "panic" {
					found[s.path]++
				}
			}
			return true
		})
	}
	for path, n := range found {
		if n > panics[path] {
			t.Errorf("%s: %d calls of panic, %d allowed", path, n, panics[path])
		}
	}
}
