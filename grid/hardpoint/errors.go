package hardpoint

import "errors"

// located is an error with the file and line that caused it.
type located struct {
	at  string
	err error
}

func (l *located) Error() string { return l.at + ": " + l.err.Error() }
func (l *located) Unwrap() error { return l.err }

// located reports whether an error already names its file and line.
func (*Point) located(err error) bool {
	_, ok := errors.AsType[*located](err)
	return ok
}
