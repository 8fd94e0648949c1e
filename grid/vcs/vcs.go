// Package vcs answers questions about the repository that contains a cluster's directory: git, Mercurial or Fossil, by
// calling their own programs. Each is a hard point of the kind vcs, so a repository can bring other systems.
//
// A question about ancestry has three answers: yes, no and unknown. A directory that differs from its revision is
// refused with an error that says what to do: see Uncommitted and Examine.
package vcs

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"croft"
	"croft/grid/hardpoint"
	"croft/grid/machine"
	"croft/grid/revlock"
	"croft/internal/lazyregexp"
)

//go:embed points/*.yaml
var points embed.FS

// Verbs are the verbs that a hard point of the kind vcs may define. All are required except ignored, tracked, examine
// and identity.
var Verbs = []string{
	"revision",
	"is_descendant",
	"uncommitted",
	"ignored",
	"tracked",
	"examine",
	"identity",
	"upstream",
	"fetch",
	"add",
	"commit",
	"push",
}

// StateDirs are the directories of a cluster in which no file may be ignored, because their content is the cluster's
// state.
var StateDirs = []string{"nodes", "jobs", "alloc", "net", "policies", "hardpoints"}

// A Repository is a cluster's directory under version control. Its methods are safe for concurrent use.
type Repository struct {
	dir   string // the cluster's directory, absolute
	top   string // the repository's top directory
	point *hardpoint.Point
	run   machine.Machine
}

var _ revlock.VCS = (*Repository)(nil)

// marks maps the file that marks a repository to the name of its version control system.
var marks = map[string]string{".git": "git", ".hg": "hg", ".fslckout": "fossil", "_FOSSIL_": "fossil"}

// Open opens the repository of a cluster's directory. name is the version control system that cluster.yaml names; "":
// it follows from the nearest .git, .hg, .fslckout or _FOSSIL_ in the directory or above. NotFound: no repository was
// found. Invalid: the hard point is faulty.
func Open(dir, name string) (*Repository, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	// The programs print and compare real paths.
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, croft.Errorf(croft.NotFound, "the cluster's directory: %w", err)
	}
	found, top := find(dir)
	if name == "" {
		name = found
	}
	if name == "" {
		return nil, croft.Errorf(croft.NotFound,
			"%s is under no version control: run git init there, and commit its files", dir)
	}
	if top == "" {
		top = dir
	}
	if found != "" && found != name && slices.Contains([]string{"git", "hg", "fossil"}, name) {
		return nil, croft.Errorf(croft.Invalid, "%s is a repository of %s, and cluster.yaml says vcs: %s", top, found,
			name)
	}
	shipped, err := fs.Sub(points, "points")
	if err != nil {
		return nil, err
	}
	p, err := hardpoint.Library{Kind: "vcs", Verbs: Verbs, Shipped: shipped, Repository: os.DirFS(dir)}.Load(name)
	if err != nil {
		return nil, err
	}
	for _, verb := range Verbs {
		if !p.Has(verb) && !slices.Contains([]string{"ignored", "tracked", "examine", "identity"}, verb) {
			return nil, croft.Errorf(croft.Invalid, "%s: it lacks the verb %s", p.From, verb)
		}
	}
	return &Repository{dir: dir, top: top, point: p, run: machine.Local{}}, nil
}

// Detect returns the name of the version control system that a directory is under; the directory need not exist yet.
// "": none.
func Detect(dir string) string {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return ""
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	name, _ := find(dir)
	return name
}

// find looks for a repository in a directory and above.
func find(dir string) (name, top string) {
	for ; ; dir = filepath.Dir(dir) {
		for mark, name := range marks {
			if _, err := os.Lstat(filepath.Join(dir, mark)); err == nil {
				return name, dir
			}
		}
		if dir == filepath.Dir(dir) {
			return "", ""
		}
	}
}

// Name returns the name of the version control system, with which its revisions start.
func (r *Repository) Name() string { return r.point.Name }

// ask runs a verb of the hard point.
func (r *Repository) ask(ctx context.Context, verb string, more hardpoint.Values) (hardpoint.Result, error) {
	v := hardpoint.Values{"dir": r.dir, "top": r.top}
	for name, value := range more {
		v[name] = value
	}
	result, err := r.point.Run(ctx, r.run, verb, v, nil)
	if err == nil {
		return result, nil
	}
	if strings.Contains(err.Error(), "dubious ownership") {
		return result, croft.Errorf(croft.Denied,
			"git does not read %s, as it belongs to another user: if you trust its "+
				"files, run git config --global --add safe.directory %s", r.top, r.top)
	}
	if _, ended := errors.AsType[*machine.Exit](err); !ended {
		return result, fmt.Errorf("%s: %w", r.dir, err)
	}
	return result, fmt.Errorf("repository %s: %w", r.dir, err)
}

var hashForm = lazyregexp.New(`^[0-9a-f]{40}([0-9a-f]{24})?$`)

// Revision returns the revision that is checked out. NotFound: nothing was committed yet.
func (r *Repository) Revision(ctx context.Context) (string, error) {
	result, err := r.ask(ctx, "revision", nil)
	if err != nil {
		return "", err
	}
	hash := strings.TrimSpace(result.Text)
	if result.Absent || strings.Trim(hash, "0") == "" {
		return "", croft.Errorf(croft.NotFound, "%s: nothing is committed yet: commit the cluster's files with %s",
			r.dir, r.Name())
	}
	return r.revision(hash)
}

