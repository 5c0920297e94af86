// SPDX-License-Identifier: Apache-2.0

// Package sched is the vocabulary of execution events: which task leaves a CPU
// for which other, who wakes whom from which context, who is born and dies.
//
// Every source of such events (the BPF programs, later imported traces) yields
// this type, so that the execution graph cannot tell where they came from.
// Events have a text form, one a line, which people can read and write: see
// [ParseEvent].
package sched
