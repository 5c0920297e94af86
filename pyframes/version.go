// SPDX-License-Identifier: Apache-2.0

package pyframes

import (
	"bytes"
	"debug/elf"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// version finds the full version: Py_Version (3.11+), else the tag that names of
// extension modules carry, or the file's own name, and the text PY_VERSION.
func (d *detector) version() (string, error) {
	if addr, ok := d.known["Py_Version"]; ok {
		if b, err := d.read(addr, 4); err == nil {
			return hexVersion(d.file.ByteOrder.Uint32(b)), nil
		}
	}
	data := d.rodata()
	major, minor := 3, 0
	if tag, ok := findTag(data); ok {
		minor = tag.minor
	} else if major, minor, ok = d.namedVersion(); !ok {
		return "", &UnsupportedError{"", "its version could not be found in " + d.path}
	}
	prefix := fmt.Sprintf("%d.%d", major, minor)
	if text := findVersion(data, prefix+"."); text != "" {
		return text, nil
	}
	return prefix, nil
}

// hexVersion formats PY_VERSION_HEX: major, minor, micro, level and serial.
func hexVersion(hex uint32) string {
	v := fmt.Sprintf("%d.%d.%d", hex>>24, hex>>16&0xff, hex>>8&0xff)
	if level := hex >> 4 & 0xf; level != 0xf {
		name := map[uint32]string{0xa: "a", 0xb: "b", 0xc: "rc"}[level]
		v += fmt.Sprintf("%s%d", name, hex&0xf)
	}
	return v
}

var versionName = regexp.MustCompile(`python(\d{1,2})\.(\d{1,3})`)

// namedVersion takes the version from the library's own name, else the path's.
func (d *detector) namedVersion() (major, minor int, ok bool) {
	for _, name := range d.names() {
		if m := versionName.FindStringSubmatch(name); m != nil {
			major, _ = strconv.Atoi(m[1]) // digits
			minor, _ = strconv.Atoi(m[2])
			return major, minor, true
		}
	}
	return 0, 0, false
}

// names are the SONAME of a library and the file's name.
func (d *detector) names() []string {
	names, err := d.file.DynString(elf.DT_SONAME)
	if err != nil {
		names = nil
	}
	return append(names, filepath.Base(d.path))
}

// rodata returns the read-only data, empty if there is none: strings of a
// program are there.
func (d *detector) rodata() []byte {
	if s := d.file.Section(".rodata"); d.strings == nil && s != nil && s.Size <= maxSymbols {
		d.strings, _ = s.Data() // nothing is found in what cannot be read
	}
	return d.strings
}

// buildTag is what SOABI says of a build, e.g. cpython-313t-x86_64-linux-gnu: the
// interpreter looks for extension modules that carry it (Python/dynload_shlib.c).
type buildTag struct {
	minor int
	flags string // d: debug, t: free-threaded
}

func findTag(data []byte) (tag buildTag, ok bool) {
	const mark = "cpython-3"
	for {
		i := bytes.Index(data, []byte(mark))
		if i < 0 {
			return tag, false
		}
		data = data[i+len(mark):]
		n := 0
		for n < len(data) && n < 3 && isDigit(data[n]) {
			n++
		}
		minor, err := strconv.Atoi(string(data[:n]))
		flags, rest, dash := bytes.Cut(data[n:min(len(data), n+8)], []byte("-"))
		if err == nil && dash && len(rest) > 0 && strings.Trim(string(flags), "dtmu") == "" {
			return buildTag{minor, string(flags)}, true
		}
	}
}

// findVersion looks for a version that begins with prefix and ends with a zero
// byte. The linker may have made it the tail of a longer string, such as a
// folder's name; one that stands alone is preferred.
func findVersion(data []byte, prefix string) (version string) {
	for at := 0; ; at++ {
		i := bytes.Index(data[at:], []byte(prefix))
		if i < 0 {
			return version
		}
		at += i
		text, _, ended := bytes.Cut(data[at:min(len(data), at+24)], []byte{0})
		before := byte(0)
		if at > 0 {
			before = data[at-1]
		}
		switch {
		case !ended || !isVersion(string(text)) || isDigit(before) || before == '.':
		case before == 0:
			return string(text)
		case version == "":
			version = string(text)
		}
	}
}

var versionText = regexp.MustCompile(`^\d\.\d{1,3}\.\d{1,3}((a|b|rc)\d{1,3})?\+?$`)

func isVersion(text string) bool { return versionText.MatchString(text) }

// build tells what kind of build it is: d for debug, t for free-threaded, both,
// or none.
func (d *detector) build(version string, minor int) (string, error) {
	flags := ""
	if tag, ok := findTag(d.rodata()); ok {
		flags = tag.flags
		if tag.minor != minor {
			return "", &UnsupportedError{version, fmt.Sprintf("its extension modules are 3.%d's", tag.minor)}
		}
	}
	for _, name := range d.names() {
		if _, after, ok := strings.Cut(name, fmt.Sprintf("python3.%d", minor)); ok {
			flags += after[:len(after)-len(strings.TrimLeft(after, "dtmu"))]
		}
	}
	_, negative := d.known["_Py_NegativeRefcount"] // from 3.12 on all builds have it
	build := ""
	if strings.Contains(flags, "t") {
		build = "t"
	}
	if strings.Contains(flags, "d") || negative && minor < 12 {
		build += "d"
	}
	return build, nil
}
