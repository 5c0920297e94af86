// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pathprof/join"
	"pathprof/perfevent/perftest"
)

// librarySource goes through extension modules of the standard library, for a
// while each.
const librarySource = `
import hashlib, json, re, sqlite3, ssl, time
def use_json():
    json.loads(document)
def use_re():
    re.sub(r"(a+)+b", "c", text)
def use_sqlite3():
    db.execute("select count(*), sum(a.x * b.x) from t a, t b where a.x < b.x").fetchall()
def use_hashlib():
    hashlib.sha256(block).digest()
def use_ssl():
    ssl.RAND_bytes(1 << 20)
document = json.dumps([{"a": i, "b": [1, 2.5, "x" * 20]} for i in range(2000)])
text = "aaaaaaac" * 300
block = b"x" * (4 << 20)
db = sqlite3.connect(":memory:")
db.execute("create table t(x)")
db.executemany("insert into t values(?)", ((i,) for i in range(300)))
print("ready", flush=True)
while True:
    for use in use_json, use_re, use_sqlite3, use_hashlib, use_ssl:
        end = time.monotonic() + 0.05
        while time.monotonic() < end:
            use()
`

// within lists the native functions that samples show within a Python function,
// and how many samples lie in it.
func within(list []join.Stack, function string) (names map[string]bool, samples int) {
	names = map[string]bool{}
	for i := range list {
		inside := false
		for _, f := range slices.Backward(list[i].Frames) {
			if f.Kind == join.KindPython {
				inside = inside || f.Name == function
			} else if inside && f.Kind == join.KindNative {
				names[f.Name] = true
			}
		}
		if inside {
			samples++
		}
	}
	return names, samples
}

// hasName tells whether a function has one of some words in its name.
func hasName(names map[string]bool, words ...string) bool {
	for name := range names {
		if slices.ContainsFunc(words, func(w string) bool { return strings.Contains(name, w) }) {
			return true
		}
	}
	return false
}

// Functions of extension modules, and of the libraries they call, have names, and
// are where they belong.
func TestLibraryNames(t *testing.T) {
	needRecorder(t)
	for _, minor := range namedVersions {
		t.Run(minor, func(t *testing.T) {
			child := perftest.StartSource(t, perftest.PythonPath(t, minor), "library", librarySource)
			list := mergedStacks(t, recordChain(t, child), child.PID, join.FramesPython)
			for function, words := range map[string][]string{
				"use_json":    {"scan_once", "scanner_call", "scanstring"},
				"use_re":      {"sre_", "pattern_sub"},
				"use_sqlite3": {"pysqlite_", "sqlite3_step"},
				"use_hashlib": {"EVP_", "_hashlib_", "sha256"},
				"use_ssl":     {"_ssl_RAND", "RAND_bytes", "PySSL_RAND"},
			} {
				names, samples := within(list, function)
				if samples < 5 || !hasName(names, words...) {
					t.Errorf("%s: %d samples in %v, want %q", function, samples, names, words)
				}
				if hasName(names, "_PyEval_", "cfunction_vectorcall") {
					t.Errorf("%s: the interpreter's own ways of calling are not folded: %v", function, names)
				}
			}
		})
	}
}

// ordinarySource is a bit of everything: callbacks from C, generators, classes with
// slots in Python, exceptions, event loops, destructors, and two threads.
const ordinarySource = `
import asyncio, functools, json, re, sqlite3, threading
class Item:
    def __init__(self, n): self.n = n
    def __lt__(self, other): return self.n < other.n
    def __getattr__(self, name): return name
    def __del__(self): self.n = 0
def generate(n):
    if n: yield from generate(n - 1)
    yield n
async def descend(n):
    if n: await descend(n - 1)
    else: await asyncio.sleep(0)
async def gather(): await asyncio.gather(*[descend(10) for _ in range(20)])
def once():
    json.dumps(json.loads(json.dumps([{"a": i} for i in range(200)])), default=str, indent=1)
    re.sub(r"(a+)b", lambda m: m.group(1).upper(), "aaab" * 300)
    sorted(range(1000), key=lambda x: -x); functools.reduce(lambda a, b: a + b, range(1000))
    db = sqlite3.connect(":memory:")
    db.create_function("f", 1, lambda x: x + 1)
    list(db.execute("with t(x) as (select 1 union all select x+1 from t where x<300) select f(x) from t"))
    db.close()
    sorted(Item(i % 17) for i in range(300)); [Item(1).name for _ in range(300)]
    for _ in range(20): list(generate(20))
    try: [1 / 0 for _ in range(2)]
    except ZeroDivisionError: pass
def loop():
    while True:
        once(); asyncio.run(gather())
once()
threading.Thread(target=loop, daemon=True).start()
print("ready", flush=True)
loop()
`

// Native and Python frames of an ordinary program are in their proven order in all
// samples but one in a thousand, and the rest say why not.
func TestMergedShare(t *testing.T) {
	needRecorder(t)
	for _, minor := range mergeVersions {
		t.Run(minor, func(t *testing.T) {
			child := perftest.StartSource(t, perftest.PythonPath(t, minor), "ordinary", ordinarySource)
			list := mergedStacks(t, recordChain(t, child), child.PID, join.FramesPython)
			merged, reasons := 0, map[string]int{}
			for i := range list {
				if s := &list[i]; s.Verdict == join.Merged {
					merged++
				} else if reasons[string(s.Verdict)+": "+s.Reason]++; s.Reason == "" && s.Verdict != join.NativeOnly {
					t.Errorf("%s without a reason: %v", s.Verdict, namesOf(s))
				}
			}
			t.Logf("%d of %d merged; %v", merged, len(list), reasons)
			if len(list) < 100 || (len(list)-merged)*1000 > max(len(list), 1000) {
				t.Errorf("%d of %d merged; %v", merged, len(list), reasons)
			}
		})
	}
}

// numpySource multiplies and sorts.
const numpySource = `
import numpy
def multiply():
    a @ a
def order():
    numpy.sort(b)
a = numpy.ones((300, 300))
b = numpy.random.default_rng(1).random(100000)
print("ready", flush=True)
while True:
    multiply(); order()
`

// numpy's functions have names, those of its threads' library, too.
func TestNumpyNames(t *testing.T) {
	needRecorder(t)
	child := perftest.StartSource(t, perftest.PythonWith(t, "numpy"), "numpy_main", numpySource)
	list := mergedStacks(t, recordChain(t, child), child.PID, join.FramesPython)
	for function, words := range map[string][]string{
		"multiply": {"gemm", "matmul", "DOUBLE_"},
		"order":    {"sort", "[_multiarray_umath"}, // often stripped
	} {
		if names, samples := within(list, function); samples < 5 || !hasName(names, words...) {
			t.Errorf("%s: %d samples in %v, want %q", function, samples, names, words)
		}
	}
}

// A recording without names gets the same ones where the files are.
func TestNamesOnAnalysis(t *testing.T) {
	needRecorder(t)
	child := perftest.StartSource(t, perftest.PythonPath(t, "3.11"), "library", librarySource)
	cmd, dir := startRecorder(t, "-p", strconv.Itoa(child.PID), "-d", "1s", "--scope", "process", "--embed-symbols=false")
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if n := size(filepath.Join(dir, "symbols.arrow")); n > 2000 {
		t.Errorf("%d bytes of symbols", n)
	}
	names, samples := within(mergedStacks(t, dir, child.PID, join.FramesPython), "use_sqlite3")
	if !hasName(names, "pysqlite_", "sqlite3_step") {
		t.Errorf("%d samples in %v", samples, names)
	}
}
