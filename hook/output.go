package hook

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"

	"croft/pool"
)

// How much of a hook's output is kept.
const (
	maxData = 512
	maxList = 256 << 10
)

// trimmed stands where data was cut.
const trimmed = "<< trimmed >>\n"

// logWriter appends to a log until that is full. Two pipes write to it.
type logWriter struct {
	mu   sync.Mutex
	file *os.File
	room int64
}

func (r *Runner) openLog(h pool.Hook) (*logWriter, error) {
	file, err := os.OpenFile(r.logFile(h.Resource, h.Kind), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log of a hook: %w", err)
	}
	info, err := file.Stat()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the log of a hook: %w", err), file.Close())
	}
	return &logWriter{file: file, room: maxLog - info.Size()}, nil
}

// Write never fails, so that a full disk ends no hook: what cannot be logged is not.
func (w *logWriter) Write(text []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.room <= 0 {
		return len(text), nil
	}
	part := text[:min(int64(len(text)), w.room)]
	_, _ = w.file.Write(part)
	w.room -= int64(len(part))
	if w.room <= 0 {
		_, _ = w.file.WriteString("\n<< the log is full >>\n")
	}
	return len(text), nil
}

func (w *logWriter) close() { _ = w.file.Close() }

// capture keeps whole lines up to a bound. What does not end in a newline is a line too.
type capture struct {
	limit int
	cut   string // what stands where data was cut
	lines []byte // kept
	line  []byte // begun
	full  bool

	path string // where the unfinished output is kept too, for a later server
	file *os.File
}

func newCapture(form pool.OutputForm) *capture {
	if form == pool.OutputList {
		return &capture{limit: maxList}
	}
	return &capture{limit: maxData, cut: trimmed}
}

// capture of a start keeps what is printed in a file too, as long as it is unfinished.
func (r *Runner) capture(h pool.Hook) *capture {
	c := newCapture(h.Output)
	if h.Kind == pool.HookNew {
		c.path = r.begunFile(h.Resource)
	}
	return c
}

// Write never fails.
func (c *capture) Write(text []byte) (int, error) {
	c.save(text)
	for rest := text; len(rest) > 0 && !c.full; {
		end := bytes.IndexByte(rest, '\n') + 1
		if end == 0 {
			end = len(rest)
		}
		if room := c.limit + 1 - len(c.line); room > 0 {
			c.line = append(c.line, rest[:min(end, room)]...)
		}
		if rest[end-1] == '\n' || len(c.line) > c.limit {
			c.endLine()
		}
		rest = rest[end:]
	}
	return len(text), nil
}

// endLine keeps the line that was begun, if there is room for it.
func (c *capture) endLine() {
	line := c.line
	c.line = nil
	if len(c.lines)+len(line) <= c.limit {
		c.lines = append(c.lines, line...)
		return
	}
	if len(c.lines) == 0 && c.cut != "" {
		c.lines = append(c.lines, line[:c.limit]...)
	}
	c.lines = append(c.lines, c.cut...)
	c.full = true
}

// output is what is kept; not nil, since nothing is something.
func (c *capture) output() []byte {
	if len(c.line) > 0 && !c.full {
		c.endLine()
	}
	if c.lines == nil {
		return []byte{}
	}
	return c.lines
}

// save writes what is printed where a later server finds it. A disk that is full costs
// that server the knowledge, and this one nothing.
func (c *capture) save(text []byte) {
	if c.path == "" || c.full {
		return
	}
	if c.file == nil {
		file, err := os.OpenFile(c.path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
		if err != nil {
			c.path = ""
			return
		}
		c.file = file
	}
	_, _ = c.file.Write(text)
}

// done removes what a later server would want to know only of an unfinished start.
func (c *capture) done() {
	if c.file != nil {
		_ = os.Remove(c.path)
	}
}

func (c *capture) close() {
	if c.file != nil {
		_ = c.file.Close()
	}
}
