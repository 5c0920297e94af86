// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"pathprof/perfevent"
	"pathprof/perfevent/bpf"
	"pathprof/perfevent/recording"
	"pathprof/pyframes"
	"pathprof/unwind/proc"
)

// watcher follows processes as they come and go: it looks for interpreters in
// those that are there and in each that maps one later, tells the kernel
// programs at once, and the resolver before the next poll.
type watcher struct {
	capture *bpf.Capture
	targets *targets
	opt     recordOptions
	self    int32
	side    *perfevent.SideBand
	cancel  context.CancelFunc
	done    sync.WaitGroup

	// Used by the watcher's goroutine alone, once it runs.
	tables *tableLoader
	known  map[int32]bpf.Process
	remap  map[int32]bool // processes with new mappings

	mu      sync.Mutex
	news    []news
	interps map[int32]*recording.Interpreter
	seen    map[int32]int // samples of processes; the session's
	wanted  []int32       // processes to get tables
	graves  [][]int32     // processes that ended, by poll
}

// news is one thing the resolver must be told.
type news struct {
	record perfevent.Record
	interp *pyframes.Interp // set: found in process record.PID
}

func newWatcher(capture *bpf.Capture, targets *targets, opt recordOptions) (*watcher, error) {
	side, err := perfevent.OpenSideBand(perfevent.SideBandConfig{})
	if err != nil {
		return nil, err
	}
	return &watcher{
		capture: capture, targets: targets, opt: opt, side: side,
		tables: newTableLoader(capture), known: map[int32]bpf.Process{}, remap: map[int32]bool{},
		interps: map[int32]*recording.Interpreter{}, seen: map[int32]int{}, self: int32(os.Getpid()),
	}, nil
}

// know tells the kernel programs what is known of a target.
func (w *watcher) know(pid int32) error {
	w.targets.mu.Lock()
	g := w.targets.byPID[pid]
	w.targets.mu.Unlock()
	p := bpf.Process{Target: g != nil, Children: g != nil && w.opt.children}
	if g != nil && g.interp != nil {
		p.Python = pythonOf(g.interp)
		p.Maps = w.tables.load(pid)
		w.noteInterp(pid, g.interp, nil)
	}
	w.known[pid] = p
	return w.capture.SetProcess(pid, p)
}

func pythonOf(in *pyframes.Interp) *bpf.Python {
	return &bpf.Python{RuntimeAddr: in.RuntimeAddr, Offsets: in.Runtime.Offsets, EvalRanges: in.EvalRanges}
}

// start begins to listen, and looks at the processes that exist already.
func (w *watcher) start() {
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	w.done.Go(func() {
		defer hurry()()
		if !w.opt.onlyTargets {
			w.scan(ctx)
		}
		var rec perfevent.Record
		for {
			w.drain()
			soon, cancel := context.WithTimeout(ctx, wantedEvery)
			err := w.side.ReadInto(soon, &rec)
			cancel()
			switch {
			case err == nil:
				w.take(rec)
			case ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded):
				return
			}
			w.loadWanted()
		}
	})
}

// wantedEvery is how soon a process that turns out to matter gets its tables.
const wantedEvery = 100 * time.Millisecond

// wantedAfter so many samples a process matters.
const wantedAfter = 4

// loadWanted makes processes known that run no Python, but are on record: a path
// may lead through them.
func (w *watcher) loadWanted() {
	w.mu.Lock()
	list := w.wanted
	w.wanted = nil
	w.mu.Unlock()
	for _, pid := range list {
		if _, ok := w.known[pid]; !ok && pid != w.self {
			w.known[pid] = bpf.Process{}
			w.remap[pid] = true
		}
	}
	w.reload()
}

// drain takes the records that are there, then what a burst of them has changed.
func (w *watcher) drain() {
	var rec perfevent.Record
	for w.side.TryRead(&rec) {
		w.take(rec)
	}
	w.reload()
}

