// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"pathprof/join"
	"pathprof/perfevent/perftest"
)

// tracedSource does what meets most of our programs in the kernel: packets, switches,
// mappings, page faults, and a child.
const tracedSource = `
import mmap, socket, subprocess, sys, threading, time
def serve(server):
    c, _ = server.accept()
    while c.send(c.recv(64) or sys.exit()):
        pass
def echo(port, end):
    c = socket.create_connection(("127.0.0.1", port))
    while time.thread_time() < end:
        c.sendall(b"x" * 64)
        c.recv(64)
server = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=serve, args=(server,), daemon=True).start()
t = threading.Thread(target=echo, args=(server.getsockname()[1], float(sys.argv[1])))
t.start()
while time.thread_time() < float(sys.argv[1]):
    m = mmap.mmap(-1, 1 << 18)
    for i in range(0, 1 << 18, 4096):
        m[i] = 1
    m.close()
t.join()
subprocess.run([sys.executable, "-c", "sum(range(10 ** 6))"], check=True)
`

// TestOwnWork: what the recorder does is none of the work of a program that it
// starts and follows at a high rate: no function of the program's threads is the
// recorder's, nor one of its programs in the kernel, and the program's time
// begins when it does, not when the recorder prepares.
func TestOwnWork(t *testing.T) {
	needRecorder(t)
	dir := filepath.Join(t.TempDir(), "r.pathprof")
	cmd := exec.Command(builtProgram(t), "record", "--children", "--scope", "system", "--period", "50us", "-o", dir, "--",
		perftest.PythonPath(t, "3.11"), "-c", tracedSource, "0.1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	recorder := int32(cmd.Process.Pid)
	m := openRecording(t, dir).Meta()
	r := report(t, dir, "--segments", "--frames", "all")
	if m.BeginNs != r.Recording.BeginNs || len(r.Paths) < 3 {
		t.Fatalf("%d paths from %d on, want those of 2 threads and a child at least, from %d on", len(r.Paths), r.Recording.BeginNs, m.BeginNs)
	}
	var tracing, samples, waited int64
	for _, p := range r.Paths {
		if p.PID == recorder {
			t.Errorf("the recorder's thread %d has a path", p.TID)
		}
		if first := p.Segments[0]; first.PID == recorder {
			t.Errorf("thread %d begins with %+v", p.TID, first)
		}
		for _, c := range p.Classes {
			if c.PID == recorder {
				waited += c.Ns // for a lock on its memory, say: so the path says
				continue
			}
			samples += c.Samples
			tracing += c.Samples - ownSamples(t, c)
		}
	}
	if samples < 500 {
		t.Errorf("%d samples, want 500", samples)
	}
	t.Logf("%d samples of %d are no function's; paths lead through the recorder for %d ns", tracing, samples, waited)
}

// ownSamples sums the samples of a class' functions, none of which may be ours.
func ownSamples(t *testing.T, c join.ClassReport) (sum int64) {
	t.Helper()
	for _, f := range c.Functions {
		for _, ours := range []string{"bpf_prog_", "bpf_trace_run", "__bpf_trace_", "__traceiter_", "perf_event_mmap", "pathprof/"} {
			if strings.HasPrefix(f.Name, ours) {
				text, _ := json.Marshal(f)
				t.Errorf("the class %s of process %d shows %s", c.State, c.PID, text)
			}
		}
		sum += f.Samples
	}
	return sum
}
