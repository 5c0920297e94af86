// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package pyframes

// attach has nothing to attach to where processes cannot be read.
func (p *Process) attach() {}
