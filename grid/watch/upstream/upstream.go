// Package upstream is the repository of a watch, with git. It keeps a clone next to the watch's memory, and changes the
// upstream's branch and record in one transaction.
//
// The record is the reference refs/fission/leader: a commit without files, whose message is the term in JSON. Of the
// version control systems that a cluster may use, only git can do this: a push of hg moves a branch and a bookmark
// without comparing both, and fossil accepts every commit and forks.
package upstream

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"croft"
	"croft/grid/machine"
	"croft/grid/watch"
	"croft/internal/plain"
)

const (
	leaderRef = "refs/fission/leader"
	remote    = "upstream"
	netLimit  = 45 * time.Second // timeout of a fetch or push
	seenRef   = "refs/croft/leader"
)

// Git is the upstream of a cluster, with a clone of it. Only one process may use it at a time; its methods are safe for
// concurrent use.
type Git struct {
	work   string // the clone
	below  string // the cluster's directory in the clone
	branch string // the upstream's branch: refs/heads/...
	author string
}

var _ watch.Repository = (*Git)(nil)

// Open opens or creates the clone of a watch, of the upstream that is configured for the current branch of the
// cluster's directory. author is the author of its commits. Invalid: there is no upstream. Unavailable: the upstream
// does not answer.
func Open(ctx context.Context, dir, work, author string) (*Git, error) {
	ask := func(args ...string) (string, error) { return run(ctx, dir, "", args...) }
	prefix, err := ask("rev-parse", "--show-prefix")
	if err != nil {
		return nil, croft.Errorf(croft.Invalid,
			"watch %s: it is in no repository of git, and a watch commits and pushes: %w",
			dir, err)
	}
	branch, err := ask("symbolic-ref", "--short", "HEAD")
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "watch %s: no branch is checked out: %w", dir, err)
	}
	from, err1 := ask("config", "branch."+branch+".remote")
	merge, err2 := ask("config", "branch."+branch+".merge")
	if err := errors.Join(err1, err2); err != nil {
		return nil, croft.Errorf(croft.Invalid,
			"watch %s: the branch %s has no upstream to push to; give it one, such as "+
				"git push -u origin %s", dir, branch, branch)
	}
	url, err := ask("remote", "get-url", "--push", from)
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "watch %s: the upstream of %s: %w", dir, branch, err)
	}
	top, err := ask("rev-parse", "--show-toplevel")
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "watch %s: %w", dir, err)
	}
	g := &Git{work: work, below: filepath.Join(work, filepath.FromSlash(prefix)), branch: merge, author: author}
	return g, g.clone(ctx, top, url)
}

// clone creates the clone, unless there already is a clone of this upstream.
func (g *Git) clone(ctx context.Context, top, url string) error {
	origin := top + " " + url // a relative URL is relative to top
	if had, err := run(ctx, g.work, "", "config", "croft.upstream"); err == nil && had == origin {
		return nil
	}
	if err := os.RemoveAll(g.work); err != nil {
		return fmt.Errorf("remove the clone of another upstream: %w", err)
	}
	if _, err := run(ctx, top, "", "clone", "-q", "--no-checkout", "--no-tags", "--origin", remote, "--", url,
		g.work); err != nil {
		return croft.Errorf(croft.Unavailable, "clone the upstream %s: %w", plain.Cut(url, 200), err)
	}
	_, err := run(ctx, g.work, "", "config", "croft.upstream", origin)
	return err
}

// run runs git in a directory and returns its output without the last line break.
func run(ctx context.Context, dir, stdin string, args ...string) (string, error) {
	argv := append([]string{"env", "LC_ALL=C", "GIT_TERMINAL_PROMPT=0", "git", "-C", dir, "-c", "core.symlinks=true",
		"-c", "core.autocrlf=false", "-c", "gc.autoDetach=false", "-c", "advice.detachedHead=false"}, args...)
	out, err := machine.Output(ctx, machine.Local{}, strings.NewReader(stdin), argv...)
	out = strings.TrimSuffix(out, "\n")
	if err != nil {
		return out, fmt.Errorf("git %s: %w", args[0], clean(err))
	}
	return out, nil
}

// clean turns the error output of git into one line.
func clean(err error) error {
	exit, ok := errors.AsType[*machine.Exit](err)
	if !ok {
		return err
	}
	text := strings.Join(strings.Fields(plain.Cut(exit.Stderr, plain.Longest)), " ")
	return &machine.Exit{Code: exit.Code, Stderr: text}
}

func (g *Git) git(ctx context.Context, args ...string) (string, error) {
	return run(ctx, g.work, "", args...)
}

// network runs a git command that contacts the upstream.
func (g *Git) network(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, netLimit)
	defer cancel()
	out, err := g.git(ctx, args...)
	if err != nil {
		return out, croft.Errorf(croft.Unavailable, "%w", err)
	}
	return out, nil
}

// Checkout implements watch.Repository.
func (g *Git) Checkout(ctx context.Context) (dir, revision string, err error) {
	const fetched = "refs/croft/branch"
	if _, err := g.network(ctx, "fetch", "-q", "--no-tags", "--no-write-fetch-head", remote,
		"+"+g.branch+":"+fetched); err != nil {
		return "", "", err
	}
	hash, err := g.git(ctx, "rev-parse", "--verify", fetched+"^{commit}")
	if err != nil {
		return "", "", err
	}
	// Only this process uses the clone, so a lock was left behind by a git that was killed.
	if err := os.Remove(filepath.Join(g.work, ".git", "index.lock")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", "", err
	}
	if _, err := g.git(ctx, "checkout", "-q", "--force", "--detach", hash); err != nil {
		return "", "", err
	}
	if _, err := g.git(ctx, "clean", "-ffdxq"); err != nil {
		return "", "", err
	}
	return g.below, "git:" + hash, nil
}

// Commit implements watch.Repository.
func (g *Git) Commit(ctx context.Context, message string) (string, error) {
	if _, err := g.git(ctx, "add", "-A"); err != nil {
		return "", err
	}
	if _, err := run(ctx, g.work, message, append(g.identity(), "commit", "-q", "--no-verify", "--no-gpg-sign",
		"--cleanup=verbatim",
		"-F", "-")...); err != nil {
		return "", err
	}
	ignored, err := g.git(ctx, "status", "--porcelain", "--ignored")
	if err != nil {
		return "", err
	}
	if ignored != "" {
		return "", croft.Errorf(croft.Invalid, "git ignores files of the cluster (%s): take them out of .gitignore",
			plain.Cut(strings.ReplaceAll(ignored, "\n", ", "), 200))
	}
	hash, err := g.git(ctx, "rev-parse", "HEAD")
	return "git:" + hash, err
}

func (g *Git) identity() []string {
	return []string{"-c", "user.name=" + g.author, "-c", "user.email=watch@" + strings.Fields(g.author + " croft")[0]}
}
