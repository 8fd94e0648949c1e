// Package edit changes files of a cluster's directory for the commands: it creates the directory, adds nodes, sets
// their states and assigns ids. It keeps comments and the order of keys, and replaces each file atomically.
package edit

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"croft"
	"croft/grid/state"
	"croft/internal/durable"
	"croft/internal/filelock"
	"croft/internal/lazyregexp"
)

// Lock locks the directory against changes by other commands until the returned file is closed. Errors: Conflict if
// another command has locked it.
func Lock(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, croft.Errorf(croft.NotFound, "open the cluster's directory: %w", err)
	}
	if err := filelock.Take(f); err != nil {
		err = croft.Errorf(croft.Conflict, "change %s: %w: wait until that command has ended", dir, err)
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Init creates the directory of a new cluster. Errors: Conflict if the directory already contains a cluster.
func Init(dir, vcs, runtime string) error {
	var id [16]byte
	if _, err := rand.Read(id[:]); err != nil {
		return fmt.Errorf("make the cluster's id: %w", err)
	}
	if _, err := os.Lstat(filepath.Join(dir, state.ClusterFile)); !errors.Is(err, fs.ErrNotExist) {
		return croft.Errorf(croft.Conflict, "%s has a %s already", dir, state.ClusterFile)
	}
	for _, sub := range []string{"nodes", "jobs", "alloc", "policies"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return fmt.Errorf("make the cluster's directory: %w", err)
		}
	}
	ids := state.IDs{NextBucket: -2}
	for _, f := range []struct{ name, text string }{
		{"nodes/_.yaml", "# Values that all nodes inherit. A directory is a site, a directory in it is a rack.\nid: " +
			"-1\n"},
		{"jobs/_.yaml", "# Values that all jobs inherit.\n"},
		{state.IDsFile, ids.Text()},
		// The cluster file is written last: it is what makes the directory a cluster.
		{state.ClusterFile, fmt.Sprintf("# The id never changes: nodes know the cluster by it.\n"+
			"id: %q\nvcs: %s\nruntime: %s\n", hex.EncodeToString(id[:]), vcs, runtime)},
	} {
		if _, err := os.Lstat(filepath.Join(dir, f.name)); err == nil {
			continue
		}
		if err := durable.Write(filepath.Join(dir, f.name), []byte(f.text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Node is a node to add.
type Node struct {
	Path                   string // below nodes/, such as syd/r1/web1
	Address, User, HostKey string
	IP                     string // the IP address, if Address is a host name
	Local                  bool
	Weight                 float64 // 0: 1
	Facts                  []string
	Capacity               []string // key=amount
}

// Add adds a node and the missing directories of its path, and assigns ids to them. Then it calls check, and undoes the
// change if check returns an error. It returns the files that it wrote, as paths below the cluster's directory. Errors:
// Conflict if a node of this name exists, Invalid if n is not valid.
func Add(s *state.State, n Node, check func() error) (written []string, err error) {
	name := path.Base(n.Path)
	if path.IsAbs(n.Path) || path.Clean(n.Path) != n.Path || strings.HasPrefix(n.Path, "..") {
		return nil, croft.Errorf(croft.Invalid, "add the node %q: give its path below nodes/, such as syd/r1/web1",
			n.Path)
	}
	for _, part := range strings.Split(n.Path, "/") {
		if !validName.MatchString(part) {
			return nil, croft.Errorf(croft.Invalid,
				"add the node %q: names have 1 to 63 of a-z 0-9 . _ - and start with a letter or digit", n.Path)
		}
	}
	if had := s.Node(name); had != nil {
		return nil, croft.Errorf(croft.Conflict, "add the node %s: there is one of this name, %s", name, had.Path)
	}
	ids := s.IDs.Clone()
	texts := map[string]string{}
	for dir := path.Dir(path.Join("nodes", n.Path)); dir != "nodes"; dir = path.Dir(dir) {
		has := slices.ContainsFunc(s.Buckets, func(b *state.Bucket) bool { return b.Path == dir })
		if !has {
			texts[dir+"/_.yaml"] = ""
		}
	}
	for _, file := range slices.Sorted(maps.Keys(texts)) {
		texts[file] = fmt.Sprintf("id: %d\n", ids.GiveBucket())
		written = append(written, file)
	}
	file := path.Join("nodes", n.Path+".yaml")
	if texts[file], err = n.text(ids.GiveNode()); err != nil {
		return nil, err
	}
	written = append(written, file)
	// IDs are written first: an id that is assigned but not used does no harm.
	if err := write(s.Dir, state.IDsFile, ids.Text()); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, takeBack(s, written))
			written = nil
		}
	}()
	for _, file := range written {
		if err := os.MkdirAll(filepath.Join(s.Dir, path.Dir(file)), 0o755); err != nil {
			return written, fmt.Errorf("add the node %s: %w", name, err)
		}
		if err := write(s.Dir, file, texts[file]); err != nil {
			return written, err
		}
	}
	return written, check()
}

// takeBack removes the files that Add wrote and the directories that it created, and restores the file of ids.
func takeBack(s *state.State, written []string) error {
	for _, file := range slices.Backward(written) {
		if err := os.Remove(filepath.Join(s.Dir, file)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("take back %s: %w", file, err)
		}
		_ = os.Remove(filepath.Join(s.Dir, path.Dir(file))) // fails if the directory is not empty
	}
	return write(s.Dir, state.IDsFile, s.IDs.Text())
}

var validName = lazyregexp.New(`^[a-z0-9][a-z0-9._-]{0,62}$`)

func write(dir, file, text string) error {
	return durable.Write(filepath.Join(dir, file), []byte(text), 0o644)
}

// text returns the content of the node's file.
func (n Node) text(id int) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "id: %d\n", id)
	if n.Local {
		b.WriteString("local: true\n")
	}
	for _, one := range []struct{ key, value string }{
		{"address", n.Address}, {"ip", n.IP}, {"user", n.User}, {"host_key", n.HostKey},
	} {
		if one.value != "" {
			fmt.Fprintf(&b, "%s: %s\n", one.key, quoted(one.value))
		}
	}
	if n.Weight != 0 {
		fmt.Fprintf(&b, "weight: %s\n", strconv.FormatFloat(n.Weight, 'f', -1, 64))
	}
	if len(n.Facts) > 0 {
		b.WriteString("facts+:\n")
		for _, fact := range n.Facts {
			fmt.Fprintf(&b, "- %s\n", quoted(fact))
		}
	}
	if len(n.Capacity) > 0 {
		b.WriteString("capacity:\n")
	}
	for _, one := range n.Capacity {
		key, amount, _ := strings.Cut(one, "=")
		if _, ok := state.ParseAmount(amount); !ok || !validFact.MatchString(key) {
			return "", croft.Errorf(croft.Invalid, "the capacity %q is not KEY=AMOUNT, such as cpu=4 or memory=8Gi", one)
		}
		fmt.Fprintf(&b, "  %s: %s\n", key, amount)
	}
	return b.String(), nil
}

