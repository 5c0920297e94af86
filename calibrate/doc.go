// SPDX-License-Identifier: Apache-2.0

// Package calibrate measures how far a profile made on this machine can be
// trusted, and what making it costs.
//
// Programs in workloads/ know their own truth. They run under the recorder, and
// what it says is compared with what they know. The recorder is handed in (see
// [Recorder]): this package does not know how a recording is driven, only what
// is in it.
//
// # Traps
//
//   - Two starts of one program differ by up to ten per cent, and a shared machine
//     slows down for seconds at a time. So one program keeps running while the
//     counters are turned on and off in windows shorter than that, and each window is compared
//     with its neighbours (Overhead).
//   - Windows do not see less than some three per cent. The kernel's run-time
//     statistics of BPF programs do, but do not count the interrupt, whose cost is
//     measured by itself with an empty program at a high rate.
//   - The rarer samples are, the colder the caches and the dearer each one: the
//     cost at one period says little about another. [Model] interpolates.
//   - CPU time of a thread contains the interrupts that hit it, unless the kernel
//     has CONFIG_IRQ_TIME_ACCOUNTING. Then nothing of this shows in it, and
//     Overhead says so.
//   - A counter for all tasks also samples others: only samples of the program
//     count, and rates are those of the CPU it is bound to.
//   - The root mean square error is over the functions of the truth; a function
//     that was not seen counts with its whole share.
package calibrate
