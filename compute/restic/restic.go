// Package restic keeps disks in repositories of restic by running Debian's restic. Restic locks a repository itself,
// also against hosts of other clouds; a lock whose process died on this machine is removed.
package restic

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"croft"
	"croft/compute"
	"croft/compute/backup"
	"croft/internal/children"
)

// Programs are the programs that a host needs for backups.
var Programs = []string{"restic", "nbdcopy", "qemu-nbd"}

// Missing returns the programs that this machine lacks.
func Missing() (missing []string) {
	for _, p := range Programs {
		if _, err := exec.LookPath(p); err != nil {
			missing = append(missing, p)
		}
	}
	return missing
}

// Engine implements compute.Repository.
type Engine struct {
	Cache string // directory for restic's cache
}

var _ compute.Repository = Engine{}

// Tags of restic's snapshots. The snapshot with describeTag is written last, so a backup without one is not complete.
const (
	backupTag   = "croft-backup="
	describeTag = "croft-describe"
	describeAs  = "croft-backup.json"
)

// run runs restic on a repository. If a process that died on this machine has locked it, the lock is removed and,
// without an input, restic runs again.
func (e Engine) run(ctx context.Context, a backup.Access, in io.Reader, out io.Writer, args ...string) error {
	for again := in == nil; ; again = false {
		said, err := e.once(ctx, a, in, out, args...)
		switch {
		case err == nil || ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, exec.ErrNotFound):
			return croft.Errorf(croft.Unavailable, "restic is missing on the host: install restic")
		case !strings.Contains(said, "already locked"):
			return explain(said, err)
		}
		if err := e.Recover(ctx, a); err != nil {
			return err
		}
		if !again { // with an input, a part of it is read
			return fmt.Errorf("%w: %s", compute.ErrLocked, line(said, "locked"))
		}
	}
}

// once runs restic once, and returns what it said on standard error.
func (e Engine) once(ctx context.Context, a backup.Access, in io.Reader, out io.Writer, args ...string) (string,
	error) {
	cmd := exec.CommandContext(ctx, "restic", args...)
	repository := a.Repository
	if strings.HasPrefix(repository, "/") {
		// restic makes directories that are missing. It works in the directory itself, not at its path, so that it
		// makes none where the file system of the repository is not mounted any more.
		if _, err := os.Stat(repository); err != nil {
			return fmt.Sprintf("Fatal: unable to open config file: %v\n%s\n%s\n", err, noRepository, repository), err
		}
		cmd.Dir, repository = repository, "."
	}
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "TMPDIR=" + os.Getenv("TMPDIR"),
		"RESTIC_REPOSITORY=" + repository, "RESTIC_PASSWORD=" + a.Password, "RESTIC_CACHE_DIR=" + e.Cache}
	for _, name := range slices.Sorted(maps.Keys(a.Environment)) {
		cmd.Env = append(cmd.Env, name+"="+a.Environment[name])
	}
	var said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, &said
	cmd.WaitDelay = 10 * time.Second
	err := children.Run(cmd)
	return said.String(), err
}

// line returns the first line with a word, or the last line.
func line(said, word string) string {
	lines := strings.Split(strings.TrimSpace(said), "\n")
	for _, l := range lines {
		if strings.Contains(l, word) {
			return strings.TrimSpace(l)
		}
	}
	return strings.TrimSpace(lines[len(lines)-1])
}

// damage has what restic says about data that is missing or was changed.
var damage = []string{"ciphertext verification failed", "does not match", "hash mismatch", "wrong data returned",
	"unable to load", "Data seems to be corrupted", "corrupted", "contains errors", "no such blob", "not found in " +
		"index",
	"no matching ID found",
	"LoadBlob", "LoadRaw", "LoadTree", "invalid data returned", "repository contains errors", "checking indexes failed"}

// noRepository is in what restic says about an address without a repository.
const noRepository = "Is there a repository at the following location"

// explain returns the error for what restic said.
func explain(said string, err error) error {
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(said, w) })
	}
	switch {
	case has("wrong password", "no key found"):
		return croft.Errorf(croft.Denied, "the repository has another password")
	case has("no space left", "No space left", "disk quota exceeded"):
		return croft.Errorf(croft.Unavailable, "the store is full: free some space there, which the "+
			"removal of backups needs too, or give the store more room")
	case has(noRepository, "unable to open config file"):
		return croft.Errorf(croft.Unavailable, "there is no repository at the address, or it cannot be reached: %s",
			line(said, "Fatal"))
	case has(damage...):
		return fmt.Errorf("%w: %s", compute.ErrDamaged, line(said, "Fatal"))
	case has("connection refused", "no such host", "i/o timeout", "no route to host", "unable to start the sftp "+
		"session"):
		return croft.Errorf(croft.Unavailable, "the store cannot be reached: %s", line(said, "Fatal"))
	case strings.TrimSpace(said) == "":
		return croft.Errorf(croft.Unavailable, "restic ended without a reason: %v", err)
	}
	return croft.Errorf(croft.Unavailable, "restic: %s", line(said, "Fatal"))
}

// Open implements compute.Repository.
func (e Engine) Open(ctx context.Context, a backup.Access) error {
	said, err := e.once(ctx, a, nil, io.Discard, "cat", "config", "--quiet", "--no-lock")
	if err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	if !strings.Contains(said, noRepository) {
		return explain(said, err)
	}
	if strings.HasPrefix(a.Repository, "/") {
		if err := mounted(a.Repository); err != nil {
			return err
		}
	}
	said, err = e.once(ctx, a, nil, io.Discard, "init", "--quiet")
	if err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	if strings.Contains(said, "already initialized") || strings.Contains(said, "already exists") {
		return croft.Errorf(croft.Invalid, "what is at the address is no repository of restic, or is damaged: %s",
			line(said, "Fatal"))
	}
	return explain(said, err)
}

