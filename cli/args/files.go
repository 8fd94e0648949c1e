package args

import (
	"io"
	"os"

	"croft"
	"croft/internal/durable"
)

// ReadFile reads a file, or stdin for -. It returns at most one byte more than longest, so that callers can refuse a
// text that is too long. what is the content, such as "the user-data". Invalid.
func ReadFile(stdin io.Reader, what, file string, longest int64) ([]byte, error) {
	from := stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, croft.Errorf(croft.Invalid, "read %s: %w", what, err)
		}
		defer f.Close()
		from = f
	}
	text, err := io.ReadAll(io.LimitReader(from, longest+1))
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "read %s: %w", what, err)
	}
	return text, nil
}

// WriteNew writes a complete file that only its owner may read, or no file. Conflict: the file exists.
func WriteNew(file string, write func(io.Writer) error) error {
	if _, err := os.Lstat(file); err == nil {
		return croft.Errorf(croft.Conflict, "%s is there already: name a new file", file)
	}
	return durable.WriteFrom(file, 0o600, write)
}
