// SPDX-License-Identifier: Apache-2.0

// Package kit is a Python program with a case for each kind of wait, which times
// its waits and says what they were for. It serves as acceptance test and as
// demonstration: python3 waitkit.py --list shows the cases.
package kit

import _ "embed"

// Program is the program's text.
//
//go:embed waitkit.py
var Program []byte
