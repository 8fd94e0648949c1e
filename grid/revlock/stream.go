package revlock

import (
	"bytes"
	"io"
	"sync"
)

// stream splits the output of a holder into the outputs of its orders. Each of these ends with a line that starts with
// a random word.
type stream struct {
	mu    sync.Mutex
	bound []byte // "\n", the word and a blank; nil: nobody waits, and output is dropped
	kept  []byte // the end of the output so far: it may be the start of the last line
	to    io.Writer
	err   error       // the error of writing to to
	done  chan string // receives the rest of the last line
}

// await copies output to w until the line that starts with word. The channel receives the rest of that line.
func (s *stream) await(word string, w io.Writer) <-chan string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bound, s.kept, s.to, s.err = []byte("\n"+word+" "), nil, w, nil
	s.done = make(chan string, 1)
	return s.done
}

// failure returns the first error of the writer of the last await.
func (s *stream) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// maxLast bounds the last line, in bytes.
const maxLast = 64 << 10

// Write implements io.Writer. It never fails.
func (s *stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bound == nil {
		return len(p), nil
	}
	s.kept = append(s.kept, p...)
	at := bytes.Index(s.kept, s.bound)
	if at < 0 {
		s.pass(len(s.kept) - len(s.bound) + 1)
		return len(p), nil
	}
	s.pass(at)
	rest := s.kept[len(s.bound):]
	end := bytes.IndexByte(rest, '\n')
	if end >= 0 || len(rest) > maxLast {
		if end < 0 {
			end = maxLast
		}
		s.done <- string(rest[:end])
		s.bound, s.kept = nil, nil
	}
	return len(p), nil
}

// pass writes the first n kept bytes to the writer and forgets them.
func (s *stream) pass(n int) {
	if n <= 0 {
		return
	}
	if s.to != nil && s.err == nil {
		_, s.err = s.to.Write(s.kept[:n])
	}
	s.kept = append(s.kept[:0], s.kept[n:]...)
}
