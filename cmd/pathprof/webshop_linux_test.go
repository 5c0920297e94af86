// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"pathprof/join"
	"pathprof/perfevent/perftest"
)

// What webshop.py does for each request on a CPU, and how many are sent.
const (
	computeNs = 20_000_000
	requests  = 15
)

// The path of a client leads through the worker of a web server, where it
// computes, and through the database's backend, each as long as they say.
func TestWebShop(t *testing.T) {
	needRecorder(t)
	python := perftest.PythonWith(t, "django", "gunicorn", "psycopg2")
	startDatabase(t)
	address, server := startServer(t, python)

	host, port, _ := strings.Cut(address, ":")
	client := perftest.Start(t, python, workload(t, "webshop.py"), "client", host, port, strconv.Itoa(requests))
	cmd, dir := startRecorder(t, "-p", strconv.Itoa(client.PID), "--period", "1ms")
	client.Say("go")
	var truth struct {
		WallNs int64 `json:"wall_ns"`
		Ns     struct {
			Compute int64 `json:"apply_discounts"`
			Sum     int64 `json:"sum_history"`
			Store   int64 `json:"store_order"`
		} `json:"ns"`
	}
	if err := json.Unmarshal([]byte(client.Line()), &truth); err != nil {
		t.Fatal(err)
	}
	client.CloseStdin()
	if err := client.Wait(); err != nil {
		t.Fatal(err, client.Stderr())
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal("recorder: ", err)
	}

	r := report(t, dir, "--segments")
	p := pathOf(t, &r, int32(client.PID))
	text := mustRun(t, "report", dir)
	var worker, database int64
	for _, s := range p.Segments {
		switch ns := s.EndNs - s.BeginNs; {
		case s.PID > 0 && processGroup(int(s.PID)) == server:
			worker += ns
		case strings.Contains(s.Thread, "postgres"):
			database += ns
		}
	}
	// The database's side of a call is shorter than the caller's, by what the
	// caller does itself; what else the worker does is Django's.
	calls := truth.Ns.Sum + truth.Ns.Store
	if database > calls || database < calls*8/10 {
		t.Errorf("database on the path for %d ns of its callers' %d\n%s", database, calls, text)
	}
	if rest := truth.WallNs - calls; worker < truth.Ns.Compute || worker > rest+calls/5 {
		t.Errorf("worker on the path for %d ns, want %d to %d\n%s", worker, truth.Ns.Compute, rest, text)
	}
	// On a CPU it computes for a known time; preempted, for what its clock says.
	if got := nsIn(p, "apply_discounts"); got < requests*computeNs*9/10 || got > truth.Ns.Compute*11/10 {
		t.Errorf("apply_discounts on the path for %d ns, want %d to %d\n%s", got, requests*computeNs, truth.Ns.Compute, text)
	}
}

// nsIn returns the time on the path with a Python function on the stack.
func nsIn(p *join.PathReport, function string) int64 {
	var ns float64
	for _, c := range p.Classes {
		for _, f := range c.Functions {
			if f.Name == function && f.Kind == "python" {
				ns += f.TotalShare * float64(c.Ns)
			}
		}
	}
	return int64(ns)
}

// processGroup returns a process' group, 0 if it has ended.
func processGroup(pid int) int {
	group, err := syscall.Getpgid(pid)
	if err != nil {
		return 0
	}
	return group
}

// startDatabase starts a PostgreSQL server of the test's own, with one table,
// and points libpq's environment at it.
func startDatabase(t *testing.T) {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres") // the pattern is good
	if path, err := exec.LookPath("postgres"); err == nil {
		found = append(found, path)
	}
	if len(found) == 0 {
		perftest.Require(t, perftest.Tool("postgres"))
	}
	bin := filepath.Dir(found[0])
	// It refuses to run as root; its folder has to be its user's.
	account, err := user.Lookup("postgres")
	if err != nil {
		account = &user.User{Uid: "65534", Gid: "65534"}
	}
	uid, _ := strconv.Atoi(account.Uid) // numbers on Linux
	gid, _ := strconv.Atoi(account.Gid)
	dir, err := os.MkdirTemp("", "db")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chown(dir, uid, gid); err != nil {
		t.Fatal(err)
	}
	run := func(name string, args ...string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(bin, name), args...)
		cmd.Dir = dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, Setpgid: true}
		return cmd
	}
	data := filepath.Join(dir, "data")
	if out, err := run("initdb", "-D", data, "-A", "trust", "-U", "shop", "--no-sync").CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v: %s", err, out)
	}
	server := run("postgres", "-D", data, "-k", dir, "-c", "listen_addresses=", "-c", "max_parallel_workers_per_gather=0", "-c", "autovacuum=off")
	startGroup(t, server, filepath.Join(t.TempDir(), "postgres.log"))
	for name, value := range map[string]string{"PGHOST": dir, "PGPORT": "5432", "PGUSER": "shop", "PGDATABASE": "postgres"} {
		t.Setenv(name, value)
	}
	eventually(t, "the database", func() error {
		out, err := run("psql", "-qc", "CREATE TABLE orders (id serial PRIMARY KEY, total bigint)").CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// startServer starts gunicorn with one worker and returns its address and
// process group.
func startServer(t *testing.T, python string) (address string, group int) {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address = free.Addr().String()
	free.Close()
	server := exec.Command(python, "-m", "gunicorn", "-b", address, "-w", "1",
		"--chdir", filepath.Dir(workload(t, "webshop.py")), "webshop:application")
	server.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	server.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	startGroup(t, server, filepath.Join(t.TempDir(), "gunicorn.log"))
	eventually(t, "the web server", func() error {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
		}
		return err
	})
	return address, server.Process.Pid
}

// startGroup starts a program that leads a process group, which ends with the test.
func startGroup(t *testing.T, cmd *exec.Cmd, log string) {
	t.Helper()
	out, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// SIGQUIT ends PostgreSQL at once, its backends too, and gunicorn.
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGQUIT)
		_ = cmd.Wait()
		if t.Failed() {
			text, _ := os.ReadFile(log)
			t.Logf("%s: %s", filepath.Base(log), text)
		}
	})
}

// eventually tries until it works, for a minute.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not answer: %v", what, err)
		}
	}
}