// reload makes the new mappings of known processes known.
func (w *watcher) reload() {
	for pid := range w.remap {
		p := w.known[pid]
		former := p.Maps
		if p.Maps = w.tables.load(pid); p.Maps == 0 {
			continue // gone
		}
		w.known[pid] = p
		if err := w.capture.SetProcess(pid, p); err != nil {
			continue // full: said when it was first made known
		}
		w.dropMaps(former)
	}
	clear(w.remap)
}

// dropMaps forgets mappings that no process uses any more.
func (w *watcher) dropMaps(id uint32) {
	for _, p := range w.known {
		if p.Maps == id {
			return
		}
	}
	if err := w.capture.DropCodeMaps(id); err != nil {
		w.tables.notes[err.Error()]++
	}
}

// scan looks for interpreters in all processes: a path leads through tasks
// nobody named beforehand.
func (w *watcher) scan(ctx context.Context) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return
	}
	for _, e := range entries {
		pid, err := strconv.ParseInt(e.Name(), 10, 32)
		if err != nil || ctx.Err() != nil || w.targets.has(int32(pid)) {
			continue
		}
		w.find(int32(pid))
		w.drain() // processes that start now cannot wait for those that are there
	}
}

// take handles one side-band record.
func (w *watcher) take(rec perfevent.Record) {
	w.mu.Lock()
	w.news = append(w.news, news{record: rec})
	w.mu.Unlock()
	switch rec.Kind {
	case perfevent.KindFork:
		if p, ok := w.known[rec.PPID]; ok && !rec.IsThread() {
			p.Target = p.Target && p.Children
			w.known[rec.PID] = p // as the fork program did
		}
		if w.opt.children && !rec.IsThread() && w.targets.has(rec.PPID) {
			w.targets.addChild(rec.PID)
		}
	case perfevent.KindMmap:
		if strings.Contains(rec.Name, "python") && (!w.opt.onlyTargets || w.targets.has(rec.PID)) {
			w.find(rec.PID)
		} else if _, ok := w.known[rec.PID]; ok {
			w.remap[rec.PID] = true
		}
	case perfevent.KindExit:
		if p, ok := w.known[rec.PID]; ok && rec.PID == rec.TID {
			delete(w.known, rec.PID)
			w.dropMaps(p.Maps)
		}
	case perfevent.KindComm:
		if p, ok := w.known[rec.PID]; ok && rec.Exec {
			w.known[rec.PID] = bpf.Process{Target: p.Target, Children: p.Children}
			w.dropMaps(p.Maps)
		}
	}
}

// find looks for an interpreter in a process and makes it known.
func (w *watcher) find(pid int32) {
	in, err := pyframes.Find(int(pid), w.targets.cache)
	switch {
	case errors.Is(err, pyframes.ErrNotPython), errors.Is(err, os.ErrNotExist):
		return
	case errors.Is(err, os.ErrPermission) && !w.targets.has(pid):
		w.tables.denied[pid] = true // whether it runs Python is not known
		return
	case err != nil:
		w.noteInterp(pid, nil, err)
		return
	}
	w.targets.mu.Lock()
	g := w.targets.byPID[pid]
	if g != nil {
		g.interp = in
	}
	w.targets.mu.Unlock()
	p := bpf.Process{Target: g != nil, Children: g != nil && w.opt.children, Python: pythonOf(in)}
	w.known[pid] = p
	err = w.capture.SetProcess(pid, p) // at once: its Python frames need no tables
	w.noteInterp(pid, in, err)
	if err != nil {
		return
	}
	w.mu.Lock()
	w.news = append(w.news, news{record: perfevent.Record{PID: pid}, interp: in})
	w.mu.Unlock()
	w.remap[pid] = true
}