var validFact = lazyregexp.New(`^[A-Za-z0-9._-]+$`)

var plainText = lazyregexp.New(`^[a-z][a-z0-9.-]*[a-z0-9]$`)

// quoted returns s as a YAML scalar that every parser reads as a string.
func quoted(s string) string {
	words := []string{"yes", "no", "on", "off", "true", "false", "null"}
	if plainText.MatchString(s) && !slices.Contains(words, s) {
		return s
	}
	return strconv.Quote(s)
}

// SetState sets the state of a node in its file, and adds comment unless it is empty; comments by other authors stay.
// Errors: Invalid if the file's format does not allow that.
func SetState(s *state.State, n *state.Node, to, comment string) error {
	text, err := os.ReadFile(filepath.Join(s.Dir, n.Path))
	if err != nil {
		return fmt.Errorf("change %s: %w", n.Path, err)
	}
	changed, err := StateText(n.Path, string(text), to, strings.Join(strings.Fields(comment), " "))
	if err != nil {
		return err
	}
	return replace(s.Dir, n.Path, changed)
}

// replace writes a file and keeps its mode.
func replace(dir, file, text string) error {
	mode := fs.FileMode(0o644)
	if info, err := os.Stat(filepath.Join(dir, file)); err == nil {
		mode = info.Mode().Perm()
	}
	return durable.Write(filepath.Join(dir, file), []byte(text), mode)
}

// setKey sets a top-level key of a file, on its own line; the rest of the file stays unchanged.
func setKey(dir, file, key, value string) error {
	text, err := os.ReadFile(filepath.Join(dir, file))
	if errors.Is(err, fs.ErrNotExist) {
		text, err = nil, nil
	}
	if err != nil {
		return fmt.Errorf("change %s: %w", file, err)
	}
	at := regexp.MustCompile(`(?m)^` + key + `[ \t]*:.*$`)
	line := key + ": " + value
	changed := string(text)
	switch place := at.FindStringIndex(changed); {
	case place != nil:
		changed = changed[:place[0]] + line + changed[place[1]:]
	case strings.HasPrefix(strings.TrimSpace(changed), "{"):
		return croft.Errorf(croft.Invalid, "change %s: its keys are in braces: write each on a separate line", file)
	default:
		if changed != "" && !strings.HasSuffix(changed, "\n") {
			changed += "\n"
		}
		changed += line + "\n"
	}
	return replace(dir, file, changed)
}

// Renumber assigns ids to directories and nodes that have none, and new ids to those with a duplicate id: the first by
// path keeps the id. It describes the changes as sentences. IDs are inputs of placement: slots on or below an entry
// with a new id may move when they are next placed.
func Renumber(s *state.State) (changed []string, err error) {
	ids := s.IDs.Clone()
	type given struct {
		file string
		id   int
	}
	had := map[int]bool{}
	var list []given
	for _, b := range s.Buckets {
		if b.ID == 0 || had[b.ID] {
			list = append(list, given{path.Join(b.Path, "_.yaml"), ids.GiveBucket()})
			continue
		}
		had[b.ID] = true
	}
	byPath := slices.SortedFunc(slices.Values(s.Leaves), func(a, b *state.Node) int {
		return strings.Compare(a.Path, b.Path)
	})
	for _, n := range byPath {
		if n.ID < 0 || had[n.ID] {
			list = append(list, given{n.Path, ids.GiveNode()})
			continue
		}
		had[n.ID] = true
	}
	// IDs of filters that are already taken are deleted here; the next placement assigns new ones.
	for _, filter := range slices.Sorted(maps.Keys(ids.Filters)) {
		of := ids.Filters[filter]
		for _, bucket := range slices.Backward(slices.Sorted(maps.Keys(of))) {
			id := of[bucket]
			if had[id] {
				delete(of, bucket)
				changed = append(changed, fmt.Sprintf("%s: the id of %d among %q will change",
					state.IDsFile, bucket, filter))
				continue
			}
			had[id] = true
		}
	}
	slices.Sort(changed)
	if len(list) == 0 && len(changed) == 0 {
		return nil, nil
	}
	if err := write(s.Dir, state.IDsFile, ids.Text()); err != nil {
		return nil, err
	}
	for _, one := range list {
		if err := setKey(s.Dir, one.file, "id", strconv.Itoa(one.id)); err != nil {
			return changed, err
		}
		changed = append(changed, fmt.Sprintf("%s: id %d", one.file, one.id))
	}
	return changed, nil
}
