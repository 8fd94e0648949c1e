package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/spf13/cobra"

	"croft"
	"croft/internal/plain"
)

// pullProgress shows how hosts get on with an image. Calls for different hosts may
// overlap.
type pullProgress interface {
	update(i int, p croft.Progress)
	end(i int, err error)
	close()
}

func newPullProgress(cmd *cobra.Command, hosts []croft.Host) pullProgress {
	var names []string
	for _, h := range hosts {
		names = append(names, plain.Line(h.Name))
	}
	if stderr := cmd.ErrOrStderr(); isTerminal(stderr) {
		return pullBars{newBars(stderr, names, "asked")}
	}
	return &pullLines{w: cmd.ErrOrStderr(), name: names, began: make([]bool, len(names))}
}

// pullBars is the progress for a terminal.
type pullBars struct{ *bars }

func (b pullBars) update(i int, p croft.Progress) {
	l := b.lines[i]
	switch {
	case p.Total > 0 && p.Done >= p.Total:
		l.say("verifying")
	case p.Done > 0:
		l.say("fetching")
	}
	if p.Done > 0 {
		l.bytes.Store(&p)
	}
}

func (b pullBars) end(i int, err error) {
	l := b.lines[i]
	l.bytes.Store(nil)
	switch {
	case errors.Is(err, context.Canceled): // by us; the host may go on
		l.leave()
	case err != nil: // also where the host does not answer: it was not waited for too long
		l.say("failed")
	default:
		l.say("there")
	}
	l.bar.SetTotal(-1, true)
}

// pullLines is the progress for logs: a line when bytes begin to come and one at
// the end.
type pullLines struct {
	mu    sync.Mutex
	w     io.Writer
	name  []string
	began []bool
}

func (l *pullLines) update(i int, p croft.Progress) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.began[i] || p.Done == 0 {
		return
	}
	l.began[i] = true
	if p.Total == 0 {
		fmt.Fprintf(l.w, "host %s: fetching the image\n", l.name[i])
		return
	}
	fmt.Fprintf(l.w, "host %s: fetching the image, %s\n", l.name[i], bytesInWords(p.Total))
}

func (l *pullLines) end(i int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		fmt.Fprintf(l.w, "host %s: the image is there\n", l.name[i])
	}
}

func (*pullLines) close() {}