// noteInterp keeps what the recording says of a process' interpreter.
func (w *watcher) noteInterp(pid int32, in *pyframes.Interp, refused error) {
	n := &recording.Interpreter{PID: pid}
	if in != nil {
		n.Version, n.Path, n.BuildID, n.Offsets = in.Runtime.Version, in.Path, in.BuildID, in.Runtime.Source
	}
	if refused != nil {
		n.Refused = refused.Error()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.interps[pid] = n
}

// apply tells the resolver what happened since the last poll.
func (w *watcher) apply(r *resolver) {
	w.mu.Lock()
	list := w.news
	w.news = nil
	w.mu.Unlock()
	for len(w.graves) < graveDepth {
		w.graves = append(w.graves, nil)
	}
	for _, n := range list {
		w.applyOne(r, n)
	}
}

func (w *watcher) applyOne(r *resolver, n news) {
	rec := &n.record
	switch {
	case n.interp != nil:
		if err := r.setPython(rec.PID, n.interp); err != nil && !errors.Is(err, os.ErrNotExist) {
			w.noteInterp(rec.PID, n.interp, err)
		}
	case rec.Kind == perfevent.KindFork && !rec.IsThread():
		r.forked(rec.PPID, rec.PID)
	case rec.Kind == perfevent.KindComm && rec.Exec:
		r.executed(rec.PID)
	case rec.Kind == perfevent.KindMmap:
		r.mapped(rec.PID, proc.Mapping{
			Start: rec.Addr, End: rec.Addr + rec.Len, Offset: rec.Pgoff, Exec: true, Path: rec.Name,
		})
	case rec.Kind == perfevent.KindExit && rec.PID == rec.TID:
		last := len(w.graves) - 1
		w.graves[last] = append(w.graves[last], rec.PID)
	}
}

// graveDepth is for how many polls an ended process stays known: its last
// samples may come out of a ring after the news of its end.
const graveDepth = 3

// bury forgets processes that ended some polls ago.
func (w *watcher) bury(r *resolver) {
	for _, pid := range w.graves[0] {
		if _, err := os.Stat("/proc/" + strconv.Itoa(int(pid))); err == nil {
			continue // only its first thread ended, or the number is in use again
		}
		r.exited(pid)
		if err := w.capture.RemoveProcess(pid); err != nil {
			continue // nothing depends on it
		}
	}
	w.graves = append(w.graves[1:], nil)
}

// sampled notes that a process is on record.
func (w *watcher) sampled(pid int32) {
	w.seen[pid]++
	if w.seen[pid] != wantedAfter || w.opt.onlyTargets {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wanted = append(w.wanted, pid)
}

// interpreters returns those of the targets and of processes with samples.
func (w *watcher) interpreters() []recording.Interpreter {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []recording.Interpreter
	for pid, in := range w.interps {
		if w.seen[pid] > 0 || w.targets.has(pid) {
			list = append(list, *in)
		}
	}
	slices.SortFunc(list, func(a, b recording.Interpreter) int { return int(a.PID) - int(b.PID) })
	return list
}

// lost counts side-band records without room.
func (w *watcher) lost() uint64 {
	st := w.side.Stats()
	return st.Lost + st.Malformed
}

// stop ends the goroutine: the rest then belongs to the caller.
func (w *watcher) stop() {
	if w.cancel != nil {
		w.cancel()
		w.done.Wait()
		w.cancel = nil
	}
}

// notes says what could not be done for stacks; the watcher must be stopped.
func (w *watcher) notes() []string {
	var list []string
	for note, n := range w.tables.notes {
		if n > 1 {
			note = fmt.Sprintf("%s (%d times)", note, n)
		}
		list = append(list, note)
	}
	slices.Sort(list)
	if n := len(w.tables.denied); n > 0 {
		hint := "run with sudo, or give CAP_SYS_PTRACE, and CAP_DAC_READ_SEARCH for programs in closed folders"
		if os.Geteuid() == 0 {
			hint = "the kernel refuses it even to root, as it does for processes outside the container"
		}
		list = append(list, fmt.Sprintf("the memory of %s of others is closed, so functions there have no names and native stacks are cut: %s",
			count(int64(n), "process"), hint))
	}
	return list
}

func (w *watcher) close() {
	w.stop()
	w.side.Close()
}
