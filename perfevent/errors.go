// SPDX-License-Identifier: Apache-2.0

package perfevent

import (
	"errors"
	"strings"
)

// ErrNotSupported is what every [*FeatureError] is: the kernel, the machine or
// the privileges of the caller lack something. Trying again does not help;
// showing the error's text to the user does.
var ErrNotSupported = errors.New("not supported")

// FeatureError says which feature is missing and what would help.
type FeatureError struct {
	// Feature that is missing, a noun phrase: "recording", "hardware counter".
	Feature string
	// MinKernel is the first kernel that has it, such as "6.1"; empty if the
	// version of the kernel is not the reason.
	MinKernel string
	// Hint is what the user can do: a sysctl, a capability, a flag.
	Hint string
	// Err is the cause, nil if there is none but the absence.
	Err error
}

// Error is one line: the feature, the cause, the hint.
func (e *FeatureError) Error() string {
	var b strings.Builder
	b.WriteString(e.Feature)
	if e.MinKernel != "" {
		b.WriteString(" needs Linux " + e.MinKernel)
	}
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	if e.Hint != "" {
		b.WriteString(": " + e.Hint)
	}
	return b.String()
}

// Unwrap is the cause.
func (e *FeatureError) Unwrap() error { return e.Err }

// Is makes every FeatureError an [ErrNotSupported].
func (e *FeatureError) Is(target error) bool { return target == ErrNotSupported }
