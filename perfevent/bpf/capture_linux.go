// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"pathprof/join/sched"
	"pathprof/perfevent"
	"pathprof/pyframes"
)

// Config of a capture. The zero value captures the whole system.
type Config struct {
	// OnlyTargets keeps only events and samples of processes made known with
	// SetProcess, and of their wakers.
	OnlyTargets bool
	// BufferBytes of each CPU's ring, rounded up to a power of two MiB; 0 is 8 MiB.
	BufferBytes int
	// NoPackets leaves out the events of packets.
	NoPackets bool
	// StacksPerSecond that one thread's waits leave at most; 0 is 1000.
	StacksPerSecond int
	// Costs clocks the parts of each sample's stack for [Capture.Costs], which
	// itself costs four readings of the clock a sample.
	Costs bool
}

// Process is what the programs need to know of a process.
type Process struct {
	// Target: its threads have paths. Children: its children are targets, too.
	Target, Children bool
	// Python is nil if the process has no usable interpreter.
	Python *Python
	// Maps is the number given to SetCodeMaps; 0: native frames are walked by
	// frame pointers.
	Maps uint32
}

// Python tells how to walk the Python frames of one process.
type Python struct {
	RuntimeAddr uint64 // absolute address of _PyRuntime
	Offsets     pyframes.Offsets
	// EvalRanges are the evaluation function's parts, [from, to), in the process.
	EvalRanges [][2]uint64
}

// Capture owns the loaded programs and their rings. Its methods may be called
// from one goroutine at a time; Close ends everything.
type Capture struct {
	objects pathprofObjects
	links   []link.Link
	rings   *ringReader
	tables  *tableMemory
	backlog backlog
	cfg     Config
	missing missing
	bad     uint64
	// realtime is CLOCK_REALTIME minus CLOCK_MONOTONIC at the last poll.
	realtime int64
	hidden   bool // the kernel does not tell addresses of its symbols
	// rows and rules in use, see LoadTable.
	rows, rules uint32
}

// Open loads the programs, and attaches those that keep state or tell of the life
// of tasks. The kernel's reason is in the error if it refuses.
func Open(cfg Config) (*Capture, error) {
	spec, err := loadPathprof()
	if err != nil {
		return nil, fmt.Errorf("read BPF object: %w", err)
	}
	return open(spec, cfg)
}

