// Package settings reads a program's settings strictly: the first file of a search path overrides the defaults, CROFT_*
// variables override the file, and flags override both. An unknown setting in a file is an error that contains its
// position and the nearest known word, so that a typo does not silently result in a default. Unknown variables are
// ignored, since croft's other programs have their own.
package settings

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"

	"github.com/adrg/xdg"

	"croft"
	"croft/internal/nearest"
)

// Source is the origin of settings.
type Source struct {
	Name  string                      // name of the file, such as schedule.yaml
	File  string                      // explicit path, which must exist; empty: Name is searched
	Dirs  []string                    // searched for Name; only the first file found is used; SearchPath by default
	Env   func(string) (string, bool) // os.LookupEnv by default
	Flags map[string]string           // values of flags by the paths of settings, such as etcd.endpoints

	// Former maps the paths of settings of other versions to their replacements.
	Former map[string]string

	// Renamed maps the former paths of settings, or of groups, to the current ones. Former names are still
	// read, with a warning; a file that has both is Invalid.
	Renamed map[string]string
	Warn    func(words string) // receives warnings; nil: they are dropped
}

func (s Source) warn(format string, args ...any) {
	if s.Warn != nil {
		s.Warn(fmt.Sprintf(format, args...))
	}
}

// SearchPath returns the directories searched for settings: the working directory, the user's configuration, the
// machine's configuration.
func SearchPath() []string {
	return []string{".", filepath.Join(xdg.ConfigHome, "croft"), "/etc/croft"}
}

// Load returns the defaults with the changes of the source, and the file that was read; empty: no file. T is a struct
// whose fields have yaml tags. A setting in a nested struct has a dotted path; the variable for etcd.endpoints is
// CROFT_ETCD_ENDPOINTS, and an empty variable counts as unset. In variables and flags, elements of lists of texts are
// separated by commas.
//
// If *T has a method Validate() error, Load calls it last. Every error is Invalid.
func Load[T any](defaults T, s Source) (settings T, file string, err error) {
	settings = defaults
	v := reflect.ValueOf(&settings).Elem()
	file, text, err := s.read()
	if err != nil {
		return defaults, file, err
	}
	if err := s.decodeFile(file, text, v); err != nil {
		if key, ok := errors.AsType[*unknownKey](err); ok && s.Former[key.path] != "" {
			former := (&unknownKey{key.path, ": " + s.Former[key.path]}).Error()
			err = croft.Errorf(croft.Invalid, "%s", strings.Replace(err.Error(), key.Error(), former, 1))
		}
		return defaults, file, err
	}
	if err := s.overlay(v); err != nil {
		return defaults, file, err
	}
	if valid, ok := any(&settings).(interface{ Validate() error }); ok {
		if err := valid.Validate(); err != nil {
			return defaults, file, croft.Errorf(croft.Invalid, "settings: %w", err)
		}
	}
	return settings, file, nil
}

// read finds the file and returns its content.
func (s Source) read() (file string, text []byte, err error) {
	if s.File != "" {
		text, err = os.ReadFile(s.File)
		if os.IsNotExist(err) {
			return s.File, nil, croft.Errorf(croft.Invalid, "there is no file of settings %s", s.File)
		}
		return s.File, text, readError(err)
	}
	dirs := s.Dirs
	if dirs == nil {
		dirs = SearchPath()
	}
	for _, dir := range dirs {
		file = filepath.Join(dir, s.Name)
		text, err = os.ReadFile(file)
		if os.IsNotExist(err) {
			continue
		}
		if err := CheckOwner(file); err != nil {
			return file, nil, err
		}
		return file, text, readError(err)
	}
	return "", nil, nil
}

// CheckOwner rejects a file that was found by search if it belongs to a user other than root and the program's user, or
// is writable by all users, because the working directory may belong to any user. Invalid.
func CheckOwner(file string) error {
	for _, look := range []func(string) (os.FileInfo, error){os.Lstat, os.Stat} { // a symlink is checked too
		info, err := look(file)
		if err != nil {
			return readError(err)
		}
		is, ok := info.Sys().(*syscall.Stat_t)
		if ok && is.Uid != 0 && int(is.Uid) != os.Geteuid() {
			return croft.Errorf(croft.Invalid,
				"%s belongs to another user (%d), and was not named: name it with its flag to use it, or work in another directory", file, is.Uid)
		}
		if info.Mode().Type() == 0 && info.Mode().Perm()&0o002 != 0 {
			return croft.Errorf(croft.Invalid, "everybody may write %s: chmod o-w %s", file, file)
		}
	}
	return nil
}

