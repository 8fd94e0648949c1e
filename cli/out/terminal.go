package out

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"croft/internal/plain"
)

// Readable waits briefly for input. A blocking read of a terminal cannot be interrupted, and this process may
// have more to do.
func Readable(in *os.File) bool {
	const moment = 100 // milliseconds
	fds := []unix.PollFd{{Fd: int32(in.Fd()), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, moment)
	return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
}

// ShowText prints the output of a guest or a program: on a terminal only text and colors, so that it cannot
// control that; elsewhere unchanged.
func ShowText(w io.Writer, from io.Reader) error {
	if IsTerminal(w) {
		return plain.Copy(w, from)
	}
	_, err := io.Copy(w, from)
	return err
}
