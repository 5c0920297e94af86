// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// The program lists the same cases.
func TestCases(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 in PATH")
	}
	out, err := exec.Command(python, "waitkit.py", "--list").Output()
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, c := range Cases() {
		fmt.Fprintf(&got, "%-16s %s\n", c.Name, c.About)
	}
	if got.String() != string(out) || len(Cases()) < 25 {
		t.Errorf("got %d cases:\n%s\nwant\n%s", len(Cases()), got.String(), out)
	}
}
