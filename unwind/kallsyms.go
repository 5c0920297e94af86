// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
)

// Bounds of what is believed of /proc/kallsyms; a kernel with everything built
// in has about 300,000 symbols.
const (
	maxKernelSymbols = 8 << 20
	maxKernelModules = math.MaxUint16
	// lastKernelSize is taken for the last symbol, which no other one ends.
	lastKernelSize = 4096
)

// KernelSymbols are the functions of the running kernel, its modules and its
// BPF programs. It is safe for concurrent use.
type KernelSymbols struct {
	syms    []kernelSymbol // by address
	names   []byte
	modules []string // "" is the kernel itself
	// Bad counts lines that were not understood.
	Bad int
}

type kernelSymbol struct {
	start  uint64
	size   uint32
	name   uint32 // offset in names
	length uint16 // of the name
	module uint16
}

// ParseKallsyms reads the form of /proc/kallsyms. If every address is zero the
// kernel hides them (kernel/kallsyms.c, kallsyms_show_value), and the error
// wraps [errors.ErrUnsupported] and names the sysctl.
func ParseKallsyms(r io.Reader) (*KernelSymbols, error) {
	k := &KernelSymbols{modules: []string{""}}
	p := kallsymsParser{k: k, index: map[string]uint16{"": 0}}
	lines := bufio.NewReaderSize(r, 1<<16)
	for {
		line, err := lines.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			k.Bad++
			continue // the rest of an absurd line is bad, too
		}
		if err != nil && err != io.EOF {
			return nil, fmt.Errorf("read kernel symbols: %w", err)
		}
		if len(p.all) >= maxKernelSymbols {
			return nil, errors.New("read kernel symbols: too many")
		}
		if line = bytes.TrimRight(line, "\n"); len(line) > 0 {
			p.line(line)
		}
		if err == io.EOF {
			break
		}
	}
	if len(p.all) == 0 {
		return nil, p.none()
	}
	k.syms = p.finish()
	return k, nil
}

// kallsymsParser keeps all symbols until the ends of functions are known: data
// symbols end them, too.
type kallsymsParser struct {
	k     *KernelSymbols
	all   []kernelSymbol // size 1: a function
	index map[string]uint16
	zero  int // lines with address zero
}

// line parses "ADDRESS TYPE NAME[\t[MODULE]]". It allocates nothing for most lines.
func (p *kallsymsParser) line(b []byte) {
	addr, n := parseHex(b)
	if n == 0 || n+3 >= len(b) || b[n] != ' ' || b[n+2] != ' ' {
		p.k.Bad++
		return
	}
	kind, name := b[n+1], b[n+3:]
	if addr == 0 {
		p.zero++
		return
	}
	s := kernelSymbol{start: addr}
	if isText(kind) {
		name, module := splitModule(name)
		m, ok := p.module(module)
		if !ok || len(name) == 0 || len(name) > math.MaxUint16 || len(p.k.names)+len(name) > math.MaxUint32 {
			p.k.Bad++
			return
		}
		s.size, s.module = 1, m
		s.name, s.length = uint32(len(p.k.names)), uint16(len(name))
		p.k.names = append(p.k.names, name...)
	}
	p.all = append(p.all, s)
}

func (p *kallsymsParser) module(name []byte) (uint16, bool) {
	if m, ok := p.index[string(name)]; ok {
		return m, true
	}
	if len(p.k.modules) >= maxKernelModules {
		return 0, false
	}
	m := uint16(len(p.k.modules))
	p.k.modules = append(p.k.modules, string(name))
	p.index[string(name)] = m
	return m, true
}

// none explains why there are no symbols.
func (p *kallsymsParser) none() error {
	if p.zero > 0 {
		return fmt.Errorf("read kernel symbols: all addresses are hidden; "+
			"sysctl kernel.kptr_restrict=0 or CAP_SYSLOG shows them: %w", errors.ErrUnsupported)
	}
	return fmt.Errorf("read kernel symbols: %w", ErrNoSymbols)
}

// finish sorts, sizes the functions by whatever comes next, and drops the rest.
// The kernel prints its own symbols in order, then each module's.
func (p *kallsymsParser) finish() []kernelSymbol {
	byAddr := func(a, b kernelSymbol) int { return cmp.Compare(a.start, b.start) }
	if !slices.IsSortedFunc(p.all, byAddr) {
		slices.SortStableFunc(p.all, byAddr)
	}
	end := uint64(0) // address of the next symbol behind those at one address
	out := p.all
	n := len(p.all)
	for i := n - 1; i >= 0; i-- {
		s := p.all[i]
		next := end
		if i+1 < len(p.all) && p.all[i+1].start != s.start {
			next = p.all[i+1].start
			end = next
		}
		if s.size == 0 {
			continue
		}
		s.size = lastKernelSize
		if next != 0 {
			s.size = uint32(min(next-s.start, math.MaxUint32))
		}
		n--
		out[n] = s
	}
	return p.choose(slices.Clone(out[n:]))
}

// choose keeps one name for each address: the one with fewer leading
// underscores, else the first.
func (p *kallsymsParser) choose(syms []kernelSymbol) []kernelSymbol {
	underscores := func(s kernelSymbol) int {
		name := p.k.names[s.name : s.name+uint32(s.length)]
		return len(name) - len(bytes.TrimLeft(name, "_"))
	}
	out := syms[:0]
	for _, s := range syms {
		if n := len(out); n > 0 && out[n-1].start == s.start {
			if underscores(s) < underscores(out[n-1]) {
				out[n-1] = s
			}
			continue
		}
		out = append(out, s)
	}
	return slices.Clip(out)
}

// Len is the number of functions.
func (k *KernelSymbols) Len() int { return len(k.syms) }

// Lookup returns the function around a kernel address. Functions of modules are
// named "function [module]".
func (k *KernelSymbols) Lookup(addr uint64) (Symbol, bool) {
	i, exact := slices.BinarySearchFunc(k.syms, addr, func(s kernelSymbol, t uint64) int { return cmp.Compare(s.start, t) })
	if !exact {
		i--
	}
	if i < 0 || addr-k.syms[i].start >= uint64(k.syms[i].size) {
		return Symbol{}, false
	}
	s := k.syms[i]
	linkage := string(k.names[s.name : s.name+uint32(s.length)])
	name := Demangle(linkage)
	if s.module != 0 {
		name += " [" + k.modules[s.module] + "]"
	}
	return Symbol{Name: name, Linkage: linkage, Start: s.start, Size: uint64(s.size)}, true
}

// isText tells functions by the letter of nm: text, and weak functions.
func isText(kind byte) bool {
	return kind == 't' || kind == 'T' || kind == 'w' || kind == 'W'
}

func splitModule(b []byte) (name, module []byte) {
	name, rest, found := bytes.Cut(b, []byte{'\t'})
	if !found || len(rest) < 2 || rest[0] != '[' || rest[len(rest)-1] != ']' {
		return name, nil
	}
	return name, rest[1 : len(rest)-1]
}

// parseHex reads up to 16 digits; n is how many there were, 0 for none or too many.
func parseHex(b []byte) (v uint64, n int) {
	for n < len(b) {
		c := b[n]
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return v, n
		}
		if n == 16 {
			return 0, 0
		}
		v = v<<4 | uint64(c)
		n++
	}
	return v, n
}
