// SPDX-License-Identifier: Apache-2.0

package pyframes

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"pathprof/perfevent/perftest"
)

// The generated tables are what the headers of the installed versions give now.
func TestTablesAreCurrent(t *testing.T) {
	perftest.Require(t, perftest.Tool("gcc"), perftest.Tool("go"))
	home, err := os.UserHomeDir()
	if err != nil {
		t.Skip(err)
	}
	for minor := minMinor; minor <= maxMinor; minor++ {
		version := "3." + strconv.Itoa(minor)
		built, err := filepath.Glob(filepath.Join(home, ".pyenv", "versions", version+".*", "include"))
		fetched, fetchedErr := filepath.Glob(filepath.Join(home, ".cache", "pathprof", "python", version, "usr", "include"))
		if err != nil || fetchedErr != nil || len(built)+len(fetched) == 0 {
			t.Skipf("no headers of CPython %s under $HOME", version)
		}
	}
	main, err := filepath.Abs("gen/main.go")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "run", main)
	cmd.Dir = t.TempDir()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got, err := os.ReadFile(filepath.Join(cmd.Dir, "tables_gen.go"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("tables_gen.go")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("tables_gen.go is not what gen/main.go writes: run go generate")
	}
}

// Every offset of every version is told or marked as missing: none was
// forgotten by the generator. The fields that are first in their structure, and
// only they, are at 0.
func TestTablesAreWhole(t *testing.T) {
	first := map[string]bool{"InterpNext": true, "CFrameCurrent": true, "FrameCode": true}
	own36 := map[string]bool{"RuntimeInterpretersHead": true, "GILHolder": true} // its own symbols
	for version, o := range tables {
		minor := minorOf(t, strings.TrimRight(version, "dt"))
		if o.Version != 0x03000000|uint32(minor)<<16 {
			t.Errorf("%s: version %#x", version, o.Version)
		}
		v := reflect.ValueOf(o)
		for i := range v.NumField() {
			name, value := v.Type().Field(i).Name, v.Field(i).Uint()
			if value == 0 && !first[name] && (minor > 6 || !own36[name]) {
				t.Errorf("%s: %s is 0", version, name)
			}
			if value > 1<<16 && value != uint64(NoField) && name != "Version" {
				t.Errorf("%s: %s is %d", version, name, value)
			}
		}
	}
}
