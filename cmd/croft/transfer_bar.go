package main

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// transferBar is one line on a terminal that tells how far an export or import is;
// nothing where nobody looks.
type transferBar struct {
	all  *mpb.Progress
	bar  *mpb.Bar
	at   atomic.Pointer[transferStage]
	once sync.Once
}

type transferStage struct {
	name        string
	done, total int
}

func newTransferBar(w io.Writer) *transferBar {
	b := &transferBar{}
	b.at.Store(&transferStage{name: "connecting"})
	if !isTerminal(w) {
		return b
	}
	b.all = mpb.New(mpb.WithOutput(w), mpb.WithWidth(40))
	bar := mpb.BarStyle().Build()
	fill := mpb.BarFillerFunc(func(w io.Writer, stat decor.Statistics) error {
		at := b.at.Load()
		stat.Current, stat.Total = int64(at.done), int64(at.total)
		return bar.Fill(w, stat)
	})
	b.bar = b.all.MustAdd(0, fill,
		mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.Any(func(decor.Statistics) string { return b.at.Load().name }, decor.WC{W: 20, C: decor.DindentRight})),
		mpb.AppendDecorators(
			decor.Any(func(decor.Statistics) string { return fmt.Sprintf("%d of %d", b.at.Load().done, b.at.Load().total) }, decor.WC{W: 16}),
			decor.Elapsed(decor.ET_STYLE_GO, decor.WCSyncSpace),
		),
	)
	return b
}

// update is a transfer.Progress.
func (b *transferBar) update(stage string, done, total int) {
	b.at.Store(&transferStage{stage, done, total})
}

// close takes the line away.
func (b *transferBar) close() {
	if b.all == nil {
		return
	}
	b.once.Do(func() {
		b.bar.Abort(true)
		b.all.Wait()
	})
}
