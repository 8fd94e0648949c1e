package out

import "io"

// checkedWriter is an output that remembers the first error of a write. A command whose output got lost has failed,
// even if it printed a line without looking at the error.
type checkedWriter struct {
	to  io.Writer
	err error
}

// Check returns an output that remembers its errors. A terminal stays as it is, because programs draw on it.
func Check(w io.Writer) (checked io.Writer, failed func() error) {
	if IsTerminal(w) {
		return w, func() error { return nil }
	}
	c := &checkedWriter{to: w}
	return c, func() error { return c.err }
}

// Write implements io.Writer.
func (c *checkedWriter) Write(text []byte) (int, error) {
	n, err := c.to.Write(text)
	if c.err == nil {
		c.err = err
	}
	return n, err
}

// Inherited returns the output that a child process inherits.
func Inherited(w io.Writer) io.Writer {
	if c, is := w.(*checkedWriter); is {
		return c.to
	}
	return w
}
