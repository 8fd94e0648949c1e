package image

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/adrg/xdg"
	"gopkg.in/yaml.v3"

	"croft"
	"croft/internal/nearest"
)

//go:embed images.yaml
var builtin []byte

// Entry is one image of a catalog. Exactly one of URL and Alias is set.
type Entry struct {
	Name   string `yaml:"-" json:"name"`
	Alias  string `yaml:"alias,omitempty" json:"alias,omitempty"`   // name of the entry that this one aliases
	URL    string `yaml:"url,omitempty" json:"url,omitempty"`       // http, https or file URL, or absolute path
	SHA256 string `yaml:"sha256,omitempty" json:"sha256,omitempty"` // at most one of these three
	SHA512 string `yaml:"sha512,omitempty" json:"sha512,omitempty"`
	Sums   string `yaml:"sums,omitempty" json:"sums,omitempty"` // list of checksums, relative to URL
	// path, on the hosts, of the keyring with the key that signs the list
	SignedBy string `yaml:"signed_by,omitempty" json:"signed_by,omitempty"`
	// URL of the list's signature, relative to URL; empty: inside the list
	Signature   string `yaml:"signature,omitempty" json:"signature,omitempty"`
	Description string `yaml:"description,omitempty" json:"description,omitempty"`
	User        string `yaml:"user,omitempty" json:"user,omitempty"` // login user
	// architecture of the machines that start from it; empty: not stated
	Arch croft.Arch `yaml:"arch,omitempty" json:"arch,omitempty"`
}

// Reference returns the entry as the single string in an order.
func (e Entry) Reference() (string, error) {
	ref, err := e.reference()
	return ref.String(), err
}

func (e Entry) reference() (Reference, error) {
	ref, err := ParseReference(e.URL)
	if err != nil {
		return Reference{}, err
	}
	checks := map[string]string{"sha256": e.SHA256, "sha512": e.SHA512, "sums": e.Sums}
	given := 0
	for key, value := range checks {
		if value == "" {
			continue
		}
		given++
		if err := ref.setCheck(key, value); err != nil {
			return Reference{}, err
		}
	}
	if given > 1 {
		return Reference{}, croft.Errorf(croft.Invalid, "give one of sha256, sha512 and sums, not several")
	}
	if e.SignedBy != "" || e.Signature != "" {
		err = ref.setSignature(e.SignedBy, e.Signature)
	}
	return ref, err
}

// Unverified is the Verification of an image without verification.
const Unverified = "nothing"

// Verification describes for people how the image is verified.
func (e Entry) Verification() string {
	ref, err := e.reference()
	switch {
	case err != nil || ref == (Reference{}):
		return Unverified
	case ref.SHA256 != "":
		return "its SHA-256"
	case ref.SHA512 != "":
		return "its SHA-512"
	case ref.SignedBy != "":
		return "the list " + path.Base(ref.Sums) + ", signed by a key in " + ref.SignedBy
	case ref.Sums != "":
		return "the list " + path.Base(ref.Sums)
	}
	return Unverified
}

// Catalog resolves the names of images. The zero Catalog is empty.
type Catalog struct {
	entries map[string]Entry
}

// CatalogFiles returns the paths where the operator and the user keep their own images; the later one wins.
// The files are optional.
func CatalogFiles() []string {
	return append(MachineFiles(), filepath.Join(xdg.ConfigHome, "croft", "images.yaml"))
}

// MachineFiles returns the path of the operator's images on a machine. Servers read no other file: a user's own images
// are not for tenants.
func MachineFiles() []string { return []string{"/etc/croft/images.yaml"} }

// LoadCatalog merges, by name, the built-in images, the images of existing files, and more; the later wins. Invalid: an
// entry is unusable, or a file has an unknown field.
func LoadCatalog(files []string, more map[string]Entry) (Catalog, error) {
	c := Catalog{entries: make(map[string]Entry)}
	if err := c.read("built-in images", bytes.NewReader(builtin)); err != nil {
		return Catalog{}, err
	}
	for _, name := range files {
		if err := c.readFile(name); err != nil {
			return Catalog{}, err
		}
	}
	if err := c.add("settings", more); err != nil {
		return Catalog{}, err
	}
	return c, c.checkAliases()
}

func (c Catalog) readFile(name string) error {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read image catalog: %w", err)
	}
	defer f.Close()
	return c.read(name, f)
}

func (c Catalog) read(source string, r io.Reader) error {
	dec := yaml.NewDecoder(r)
	dec.KnownFields(true)
	var entries map[string]Entry
	if err := dec.Decode(&entries); err != nil && !errors.Is(err, io.EOF) {
		return croft.Errorf(croft.Invalid, "%s: %w", source, err)
	}
	return c.add(source, entries)
}

