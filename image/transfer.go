package image

import (
	"os"
	"sync/atomic"

	"croft"
)

// transfer reports the progress of a fetch to its waiters, in bytes.
type transfer struct{ have, total atomic.Int64 }

func (t *transfer) progress() croft.Progress {
	return croft.Progress{Done: t.have.Load(), Total: t.total.Load()}
}

// finish reports a transfer that was not needed as complete.
func (t *transfer) finish(size int64) {
	t.total.Store(size)
	t.have.Store(size)
}

func (t *transfer) finishAt(name string) {
	if fi, err := os.Stat(name); err == nil {
		t.finish(fi.Size())
	}
}
