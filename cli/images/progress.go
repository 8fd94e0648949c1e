package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/out"
	"croft/internal/plain"
)

// pullProgress shows the progress of an image on hosts. Calls for different hosts may overlap.
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
	if stderr := cmd.ErrOrStderr(); out.IsTerminal(stderr) {
		return pullBars{out.NewBars(stderr, names, "asked")}
	}
	return &pullLines{w: cmd.ErrOrStderr(), name: names, began: make([]bool, len(names))}
}

// pullBars is the progress on a terminal.
type pullBars struct{ *out.Bars }

func (b pullBars) update(i int, p croft.Progress) {
	l := b.Line(i)
	switch {
	case p.Total > 0 && p.Done >= p.Total:
		l.Say("verifying")
	case p.Done > 0:
		l.Say("fetching")
	}
	if p.Done > 0 {
		l.Count(&p)
	}
}

func (b pullBars) end(i int, err error) {
	l := b.Line(i)
	switch {
	case errors.Is(err, context.Canceled): // by the user; the host may continue
		l.Leave()
	case err != nil: // even if the host does not answer: the wait did not time out
		l.Say("failed")
	default:
		l.Say("there")
	}
	l.End()
}

func (b pullBars) close() { b.Wait() }

// pullLines is the progress for logs: one line when the first bytes arrive and one at the end.
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
	fmt.Fprintf(l.w, "host %s: fetching the image, %s\n", l.name[i], out.Bytes(p.Total))
}

func (l *pullLines) end(i int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		fmt.Fprintf(l.w, "host %s: the image is there\n", l.name[i])
	}
}

func (*pullLines) close() {}
