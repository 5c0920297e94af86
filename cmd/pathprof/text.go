// SPDX-License-Identifier: Apache-2.0

package main

import "strings"

// oneLine is an error as one line: joined errors are separated by "; ".
func oneLine(err error) string {
	return strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' }), "; ")
}
