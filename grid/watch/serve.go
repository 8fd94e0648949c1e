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
	pace = time.Second // between two beats of a connection that are read
	idle = 12          // beats that a connection may miss before it is closed
)

// Serve reads the lines that came with the key of a node and answers each with one, until they end, none comes for a
// while, or the context ends. It takes at most one a second, and ends with the first that is no beat: Invalid. When ctx
// ends, a read that blocks is left behind.
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
			line, err := r.ReadSlice('\n') // a longer one is an error, and its beginning is no beat
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

// next asks for a line and waits for it; empty: there are no more.
func next(ctx context.Context, lines chan string, asked chan bool, patience time.Duration) (string, error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case asked <- true:
	case line := <-lines: // it has ended
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