func (r *Repository) revision(hash string) (string, error) {
	if !hashForm.MatchString(hash) {
		return "", croft.Errorf(croft.Unavailable, "%s: %s says that a revision is %.80q, which is no hash", r.dir,
			r.Name(), hash)
	}
	return r.Name() + ":" + hash, nil
}

// hash returns the hash of a revision. Invalid: the revision is of another version control system.
func (r *Repository) hash(revision string) (string, error) {
	system, hash, ok := strings.Cut(revision, ":")
	switch {
	case !ok || !hashForm.MatchString(hash):
		return "", croft.Errorf(croft.Invalid, "%.100q is no revision: %s:<hash in full> is wanted", revision, r.Name())
	case system != r.Name():
		return "", croft.Errorf(croft.Invalid, "%s is a revision of %s, and %s is a repository of %s", revision,
			system, r.dir, r.Name())
	}
	return hash, nil
}

// Ancestor reports whether old is new or an ancestor of it. Unknown: this repository lacks one of them, or its history
// is cut off; fetch first.
func (r *Repository) Ancestor(ctx context.Context, old, new string) (revlock.Answer, error) {
	from, err := r.hash(old)
	if err != nil {
		return revlock.Unknown, err
	}
	to, err := r.hash(new)
	if err != nil {
		return revlock.Unknown, err
	}
	result, err := r.ask(ctx, "is_descendant", hardpoint.Values{"old": from, "new": to})
	switch {
	case err != nil || result.Unknown:
		return revlock.Unknown, err
	case result.No:
		return revlock.No, nil
	}
	return revlock.Yes, nil
}

// Upstream fetches, and returns the head of the branch that others push to; "": none is configured. Conflict: nobody
// has pushed to it yet. Unavailable: the upstream does not answer.
func (r *Repository) Upstream(ctx context.Context) (string, error) {
	head, has, err := r.upstream(ctx)
	if err == nil && has && head == "" {
		err = croft.Errorf(
			croft.Conflict,
			"it has no revision of this branch yet: push, so that others meet it before the "+
				"nodes do",
		)
	}
	return head, err
}

// upstream fetches, and returns the head of the branch that others push to, "" before the first push, and whether an
// upstream is configured.
func (r *Repository) upstream(ctx context.Context) (head string, has bool, err error) {
	if err := r.Fetch(ctx); err != nil {
		return "", false, err
	}
	result, err := r.ask(ctx, "upstream", nil)
	if err != nil || result.Absent || result.No {
		return "", result.No, err
	}
	head, err = r.revision(strings.TrimSpace(result.Text))
	return head, true, err
}

// ContainsUpstream fetches, and reports whether a revision contains everything that others pushed. Yes if no upstream
// is configured or nobody has pushed yet.
func (r *Repository) ContainsUpstream(ctx context.Context, revision string) (revlock.Answer, error) {
	head, _, err := r.upstream(ctx)
	switch {
	case err != nil:
		return revlock.Unknown, err
	case head == "":
		return revlock.Yes, nil
	}
	return r.Ancestor(ctx, head, revision)
}

// Fetch fetches what others pushed, and changes no file in the directory. It does nothing if no upstream is configured.
func (r *Repository) Fetch(ctx context.Context) error {
	_, err := r.ask(ctx, "fetch", nil)
	return err
}

// Commit commits the files at the paths relative to the cluster's directory, including added and removed ones, and
// returns the new revision. Invalid: no paths. Conflict: the version control system refuses, for example because
// another revision was fetched meanwhile.
func (r *Repository) Commit(ctx context.Context, message string, paths ...string) (string, error) {
	if len(paths) == 0 || strings.TrimSpace(message) == "" {
		return "", croft.Errorf(croft.Invalid, "commit: a message and paths are wanted")
	}
	full := make([]string, len(paths))
	for i, p := range paths {
		if !filepath.IsLocal(p) {
			return "", croft.Errorf(croft.Invalid, "commit: %q is not below %s", p, r.dir)
		}
		full[i] = filepath.Join(r.dir, p)
	}
	if _, err := r.ask(ctx, "add", hardpoint.Values{"paths": full}); err != nil {
		return "", err
	}
	result, err := r.ask(ctx, "commit", hardpoint.Values{"paths": full, "message": message})
	if err == nil && result.No {
		err = r.overtaken()
	}
	if err != nil {
		return "", err
	}
	return r.Revision(ctx)
}

// Push sends commits to the upstream. Conflict: another operator pushed meanwhile.
func (r *Repository) Push(ctx context.Context) error {
	if head, _, err := r.upstream(ctx); err != nil {
		return err
	} else if head != "" {
		here, err := r.Revision(ctx)
		if err != nil {
			return err
		}
		if has, err := r.Ancestor(ctx, head, here); err != nil || has != revlock.Yes {
			return errors.Join(err, r.overtaken())
		}
	}
	result, err := r.ask(ctx, "push", nil)
	if err == nil && result.No {
		err = r.overtaken()
	}
	return err
}

func (r *Repository) overtaken() error {
	return croft.Errorf(croft.Conflict, "%s: another operator pushed meanwhile: fetch that and decide again", r.dir)
}
