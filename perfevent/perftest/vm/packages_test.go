// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"archive/tar"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
)

// archive is one suite of Debian for one processor, with apt's state for it in a
// folder of its own.
type archive struct {
	dir   string
	suite string // such as bookworm
	arch  string // such as arm64
}

func openArchive(suite, arch string) (*archive, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	a := &archive{dir: filepath.Join(cache, "pathprof", "vm", suite+"-"+arch), suite: suite, arch: arch}
	for _, sub := range []string{"lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(a.dir, sub), 0o755); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// site asks the machine's own apt where Debian is, which it knows after an update.
func site() (string, error) {
	url, err := askSite()
	if err == nil && url == "" {
		if out, err := exec.Command("apt-get", "-qq", "update").CombinedOutput(); err != nil {
			return "", fmt.Errorf("apt-get update: %w\n%s", err, out)
		}
		url, err = askSite()
	}
	if err == nil && url == "" {
		err = errors.New("apt knows no source of Debian")
	}
	return url, err
}

func askSite() (string, error) {
	out, err := exec.Command("apt-get", "indextargets", "--format", "$(ORIGIN)|$(LABEL)|$(SITE)").Output()
	if err != nil {
		return "", fmt.Errorf("ask apt for its sources: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		if url, ok := strings.CutPrefix(strings.TrimSpace(line), "Debian|Debian|"); ok {
			return url, nil
		}
	}
	return "", nil
}

// apt runs a program of apt on the archive's own state.
func (a *archive) apt(name string, args ...string) ([]byte, error) {
	options := []string{
		"Dir::State=" + a.dir, "Dir::State::status=/dev/null", "Dir::Cache=" + filepath.Join(a.dir, "cache"),
		"Dir::Etc::sourcelist=" + filepath.Join(a.dir, "sources.list"), "Dir::Etc::sourceparts=-",
		"APT::Architecture=" + a.arch, "APT::Architectures::=" + a.arch,
		"Acquire::Languages=none", "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false",
		"APT::Sandbox::User=root", "Acquire::Retries=3", "APT::Update::Error-Mode=any",
	}
	var full []string
	for _, o := range options {
		full = append(full, "-o", o)
	}
	cmd := exec.Command(name, append(append(full, "-qq"), args...)...)
	cmd.Dir = a.dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s for %s on %s: %w\n%s", name, strings.Join(args, " "), a.suite, a.arch, err, &stderr)
	}
	return out, nil
}

// update fetches the suite's list of packages.
func (a *archive) update() error {
	url, err := site()
	if err != nil {
		return err
	}
	const keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
	// Backports stand beside their suite, whose packages they need.
	base, _, _ := strings.Cut(a.suite, "-")
	text := ""
	for _, suite := range []string{base, a.suite} {
		line := fmt.Sprintf("deb [signed-by=%s] %s %s main\n", keys, url, suite)
		if !strings.Contains(text, line) {
			text += line
		}
	}
	if err := os.WriteFile(filepath.Join(a.dir, "sources.list"), []byte(text), 0o644); err != nil {
		return err
	}
	if _, err := a.apt("apt-get", "update"); err != nil {
		return fmt.Errorf("kernels and programs come from Debian's archive, unless %s has them: %w", a.dir, err)
	}
	return nil
}

// fetching keeps machines from fetching the same packages at the same time.
var fetching sync.Mutex

// packages returns the files of packages and all they depend on, from the cache
// if it holds them. A name that ends in "!" comes without what it depends on; the
// kernel that a name that ends in "*" depends on comes in its place, alone: meta
// packages name the current one that way.
func (a *archive) packages(names ...string) ([]string, error) {
	fetching.Lock()
	defer fetching.Unlock()
	stamp := filepath.Join(a.dir, "have-"+strings.NewReplacer("*", "", "!", "").Replace(strings.Join(names, "+")))
	if text, err := os.ReadFile(stamp); err == nil {
		return strings.Fields(string(text)), nil
	}
	if err := a.update(); err != nil {
		return nil, err
	}
	// A folder of its own: what lies in it is the answer.
	dir, err := os.MkdirTemp(a.dir, "debs-")
	if err != nil {
		return nil, err
	}
	var whole, alone []string
	for _, name := range names {
		meta, isMeta := strings.CutSuffix(name, "*")
		single, isSingle := strings.CutSuffix(name, "!")
		switch {
		case isMeta:
			if name, err = a.currentKernel(meta); err != nil {
				return nil, err
			}
			alone = append(alone, name)
		case isSingle:
			alone = append(alone, single)
		default:
			whole = append(whole, name)
		}
	}
	if len(whole) > 0 {
		args := append([]string{"-o", "Dir::Cache::archives=" + dir, "install", "-y", "-d", "--no-install-recommends"}, whole...)
		if _, err := a.apt("apt-get", args...); err != nil {
			return nil, err
		}
	}
	for _, name := range alone {
		if err := a.download(dir, name); err != nil {
			return nil, err
		}
	}
	debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil {
		return nil, err
	}
	return debs, os.WriteFile(stamp, []byte(strings.Join(debs, "\n")), 0o644)
}

// download fetches one package of exactly the archive's suite.
func (a *archive) download(dir, name string) error {
	if _, err := a.apt("apt-get", "download", name+"/"+a.suite); err != nil {
		return err
	}
	debs, err := filepath.Glob(filepath.Join(a.dir, name+"_*.deb"))
	for _, deb := range debs {
		err = errors.Join(err, os.Rename(deb, filepath.Join(dir, filepath.Base(deb))))
	}
	return err
}

// currentKernel names the package that holds the kernel of a meta package: the
// image it depends on, or since Linux 7 what that depends on in turn.
func (a *archive) currentKernel(meta string) (string, error) {
	image, err := a.dependency(meta, "linux-image-")
	if err != nil {
		return "", err
	}
	if image == "" {
		return "", fmt.Errorf("package %s of %s depends on no kernel", meta, a.suite)
	}
	binary, err := a.dependency(image, "linux-binary-")
	return cmp.Or(binary, image), err
}

// dependency returns the first of a package's dependencies whose name begins so.
func (a *archive) dependency(name, prefix string) (string, error) {
	// show takes the version of the asked suite, depends the newest.
	out, err := a.apt("apt-cache", "show", name+"/"+a.suite)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(out)) {
		list, ok := strings.CutPrefix(line, "Depends: ")
		if !ok {
			continue
		}
		for _, word := range strings.FieldsFunc(list, func(r rune) bool { return strings.ContainsRune(" ,(", r) }) {
			if strings.HasPrefix(word, prefix) {
				return word, nil
			}
		}
	}
	return "", nil
}