func readError(err error) error {
	if err == nil {
		return nil
	}
	return croft.Errorf(croft.Invalid, "read settings: %w", err)
}

// overlay applies the environment and the flags.
func (s Source) overlay(v reflect.Value) error {
	env := s.Env
	if env == nil {
		env = os.LookupEnv
	}
	all := leaves(v, "")
	for _, l := range all {
		name := EnvName(l.path)
		text, ok := env(name)
		if former := s.formerPath(l.path); former != "" {
			formerName := EnvName(former)
			if formerText, has := env(formerName); has && formerText != "" {
				if ok && text != "" {
					return croft.Errorf(croft.Invalid, "%s is the former name of %s: set one of them", formerName, name)
				}
				s.warn("%s is called %s now", formerName, name)
				name, text, ok = formerName, formerText, true
			}
		}
		if ok && text != "" {
			if err := l.set(text); err != nil {
				return croft.Errorf(croft.Invalid, "%s: %w", name, err)
			}
		}
	}
	for path, text := range s.Flags {
		i := slices.IndexFunc(all, func(l leaf) bool { return l.path == path })
		if i < 0 {
			return fmt.Errorf("settings have no %q", path) // a mistake in the program, not of its user
		}
		if err := all[i].set(text); err != nil {
			return croft.Errorf(croft.Invalid, "flag for %s: %w", path, err)
		}
	}
	return nil
}

// formerPath returns the former path of a setting; empty: it has no former path.
func (s Source) formerPath(path string) string {
	for former, now := range s.Renamed {
		if path == now {
			return former
		}
		if rest, below := strings.CutPrefix(path, now+"."); below {
			return former + "." + rest
		}
	}
	return ""
}

// EnvName returns the variable that overrides the setting at a path.
func EnvName(path string) string {
	return "CROFT_" + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(path))
}

// leaf is one setting.
type leaf struct {
	path  string
	value reflect.Value
}

// leaves lists the settings of a struct, including nested ones.
func leaves(v reflect.Value, prefix string) []leaf {
	var all []leaf
	for _, f := range fieldsOf(v.Type()) {
		field, path := v.FieldByIndex(f.index), prefix+f.name
		if isGroup(field.Type()) {
			all = append(all, leaves(field, path+".")...)
		} else {
			all = append(all, leaf{path, field})
		}
	}
	return all
}

// set decodes text as in the file; elements of lists of texts are separated by commas.
func (l leaf) set(text string) error {
	list := l.value.Kind() == reflect.Slice && l.value.Type().Elem().Kind() == reflect.String
	if !list {
		return decodeText(text, l.value)
	}
	words := strings.Split(text, ",")
	fresh := reflect.MakeSlice(l.value.Type(), len(words), len(words))
	for i, word := range words {
		fresh.Index(i).SetString(strings.TrimSpace(word))
	}
	l.value.Set(fresh)
	return nil
}

type field struct {
	name  string
	index []int
}

// fieldsOf lists the fields of a struct that have a yaml tag, including fields of inlined structs.
func fieldsOf(t reflect.Type) []field {
	var all []field
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if options == "inline" {
			for _, inner := range fieldsOf(f.Type) {
				all = append(all, field{inner.name, append(slices.Clone(f.Index), inner.index...)})
			}
		}
		if f.IsExported() && name != "" && name != "-" {
			all = append(all, field{name, f.Index})
		}
	}
	return all
}

// unknownKey is the error for a key that a struct does not have.
type unknownKey struct{ path, hint string }

func (u *unknownKey) Error() string { return fmt.Sprintf("unknown setting %q%s", u.path, u.hint) }

func unknown(t reflect.Type, path, key string) error {
	var names []string
	for _, f := range fieldsOf(t) {
		names = append(names, f.name)
	}
	return &unknownKey{path + key, nearest.Hint(key, names)}
}

// EnvNames lists the variables that override the settings of a struct, including the variables of former names.
func EnvNames[T any](of T, renamed map[string]string) []string {
	var names []string
	for _, l := range leaves(reflect.ValueOf(&of).Elem(), "") {
		names = append(names, EnvName(l.path))
		if former := (Source{Renamed: renamed}).formerPath(l.path); former != "" {
			names = append(names, EnvName(former))
		}
	}
	return names
}
