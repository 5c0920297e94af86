// SPDX-License-Identifier: Apache-2.0

package perfevent

import (
	"strings"
	"testing"
	"time"
)

func TestParseSteal(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       time.Duration
		ok         bool
	}{
		{"virtual", "cpu  1242079 168775 487998 2937949 5935 0 8782 5373 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n", 53730 * time.Millisecond, true},
		{"own machine", "cpu  1 2 3 4 5 6 7 0 0 0\n", 0, true},
		{"before 2.6.11", "cpu  1 2 3 4\n", 0, false},
		{"no number", "cpu  1 2 3 4 5 6 7 x 0 0\n", 0, false},
		{"negative", "cpu  1 2 3 4 5 6 7 -1 0 0\n", 0, false},
		{"too large", "cpu  1 2 3 4 5 6 7 9223372036854775807 0 0\n", 0, false},
		{"other lines", "cpu0 1 2 3 4 5 6 7 8 9 10\n", 0, false},
		{"empty", "", 0, false},
	} {
		got, err := parseSteal(strings.NewReader(c.text))
		if got != c.want || (err == nil) != c.ok {
			t.Errorf("%s: got %v, %v", c.name, got, err)
		}
	}
}
