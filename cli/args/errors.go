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

// Exited is the exit code of a program that has printed its errors itself.
type Exited struct{ Code int }

func (e *Exited) Error() string { return fmt.Sprintf("ended with exit code %d", e.Code) }
