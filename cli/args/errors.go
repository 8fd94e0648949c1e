package args

import (
	"context"
	"fmt"
)

// Interrupted is the error of a command that was interrupted, with the text of what goes on without it.
type Interrupted struct{ Text string }

func (i *Interrupted) Error() string { return i.Text }

// Unwrap has it told as what interrupted commands tell.
func (*Interrupted) Unwrap() error { return context.Canceled }

// Exited is an exit code that does not depend on the kind of an error.
type Exited struct {
	Code int
	Err  error // to be printed; nil: all has been printed
}

func (e *Exited) Error() string {
	if e.Err != nil {
		return e.Err.Error()
	}
	return fmt.Sprintf("ended with exit code %d", e.Code)
}
