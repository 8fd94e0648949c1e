package image

import (
	"os"
	"sync/atomic"

	"croft"
)

// transfer counts the bytes of a fetch for those who wait.
type transfer struct{ have, total atomic.Int64 }

func (t *transfer) progress() croft.Progress {
	return croft.Progress{Done: t.have.Load(), Total: t.total.Load()}
}

// finish is the count of a transfer that was not needed.
func (t *transfer) finish(size int64) {
	t.total.Store(size)
	t.have.Store(size)
}

func (t *transfer) finishAt(name string) {
	if fi, err := os.Stat(name); err == nil {
		t.finish(fi.Size())
	}
}
