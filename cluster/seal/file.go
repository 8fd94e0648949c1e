package seal

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"

	"croft"
	"croft/cluster"
	"croft/internal/lazyregexp"
)

// A key file has one line: an ID, a colon, and 32 bytes in base64.
var fileForm = lazyregexp.New(`^([0-9a-zA-Z._-]{1,40}):([A-Za-z0-9+/]{43}=)\n?$`)

// Load reads key files. Without paths it returns Keys that seal and open nothing. Invalid: a file is not a key file,
// another user may read it, or two have the same ID.
func Load(paths ...string) (*Keys, error) {
	k := &Keys{}
	for _, path := range paths {
		one, err := load(path)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(k.all, func(other key) bool { return other.id == one.id }) {
			return nil, croft.Errorf(croft.Invalid, "the key file %s has the same ID, %s, as another file: name "+
				"each file once", path,
				one.id)
		}
		k.all = append(k.all, one)
	}
	return k, nil
}

// Files are Keys that are read from their files at the first use, for commands that rarely need them. Files implements
// cluster.Vault.
type Files struct{ keys func() (*Keys, error) }

var _ cluster.Vault = Files{}

// LoadLater returns Files for the paths. Its methods also return the errors of Load.
func LoadLater(paths ...string) Files {
	return Files{sync.OnceValues(func() (*Keys, error) { return Load(paths...) })}
}

// Seal implements cluster.Vault.
func (f Files) Seal(s cluster.Secret, about string) (cluster.Sealed, error) {
	k, err := f.keys()
	if err != nil {
		return nil, err
	}
	return k.Seal(s, about)
}

// Open implements cluster.Vault.
func (f Files) Open(v cluster.Sealed, about string) (cluster.Secret, error) {
	k, err := f.keys()
	if err != nil {
		return cluster.Secret{}, err
	}
	return k.Open(v, about)
}

// Rewrap is Keys.Rewrap.
func (f Files) Rewrap(v cluster.Sealed, about string) (cluster.Sealed, bool, error) {
	k, err := f.keys()
	if err != nil {
		return v, false, err
	}
	return k.Rewrap(v, about)
}

func load(path string) (key, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // O_NONBLOCK: opening a pipe does not wait
	if err != nil {
		return key{}, croft.Errorf(croft.Invalid, "read the key file: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return key{}, fmt.Errorf("read the key file: %w", err)
	}
	if err := checkFile(path, info); err != nil {
		return key{}, err
	}
	text, err := io.ReadAll(io.LimitReader(file, 1<<10))
	if err != nil {
		return key{}, fmt.Errorf("read the key file: %w", err)
	}
	parts := fileForm.Get().FindSubmatch(text)
	if parts == nil { // the content must not be in errors
		return key{}, croft.Errorf(croft.Invalid, "%s is no key file: `croft cluster credential key` makes one", path)
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(string(parts[2]))
	if err != nil || len(raw) != keySize {
		return key{}, croft.Errorf(croft.Invalid, "%s is no key file: `croft cluster credential key` makes one", path)
	}
	return newKey(string(parts[1]), raw)
}

// checkFile rejects a file that other users may read or write.
func checkFile(path string, info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return croft.Errorf(croft.Invalid, "the key file %s is no regular file", path)
	}
	if info.Mode().Perm()&0o177 != 0 {
		return croft.Errorf(croft.Invalid, "the key file %s has mode %04o, so others may read it: chmod 600 %s", path,
			info.Mode().Perm(), path)
	}
	if stat, is := info.Sys().(*syscall.Stat_t); is && int(stat.Uid) != os.Geteuid() {
		return croft.Errorf(croft.Invalid, "the key file %s belongs to user %d, and this process is user %d: chown it", path,
			stat.Uid, os.Geteuid())
	}
	return nil
}

// Generate creates a key file, and returns the ID of its key. Conflict: the file exists.
func Generate(path string) (id string, err error) {
	raw, name := make([]byte, keySize), make([]byte, 4)
	_, _ = rand.Read(raw) // never fails
	_, _ = rand.Read(name)
	id = hex.EncodeToString(name)
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return "", croft.Errorf(croft.Conflict, "there is a file %s already: a key that is overwritten opens nothing any "+
			"more", path)
	}
	if err != nil {
		return "", fmt.Errorf("make a key file: %w", err)
	}
	_, err = file.WriteString(strings.Join([]string{id, base64.StdEncoding.EncodeToString(raw)}, ":") + "\n")
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		_ = os.Remove(path)
		return "", fmt.Errorf("write the key file: %w", err)
	}
	return id, nil
}
