package secret

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"filippo.io/age"

	"croft"
	"croft/internal/durable"
	"croft/internal/lazyregexp"
)

// Rotated is a file in which Rotate sealed values again.
type Rotated struct {
	File   string `json:"file"`
	Values int    `json:"values"`
}

// sealedForm matches the sealed values in a file: a block between BEGIN and END lines, with its indentation and the
// text before it on its first line, or "age:" with base64 on one line.
var sealedForm = lazyregexp.New(`(?m)^([ \t]*)((?:[^\n]*?[ \t"'])?)` + regexp.QuoteMeta(begin) +
	`\r?\n(?:[^\n]*\n)*?[ \t]*` + regexp.QuoteMeta(end) + `|\bage:[A-Za-z0-9+/]{16,}={0,2}`)

// Rotate seals all values in the files of a cluster's directory again, for new recipients; use it after a reader was
// added or removed. It writes nothing unless every value could be opened. It does not touch values that sops sealed. A
// removed reader may still know the old values, so change these too.
func (k *Keeper) Rotate(ctx context.Context, dir string, recipients []age.Recipient) ([]Rotated, error) {
	var done []Rotated
	changed := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && path != dir && strings.HasPrefix(e.Name(), "."):
			return fs.SkipDir // a directory of the version control
		case !e.Type().IsRegular():
			return nil
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		text, n, err := k.rotateFile(ctx, path, recipients)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if n > 0 {
			changed[path] = text
			done = append(done, Rotated{name, n})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("rotate: nothing is changed: %w", err)
	}
	for _, r := range done {
		path := filepath.Join(dir, r.File)
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("rotate: %w", err)
		}
		if err := durable.Write(path, changed[path], info.Mode().Perm()); err != nil {
			return nil, fmt.Errorf("rotate: %w", err)
		}
	}
	return done, nil
}

// rotateFile returns a file's text with its values sealed again, and the number of these values.
func (k *Keeper) rotateFile(ctx context.Context, path string, recipients []age.Recipient) ([]byte, int, error) {
	info, err := os.Stat(path)
	if err != nil || info.Size() > 4*maxValue {
		return nil, 0, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, 0, err
	}
	if bytes.HasPrefix(text, []byte(binary)) {
		return k.rotateBinary(ctx, text, recipients)
	}
	var b bytes.Buffer
	n, from := 0, 0
	for _, at := range sealedForm.Get().FindAllSubmatchIndex(text, -1) {
		fresh, err := k.rotateValue(ctx, text, at, recipients)
		if err != nil {
			return nil, 0, croft.Errorf(croft.KindOf(err), "line %d: %w", bytes.Count(text[:at[0]], []byte("\n"))+1,
				err)
		}
		b.Write(text[from:at[0]])
		b.WriteString(fresh)
		n, from = n+1, at[1]
	}
	b.Write(text[from:])
	return b.Bytes(), n, nil
}

func (k *Keeper) rotateBinary(ctx context.Context, text []byte, recipients []age.Recipient) ([]byte, int, error) {
	value, err := k.Open(ctx, string(text))
	if err != nil {
		return nil, 0, err
	}
	var b bytes.Buffer
	err = encrypt(&b, value, recipients)
	return b.Bytes(), 1, err
}

// rotateValue seals one value again, in the same form and with the same indentation.
func (k *Keeper) rotateValue(ctx context.Context, text []byte, at []int, recipients []age.Recipient) (string, error) {
	all := string(text[at[0]:at[1]])
	if at[2] < 0 {
		value, err := k.Open(ctx, all)
		if err != nil {
			return "", err
		}
		return SealLine(value, recipients)
	}
	indent, before := string(text[at[2]:at[3]]), string(text[at[4]:at[5]])
	lines := slices.Collect(strings.Lines(all[len(indent)+len(before):]))
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	value, err := k.Open(ctx, strings.Join(lines, "\n"))
	if err != nil {
		return "", err
	}
	fresh, err := Seal(value, recipients)
	if err != nil {
		return "", err
	}
	fresh = strings.TrimSuffix(fresh, "\n")
	return indent + before + strings.ReplaceAll(fresh, "\n", "\n"+indent), nil
}
