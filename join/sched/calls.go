// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"errors"
	"strconv"
	"strings"
)

//go:generate go run ./gen/main.go

// Call is a system call, the same on every architecture: 1 + the number that
// amd64 has for it; 0 is none, or not known. [CallOf] translates.
type Call uint16

// The calls that analysis treats in ways of their own.
const (
	CallRead           Call = 1 + 0
	CallWrite          Call = 1 + 1
	CallPoll           Call = 1 + 7
	CallPread64        Call = 1 + 17
	CallReadv          Call = 1 + 19
	CallWritev         Call = 1 + 20
	CallSelect         Call = 1 + 23
	CallSchedYield     Call = 1 + 24
	CallNanosleep      Call = 1 + 35
	CallConnect        Call = 1 + 42
	CallAccept         Call = 1 + 43
	CallSendto         Call = 1 + 44
	CallRecvfrom       Call = 1 + 45
	CallSendmsg        Call = 1 + 46
	CallRecvmsg        Call = 1 + 47
	CallWait4          Call = 1 + 61
	CallFlock          Call = 1 + 73
	CallFsync          Call = 1 + 74
	CallFdatasync      Call = 1 + 75
	CallFutex          Call = 1 + 202
	CallClockNanosleep Call = 1 + 230
	CallEpollWait      Call = 1 + 232
	CallWaitid         Call = 1 + 247
	CallPselect6       Call = 1 + 270
	CallPpoll          Call = 1 + 271
	CallEpollPwait     Call = 1 + 281
	CallAccept4        Call = 1 + 288
	CallEpollPwait2    Call = 1 + 441
)

// CallFault stands for no call: a page fault that waits, for a disk most often.
// Object is the page's address if it is one of a file, else 0.
const CallFault Call = 1 << 15

// faultWord is CallFault's name.
const faultWord = "page_fault"

// CallOf returns the call that has a number on an architecture, as Go names it
// (amd64, arm64); false if it has no name here.
func CallOf(arch string, number int) (Call, bool) {
	table := callsAMD64[:]
	switch arch {
	case "amd64":
	case "arm64":
		table = callsARM64[:]
	default:
		return 0, false
	}
	if number < 0 || number >= len(table) || table[number] == "" {
		return 0, false
	}
	return callNamed(table[number])
}

// callNamed finds a call by its name.
func callNamed(name string) (Call, bool) {
	n, ok := callNumbers[name]
	return n, ok
}

// callNumbers are the calls by name.
var callNumbers = func() map[string]Call {
	m := make(map[string]Call, len(callsAMD64)+1)
	m[faultWord] = CallFault
	for n, name := range callsAMD64 {
		if name != "" {
			m[name] = Call(n + 1)
		}
	}
	return m
}()

// String returns the call's name, # and its number if it has none.
func (c Call) String() string {
	if c == CallFault {
		return faultWord
	}
	if n := int(c) - 1; n >= 0 && n < len(callsAMD64) && callsAMD64[n] != "" {
		return callsAMD64[n]
	}
	return "#" + strconv.Itoa(int(c))
}

// parseCall reads what [Call.String] writes.
func parseCall(s string) (Call, error) {
	if digits, ok := strings.CutPrefix(s, "#"); ok {
		n, err := strconv.ParseUint(digits, 10, 16)
		return Call(n), err
	}
	c, ok := callNamed(s)
	if !ok {
		return 0, errors.New("no such system call")
	}
	return c, nil
}
