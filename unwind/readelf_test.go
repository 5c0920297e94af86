// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"pathprof/perfevent/perftest"
)

// interpRow is a row of readelf --debug-dump=frames-interp.
type interpRow struct {
	from, to    uint64
	cfa, fp, ra string // in readelf's words
}

// namedReg is how readelf writes "in register".
var namedReg = regexp.MustCompile(`\br\d+ \((\w+)\)`)

// interp reads readelf's own interpretation of .eh_frame: each function as a
// list of rows.
func interp(t testing.TB, path string, r io.Reader) [][]interpRow {
	t.Helper()
	var functions [][]interpRow
	var cies = make(map[string][3]string)
	var columns []string
	var cie, current string // offsets of the CIE in use
	var end uint64
	var rows []interpRow
	isCIE := false
	flush := func() {
		if len(rows) > 0 {
			rows[len(rows)-1].to = end
			functions = append(functions, rows)
		}
		rows = nil
	}
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		line := namedReg.ReplaceAllString(sc.Text(), "$1")
		if strings.HasPrefix(line, "Contents of the .debug_frame") {
			break
		}
		f := strings.Fields(line)
		switch {
		case len(f) > 3 && f[3] == "CIE":
			flush()
			isCIE, current, columns = true, f[0], nil
		case len(f) > 5 && f[3] == "FDE":
			flush()
			isCIE, columns = false, nil
			cie = strings.TrimPrefix(f[4], "cie=")
			from, to, ok := strings.Cut(strings.TrimPrefix(f[5], "pc="), "..")
			start, err := strconv.ParseUint(from, 16, 64)
			end, _ = strconv.ParseUint(to, 16, 64)
			if !ok || err != nil {
				t.Fatalf("%s: %q", path, line)
			}
			if start < end {
				c := cies[cie]
				rows = []interpRow{{start, 0, c[0], c[1], c[2]}}
			}
		case len(f) > 1 && f[0] == "LOC":
			columns = f
		case len(f) > 1 && len(f) == len(columns):
			at, err := strconv.ParseUint(f[0], 16, 64)
			if err != nil {
				continue
			}
			row, sp := interpRow{from: at}, ""
			for i, c := range columns {
				switch c {
				case "CFA":
					row.cfa = f[i]
				case "rbp", "x29":
					row.fp = f[i]
				case "ra":
					row.ra = f[i]
				case "rsp":
					sp = f[i]
				}
			}
			if sp != "" && sp != "u" && sp != "exp" {
				row.cfa = "exp" // the stack pointer is not the CFA: refused
			}
			if isCIE {
				cies[current] = [3]string{row.cfa, row.fp, row.ra}
				continue
			}
			if n := len(rows); n == 1 && rows[0].from == at {
				rows = rows[:0]
			} else if n > 0 {
				rows[n-1].to = at
			}
			rows = append(rows, row)
		}
	}
	flush()
	return functions
}

// Words of readelf for our rules.
func regWord(r Reg, arm64 bool) string {
	amd64Names := []string{"rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"}
	switch {
	case r == RegSP && arm64:
		return "sp"
	case r == RegFP && arm64:
		return "x29"
	case arm64:
		return fmt.Sprintf("x%d", r-RegOther)
	case r == RegSP:
		return "rsp"
	case r == RegFP:
		return "rbp"
	case int(r-RegOther) < len(amd64Names):
		return amd64Names[r-RegOther]
	}
	return "?"
}

func cfaWord(r Rule, arm64 bool) string {
	switch r.CFA {
	case CFARegister:
		return fmt.Sprintf("%s%+d", regWord(r.CFAReg, arm64), r.CFAOff)
	case CFADeref, CFAPLT, CFAUnsupported:
		return "exp"
	}
	return "?"
}

func placeWord(p Place, reg Reg, off int32, arm64 bool) string {
	switch p {
	case PlaceSame, PlaceUndefined:
		return "u"
	case PlaceCFA:
		return fmt.Sprintf("c%+d", off)
	case PlaceMem:
		return "exp"
	case PlaceInReg:
		if off == 0 {
			return regWord(reg, arm64)
		}
		return "vexp"
	}
	return "?"
}

// normal brings readelf's words for "as in the caller" together: it prints u
// for registers without a rule, s for DW_CFA_same_value.
func normal(word string) string {
	if word == "" || word == "s" {
		return "u"
	}
	return word
}

// The table equals readelf's interpretation in every row of every function, at
// its first and its last byte, and has no rule behind functions.
func TestTableAgreesWithReadelf(t *testing.T) {
	perftest.Require(t, perftest.Tool("readelf"))
	for _, path := range elfFiles(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			table, err := BuildTable(open(t, path))
			if err != nil {
				t.Fatal(err)
			}
			if err := table.check(); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("readelf", "--debug-dump=frames-interp", path)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			functions := interp(t, path, out)
			io.Copy(io.Discard, out)
			_ = cmd.Wait() // it also complains of a missing separate debug file
			rows, expressions, unsupported := compareInterp(t, table, functions, false)
			if rows == 0 || table.Skipped != 0 {
				t.Errorf("%d rows compared, %d functions skipped", rows, table.Skipped)
			}
			// libcrypto has three rows whose CFA is read from a computed place; in
			// glibc it is the last part of longjmp.
			if unsupported > 12 {
				t.Errorf("%d rows with expressions that are not understood", unsupported)
			}
			t.Logf("%d functions, %d ends of rows equal (%d with expressions); %d rows, %d rules, %d bytes",
				len(functions), rows, expressions, len(table.Rows), len(table.Rules), 8*len(table.Rows)+24*len(table.Rules))
		})
	}
}

func compareInterp(t *testing.T, table *Table, functions [][]interpRow, arm64 bool) (rows, expressions, unsupported int) {
	t.Helper()
	starts := make(map[uint64]bool)
	for _, f := range functions {
		starts[f[0].from] = true
	}
	bad := 0
	for _, f := range functions {
		for _, row := range f {
			for _, pc := range []uint64{row.from, row.to - 1} {
				if row.from == row.to {
					continue
				}
				r, _ := table.Find(pc)
				got := interpRow{row.from, row.to, cfaWord(r, arm64), placeWord(r.FP, r.FPReg, r.FPOff, arm64), placeWord(r.RA, r.RAReg, r.RAOff, arm64)}
				if arm64 && r.RA == PlaceInReg && r.RAReg == RegOther+arm64RA {
					got.ra = "u"
				}
				want := interpRow{row.from, row.to, row.cfa, normal(row.fp), normal(row.ra)}
				// An undefined return address ends the walk: nothing else matters.
				if r.RA == PlaceUndefined && want.ra == "u" {
					continue
				}
				rows++
				if got.cfa == "exp" {
					expressions++
				}
				if r.CFA == CFAUnsupported {
					unsupported++
					got.fp, got.ra = want.fp, want.ra
				}
				if got != want {
					if bad++; bad < 20 {
						t.Errorf("at %#x: got %+v, want %+v (%+v)", pc, got, want, r)
					}
				}
			}
		}
		end := f[len(f)-1].to
		if r, ok := table.Find(end); ok && !starts[end] && r.Flags&FlagSignal == 0 {
			t.Errorf("at %#x, behind a function: got %+v", end, r)
		}
	}
	return rows, expressions, unsupported
}
