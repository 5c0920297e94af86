// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"pathprof/perfevent/perftest"
)

func sudoEnv(key string) string {
	return map[string]string{"SUDO_UID": "1234", "SUDO_GID": "1235"}[key]
}

func ownerOf(t *testing.T, path string) (uid, gid uint32) {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	st := info.Sys().(*syscall.Stat_t)
	return st.Uid, st.Gid
}

// TestHandOver: what root wrote becomes the user's, and nothing else does: not
// what a link in the folder leads to, nor a file with another name elsewhere.
func TestHandOver(t *testing.T) {
	perftest.Require(t, perftest.Root)
	dir, elsewhere := t.TempDir(), t.TempDir()
	write := func(path string) string {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	ours := []string{dir, filepath.Join(dir, "sub"), write(filepath.Join(dir, "sub", "a")), write(filepath.Join(dir, "b"))}
	secret, shared := write(filepath.Join(elsewhere, "secret")), write(filepath.Join(elsewhere, "shared"))
	if err := os.Symlink(secret, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(shared, filepath.Join(dir, "hard")); err != nil {
		t.Fatal(err)
	}
	if err := handOver(dir, sudoEnv); err != nil {
		t.Fatal(err)
	}
	for _, path := range ours {
		if uid, gid := ownerOf(t, path); uid != 1234 || gid != 1235 {
			t.Errorf("%s: got owner %d:%d, want 1234:1235", path, uid, gid)
		}
	}
	for _, path := range []string{secret, shared, elsewhere} {
		if uid, gid := ownerOf(t, path); uid != 0 || gid != 0 {
			t.Errorf("%s: got owner %d:%d, want root's", path, uid, gid)
		}
	}
}

func TestHandOverWithoutSudo(t *testing.T) {
	for _, getenv := range []func(string) string{
		func(string) string { return "" },
		func(string) string { return "0" },
		func(string) string { return "-1" },
	} {
		if err := handOver(filepath.Join(t.TempDir(), "no such folder"), getenv); err != nil {
			t.Errorf("got %v, want nothing done", err)
		}
	}
}
