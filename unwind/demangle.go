// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"strings"

	"github.com/ianlancetaylor/demangle"
)

// maxMangled bounds the names handed to the demangler; longer ones stay as
// they are.
const maxMangled = 8 << 10

// Demangle returns the name of a C++ or Rust function for people: without
// parameter types, with template arguments, and without the suffixes of parts
// and copies of a function. Other names only lose such suffixes, and glibc's mark
// of internal aliases.
func Demangle(linkage string) (name string) {
	plt := strings.HasSuffix(linkage, "@plt")
	base := strings.TrimSuffix(linkage, "@plt")
	name = strings.TrimPrefix(foldSuffix(base), internalPrefix)
	defer func() {
		// The demangler reads names from hostile files; the folded name is the
		// answer if it breaks.
		_ = recover()
		if plt {
			name += "@plt"
		}
	}()
	if len(base) > maxMangled || !strings.HasPrefix(base, "_Z") && !strings.HasPrefix(base, "_R") {
		return name
	}
	s, err := demangle.ToString(name, demangle.NoParams, demangle.NoEnclosingParams, demangle.MaxLength(12))
	if err == nil && s != "" {
		name = s
	}
	return name
}

// foldSuffix cuts what GCC (.cold, .part.N, .isra.N, .constprop.N, .lto_priv.N,
// .localalias) and LLVM (.cold, .llvm.N, .__uniq.N, .specialized.N) append.
func foldSuffix(name string) string {
	for {
		dot := strings.LastIndexByte(name, '.')
		if dot <= 0 {
			return name
		}
		last := name[dot+1:]
		head := name[:dot]
		if strings.Trim(last, "0123456789") == "" && last != "" {
			dot = strings.LastIndexByte(head, '.')
			if dot <= 0 {
				return name
			}
			head, last = head[:dot], head[dot+1:]
		}
		switch last {
		case "cold", "part", "isra", "constprop", "lto_priv", "localalias", "llvm", "__uniq", "specialized", "clone", "warm", "hot":
			name = head
		default:
			return name
		}
	}
}
