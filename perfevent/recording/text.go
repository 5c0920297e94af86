// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"

	"pathprof/join/sched"
)

// Data is a recording in memory. It is a [Source].
type Data struct {
	About  Meta
	frames []Frame // by number
	stacks []Stack // by number
	// SampleList and EventList are in time order.
	SampleList []Sample
	EventList  []sched.Event
}

// Meta returns what the recording says of itself.
func (d *Data) Meta() Meta { return d.About }

// Frames returns the frames by number.
func (d *Data) Frames() ([]Frame, error) { return d.frames, nil }

// Stacks returns the stacks by number.
func (d *Data) Stacks() ([]Stack, error) { return d.stacks, nil }

// Samples yields the samples.
func (d *Data) Samples() iter.Seq2[Sample, error] { return each(d.SampleList) }

// Events yields the events.
func (d *Data) Events() iter.Seq2[sched.Event, error] { return each(d.EventList) }

// Warnings are those the recorder wrote.
func (d *Data) Warnings() []string { return slices.Clone(d.About.Warnings) }

func each[T any](list []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, v := range list {
			if !yield(v, nil) {
				return
			}
		}
	}
}

// WriteText writes a recording as text that people can read and edit, and
// [ParseText] can read:
//
//	meta JSON
//	frame NUMBER python|native|kernel "NAME" "FILE" LINE FIRSTLINE ADDRESS [BUILDID] [eval]
//	symbol FRAME "NAME" "SOURCE" LINE FIRSTLINE         of a native frame
//	stack NUMBER kernel=1,2 native=3 python=4,5e [kernel:STOP] [native:STOP] [python:STOP]
//	sample TIME CPU PID TID STACK VALUE CONTEXT [kernel] [gil:WORD] [collecting] [counter:N]
//	TIME CPU KIND …                                     an event, see sched.ParseEvent
//
// An e after a Python frame marks one that entered the interpreter from C. Where
// code was inlined a frame has several symbols, innermost first; with one of its
// own name and nothing more none is needed.
func WriteText(w io.Writer, src Source) error {
	out := bufio.NewWriter(w)
	meta, err := json.Marshal(src.Meta())
	if err != nil {
		return fmt.Errorf("meta: %w", err)
	}
	fmt.Fprintf(out, "meta %s\n", meta)
	frames, err := src.Frames()
	if err != nil {
		return err
	}
	for _, f := range frames {
		if f.ID != 0 {
			fmt.Fprintln(out, frameText(&f))
		}
		for _, s := range f.symbols() {
			fmt.Fprintf(out, "symbol %d %q %q %d %d\n", s.Frame, s.Name, s.File, s.Line, s.FirstLine)
		}
	}
	stacks, err := src.Stacks()
	if err != nil {
		return err
	}
	for _, s := range stacks {
		if s.ID != 0 {
			fmt.Fprintln(out, stackText(&s))
		}
	}
	for s, err := range src.Samples() {
		if err != nil {
			return err
		}
		fmt.Fprintln(out, sampleText(&s))
	}
	for ev, err := range src.Events() {
		if err != nil {
			return err
		}
		fmt.Fprintln(out, ev)
	}
	return out.Flush()
}

func frameText(f *Frame) string {
	text := fmt.Sprintf("frame %d %s %q %q %d %d %#x", f.ID, word(frameWords, f.Kind), f.Name, f.File,
		f.Line, f.FirstLine, f.Address)
	if f.BuildID != "" {
		text += " " + f.BuildID
	}
	if f.Eval {
		text += " eval"
	}
	return text
}

func stackText(s *Stack) string {
	var b strings.Builder
	fmt.Fprintf(&b, "stack %d", s.ID)
	for _, part := range []struct {
		name   string
		frames []uint32
	}{{"kernel", s.Kernel}, {"native", s.Native}, {"python", s.Python}} {
		for i, id := range part.frames {
			if i == 0 {
				b.WriteString(" " + part.name + "=")
			} else {
				b.WriteByte(',')
			}
			b.WriteString(strconv.FormatUint(uint64(id), 10))
			if part.name == "python" && i < len(s.Entry) && s.Entry[i] {
				b.WriteByte('e')
			}
		}
	}
	fmt.Fprintf(&b, " kernel:%v native:%v python:%v", s.KernelStop, s.NativeStop, s.PythonStop)
	return b.String()
}

