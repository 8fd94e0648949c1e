package watch

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"croft"
	"croft/internal/wording"
)

const (
	pace = time.Second // shortest time between two beats of a connection
	idle = 12          // a connection that misses this many beats is closed
)

// Serve reads lines that arrived with the key of a node, at most one per second, and answers each with one line. It
// returns when the input ends, when no line arrives for some time, when the context ends, or at the first line that is
// no beat: Invalid. If ctx ends during a blocking read, the reading goroutine is left behind.
func (s *Store) Serve(ctx context.Context, node string, in io.Reader, out io.Writer, rules Rules) error {
	if !nodeForm.MatchString(node) {
		return croft.Errorf(croft.Invalid, "%q is no name of a node: it has 1 to 63 of a-z 0-9 . _ -", node)
	}
	lines, asked := make(chan string), make(chan bool)
	defer close(asked)
	go func() {
		defer close(lines)
		r := bufio.NewReaderSize(in, maxLine+2)
		for range asked {
			line, err := r.ReadSlice('\n') // a longer line is an error, and its start is no beat
			if len(line) > 0 {
				lines <- string(line)
			}
			if err != nil {
				return
			}
		}
	}()
	for {
		line, err := next(ctx, lines, asked, idle*rules.Every)
		if err != nil || line == "" {
			return err
		}
		reply, err := s.Receive(node, line, rules.MaxLease())
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(out, reply); err != nil {
			return fmt.Errorf("answer a beat: %w", err)
		}
		if reply == Bad {
			_, err := ParseBeat(line)
			return err
		}
		select {
		case <-time.After(pace):
		case <-ctx.Done():
			return nil
		}
	}
}

var errIdle = errors.New("no beat for too long")

// next asks for a line and waits for it; empty: there are none.
func next(ctx context.Context, lines chan string, asked chan bool, patience time.Duration) (string, error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case asked <- true:
	case line := <-lines: // the input has ended
		return line, nil
	}
	select {
	case line := <-lines:
		return line, nil
	case <-timer.C:
		return "", croft.Errorf(croft.Unavailable, "%w: %s", errIdle, wording.Duration(patience))
	case <-ctx.Done():
		return "", nil
	}
}
