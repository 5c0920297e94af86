// SPDX-License-Identifier: Apache-2.0

package perftest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Supported lists the minor versions of CPython the profiler reads and most tests
// run. It reads 3.6 and 3.7, too, which lack what test programs are written with.
var Supported = []string{"3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14", "3.15"}

// Interpreter is a Python interpreter of this machine.
type Interpreter struct {
	Path    string // absolute, symbolic links followed
	Version string // e.g. 3.11.7
	Debug   bool   // a debug build
}

// Minor is the minor version, such as "3.11".
func (i Interpreter) Minor() string { return minor(i.Version) }

// Interpreters returns all CPython interpreters found in pyenv's folder,
// in the cache that .ci/pythons fills, and in PATH, also unsupported ones and several of one version (a distribution's
// and a self-built one differ), by version, pyenv's first.
func Interpreters() []Interpreter { return slices.Clone(interpreters()) }

// PythonPath returns the path of an interpreter of a minor version, such as
// "3.11"; without one it treats the test as [Require] does.
func PythonPath(t testing.TB, version string) string {
	t.Helper()
	Require(t, Python(version))
	path, err := findPython(version)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Pythons returns an interpreter for each of the [Supported] versions that this
// machine has, by minor version. Without any it treats the test as [Require].
func Pythons(t testing.TB) map[string]string {
	t.Helper()
	found := make(map[string]string)
	for _, version := range Supported {
		if path, err := findPython(version); err == nil {
			found[version] = path
		}
	}
	if len(found) == 0 {
		Require(t, Need{name: "CPython 3.8-3.15", probe: func() error {
			return errors.New("no interpreter in $HOME/.pyenv/versions and PATH")
		}})
	}
	return found
}

// PythonWith returns an interpreter of a supported version that can import all
// of modules; without one the test is skipped, or fails, as with [Require].
func PythonWith(t testing.TB, modules ...string) string {
	t.Helper()
	var path string
	Require(t, Need{name: "Python with " + strings.Join(modules, ", "), probe: func() error {
		for _, i := range interpreters() {
			if !slices.Contains(Supported, i.Minor()) {
				continue
			}
			if exec.Command(i.Path, "-c", "import "+strings.Join(modules, ", ")).Run() == nil {
				path = i.Path
				return nil
			}
		}
		return errors.New("no interpreter has them all")
	}})
	return path
}

func findPython(version string) (string, error) {
	for _, i := range interpreters() {
		if i.Minor() == version {
			return i.Path, nil
		}
	}
	return "", fmt.Errorf("no python%s in $HOME/.pyenv/versions and PATH", version)
}

// interpreters asks every candidate once who it is.
var interpreters = sync.OnceValue(func() []Interpreter {
	var found []Interpreter
	seen := make(map[string]bool)
	for _, path := range candidates() {
		i, err := ask(path)
		if err != nil || seen[i.Path] {
			continue
		}
		seen[i.Path] = true
		found = append(found, i)
	}
	slices.SortStableFunc(found, func(a, b Interpreter) int {
		return compareVersions(a.Version, b.Version)
	})
	return found
})

// candidates lists files that may be interpreters, the preferred ones first.
func candidates() []string {
	var paths []string
	if home, err := os.UserHomeDir(); err == nil {
		// Glob errs on a bad pattern only; this one is good.
		found, _ := filepath.Glob(filepath.Join(home, ".pyenv", "versions", "*", "bin", "python"))
		slices.Reverse(found) // a newer patch version before an older one
		paths = append(paths, found...)
		// Where .ci/pythons puts the versions that no distribution here has.
		for _, kind := range []string{"python3.??", "python3.??d"} {
			found, _ := filepath.Glob(filepath.Join(home, ".cache", "pathprof", "python", "*", "usr", "bin", kind))
			paths = append(paths, found...)
		}
	}
	names := []string{"python3", "python2.7", "python3.6", "python3.7"}
	for _, version := range Supported {
		names = append(names, "python"+version)
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if filepath.Base(dir) == "shims" {
			continue // pyenv's shell scripts: the real files are above
		}
		for _, name := range names {
			path := filepath.Join(dir, name)
			if info, err := os.Stat(path); err == nil && info.Mode()&0o111 != 0 && !info.IsDir() {
				paths = append(paths, path)
			}
		}
	}
	return paths
}

// ask runs an interpreter to learn its version. The answer of a wrapper script
// is the path of the program it wraps.
func ask(path string) (Interpreter, error) {
	const program = `import sys, platform
sys.stdout.write("\n".join([platform.python_implementation(), "%d.%d.%d" % sys.version_info[:3], sys.executable, "%s" % hasattr(sys, "gettotalrefcount")]))`
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "-S", "-E", "-c", program).Output()
	if err != nil {
		return Interpreter{}, fmt.Errorf("ask %s for its version: %w", path, err)
	}
	lines := strings.Split(string(out), "\n")
	if len(lines) != 4 || lines[0] != "CPython" {
		return Interpreter{}, fmt.Errorf("%s is not CPython: %q", path, out)
	}
	resolved, err := filepath.EvalSymlinks(lines[2])
	if err != nil {
		return Interpreter{}, err
	}
	return Interpreter{Path: resolved, Version: lines[1], Debug: lines[3] == "True"}, nil
}

func minor(version string) string {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return version
	}
	return parts[0] + "." + parts[1]
}

// compareVersions orders by minor version only, so that a stable sort keeps
// the order of preference within one.
func compareVersions(a, b string) int {
	aMajor, aMinor := numbers(minor(a))
	bMajor, bMinor := numbers(minor(b))
	return cmp.Or(cmp.Compare(aMajor, bMajor), cmp.Compare(aMinor, bMinor))
}

func numbers(version string) (major, minor int) {
	a, b, _ := strings.Cut(version, ".")
	major, _ = strconv.Atoi(a) // from sys.version_info, hence digits
	minor, _ = strconv.Atoi(b)
	return major, minor
}