func sampleText(s *Sample) string {
	text := fmt.Sprintf("sample %d %d %d %d %d %d %s", s.Time, s.CPU, s.PID, s.TID, s.Stack, s.Value, word(contextWords, s.Ctx))
	if s.Kernel {
		text += " kernel"
	}
	if s.GIL != GILUnknown {
		text += " gil:" + word(gilWords, s.GIL)
	}
	if s.Collecting {
		text += " collecting"
	}
	if s.Counter != 0 {
		text += fmt.Sprintf(" counter:%d", s.Counter)
	}
	return text
}

func word[E ~uint8](words []string, e E) string {
	if int(e) < len(words) {
		return words[e]
	}
	return strconv.Itoa(int(e))
}

// numbered returns the number that a word stands for.
func numbered[E ~uint8](words []string, text string) (E, error) {
	if i := slices.Index(words, text); i >= 0 {
		return E(i), nil
	}
	n, err := strconv.ParseUint(text, 10, 8)
	if err != nil {
		return 0, fmt.Errorf("word %q: must be one of %s", text, strings.Join(words, ", "))
	}
	return E(n), nil
}

// maxNumber bounds the numbers of frames and stacks in text.
const maxNumber = 1 << 20

// ParseText reads what [WriteText] writes. Empty lines and lines that begin
// with # are skipped; samples and events are put in time order.
func ParseText(r io.Reader) (*Data, error) {
	d := &Data{About: Meta{Format: FormatVersion, Complete: true}}
	var symbols []Symbol
	in := bufio.NewScanner(r)
	in.Buffer(nil, maxMeta)
	for n := 1; in.Scan(); n++ {
		line := strings.TrimSpace(in.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		var err error
		if rest, ok := strings.CutPrefix(line, "symbol "); ok {
			var sym Symbol
			sym, err = parseSymbol(rest)
			symbols = append(symbols, sym)
		} else {
			err = d.parseLine(line)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	if n := AddSymbols(d.frames, symbols); n > 0 {
		return nil, fmt.Errorf("%d symbols without a native frame", n)
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("read text: %w", err)
	}
	slices.SortStableFunc(d.SampleList, func(a, b Sample) int { return compare(a.Time, b.Time) })
	slices.SortStableFunc(d.EventList, func(a, b sched.Event) int { return compare(a.Time, b.Time) })
	return d, nil
}

func (d *Data) parseLine(line string) error {
	kind, rest, _ := strings.Cut(line, " ")
	switch kind {
	case "meta":
		return json.Unmarshal([]byte(rest), &d.About)
	case "frame":
		f, err := parseFrame(rest)
		if err != nil {
			return err
		}
		return set(&d.frames, f.ID, f)
	case "stack":
		s, err := parseStack(rest)
		if err != nil {
			return err
		}
		return set(&d.stacks, s.ID, s)
	case "sample":
		s, err := parseSample(rest)
		d.SampleList = append(d.SampleList, s)
		return err
	}
	ev, err := sched.ParseEvent(line)
	d.EventList = append(d.EventList, ev)
	return err
}

func set[T any](list *[]T, id uint32, v T) error {
	if id == 0 || id > maxNumber {
		return fmt.Errorf("number %d: must be 1 to %d", id, maxNumber)
	}
	if n := int(id) + 1 - len(*list); n > 0 {
		*list = append(*list, make([]T, n)...)
	}
	(*list)[id] = v
	return nil
}

func parseFrame(text string) (f Frame, err error) {
	words, err := quotedFields(text)
	if err != nil {
		return f, fmt.Errorf("frame: %w", err)
	}
	if len(words) < 7 {
		return f, fmt.Errorf("frame: %d fields, want at least 7", len(words))
	}
	if f.Kind, err = numbered[FrameKind](frameWords, words[1]); err != nil {
		return f, err
	}
	f.Name, f.File = words[2], words[3]
	id, err := strconv.ParseUint(words[0], 10, 32)
	line, lineErr := strconv.ParseInt(words[4], 10, 32)
	first, firstErr := strconv.ParseInt(words[5], 10, 32)
	address, addressErr := strconv.ParseUint(words[6], 0, 64)
	if err := errors.Join(err, lineErr, firstErr, addressErr); err != nil {
		return f, fmt.Errorf("frame: %w", err)
	}
	f.ID, f.Line, f.FirstLine, f.Address = uint32(id), int32(line), int32(first), address
	for _, w := range words[7:] {
		if w == "eval" {
			f.Eval = true
		} else {
			f.BuildID = w
		}
	}
	return f, nil
}

func parseSymbol(text string) (s Symbol, err error) {
	words, err := quotedFields(text)
	if err == nil && len(words) != 5 {
		err = fmt.Errorf("%d fields, want 5", len(words))
	}
	if err != nil {
		return s, fmt.Errorf("symbol: %w", err)
	}
	id, err := strconv.ParseUint(words[0], 10, 32)
	line, lineErr := strconv.ParseInt(words[3], 10, 32)
	first, firstErr := strconv.ParseInt(words[4], 10, 32)
	if err := errors.Join(err, lineErr, firstErr); err != nil {
		return s, fmt.Errorf("symbol: %w", err)
	}
	return Symbol{Frame: uint32(id), Name: words[1], File: words[2], Line: int32(line), FirstLine: int32(first)}, nil
}

// quotedFields splits at white space, and takes quoted strings as one field each.
func quotedFields(text string) (out []string, err error) {
	for text = strings.TrimSpace(text); text != ""; text = strings.TrimSpace(text) {
		if text[0] != '"' {
			word, rest, _ := strings.Cut(text, " ")
			out, text = append(out, word), rest
			continue
		}
		quoted, err := strconv.QuotedPrefix(text)
		if err != nil {
			return nil, fmt.Errorf("field %d: %w", len(out)+1, err)
		}
		word, err := strconv.Unquote(quoted)
		if err != nil {
			return nil, fmt.Errorf("field %d: %w", len(out)+1, err)
		}
		out, text = append(out, word), text[len(quoted):]
	}
	return out, nil
}

func parseStack(text string) (s Stack, err error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return s, fmt.Errorf("stack: no number")
	}
	id, err := strconv.ParseUint(words[0], 10, 32)
	if err != nil {
		return s, fmt.Errorf("stack: %w", err)
	}
	s.ID = uint32(id)
	for _, w := range words[1:] {
		if part, stop, ok := strings.Cut(w, ":"); ok {
			err = s.setStop(part, stop)
		} else {
			part, list, _ := strings.Cut(w, "=")
			err = s.setPart(part, list)
		}
		if err != nil {
			return s, fmt.Errorf("stack %d: %w", id, err)
		}
	}
	return s, nil
}

func (s *Stack) setStop(part, text string) error {
	stop, err := numbered[StopReason](stopWords, text)
	switch part {
	case "kernel":
		s.KernelStop = stop
	case "native":
		s.NativeStop = stop
	case "python":
		s.PythonStop = stop
	default:
		return fmt.Errorf("part %q", part)
	}
	return err
}

func (s *Stack) setPart(part, list string) error {
	for item := range strings.SplitSeq(list, ",") {
		digits, entry := strings.CutSuffix(item, "e")
		id, err := strconv.ParseUint(digits, 10, 32)
		if err != nil {
			return fmt.Errorf("%s: %w", part, err)
		}
		switch part {
		case "kernel":
			s.Kernel = append(s.Kernel, uint32(id))
		case "native":
			s.Native = append(s.Native, uint32(id))
		case "python":
			s.Python, s.Entry = append(s.Python, uint32(id)), append(s.Entry, entry)
		default:
			return fmt.Errorf("part %q", part)
		}
	}
	return nil
}

func parseSample(text string) (s Sample, err error) {
	var ctx string
	n, err := fmt.Sscanf(text, "%d %d %d %d %d %d %s", &s.Time, &s.CPU, &s.PID, &s.TID, &s.Stack, &s.Value, &ctx)
	if err != nil {
		return s, fmt.Errorf("sample: field %d: %w", n+1, err)
	}
	const named = 7 // fields before the words
	for _, w := range strings.Fields(text)[named:] {
		gil, isGIL := strings.CutPrefix(w, "gil:")
		counter, isCounter := strings.CutPrefix(w, "counter:")
		switch {
		case w == "kernel":
			s.Kernel = true
		case w == "collecting":
			s.Collecting = true
		case isGIL:
			if s.GIL, err = numbered[GIL](gilWords, gil); err != nil {
				return s, fmt.Errorf("sample: %w", err)
			}
		case isCounter:
			if s.Counter, err = strconv.ParseInt(counter, 10, 64); err != nil {
				return s, fmt.Errorf("sample: %w", err)
			}
		default:
			return s, fmt.Errorf("sample: word %q", w)
		}
	}
	s.Ctx, err = numbered[sched.Context](contextWords, ctx)
	return s, err
}
