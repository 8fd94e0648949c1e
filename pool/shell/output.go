package shell

import (
	"bytes"
	"os"
	"sync"

	"croft/internal/plain"
	"croft/pool"
)

// Limits of a hook's output.
const (
	maxLog  = 1 << 20 // bytes of a log
	maxData = 512
	maxList = 256 << 10
)

// trimmed marks where output was cut.
const trimmed = "<< trimmed >>\n"

// logWriter appends to a log of limited size. Two pipes write to it.
type logWriter struct {
	mu   sync.Mutex
	file *os.File // nil: the log could not be opened
	room int64
}

// openLog opens or creates the log of a hook, before the hook prints anything, so that users can follow it. If that
// fails there is no log. A full log that belongs to no resource is truncated, because it is never removed with a
// resource.
func openLog(name string, id pool.ResourceID) *logWriter {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return &logWriter{}
	}
	info, err := file.Stat()
	if err != nil {
		_ = file.Close() // nothing was written
		return &logWriter{}
	}
	w := &logWriter{file: file, room: maxLog - info.Size()}
	if w.room <= 0 && id == 0 && file.Truncate(0) == nil {
		w.room = maxLog
	}
	return w
}

// Write never fails, because an error, for example of a full disk, would end the hook.
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
		_ = w.file.Close() // output that could not be written is lost anyway
	}
}

// lastLine keeps the last line that is not empty.
type lastLine struct {
	mu   sync.Mutex
	line []byte // complete
	part []byte // incomplete
}

// maxLine bounds the line that is kept.
const maxLine = 256

// Write never fails.
func (l *lastLine) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for rest := text; len(rest) > 0; {
		part, after, ended := bytes.Cut(rest, []byte{'\n'})
		l.part = append(l.part, part[:min(len(part), max(0, maxLine-len(l.part)))]...)
		if ended {
			if len(bytes.TrimSpace(l.part)) > 0 {
				l.line = l.part
			}
			l.part = nil
		}
		rest = after
	}
	return len(text), nil
}

// text returns the line, without control characters of terminals.
func (l *lastLine) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := bytes.TrimSpace(l.part)
	if len(line) == 0 {
		line = bytes.TrimSpace(l.line)
	}
	return plain.Line(string(line))
}

// capture keeps whole lines up to a limit. The last line needs no newline.
type capture struct {
	limit int
	cut   string // mark to add where data is cut
	lines []byte // complete lines
	line  []byte // the current line
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

// endLine keeps the current line if it fits.
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

// output returns the kept output. It is never nil, because empty output differs from no output.
func (c *capture) output() []byte {
	if len(c.line) > 0 && !c.full {
		c.endLine()
	}
	if c.lines == nil {
		return []byte{}
	}
	return c.lines
}
