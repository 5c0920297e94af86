// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// unpackEFI returns the kernel inside a self-unpacking EFI program, whose head
// says where and how it is compressed (drivers/firmware/efi/libstub/zboot-header.S),
// and any other image as it is.
func unpackEFI(image []byte) ([]byte, error) {
	if len(image) < 32 || string(image[4:8]) != "zimg" {
		return image, nil
	}
	off, size := binary.LittleEndian.Uint32(image[8:]), binary.LittleEndian.Uint32(image[12:])
	if uint64(off)+uint64(size) > uint64(len(image)) {
		return nil, fmt.Errorf("compressed kernel of %d bytes at %#x in %d bytes", size, off, len(image))
	}
	payload := bytes.NewReader(image[off : off+size])
	kind, _, _ := strings.Cut(string(image[24:32]), "\x00")
	switch kind {
	case "gzip":
		r, err := gzip.NewReader(payload)
		if err != nil {
			return nil, err
		}
		return io.ReadAll(r)
	case "zstd", "zstd22":
		r, err := zstd.NewReader(payload)
		if err != nil {
			return nil, err
		}
		defer r.Close()
		return io.ReadAll(r)
	}
	return nil, fmt.Errorf("kernel compressed with %q", kind)
}

// initramfs writes a file system in the form the kernel unpacks at boot
// (Documentation/driver-api/early-userspace/buffer-format.rst, "newc").
type initramfs struct {
	w     *bufio.Writer
	file  *os.File
	at    int
	inode int
	dirs  map[string]bool
	names map[string]bool
}

func createInitramfs(name string) (*initramfs, error) {
	file, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	i := &initramfs{w: bufio.NewWriterSize(file, 1<<20), file: file, dirs: map[string]bool{".": true}, names: map[string]bool{}}
	for _, dir := range []string{"usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "dev", "proc", "sys", "tmp", "run", "root", "etc", "var/tmp"} {
		i.mkdir(dir)
	}
	for _, name := range []string{"bin", "sbin", "lib", "lib64"} {
		i.link(name, "usr/"+name)
	}
	return i, nil
}

// entry writes one entry. Errors stay in the writer until it is closed.
func (i *initramfs) entry(name string, mode uint32, content []byte) {
	i.inode++
	i.names[name] = true
	fields := []int{i.inode, int(mode), 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0}
	head := "070701"
	for _, f := range fields {
		head += fmt.Sprintf("%08x", f)
	}
	i.write([]byte(head + name + "\x00"))
	i.write(content)
}

// write pads to four bytes.
func (i *initramfs) write(data []byte) {
	n, _ := i.w.Write(data)
	i.at += n
	for ; i.at%4 != 0; i.at++ {
		_ = i.w.WriteByte(0)
	}
}

func (i *initramfs) has(name string) bool { return i.names[name] }

func (i *initramfs) mkdir(name string) {
	if i.dirs[name] {
		return
	}
	i.mkdir(path.Dir(name))
	i.dirs[name] = true
	i.entry(name, 0o40755, nil)
}

func (i *initramfs) link(name, target string) {
	i.mkdir(path.Dir(name))
	i.entry(name, 0o120777, []byte(target))
}

func (i *initramfs) add(name string, mode fs.FileMode, content []byte) {
	i.mkdir(path.Dir(name))
	i.entry(name, 0o100000|uint32(mode.Perm()), content)
}

// addFile adds a file of this machine.
func (i *initramfs) addFile(name, from string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	i.add(name, info.Mode(), content)
	return nil
}

// addTree adds the files of a folder that keep accepts.
func (i *initramfs) addTree(name, from string, keep func(string, fs.DirEntry) bool) error {
	return filepath.WalkDir(from, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, p)
		switch {
		case err != nil:
			return err
		case !keep(filepath.ToSlash(rel), d):
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		case !d.Type().IsRegular():
			return nil
		}
		return i.addFile(path.Join(name, filepath.ToSlash(rel)), p)
	})
}

// needless are parts of packages that no test looks at.
var needless = []string{
	"usr/share/doc/", "usr/share/man/", "usr/share/locale/", "usr/share/perl", "usr/lib/x86_64-linux-gnu/perl",
	"usr/lib/aarch64-linux-gnu/perl", "usr/share/zoneinfo/", "usr/share/common-licenses/", "usr/share/info/",
	"usr/lib/x86_64-linux-gnu/gconv/", "usr/lib/aarch64-linux-gnu/gconv/", "usr/bin/perl",
}

// addPackage adds a package's files, with bin, sbin and lib below usr.
func (i *initramfs) addPackage(deb string) error {
	return eachFile(deb, func(h *tar.Header, r io.Reader) error {
		name := merged(h.Name)
		for _, prefix := range needless {
			if strings.HasPrefix(name, prefix) {
				return nil
			}
		}
		switch h.Typeflag {
		case tar.TypeReg:
			content, err := io.ReadAll(r)
			if err != nil {
				return err
			}
			i.add(name, h.FileInfo().Mode(), content)
		case tar.TypeSymlink:
			i.link(name, h.Linkname)
		case tar.TypeLink:
			i.link(name, "/"+merged(path.Clean(h.Linkname)))
		}
		return nil
	})
}

func merged(name string) string {
	for _, top := range []string{"bin/", "sbin/", "lib/", "lib64/"} {
		if strings.HasPrefix(name, top) {
			return "usr/" + name
		}
	}
	return name
}

func (i *initramfs) close() error {
	i.entry("TRAILER!!!", 0, nil)
	if err := i.w.Flush(); err != nil {
		i.file.Close()
		return err
	}
	return i.file.Close()
}
