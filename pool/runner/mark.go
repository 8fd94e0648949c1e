package runner

import (
	"bytes"
	"io"
	"strconv"
	"strings"
	"sync"
)

// upToMark passes on what a script writes, up to a line "MARK CODE", and discards the rest.
type upToMark struct {
	to   io.Writer
	mark []byte
	over func() // called once, at the mark

	mu    sync.Mutex // a connection that was cut may still write
	held  []byte     // what may be a part of the mark
	said  string     // after the mark
	ended bool
}

// longestCode bounds the text after the mark.
const longestCode = 8

// Write implements io.Writer.
func (u *upToMark) Write(p []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ended {
		return len(p), nil
	}
	u.held = append(u.held, p...)
	at := bytes.Index(u.held, u.mark)
	if at < 0 {
		at = len(u.held) - partOf(u.held, u.mark)
	}
	if _, err := u.to.Write(u.held[:at]); err != nil {
		return 0, err
	}
	u.held = u.held[at:]
	rest, marked := bytes.CutPrefix(u.held, u.mark)
	code, _, line := bytes.Cut(rest, []byte("\n"))
	if marked && (line || len(rest) > longestCode) {
		u.said, u.held, u.ended = string(code), nil, true
		u.over()
	}
	return len(p), nil
}

// flush passes on the held text, if the mark did not come.
func (u *upToMark) flush() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	held := u.held
	u.held = nil
	_, err := u.to.Write(held)
	return err
}

// code returns the exit code after the mark; false: there was none.
func (u *upToMark) code() (int, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	code, err := strconv.Atoi(strings.TrimSpace(u.said))
	return code, err == nil && code >= 0
}

// partOf returns the length of the longest end of text that mark begins with.
func partOf(text, mark []byte) int {
	for n := min(len(text), len(mark)-1); n > 0; n-- {
		if bytes.HasPrefix(mark, text[len(text)-n:]) {
			return n
		}
	}
	return 0
}