// eachFile calls do for every entry of a package.
func eachFile(deb string, do func(*tar.Header, io.Reader) error) error {
	cmd := exec.Command("dpkg-deb", "--fsys-tarfile", deb)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	r := tar.NewReader(out)
	for {
		h, err := r.Next()
		if err == nil {
			h.Name = strings.TrimPrefix(path.Clean("/"+h.Name), "/")
			err = do(h, r)
		}
		if err == nil {
			continue
		}
		_, _ = io.Copy(io.Discard, out) // lets the program end
		if werr := cmd.Wait(); werr != nil && errors.Is(err, io.EOF) {
			err = werr
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		return fmt.Errorf("unpack %s: %w", filepath.Base(deb), err)
	}
}

// unpacking keeps machines from unpacking the same kernel at the same time.
var unpacking sync.Mutex

// kernel returns the image in a kernel's package, unpacked beside it once.
func (a *archive) kernel(name string) (string, error) {
	debs, err := a.packages(name)
	if err != nil {
		return "", err
	}
	unpacking.Lock()
	defer unpacking.Unlock()
	image := filepath.Join(filepath.Dir(debs[0]), "vmlinuz")
	if _, err := os.Stat(image); err == nil {
		return image, nil
	}
	return image, unpackKernel(debs[0], image)
}

// isKernel tells where packages have it; the latter since Linux 7.
func isKernel(name string) bool {
	old, _ := path.Match("boot/vmlinuz-*", name)
	now, _ := path.Match("usr/lib/modules/*/vmlinuz", name)
	return old || now
}

func unpackKernel(deb, target string) error {
	found := false
	err := eachFile(deb, func(h *tar.Header, r io.Reader) error {
		if !isKernel(h.Name) {
			return nil
		}
		found = true
		image, err := io.ReadAll(r)
		if err == nil {
			image, err = unpackEFI(image)
		}
		if err != nil {
			return err
		}
		if err := os.WriteFile(target+".part", image, 0o644); err != nil {
			return err
		}
		return os.Rename(target+".part", target)
	})
	if err == nil && !found {
		err = fmt.Errorf("no kernel in %s", deb)
	}
	return err
}