// mounted returns Unavailable if a directory for a new repository has other files, or if its parent does not exist: the
// file system is not mounted.
func mounted(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return croft.Errorf(croft.Unavailable, "there is no directory %s on the host: mount the file system, or "+
			"make the directory on it", dir)
	case err != nil:
		return croft.Errorf(croft.Unavailable, "read the directory of the repository: %v", err)
	case len(entries) > 0:
		return croft.Errorf(croft.Invalid, "the directory %s has other files and is no repository of restic: name "+
			"an empty one", dir)
	}
	return nil
}

// summary is the last line that `restic backup --json` prints.
type summary struct {
	Type     string `json:"message_type"`
	Snapshot string `json:"snapshot_id"`
	Added    int64  `json:"data_added"`
}

// Copy implements compute.Repository.
func (e Engine) Copy(ctx context.Context, a backup.Access, id, name string, r io.Reader) (snapshot string, added int64,
	err error) {
	var last summary
	out := lines(func(text []byte) {
		var s summary
		if json.Unmarshal(text, &s) == nil && s.Type == "summary" {
			last = s
		}
	})
	args := []string{"backup", "--json", "--host", "croft", "--tag", backupTag + id, "--stdin", "--stdin-filename",
		name}
	if name == describeAs {
		args = append(args, "--tag", describeTag)
	}
	if err := e.run(ctx, a, r, out, args...); err != nil {
		return "", 0, err
	}
	if last.Snapshot == "" {
		return "", 0, croft.Errorf(croft.Unavailable, "restic did not say what it made")
	}
	return last.Snapshot, last.Added, nil
}

// Describe implements compute.Repository.
func (e Engine) Describe(ctx context.Context, a backup.Access, id string, text []byte) error {
	_, _, err := e.Copy(ctx, a, id, describeAs, bytes.NewReader(text))
	return err
}

// Kept implements compute.Repository.
func (e Engine) Kept(ctx context.Context, a backup.Access, id string) ([]string, error) {
	all, err := e.list(ctx, a, id)
	var kept []string
	for _, s := range all {
		kept = append(kept, s.ID)
	}
	return kept, err
}

// list returns the snapshots of a backup.
func (e Engine) list(ctx context.Context, a backup.Access, id string) ([]listed, error) {
	var text bytes.Buffer
	if err := e.run(ctx, a, nil, &text, "snapshots", "--no-lock", "--json", "--tag", backupTag+id); err != nil {
		return nil, err
	}
	var all []listed
	if err := json.Unmarshal(text.Bytes(), &all); err != nil {
		return nil, fmt.Errorf("read the list of restic: %w", err)
	}
	return slices.DeleteFunc(all, func(s listed) bool { return !slices.Contains(s.Tags, backupTag+id) }), nil
}

// lines calls a function with each line that is written.
func lines(each func([]byte)) io.Writer { return &lineWriter{each: each} }

type lineWriter struct {
	left []byte
	each func([]byte)
}

func (w *lineWriter) Write(p []byte) (int, error) {
	w.left = append(w.left, p...)
	for {
		at := bytes.IndexByte(w.left, '\n')
		if at < 0 {
			break
		}
		w.each(w.left[:at])
		w.left = w.left[at+1:]
	}
	if len(w.left) > 1<<20 { // no line of restic is that long
		w.left = nil
	}
	return len(p), nil
}

// Read implements compute.Repository.
func (e Engine) Read(ctx context.Context, a backup.Access, snapshot, name string, w io.Writer) error {
	buffered := bufio.NewWriterSize(w, 1<<20)
	if err := e.run(ctx, a, nil, buffered, "dump", "--no-lock", snapshot, "/"+name); err != nil {
		return err
	}
	return buffered.Flush()
}

// Verify implements compute.Repository.
func (e Engine) Verify(ctx context.Context, a backup.Access) error {
	err := e.run(ctx, a, nil, io.Discard, "check", "--read-data", "--quiet")
	if err != nil && strings.Contains(err.Error(), "pack") {
		err = fmt.Errorf("%w: %v", compute.ErrDamaged, err)
	}
	return err
}

// Recover implements compute.Repository: without --remove-all restic removes only locks whose process is dead on this
// machine, or that are not renewed.
func (e Engine) Recover(ctx context.Context, a backup.Access) error {
	said, err := e.once(ctx, a, nil, io.Discard, "unlock", "--quiet")
	if err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	return explain(said, err)
}

// listed is an entry of `restic snapshots --json`.
type listed struct {
	ID   string   `json:"id"`
	Tags []string `json:"tags"`
}

// Discard implements compute.Repository.
func (e Engine) Discard(ctx context.Context, a backup.Access, id string, prune bool) error {
	all, err := e.list(ctx, a, id)
	if err != nil {
		return err
	}
	// The description goes first: what is left of an interrupted removal is no complete backup.
	slices.SortStableFunc(all, func(x, y listed) int { return described(y) - described(x) })
	args := []string{"forget", "--quiet"}
	for _, s := range all {
		args = append(args, s.ID)
	}
	if len(args) > 2 {
		if err := e.run(ctx, a, nil, io.Discard, args...); err != nil {
			return err
		}
	}
	if !prune {
		return nil
	}
	return e.run(ctx, a, nil, io.Discard, "prune", "--quiet")
}

func described(s listed) int {
	if slices.Contains(s.Tags, describeTag) {
		return 1
	}
	return 0
}
