package out

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"croft"
	"croft/internal/plain"
)

// Bars draws progress on a terminal: one line per name, with a bar while bytes are counted.
type Bars struct {
	all   *mpb.Progress
	once  sync.Once
	lines []*Line
}

// Line is one line of bars. Its methods may be called while it is drawn.
type Line struct {
	bar   *mpb.Bar
	words atomic.Pointer[string]
	bytes atomic.Pointer[croft.Progress] // nil: no bytes are counted
}

// NewBars starts drawing on w. Each line first shows the text first.
func NewBars(w io.Writer, names []string, first string) *Bars {
	b := &Bars{all: mpb.New(mpb.WithOutput(w), mpb.WithWidth(40))}
	for _, name := range names {
		b.lines = append(b.lines, b.add(name, first))
	}
	return b
}

func (b *Bars) add(name, first string) *Line {
	l := &Line{}
	l.Say(first)
	l.bar = b.all.MustAdd(0, l.filler(),
		mpb.PrependDecorators(
			decor.Name(name, decor.WCSyncSpaceR),
			decor.Any(func(decor.Statistics) string { return *l.words.Load() }, decor.WCSyncSpaceR),
		),
		mpb.AppendDecorators(
			decor.Any(func(decor.Statistics) string { return l.size() }, decor.WCSyncSpace),
			decor.Elapsed(decor.ET_STYLE_GO, decor.WCSyncSpace),
		),
	)
	return l
}

// filler draws a bar while the total is known, and nothing otherwise.
func (l *Line) filler() mpb.BarFiller {
	bar := mpb.BarStyle().Build()
	return mpb.BarFillerFunc(func(w io.Writer, stat decor.Statistics) error {
		p := l.bytes.Load()
		if p == nil || p.Total == 0 {
			return nil
		}
		stat.Current, stat.Total = p.Done, p.Total
		return bar.Fill(w, stat)
	})
}

// size formats the received bytes, and the total if it is known.
func (l *Line) size() string {
	p := l.bytes.Load()
	switch {
	case p == nil:
		return ""
	case p.Total == 0:
		return fmt.Sprintf("% .1f", decor.SizeB1024(p.Done))
	}
	return fmt.Sprintf("% .1f of % .1f", decor.SizeB1024(p.Done), decor.SizeB1024(p.Total))
}

// Say sets the text next to the name.
func (l *Line) Say(words string) {
	words = plain.Line(words)
	l.words.Store(&words)
}

// Count draws a bar of the received bytes; nil: no bytes are counted.
func (l *Line) Count(p *croft.Progress) { l.bytes.Store(p) }

// End stops the line in its present state, without its bar.
func (l *Line) End() {
	l.bytes.Store(nil)
	l.bar.SetTotal(-1, true)
}

// Leave adds the note that the command no longer waits for the line.
func (l *Line) Leave() { l.Say(*l.words.Load() + ", no longer waited for") }

// Wait returns once all lines have ended and are drawn. It may be called again.
func (b *Bars) Wait() { b.once.Do(b.all.Wait) }

// Line returns the line of the i-th name.
func (b *Bars) Line(i int) *Line { return b.lines[i] }
