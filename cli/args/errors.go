package args

import (
	"context"
	"fmt"
)

// Interrupted is the error of an interrupted command; Text names what continues without it.
type Interrupted struct{ Text string }

func (i *Interrupted) Error() string { return i.Text }

// Unwrap makes it reported like other interruptions.
func (*Interrupted) Unwrap() error { return context.Canceled }

// Exited is an exit code independent of the error's kind.
type Exited struct {
	Code int
	Err  error // to be printed; nil: everything has been printed
}

func (e *Exited) Error() string {
	if e.Err != nil {
		return e.Err.Error()
	}
	return fmt.Sprintf("ended with exit code %d", e.Code)
}
