// SPDX-License-Identifier: Apache-2.0

// Package kit is a Python program with a case for each kind of wait, which times
// its waits and says what they were for. It serves as acceptance test and as
// demonstration: python3 waitkit.py --list shows the cases.
package kit

import (
	_ "embed"
	"regexp"
	"slices"
	"strings"
)

// Program is the program's text.
//
//go:embed waitkit.py
var Program []byte

// Case is one case of the program.
type Case struct {
	Name  string
	About string
}

// definition is a case in the program's text.
var definition = regexp.MustCompile(`(?m)^@case\(.*\)\ndef (\w+)\(clock\):\n    """(.*)"""$`)

// Cases lists the program's cases by name.
func Cases() (out []Case) {
	for _, m := range definition.FindAllSubmatch(Program, -1) {
		out = append(out, Case{strings.ReplaceAll(string(m[1]), "_", "-"), string(m[2])})
	}
	slices.SortFunc(out, func(a, b Case) int { return strings.Compare(a.Name, b.Name) })
	return out
}