func open(spec *ebpf.CollectionSpec, cfg Config) (*Capture, error) {
	kernel := btf.NewCache() // the kernel's types are many: read them once
	if err := configure(spec, cfg); err != nil {
		return nil, err
	}
	cpus, chunks, err := sizeRings(spec, cfg)
	if err != nil {
		return nil, err
	}
	c := &Capture{cfg: cfg, missing: missing{}}
	if err := c.load(spec, kernel); err != nil {
		return nil, loadError(err)
	}
	if c.rings, err = openRings(c.objects.Rings, c.objects.RingData, cpus, chunks); err != nil {
		c.Close()
		return nil, err
	}
	if c.tables, err = openTables(c.objects.UnwindRows, c.objects.UnwindRules); err != nil {
		c.Close()
		return nil, err
	}
	o := &c.objects.pathprofPrograms
	if err := cmp.Or(c.findSymbols(), c.attachOptions(true), c.attach(o.OnFork, o.OnExec, o.OnExit)); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// configure sets the constants the verifier sees.
func configure(spec *ebpf.CollectionSpec, cfg Config) error {
	if cfg.OnlyTargets {
		if err := spec.Variables[pathprofVarOnlyTargets].Set(uint8(1)); err != nil {
			return fmt.Errorf("set scope: %w", err)
		}
	}
	if cfg.Costs {
		if err := spec.Variables[pathprofVarMeasureCosts].Set(uint8(1)); err != nil {
			return fmt.Errorf("set cost measurement: %w", err)
		}
	}
	if cfg.StacksPerSecond > 0 {
		if err := spec.Variables[pathprofVarStacksPerSecond].Set(uint32(cfg.StacksPerSecond)); err != nil {
			return fmt.Errorf("set stack rate: %w", err)
		}
	}
	if err := spec.Variables[pathprofVarWaitRules].Set(waitRules(runtime.GOARCH)); err != nil {
		return fmt.Errorf("set rules of system calls: %w", err)
	}
	spec.Maps[pathprofMapUnwindRows].MaxEntries = maxRows
	spec.Maps[pathprofMapUnwindRules].MaxEntries = maxRules
	return nil
}

// sizeRings gives every CPU that is online a ring.
func sizeRings(spec *ebpf.CollectionSpec, cfg Config) (cpus, chunks int, err error) {
	online, err := perfevent.OnlineCPUs()
	if err != nil {
		return 0, 0, fmt.Errorf("rings: %w", err)
	}
	size := cfg.BufferBytes
	if size == 0 {
		size = 8 << 20
	}
	cpus, chunks = online[len(online)-1]+1, 1
	for chunks*chunkSize < size {
		chunks *= 2
	}
	if err := errors.Join(
		spec.Variables[pathprofVarRingCpus].Set(uint32(cpus)),
		spec.Variables[pathprofVarRingChunks].Set(uint32(chunks)),
	); err != nil {
		return 0, 0, fmt.Errorf("set size of rings: %w", err)
	}
	spec.Maps[pathprofMapRings].MaxEntries = uint32(cpus)
	spec.Maps[pathprofMapRingData].MaxEntries = uint32(cpus * chunks)
	return cpus, chunks, nil
}

func loadError(err error) error {
	var verifier *ebpf.VerifierError
	switch {
	case errors.As(err, &verifier):
		return fmt.Errorf("the kernel's verifier refuses a BPF program (please report it): %w", err)
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("loading BPF programs needs root, or CAP_BPF and CAP_PERFMON: %w", err)
	}
	return fmt.Errorf("load BPF programs: %w", err)
}

// attach connects programs to their tracepoints, in this order.
func (c *Capture) attach(programs ...*ebpf.Program) error {
	for _, p := range programs {
		l, err := link.AttachTracing(link.TracingOptions{Program: p})
		if err != nil {
			return fmt.Errorf("attach %v: %w", p, err)
		}
		c.links = append(c.links, l)
	}
	return nil
}

// detach detaches all but the first n.
func (c *Capture) detach(n int) error {
	var errs []error
	for _, l := range c.links[n:] {
		errs = append(errs, l.Close())
	}
	c.links = c.links[:n]
	return errors.Join(errs...)
}

// Start lets packets, requests, switches and wake-ups flow, tens of thousands a
// second: poll soon.
func (c *Capture) Start() error {
	o := &c.objects.pathprofPrograms
	return cmp.Or(c.attachOptions(false), c.attach(o.OnWaking, o.OnSwitch))
}

// AttachCounter lets the overflows of a perf event take samples. The event must
// be a per-CPU one with a sampling period.
func (c *Capture) AttachCounter(fd int) error {
	return attachCounter(fd, c.objects.Sample)
}

// everKnownMask is KNOWN_BITS in c/python.h.
const everKnownMask = 0xffff

// SetProcess makes a process known, or changes what is known of it.
func (c *Capture) SetProcess(pid int32, p Process) error {
	value := pathprofPyProcess{MapsId: p.Maps}
	if p.Target {
		value.Flags |= pathprofProcessFlagsPROCESS_TARGET
	}
	if p.Children {
		value.Flags |= pathprofProcessFlagsPROCESS_CHILDREN
	}
	if p.Python != nil {
		setPython(&value, p.Python)
	}
	err := c.objects.EverKnown.Put(uint32(pid)&everKnownMask, uint8(1))
	if err == nil {
		err = c.objects.Processes.Put(uint32(pid), value)
	}
	if err != nil {
		return fmt.Errorf("make process %d known: %w", pid, err)
	}
	return nil
}

// setPython copies offsets and derives how many bytes one read must fetch.
func setPython(v *pathprofPyProcess, p *Python) {
	o := &p.Offsets
	v.Flags |= pathprofProcessFlagsPROCESS_PYTHON
	v.InterpretersHead = p.RuntimeAddr + uint64(o.RuntimeInterpretersHead)
	v.Style = uint32(o.Style)
	v.InterpNext, v.InterpThreadsHead = o.InterpNext, o.InterpThreadsHead
	v.ThreadNext, v.ThreadFrame, v.CframeCurrent = o.ThreadNext, o.ThreadFrame, o.CFrameCurrent
	v.ThreadId, v.ThreadNativeId = o.ThreadID, o.ThreadNativeID
	v.FrameCode, v.FrameBack, v.FrameInstr = o.FrameCode, o.FrameBack, o.FrameInstr
	v.FrameOwner, v.FrameEntry, v.OwnerShim = o.FrameOwner, o.FrameEntry, o.OwnerShim
	v.CodeFirstLine, v.CodeLineTable, v.CodeBytes = o.CodeFirstLine, o.CodeLineTable, o.CodeBytes
	v.FrameTlbc, v.CodeTlbc = o.FrameTLBC, o.CodeTLBC
	if o.Version >= 0x030d0000 {
		v.TypeName = o.TypeName
	}
	v.FrameSize = max(o.FrameCode+8, o.FrameBack+8, o.FrameInstr+8)
	for _, off := range []uint32{o.FrameOwner, o.FrameEntry, o.FrameTLBC} {
		if off != pyframes.NoField {
			v.FrameSize = max(v.FrameSize, off+4)
		}
	}
	v.ThreadSize = max(o.ThreadFrame, o.ThreadID) + 8
	if o.ThreadNativeID != pyframes.NoField {
		v.ThreadSize = max(v.ThreadSize, o.ThreadNativeID+8)
	}
	v.CodeSize = max(o.CodeFirstLine+4, o.CodeLineTable+8)
	v.ThreadInterp, v.InterpGil, v.InterpCollecting = o.ThreadInterp, o.InterpGIL, o.InterpCollecting
	v.GilHolder, v.GilLocked = o.GILHolder, o.GILLocked
	// The .cold part is the smaller one.
	ranges := slices.SortedFunc(slices.Values(p.EvalRanges), func(a, b [2]uint64) int { return cmp.Compare(b[1]-b[0], a[1]-a[0]) })
	for i, r := range ranges[:min(len(ranges), len(v.Eval))] {
		v.Eval[i].Start, v.Eval[i].Size = r[0], r[1]-r[0]
	}
	if o.RuntimeGIL != pyframes.NoField {
		v.Gil = p.RuntimeAddr + uint64(o.RuntimeGIL)
	}
	if o.RuntimeCollecting != pyframes.NoField {
		v.Collecting = p.RuntimeAddr + uint64(o.RuntimeCollecting)
	}
}

// RemoveProcess forgets a process; it is no error if it was not known.
func (c *Capture) RemoveProcess(pid int32) error {
	err := c.objects.Processes.Delete(uint32(pid))
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("forget process %d: %w", pid, err)
	}
	return nil
}

