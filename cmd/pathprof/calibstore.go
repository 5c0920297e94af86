// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strings"

	"pathprof/calibrate"
)

// stateDir is where results are kept between runs (XDG base directories): that
// of the user who typed sudo, not root's.
func stateDir(getenv func(string) string) (string, error) {
	home := getenv("HOME")
	if uid := getenv("SUDO_UID"); uid != "" && os.Geteuid() == 0 {
		u, err := user.LookupId(uid)
		if err != nil {
			return "", fmt.Errorf("home of user %s: %w", uid, err)
		}
		home = u.HomeDir
	} else if dir := getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "pathprof"), nil
	}
	if !filepath.IsAbs(home) {
		return "", errors.New("no home folder: set HOME or XDG_STATE_HOME")
	}
	return filepath.Join(home, ".local", "state", "pathprof"), nil
}

// calibrationFile names a machine's calibration: a home folder may be shared by
// many, and another kernel is another machine.
func calibrationFile(m calibrate.Machine) string {
	plain := func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-' {
			return r
		}
		return '_'
	}
	return "calibration-" + strings.Map(plain, m.Host) + "-" + strings.Map(plain, m.Kernel) + ".json"
}

// storeCalibration keeps a result for this machine and kernel, and returns where.
func storeCalibration(r *calibrate.Result, getenv func(string) string) (string, error) {
	dir, err := stateDir(getenv)
	if err != nil {
		return "", err
	}
	made := firstMade(dir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return "", err
	}
	// A name of its own first: the folder may be the user's, and what is there
	// under the final name is replaced, not followed.
	f, err := os.CreateTemp(dir, ".calibration-*")
	if err != nil {
		return "", err
	}
	_, err = f.Write(text)
	path := filepath.Join(dir, calibrationFile(r.Machine))
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return path, handOver(made, getenv)
}

// firstMade is the outermost folder that making dir will make, dir if none.
func firstMade(dir string) string {
	for {
		parent := filepath.Dir(dir)
		if _, err := os.Lstat(parent); err == nil || parent == dir {
			return dir
		}
		dir = parent
	}
}

// errNoCalibration: none was stored for this machine and kernel.
var errNoCalibration = errors.New("this machine and kernel are not calibrated: run pathprof calibrate once")

// loadCalibration reads the result that holds here. The file is the user's own,
// and still only believed as far as it makes sense.
func loadCalibration(getenv func(string) string) (*calibrate.Result, error) {
	dir, err := stateDir(getenv)
	if err != nil {
		return nil, err
	}
	m := readMachine()
	text, err := os.ReadFile(filepath.Join(dir, calibrationFile(m)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNoCalibration
	}
	if err != nil {
		return nil, fmt.Errorf("read calibration: %w", err)
	}
	var r calibrate.Result
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("read calibration: %w", err)
	}
	if r.Format != calibrate.FormatVersion || r.Machine.Kernel != m.Kernel || r.Machine.CPU != m.CPU ||
		r.Machine.CPUs != m.CPUs || !r.Sound() {
		return nil, errNoCalibration
	}
	return &r, nil
}
