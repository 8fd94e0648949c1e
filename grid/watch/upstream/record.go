package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"croft"
	"croft/grid/machine"
	"croft/grid/watch"
	"croft/internal/lazyregexp"
	"croft/internal/plain"
)

const (
	maxTerm    = 24 * 3600 // seconds
	maxMessage = 64 << 10
)

// Leader implements watch.Repository. Invalid: the reference is not a leader's record.
func (g *Git) Leader(ctx context.Context) (watch.LeaderRecord, error) {
	out, err := g.network(ctx, "ls-remote", remote, leaderRef)
	if err != nil || out == "" {
		return watch.LeaderRecord{}, err
	}
	hash, _, _ := strings.Cut(out, "\t")
	if _, err := g.git(ctx, "cat-file", "-e", hash+"^{commit}"); err != nil {
		if _, err := g.network(ctx, "fetch", "-q", "--no-tags", "--no-write-fetch-head", remote,
			"+"+leaderRef+":"+seenRef); err != nil {
			return watch.LeaderRecord{}, err
		}
		if hash, err = g.git(ctx, "rev-parse", "--verify", seenRef+"^{commit}"); err != nil {
			return watch.LeaderRecord{}, err
		}
	}
	text, err := g.git(ctx, "log", "-1", "--format=%B", hash)
	if err != nil {
		return watch.LeaderRecord{}, err
	}
	m := watch.LeaderRecord{Value: hash}
	if err := json.Unmarshal([]byte(text), &m.Term); err != nil || len(text) > maxMessage || m.Seconds < 1 ||
		m.Seconds > maxTerm || m.Key == "" {
		return watch.LeaderRecord{}, croft.Errorf(croft.Invalid,
			"%s of the upstream (%s) is no record of a watch: %q; if no watch runs, remove it with git push "+
				"--delete", leaderRef, hash, plain.Cut(text, 80))
	}
	m.Leader = plain.Cut(m.Leader, 63)
	return m, nil
}

// Swap implements watch.Repository.
func (g *Git) Swap(ctx context.Context, old watch.LeaderRecord, next watch.Term) (watch.LeaderRecord, error) {
	return g.push(ctx, old, next)
}

// Push implements watch.Repository. The record has to change in each push, because git compares only references that
// change.
func (g *Git) Push(ctx context.Context, base, revision string, old watch.LeaderRecord,
	next watch.Term) (watch.LeaderRecord, error) {
	from, to := strings.TrimPrefix(base, "git:"), strings.TrimPrefix(revision, "git:")
	return g.push(ctx, old, next, "--force-with-lease="+g.branch+":"+from, remote, to+":"+g.branch)
}

// push replaces the record, and updates other references, in one transaction.
func (g *Git) push(ctx context.Context, old watch.LeaderRecord, next watch.Term, more ...string) (watch.LeaderRecord,
	error) {
	hash, err := g.make(ctx, next)
	if err != nil {
		return watch.LeaderRecord{}, err
	}
	args := []string{"push", "--porcelain", "--atomic", "--no-verify", "--force-with-lease=" + leaderRef + ":" +
		old.Value}
	if len(more) == 0 {
		more = []string{remote}
	}
	args = append(append(args, more...), hash+":"+leaderRef)
	out, err := g.network(ctx, args...)
	if err != nil {
		return watch.LeaderRecord{}, refusal(out, err)
	}
	return watch.LeaderRecord{Value: hash, Term: next}, nil
}

// make creates the commit of a record in the clone.
func (g *Git) make(ctx context.Context, t watch.Term) (string, error) {
	text, err := json.Marshal(t)
	if err != nil {
		return "", err
	}
	empty, err := g.git(ctx, "hash-object", "-t", "tree", "-w", "--stdin")
	if err != nil {
		return "", err
	}
	return run(ctx, g.work, string(text), append(g.identity(), "commit-tree", empty)...)
}

// outdated matches git's messages for a reference that has changed, as seen here or by the upstream.
var outdated = lazyregexp.New(`stale info|fetch first|non-fast-forward|cannot lock ref|incorrect old value|` +
	`failed to update ref|failed to lock|already exists|reference already exists|atomic transaction failed`)

// refusal turns the output of a failed push into an error: Conflict; Denied if the upstream refuses for another reason;
// or Unavailable.
func refusal(out string, err error) error {
	exit, ended := errors.AsType[*machine.Exit](err)
	if !ended {
		return err
	}
	var refused []string
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "!") {
			refused = append(refused, strings.Join(strings.Fields(plain.Line(line[1:])), " "))
		}
	}
	all := strings.Join(refused, "; ")
	switch {
	case len(refused) == 0:
		return err
	case outdated.MatchString(all + exit.Stderr):
		return croft.Errorf(croft.Conflict, "others have pushed: %s", all)
	}
	return croft.Errorf(croft.Denied, "the upstream refuses it: %s: %w", all, fmt.Errorf("%s", exit.Stderr))
}
