package login

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/adrg/xdg"

	"croft"
	"croft/internal/durable"
	"croft/internal/filelock"
	"croft/internal/lazyregexp"
	"croft/internal/nearest"
)

// Variable is the environment variable that names the context for commands, which then ignore the current one.
const Variable = "CROFT_CONTEXT"

// Default is the name of a context that was created without a name.
const Default = "default"

// Contexts are the logins of a user.
type Contexts struct {
	Current  string             `json:"current,omitempty"` // the one that commands use; empty: none
	Contexts map[string]Context `json:"contexts"`
}

// File stores the contexts of a user. Only its owner may read it.
type File string

// Own returns the file of this process's user, in the directory of settings.
func Own() File { return File(filepath.Join(xdg.ConfigHome, "croft", "login.json")) }

var names = lazyregexp.New(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)

// CheckName returns Invalid if name cannot be the name of a context.
func CheckName(name string) error {
	if !names.MatchString(name) {
		return croft.Errorf(croft.Invalid, "%.80q cannot be the name of a context: use up to 63 letters, digits, dots, "+
			"dashes and underscores, with a letter or digit at both ends", name)
	}
	return nil
}

// Read returns all contexts; a file that does not exist has none. Invalid: users other than its owner may read it, or
// it is damaged.
func (f File) Read() (all Contexts, err error) {
	info, err := os.Stat(string(f))
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		return all, croft.Errorf(croft.Invalid,
			"%s has a token in it, and others may read it: chmod 600 it, or run croft logout", f)
	}
	return f.Peek()
}

// Peek does the same as Read, but ignores who may read the file. It is for callers that only change the file.
func (f File) Peek() (all Contexts, err error) {
	all.Contexts = map[string]Context{}
	text, err := os.ReadFile(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return all, croft.Errorf(croft.Invalid, "read the logins: %w", err)
	}
	var both struct {
		Contexts
		Context // the earlier format, which had one context
	}
	err = json.Unmarshal(text, &both)
	if both.Context.URL != "" && both.Contexts.Contexts == nil {
		both.Contexts = Contexts{Current: Default, Contexts: map[string]Context{Default: both.Context}}
	}
	damaged := err != nil || both.Contexts.Contexts == nil
	for name, c := range both.Contexts.Contexts {
		damaged = damaged || c.URL == "" || CheckName(name) != nil
	}
	if _, known := both.Contexts.Contexts[both.Current]; damaged || both.Current != "" && !known {
		return all, croft.Errorf(croft.Invalid, "%s is damaged: remove it, and run croft login again", f)
	}
	return both.Contexts, nil
}

// Find returns a context. NotFound.
func (all Contexts) Find(name string) (Context, error) {
	c, known := all.Contexts[name]
	switch {
	case known:
		return c, nil
	case len(all.Contexts) == 0:
		return c, croft.Errorf(croft.NotFound, "nobody is logged in: run croft login")
	}
	return c, croft.Errorf(croft.NotFound, "there is no context %.80q; `croft context list` shows all%s", name,
		nearest.Hint(name, all.Names()))
}

// Names lists the names, sorted.
func (all Contexts) Names() []string { return slices.Sorted(maps.Keys(all.Contexts)) }

// Context returns one context. NotFound; Invalid.
func (f File) Context(name string) (Context, error) {
	all, err := f.Read()
	if err != nil {
		return Context{}, err
	}
	return all.Find(name)
}

// Change changes the contexts; afterwards only their owner may read them. If several processes change them at once, no
// change is lost. If change returns an error, nothing changes.
func (f File) Change(change func(all *Contexts) error) error {
	if err := os.MkdirAll(filepath.Dir(string(f)), 0o700); err != nil {
		return fmt.Errorf("keep the login: %w", err)
	}
	unlock, err := lock(string(f) + ".lock")
	if err != nil {
		return croft.Errorf(croft.Unavailable, "keep the login: %w", err)
	}
	defer unlock()
	all, err := f.Peek()
	if err == nil {
		err = change(&all)
	}
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(all, "", "  ")
	if err == nil {
		err = durable.Write(string(f), append(text, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("keep the login: %w", err)
	}
	return nil
}

// Put stores a context and makes it the current one. Invalid.
func (f File) Put(name string, c Context) error {
	if err := CheckName(name); err != nil {
		return err
	}
	return f.Change(func(all *Contexts) error {
		all.Contexts[name], all.Current = c, name
		return nil
	})
}

// Remove forgets a context, and returns it. If it was the current one, there is no current one afterwards. NotFound.
func (f File) Remove(name string) (c Context, err error) {
	err = f.Change(func(all *Contexts) error {
		if c, err = all.Find(name); err != nil {
			return err
		}
		if delete(all.Contexts, name); all.Current == name {
			all.Current = ""
		}
		return nil
	})
	if err == nil {
		_ = os.Remove(f.renewals(name)) // a process that waits for this lock then finds no context
	}
	return c, err
}

// renewals returns the lock file that a process holds while it renews a context.
func (f File) renewals(name string) string { return string(f) + "." + name + ".lock" }

// lock takes a lock file.
func lock(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := filelock.Take(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() { _ = file.Close() }, nil
}
