// SPDX-License-Identifier: Apache-2.0

package pyframes

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"pathprof/perfevent/perftest"
)

// The qualified names of all functions, classes, lambdas and comprehensions of
// the standard library are those the compiler gives. A name that is not told
// (several of one name begin on one line) is counted, one told wrongly fails.
func TestQualnamesEqualCPython(t *testing.T) {
	every, limit := "4", 3 // per mille: those not told come in crowds
	if os.Getenv(fullEnv) != "" {
		every, limit = "1", 1
	}
	for _, version := range []string{"3.8", "3.9", "3.10"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(perftest.PythonPath(t, version), "-S", "-E", "testdata/qualnames.py", every)
			cmd.Stderr = os.Stderr
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			total, untold, wrong := 0, 0, 0
			for in := json.NewDecoder(out); ; {
				var path string
				var codes []qualified
				if err := in.Decode(&[]any{&path, &codes}); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatal(err)
				}
				n, u, w := compareNames(t, path, codes)
				total, untold, wrong = total+n, untold+u, wrong+w
			}
			if err := cmd.Wait(); err != nil {
				t.Fatal(err)
			}
			t.Logf("%d names, %d not told, %d wrong", total, untold, wrong)
			if total < 10000 || untold*1000 > limit*total || wrong > 0 {
				t.Errorf("%d names, %d not told, %d wrong: want at most %d per mille and none", total, untold, wrong, limit)
			}
		})
	}
}

// qualified is a code object of the compiler: bare name, line, qualified name.
type qualified struct {
	name, want string
	line       int
}

func (q *qualified) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&q.name, &q.line, &q.want})
}

func compareNames(t *testing.T, path string, codes []qualified) (total, untold, wrong int) {
	src, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
		return 0, 0, 0
	}
	x := Qualify(src)
	for _, c := range codes {
		got, ok := x.Qualname(c.name, c.line)
		switch {
		case !ok:
			untold++
			if testing.Verbose() {
				t.Logf("%s:%d: %s not told", path, c.line, c.want)
			}
		case got != c.want:
			wrong++
			t.Errorf("%s:%d: got %s, want %s", path, c.line, got, c.want)
		}
	}
	return len(codes), untold, wrong
}

func TestQualify(t *testing.T) {
	for _, c := range []struct{ name, src, ask, want string }{
		{"method", "class A:\n  def f(self): pass", "f:2", "A.f"},
		{"local", "def f():\n  def g(): pass", "g:2", "f.<locals>.g"},
		{"decorated", "class A:\n  @d\n  @e(\n)\n  def f(self): pass", "f:2", "A.f"},
		{"async", "class A:\n  async def f(self): pass", "f:2", "A.f"},
		{"after a block", "class A:\n  def f(self):\n    pass\n\ndef g(): pass", "g:5", "g"},
		{"one line", "class A: f = lambda: 0\ng = lambda: 1", "<lambda>:1", "A.<lambda>"},
		{"global", "def f():\n  global g\n  def g():\n    def h(): pass", "h:4", "g.<locals>.h"},
		{"default in header", "def f(x=lambda: 0): pass", "<lambda>:1", "<lambda>"},
		{"element", "def f(): return [lambda: x for x in y]", "<lambda>:1", "f.<locals>.<listcomp>.<lambda>"},
		{"first iterable", "def f(): return [x for x in (lambda: y)()]", "<lambda>:1", "f.<locals>.<lambda>"},
		{"second iterable", "def f(): return {x for x in y for z in (lambda: y)()}", "<lambda>:1", "f.<locals>.<setcomp>.<lambda>"},
		{"dict", "x = {1: (lambda: 2) for x in y}", "<dictcomp>:1", "<dictcomp>"},
		{"lambda in set", "x = {lambda: 2 for x in y}", "<setcomp>:1", "<setcomp>"},
		{"lambda in lambda", "f = lambda a=lambda: 1: (lambda: 2)\n", "<lambda>:1", ""},
		{"formatted", "def f(y):\n  return f'{x for x in y}'", "<genexpr>:2", "f.<locals>.<genexpr>"},
		{"formatted, joined", "def f(y): return ('' f'a'\n  f'{{}} {[x for x in y]!r:{(lambda: 1)()}}')", "<lambda>:2", "f.<locals>.<lambda>"},
		{"formatted lines", "class A: x = f'''\n{1:{(\nlambda: 1)()}}'''", "<lambda>:3", "A.<lambda>"},
		{"formatted within", "x = f'''{f\"{{a for b in c}}{ {a for b in c} }\"}'''", "<setcomp>:1", "<setcomp>"},
		{"named character", "x = f'\\N{DIGIT ONE}{[a for a in b]}'\ndef f(): pass", "f:2", "f"},
		{"formatted by halves", "x = f'{[('\ndef f(): pass", "f:2", "f"},
		{"string", "x = '''\ndef f(): pass\n'''\ndef g(): pass", "f:2", ""},
		{"after a string", "x = '''\ndef f(): pass\n'''\ndef g(): pass", "g:4", "g"},
		{"raw string", "x = r'\\'\ndef f(): '''pass", "f:2", "f"},
		{"joined line", "class A:\n  x = 1 + \\\n2\n  def f(self): pass", "f:4", "A.f"},
		{"carriage returns", "class A:\r\n  def f(self): pass\r\n", "f:2", "A.f"},
		{"byte order mark", "\ufeffclass A:\n  def f(self): pass", "f:2", "A.f"},
		{"no such line", "def f(): pass", "f:2", ""},
		{"unknown name", "def f(): pass", "g:1", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			name, line, _ := strings.Cut(c.ask, ":")
			got, ok := Qualify([]byte(c.src)).Qualname(name, int(line[0]-'0'))
			if got != c.want || ok != (c.want != "") {
				t.Errorf("got %q, %v, want %q", got, ok, c.want)
			}
		})
	}
}

// A name that is told ends with the bare name that was asked for.
func FuzzQualify(f *testing.F) {
	f.Add("@d\nclass A(B, x=[y for y in z]):\n  async def f(self, a: {b: c} = lambda *x: 1): return {1: 2 for _ in f'{x}'}\n")
	f.Add("def f():\n\tglobal g\n\tdef g(): 0xfor 1if 2e5j\\\n'''")
	f.Add("f'{a[{b: lambda: f\"{c!r:{d}}\"}]:{(e for f in g)}}}' rf'\\N{' f'''\n{'\n'}'''")
	f.Add("((((((((lambda: lambda:[{(]})for x in y if")
	f.Fuzz(func(t *testing.T, src string) {
		x := Qualify([]byte(src))
		for key := range x.scopes {
			if q, ok := x.Qualname(key.name, key.line); ok != (q != "") || !strings.HasSuffix(q, key.name) && ok {
				t.Fatalf("%v: got %q", key, q)
			}
			if key.line < 1 || key.line > 1+strings.Count(src, "\n")+strings.Count(src, "\r") {
				t.Fatalf("line %d", key.line)
			}
		}
	})
}
