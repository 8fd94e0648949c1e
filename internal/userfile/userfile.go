// Package userfile reads files that users name. A name may be a mistake or come from somebody else, so that no read is
// unbounded, waits at a FIFO without a writer, or reads a device, and SIGINT and SIGTERM end each.
package userfile

import (
	"context"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"syscall"
	"time"

	"croft"
)

// Most is the maximum size of a file that Read accepts.
const Most = 4 << 20

// Read reads a file of at most Most bytes. Besides regular files it accepts pipes, as the shell makes them for
// <(command). Invalid, with the cause of the operating system.
func Read(name string) ([]byte, error) {
	f, err := Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if at, err := f.Stat(); err == nil && at.Size() > Most {
		return nil, tooLong(name)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Now()) })() // of a pipe
	text, err := io.ReadAll(io.LimitReader(f, Most+1))
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, croft.Errorf(croft.Invalid, "%w", err)
	case len(text) > Most:
		return nil, tooLong(name)
	}
	return text, nil
}

// Open opens a regular file, or a pipe, to be read. It does not wait for the writer of a FIFO. Invalid, with the cause
// of the operating system.
func Open(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "%w", err)
	}
	at, err := f.Stat()
	if err == nil && !at.Mode().IsRegular() && at.Mode()&fs.ModeNamedPipe == 0 {
		err = croft.Errorf(croft.Invalid, "%s is not a file: name a file, or - for stdin where the help says so", name)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// ReadFrom reads at most most bytes and one more from stdin, so that callers can refuse a text that is too long. After
// a signal it returns at once and leaves the read to the end of the process.
func ReadFrom(stdin io.Reader, most int64) ([]byte, error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	type result struct {
		text []byte
		err  error
	}
	done := make(chan result, 1)
	go func() {
		text, err := io.ReadAll(io.LimitReader(stdin, min(most, Most)+1))
		done <- result{text, err}
	}()
	select {
	case r := <-done:
		return r.text, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func tooLong(name string) error {
	return croft.Errorf(croft.Invalid, "%s has more than 4 MiB, the most that croft reads of a file: name another "+
		"file", name)
}
