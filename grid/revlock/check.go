package revlock

import (
	"context"
	"fmt"

	"croft"
	"croft/internal/plain"
)

// Rights say which applied revisions, besides ancestors of its own revision, a client may replace.
type Rights struct {
	Head  string // the head of the upstream; "": no upstream is known
	Adopt bool   // a node that stores no revision, whatever runs there
	Force bool   // a revision that is no ancestor, or that this repository lacks: the operator gave a reason
}

// Check reports whether a client at revision n may change a node that stores s, or rely on that node's state. empty
// says that no unit of the cluster is on the node. Conflict: it may not; the error says what to do.
func Check(ctx context.Context, vcs VCS, s State, n string, r Rights, empty bool) error {
	if s.Revision == "" {
		// A node that lost its state would accept any revision, even an old one.
		if r.Adopt || r.Head == n || r.Head == "" && empty && s.Epoch == 0 {
			return nil
		}
		return croft.Errorf(croft.Conflict, "it stores no revision, though units of the cluster may be there: if its state "+
			"was lost, apply the head of the upstream, or give --adopt")
	}
	if s.Revision == n {
		return nil
	}
	answer, err := vcs.Ancestor(ctx, s.Revision, n)
	if err != nil {
		return fmt.Errorf("compare its revision %s with %s: %w", Short(s.Revision), Short(n), err)
	}
	switch {
	case answer == Yes || r.Force:
		return nil
	case answer == No:
		return croft.Errorf(croft.Conflict, "%s is applied there, which %s does not contain: pull and merge; to go back, "+
			"commit a revert (or give --force with --reason)", Short(s.Revision), Short(n))
	}
	return croft.Errorf(croft.Conflict, "%s is applied there, which this repository does not have: fetch first (all of "+
		"the history, if the clone is shallow); if it is lost, give --force with --reason", Short(s.Revision))
}

// Short returns the first characters of a revision, for messages.
func Short(revision string) string { return revision[:min(len(revision), len("fossil:")+12)] }

// Clean returns the checked-out revision and the head of the upstream, "" without an upstream. Conflict: something is
// uncommitted, or the head of the upstream is another revision. Invalid: the VCS returned a malformed revision.
func Clean(ctx context.Context, vcs VCS) (revision, head string, err error) {
	if revision, err = vcs.Revision(ctx); err != nil {
		return "", "", err
	}
	if !revisionForm.MatchString(revision) {
		return "", "", croft.Errorf(croft.Invalid, "%.80q is no revision", revision)
	}
	dirty, err := vcs.Uncommitted(ctx)
	if err != nil {
		return "", "", err
	}
	if len(dirty) > 0 {
		more := ""
		if len(dirty) > 1 {
			more = fmt.Sprintf(" and %d more", len(dirty)-1)
		}
		return "", "", croft.Errorf(croft.Conflict, "%s%s is not committed: commit, so that the applied state has a "+
			"revision",
			plain.Line(dirty[0]), more)
	}
	if head, err = vcs.Upstream(ctx); err != nil {
		return "", "", fmt.Errorf("ask the upstream: %w", err)
	}
	if head == "" || head == revision {
		return revision, head, nil
	}
	behind, err := vcs.Ancestor(ctx, head, revision)
	if err != nil {
		return "", "", err
	}
	if behind == Yes {
		return "", "", croft.Errorf(croft.Conflict, "%s is not pushed: push, so that others meet it before the nodes do",
			Short(revision))
	}
	return "", "", croft.Errorf(croft.Conflict, "the upstream is at %s, which %s does not contain: pull and merge",
		Short(head), Short(revision))
}
