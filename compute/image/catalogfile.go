package image

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
	"gopkg.in/yaml.v3"

	"croft"
	"croft/internal/lazyregexp"
	"croft/internal/nearest"
)

var entryName = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// AddToCatalog writes an entry into a catalog file, creating the file if necessary. Everything else in it
// stays, comments too; the write is atomic. others are further files in which an alias may find its target.
//
// Invalid: the entry is unusable, or the file is not a catalog. Conflict: the file has the name, and replace is false.
func AddToCatalog(file string, others []string, e Entry, replace bool) error {
	if !entryName.MatchString(e.Name) {
		return croft.Errorf(croft.Invalid,
			"%q cannot be the name of an image: use letters, digits, dots, dashes and underscores", e.Name)
	}
	c, err := LoadCatalog(append(others, file), nil)
	if err != nil {
		return err
	}
	if err := c.add("the new entry", map[string]Entry{e.Name: e}); err != nil {
		return err
	}
	if err := c.checkAliases(); err != nil {
		return err
	}
	if err := addToFile(file, e, replace); err != nil {
		return fmt.Errorf("add image %s to %s: %w", e.Name, file, err)
	}
	return nil
}

// RemoveFromCatalog removes an entry from a catalog file; everything else in it stays. others are the files
// of lower precedence.
//
// NotFound: the file has no such entry. Conflict: another name is an alias of it.
func RemoveFromCatalog(file string, others []string, name string) error {
	err := changeFile(file, func(text []byte) ([]byte, error) {
		rest, err := withoutEntry(text, name)
		if err != nil {
			return nil, err
		}
		c, err := LoadCatalog(others, nil)
		if err != nil {
			return nil, err
		}
		if err := c.read(file, bytes.NewReader(rest)); err != nil {
			return nil, err
		}
		if err := c.checkAliases(); err != nil {
			return nil, croft.Errorf(croft.Conflict, "remove the other name first: %w", err)
		}
		return rest, nil
	})
	if err != nil {
		return fmt.Errorf("remove image %s from %s: %w", name, file, err)
	}
	return nil
}

func addToFile(file string, e Entry, replace bool) error {
	return changeFile(file, func(text []byte) ([]byte, error) { return withEntry(text, e, replace) })
}

// changeFile serializes changes across processes: it holds the directory's lock.
func changeFile(file string, change func(text []byte) ([]byte, error)) error {
	if target, err := filepath.EvalSymlinks(file); err == nil {
		file = target // replace the target of a link, not the link
	}
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	lock, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", dir, err)
	}
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if text, err = change(text); err != nil {
		return err
	}
	return replaceFile(file, 0o644, func(f *os.File) error {
		_, err := f.Write(text)
		return err
	})
}

// withEntry returns a catalog's text with the entry added or replaced.
func withEntry(text []byte, e Entry, replace bool) ([]byte, error) {
	var doc, key, value yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, croft.Errorf(croft.Invalid, "%w", err)
	}
	if err := errors.Join(key.Encode(e.Name), value.Encode(e)); err != nil {
		return nil, err
	}
	if doc.Kind == 0 || len(doc.Content) == 0 || doc.Content[0].Tag == "!!null" {
		// Only comments, which belong to no entry.
		added, err := marshal(&yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{&key, &value}})
		if len(bytes.TrimSpace(text)) > 0 {
			added = append(append(bytes.TrimRight(text, "\n"), '\n'), added...)
		}
		return added, err
	}
	entries := doc.Content[0]
	for i := 0; i+1 < len(entries.Content); i += 2 {
		if entries.Content[i].Value != e.Name {
			continue
		}
		if !replace {
			return nil, croft.Errorf(croft.Conflict, "it has an image of that name: choose another, or give --replace")
		}
		entries.Content[i+1] = &value
		return marshal(&doc)
	}
	entries.Content = append(entries.Content, &key, &value)
	return marshal(&doc)
}

// withoutEntry returns a catalog's text without the entry.
func withoutEntry(text []byte, name string) ([]byte, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, croft.Errorf(croft.Invalid, "%w", err)
	}
	var names []string
	if len(doc.Content) > 0 {
		entries := doc.Content[0]
		for i := 0; i+1 < len(entries.Content); i += 2 {
			if entries.Content[i].Value == name {
				entries.Content = slices.Delete(entries.Content, i, i+2)
				entries.Style = 0 // turns {} into block style
				rest, err := marshal(&doc)
				if len(entries.Content) == 0 { // the comments stay, without the {} of an empty mapping
					rest = bytes.Replace(rest, []byte("{}\n"), nil, 1)
				}
				return rest, err
			}
			names = append(names, entries.Content[i].Value)
		}
	}
	return nil, croft.Errorf(croft.NotFound, "it has no image of that name%s", nearest.Hint(name, names))
}

func marshal(doc *yaml.Node) ([]byte, error) {
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	err := enc.Encode(doc)
	return b.Bytes(), errors.Join(err, enc.Close())
}
