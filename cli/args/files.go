package args

import (
	"context"
	"errors"
	"io"
	"os"

	"croft"
	"croft/internal/durable"
	"croft/internal/userfile"
)

// ReadFile reads a file, or stdin for -. It returns at most one byte more than longest, so that callers can refuse a
// text that is too long. the argument what names the content, such as "the user-data". Invalid.
func ReadFile(stdin io.Reader, what, file string, longest int64) ([]byte, error) {
	var text []byte
	var err error
	if file == "-" {
		text, err = userfile.ReadFrom(stdin, longest)
	} else {
		text, err = userfile.Read(file)
	}
	switch {
	case errors.Is(err, context.Canceled):
		return nil, err
	case err != nil:
		return nil, croft.Errorf(croft.Invalid, "read %s: %w", what, err)
	}
	return text[:min(int64(len(text)), longest+1)], nil
}

// WriteNew writes a complete file that only its owner may read, or no file. Conflict: the file exists.
func WriteNew(file string, write func(io.Writer) error) error {
	if _, err := os.Lstat(file); err == nil {
		return croft.Errorf(croft.Conflict, "%s is there already: name a new file", file)
	}
	return durable.WriteFrom(file, 0o600, write)
}
