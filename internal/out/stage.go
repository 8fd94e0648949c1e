package out

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// StageBar draws the progress of work in stages as one line on a terminal. If w is not a terminal, it draws nothing.
type StageBar struct {
	all  *mpb.Progress
	bar  *mpb.Bar
	at   atomic.Pointer[stage]
	once sync.Once
}

type stage struct {
	name        string
	done, total int
}

func NewStageBar(w io.Writer) *StageBar {
	b := &StageBar{}
	b.at.Store(&stage{name: "connecting"})
	if !Draws(w) {
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
		mpb.PrependDecorators(decor.Any(func(decor.Statistics) string { return b.at.Load().name },
			decor.WC{W: 20, C: decor.DindentRight})),
		mpb.AppendDecorators(
			decor.Any(func(decor.Statistics) string {
				return fmt.Sprintf("%d of %d", b.at.Load().done, b.at.Load().total)
			}, decor.WC{W: 16}),
			decor.Elapsed(decor.ET_STYLE_GO, decor.WCSyncSpace),
		),
	)
	return b
}

// Update sets the name of the stage, and how much of it is done. It has the type transfer.Progress.
func (b *StageBar) Update(name string, done, total int) {
	b.at.Store(&stage{name, done, total})
}

// Close removes the line.
func (b *StageBar) Close() {
	if b.all == nil {
		return
	}
	b.once.Do(func() {
		b.bar.Abort(true)
		b.all.Wait()
	})
}