func (c Catalog) add(source string, entries map[string]Entry) error {
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		e := entries[name]
		e.Name = name
		if IsReference(name) || name == "" {
			return croft.Errorf(croft.Invalid, "%s: %q cannot be the name of an image: it looks like an address",
				source, name)
		}
		if (e.URL == "") == (e.Alias == "") {
			return croft.Errorf(croft.Invalid, "%s: image %s needs a url, or an alias and nothing else", source, name)
		}
		if err := e.Arch.Check(); err != nil {
			return fmt.Errorf("%s: image %s: %w", source, name, err)
		}
		if e.Alias != "" && e.Arch != "" {
			return croft.Errorf(croft.Invalid, "%s: image %s is an alias: only the image that it means has an arch", source,
				name)
		}
		if e.URL != "" {
			if _, err := e.reference(); err != nil {
				return fmt.Errorf("%s: image %s: %w", source, name, err)
			}
		}
		c.entries[name] = e
	}
	return nil
}

// checkAliases requires every alias to lead to a URL in one step.
func (c Catalog) checkAliases() error {
	for _, e := range c.List() {
		if e.Alias == "" {
			continue
		}
		if target, ok := c.entries[e.Alias]; !ok || target.Alias != "" {
			return croft.Errorf(croft.Invalid, "image %s is an alias of %q, which is not an image with a url%s", e.Name,
				e.Alias, nearest.Hint(e.Alias, c.Names()))
		}
	}
	return nil
}

// Resolve returns the entry with this name, with aliases resolved, or an entry made from a reference.
// NotFound: no image has the name. Invalid: the reference cannot be parsed.
func (c Catalog) Resolve(nameOrRef string) (Entry, error) {
	if IsReference(nameOrRef) {
		ref, err := ParseReference(nameOrRef)
		if err != nil {
			return Entry{}, err
		}
		return Entry{Name: ref.Name(), URL: ref.String()}, nil
	}
	e, ok := c.entries[nameOrRef]
	if !ok {
		return Entry{},
			croft.Errorf(croft.NotFound,
				"there is no image %q in the catalog: name one that `croft image list` shows, or give a URL or an absolute path%s",
				nameOrRef, nearest.Hint(nameOrRef, c.Names()))
	}
	if e.Alias != "" {
		e = c.entries[e.Alias]
	}
	return e, nil
}

// IsReference distinguishes a reference from a catalog name: names contain no slash, colon or #.
func IsReference(s string) bool { return strings.ContainsAny(s, "/:#") }

// Names returns the names of all images and aliases, sorted.
func (c Catalog) Names() []string { return slices.Sorted(maps.Keys(c.entries)) }

// List returns all entries, sorted by name.
func (c Catalog) List() []Entry {
	var list []Entry
	for _, name := range c.Names() {
		list = append(list, c.entries[name])
	}
	return list
}

// ReferenceFor resolves a name by this machine's catalog to the reference for hosts. NotFound.
func ReferenceFor(name string) (string, error) {
	entry, err := EntryFor(name)
	if err != nil {
		return "", err
	}
	return entry.Reference()
}

// EntryFor returns the entry for a name in the catalog of this machine and its user, or for a reference. NotFound,
// Invalid.
func EntryFor(name string) (Entry, error) {
	catalog, err := LoadCatalog(CatalogFiles(), nil)
	if err != nil {
		return Entry{}, err
	}
	return catalog.Resolve(name)
}

// Finder returns an EntryFor with these files, for a process that calls it often: it reads the catalog again only when
// one of its files has changed. It is safe for concurrent use.
func Finder(files []string) func(name string) (Entry, error) {
	var mu sync.Mutex
	var read Catalog
	var seen []fileState
	return func(name string) (Entry, error) {
		mu.Lock()
		defer mu.Unlock()
		if now := statesOf(files); seen == nil || !slices.Equal(now, seen) {
			catalog, err := LoadCatalog(files, nil)
			if err != nil {
				return Entry{}, err
			}
			read, seen = catalog, now
		}
		return read.Resolve(name)
	}
}

// fileState is compared to find out whether a file has changed.
type fileState struct {
	size     int64
	modified time.Time
}

// statesOf returns the states of files; a missing file has the zero state.
func statesOf(files []string) []fileState {
	states := make([]fileState, len(files))
	for i, name := range files {
		if info, err := os.Stat(name); err == nil {
			states[i] = fileState{info.Size(), info.ModTime()}
		}
	}
	return states
}