// realtimeOffset is near enough for a timeout: the clocks are read one after the
// other.
func realtimeOffset() int64 {
	var real, mono unix.Timespec
	if unix.ClockGettime(unix.CLOCK_REALTIME, &real) != nil || unix.ClockGettime(unix.CLOCK_MONOTONIC, &mono) != nil {
		return 0
	}
	return real.Nano() - mono.Nano()
}

// deliver hands one raw record to handle. Where the ring was full, the next
// record of that CPU is preceded by a KindLost with its time.
func (c *Capture) deliver(cpu int, raw []byte, lost uint64, rec *Record, handle func(*Record) error) error {
	rec.realtime = c.realtime
	if err := decode(raw, cpu, rec); err != nil {
		c.bad++
		return nil
	}
	if lost > 0 {
		lost := Record{Event: sched.Event{Kind: sched.KindLost, Time: rec.Event.Time, CPU: int32(cpu), Count: int64(lost)}}
		if err := handle(&lost); err != nil {
			return err
		}
	}
	return handle(rec)
}

// Loss counts what one CPU's programs could not deliver, or left out on purpose.
type Loss struct {
	Events, Samples uint64 // found no room in the ring
	Idle            uint64 // overflows on the idle task
	Thinned         uint64 // blocked stacks left out
	Overflows       uint64 // overflows on a task of the scope
}

// Losses returns the counts of each possible CPU since Open.
func (c *Capture) Losses() ([]Loss, error) {
	var perCPU []pathprofLoss
	if err := c.objects.Losses.Lookup(uint32(0), &perCPU); err != nil {
		return nil, fmt.Errorf("read loss counters: %w", err)
	}
	out := make([]Loss, len(perCPU))
	for i, l := range perCPU {
		for kind, n := range l.Lost {
			if kind == int(pathprofEventKindEVENT_SAMPLE) {
				out[i].Samples += n
			} else {
				out[i].Events += n
			}
		}
		out[i].Idle, out[i].Thinned, out[i].Overflows = l.Idle, l.Thinned, l.Samples
	}
	return out, nil
}

// Undecodable returns how many records did not have the expected form.
func (c *Capture) Undecodable() uint64 { return c.bad }

// Stop detaches the programs: what the rings hold then is all there will be.
func (c *Capture) Stop() error { return c.detach(0) }

// Close stops and unloads everything.
func (c *Capture) Close() error {
	errs := []error{c.Stop()}
	if c.rings != nil {
		errs = append(errs, c.rings.close())
		c.rings = nil
	}
	if c.tables != nil {
		errs = append(errs, c.tables.close())
		c.tables = nil
	}
	errs = append(errs, c.objects.Close())
	return errors.Join(errs...)
}
