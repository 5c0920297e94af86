// SPDX-License-Identifier: Apache-2.0

package perfevent

import (
	"bufio"
	"io"
	"strconv"
	"strings"
)

// ParseInterrupts reads the format of /proc/interrupts and returns the devices
// of each numbered interrupt: "ahci[0000:00:1f.2]", or "a, b" if several share
// it. Interrupts without a device, and the lettered ones, are not in it. The
// error is the reader's.
func ParseInterrupts(r io.Reader) (map[int32]string, error) {
	names := make(map[int32]string)
	in := bufio.NewReader(r)
	header, err := readLine(in)
	if err != nil {
		return names, ignoreEOF(err)
	}
	columns := len(strings.Fields(header))
	for {
		line, err := readLine(in)
		if number, name, ok := parseInterrupt(line, columns); ok {
			names[number] = name
		}
		if err != nil {
			return names, ignoreEOF(err)
		}
	}
}

// readLine reads a line of any length: on a large machine they have thousands
// of columns.
func readLine(in *bufio.Reader) (string, error) {
	line, err := in.ReadString('\n')
	return strings.TrimRight(line, "\n"), err
}

func ignoreEOF(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}

// parseInterrupt takes a line as show_interrupts of kernel/irq/proc.c writes it:
//
//	24:  1  0  PCI-MSI 65536-edge      ahci0, i801_smbus
//	11:  7  9     GICv3  30 Level     arch_timer
//
// the number, a count for each CPU, the chip, the chip's own number with the
// name of its flow, on some machines the trigger, and the devices.
func parseInterrupt(line string, columns int) (number int32, name string, ok bool) {
	label, rest, ok := strings.Cut(line, ":")
	if !ok {
		return 0, "", false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(label), 10, 32)
	if err != nil || n < 0 {
		return 0, "", false
	}
	for range columns {
		var count string
		count, rest = nextField(rest)
		if _, err := strconv.ParseUint(count, 10, 64); err != nil {
			return 0, "", false
		}
	}
	name = devices(rest)
	return int32(n), name, name != ""
}

// devices skips the chip's part of a line. A chip's name may hold spaces; its own
// number of the interrupt, the first field that begins with a digit, ends it.
// Chips that have no such number are followed by the devices after two spaces.
func devices(rest string) string {
	_, after := nextField(rest) // the chip's name, or its first word
	for tail := after; tail != ""; {
		var field string
		field, tail = nextField(tail)
		if field == "" || field[0] < '0' || field[0] > '9' {
			continue
		}
		if trigger, t := nextField(tail); trigger == "Level" || trigger == "Edge" {
			tail = t
		}
		return strings.TrimSpace(tail)
	}
	if _, names, ok := strings.Cut(strings.TrimSpace(after), "  "); ok {
		return strings.TrimSpace(names)
	}
	return strings.TrimSpace(after)
}

// nextField returns the next word and what follows it.
func nextField(s string) (field, rest string) {
	s = strings.TrimLeft(s, " \t")
	if i := strings.IndexAny(s, " \t"); i >= 0 {
		return s[:i], s[i:]
	}
	return s, ""
}
