package shell

import (
	"bytes"
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
	file *os.File // nil: it cannot be written
	room int64
}

// log makes the log of a hook, or goes on with it, so that whoever follows it sees that
// the hook runs before it prints anything. Where that fails there is none.
func (r *Runner) log(h pool.Hook) *logWriter {
	file, err := os.OpenFile(r.logFile(h.Resource, h.Kind), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return &logWriter{}
	}
	info, err := file.Stat()
	if err != nil {
		_ = file.Close() // nothing was written
		return &logWriter{}
	}
	w := &logWriter{file: file, room: maxLog - info.Size()}
	if w.room <= 0 && h.Resource == 0 && file.Truncate(0) == nil { // what is of no resource is never forgotten with it
		w.room = maxLog
	}
	return w
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

func (w *logWriter) close() {
	if w.file != nil {
		_ = w.file.Close() // what could not be written is lost anyway
	}
}

// capture keeps whole lines up to a bound. What does not end in a newline is a line too.
type capture struct {
	limit int
	cut   string // what stands where data was cut
	lines []byte // kept
	line  []byte // begun
	full  bool
}

func newCapture(form pool.OutputForm) *capture {
	if form == pool.OutputList {
		return &capture{limit: maxList}
	}
	return &capture{limit: maxData, cut: trimmed}
}

// Write never fails.
func (c *capture) Write(text []byte) (int, error) {
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

// begunWriter is where one start's output is kept while it is unfinished.
type begunWriter struct {
	*begun
	id pool.ResourceID
}

// Write never fails.
func (w begunWriter) Write(text []byte) (int, error) {
	w.write(w.id, text)
	return len(text), nil
}
