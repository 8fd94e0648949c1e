package revlock

import (
	"bytes"
	"io"
	"sync"
)

// stream divides what a holder writes into the output of orders: each ends with a line that begins with a word which
// nobody else knows.
type stream struct {
	mu    sync.Mutex
	bound []byte // "\n", the word and a blank; nil: nobody waits, and what comes is dropped
	kept  []byte // the end of what came, which may be the begin of the last line
	to    io.Writer
	err   error       // of to
	done  chan string // gets the rest of the last line
}

// await sends what comes to w until the line that begins with word.
func (s *stream) await(word string, w io.Writer) <-chan string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bound, s.kept, s.to, s.err = []byte("\n"+word+" "), nil, w, nil
	s.done = make(chan string, 1)
	return s.done
}

// failure is the error with which the writer of the last await did not take something.
func (s *stream) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// maxLast bounds the last line.
const maxLast = 64 << 10

// Write implements io.Writer, and never fails.
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

// pass hands n bytes on.
func (s *stream) pass(n int) {
	if n <= 0 {
		return
	}
	if s.to != nil && s.err == nil {
		_, s.err = s.to.Write(s.kept[:n])
	}
	s.kept = append(s.kept[:0], s.kept[n:]...)
}
