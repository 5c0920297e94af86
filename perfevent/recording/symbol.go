// SPDX-License-Identifier: Apache-2.0

package recording

// maxInlined bounds how deep one function is inlined into another.
const maxInlined = 64

// AddSymbols gives native frames, by number, their symbols, and returns how many
// belong to none. Symbols of one frame follow each other, innermost first.
func AddSymbols(frames []Frame, symbols []Symbol) (stray int) {
	for len(symbols) > 0 {
		n := 1
		for n < len(symbols) && symbols[n].Frame == symbols[0].Frame {
			n++
		}
		id := symbols[0].Frame
		if int64(id) >= int64(len(frames)) || frames[id].Kind != FrameNative || frames[id].ID != id {
			stray += n
		} else {
			frames[id].name(symbols[:n])
		}
		symbols = symbols[n:]
	}
	return stray
}

func (f *Frame) name(symbols []Symbol) {
	last := len(symbols) - 1
	own := &symbols[last]
	f.Name, f.Source, f.Line, f.FirstLine = own.Name, own.File, own.Line, own.FirstLine
	f.Inlined = append([]Symbol(nil), symbols[max(0, last-maxInlined):last]...)
}

// symbols is the inverse: what has to be written of a frame, nil if it has no
// more than its name.
func (f *Frame) symbols() []Symbol {
	if f.Kind != FrameNative || f.Source == "" && f.Inlined == nil {
		return nil
	}
	return append(f.Inlined[:len(f.Inlined):len(f.Inlined)],
		Symbol{Frame: f.ID, Name: f.Name, File: f.Source, Line: f.Line, FirstLine: f.FirstLine})
}
