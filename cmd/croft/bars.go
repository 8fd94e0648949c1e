package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"croft"
	"croft/internal/plain"
	"croft/schedule"
)

// bars is the progress for a terminal: one line for each instance or host, with a
// bar while bytes are counted.
type bars struct {
	all   *mpb.Progress
	once  sync.Once
	lines []*line
}

type line struct {
	bar   *mpb.Bar
	words atomic.Pointer[string]
	bytes atomic.Pointer[croft.Progress] // nil while none are counted
	last  croft.State                    // of the record; of the waiting goroutine
}

func newBars(w io.Writer, names []string, first string) *bars {
	b := &bars{all: mpb.New(mpb.WithOutput(w), mpb.WithWidth(40))}
	for _, name := range names {
		b.lines = append(b.lines, b.add(name, first))
	}
	return b
}

func (b *bars) add(name, first string) *line {
	l := &line{}
	l.say(first)
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

// filler draws the bar while it is known how much there is, and nothing else.
func (l *line) filler() mpb.BarFiller {
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

// size is how much has come, and of how much.
func (l *line) size() string {
	p := l.bytes.Load()
	switch {
	case p == nil:
		return ""
	case p.Total == 0:
		return fmt.Sprintf("% .1f", decor.SizeB1024(p.Done))
	}
	return fmt.Sprintf("% .1f of % .1f", decor.SizeB1024(p.Done), decor.SizeB1024(p.Total))
}

func (l *line) say(words string) {
	words = plain.Line(words)
	l.words.Store(&words)
}

func (b *bars) update(i int, st croft.Status) {
	l := b.lines[i]
	l.say(stage(st))
	l.last = st.Instance.State
	if o := st.Observation; o != nil && o.State == croft.StateFetching {
		l.bytes.Store(o.Progress)
	} else {
		l.bytes.Store(nil)
	}
}

func (b *bars) end(i int, err error) {
	l := b.lines[i]
	l.bytes.Store(nil)
	if err != nil {
		l.giveUp(err)
	} else if l.last == croft.StateDestroying {
		l.say("gone")
	}
	l.bar.SetTotal(-1, true)
}

// giveUp says how the line ends: what was only waited for too long did not fail.
func (l *line) giveUp(err error) {
	_, failed := errors.AsType[*schedule.Failure](err)
	if !failed && (errors.Is(err, context.Canceled) || errors.Is(err, croft.Unavailable)) {
		l.leave()
		return
	}
	l.say("failed")
}

// leave says that nobody looks any more how the line ends.
func (l *line) leave() { l.say(*l.words.Load() + ", no longer waited for") }

func (b *bars) close() { b.once.Do(b.all.Wait) }
