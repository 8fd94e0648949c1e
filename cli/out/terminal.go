package out

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"croft/internal/plain"
)

// Readable waits for a moment for something to be typed. A read that waits for a
// terminal cannot be ended, and this process may have more to do.
func Readable(in *os.File) bool {
	const moment = 100 // milliseconds
	fds := []unix.PollFd{{Fd: int32(in.Fd()), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, moment)
	return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
}

// ShowText prints what a guest or a program wrote: to a terminal text and colors alone, so that
// it cannot steer that; to anything else as it is.
func ShowText(w io.Writer, from io.Reader) error {
	if IsTerminal(w) {
		return plain.Copy(w, from)
	}
	_, err := io.Copy(w, from)
	return err
}
