package revlock

import (
	"context"
	"fmt"

	"croft"
	"croft/internal/plain"
)

// Rights say which revisions a client may build on beyond those that are older than its own.
type Rights struct {
	Head  string // the head of the upstream; "": there is none
	Adopt bool   // a node that stores no revision, whatever runs there
	Force bool   // a revision that is not older, or that this repository lacks, because the operator gave a reason
}

// Check says whether a node that stores s may be changed, or counted on, by a client whose revision is n. empty: no
// unit of the cluster is there. Conflict with a sentence that says what to do.
func Check(ctx context.Context, vcs VCS, s State, n string, r Rights, empty bool) error {
	if s.Revision == "" {
		// A node that lost its state would take any revision, an old one too.
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

// Short is a revision for people.
func Short(revision string) string { return revision[:min(len(revision), len("fossil:")+12)] }

// Clean is Conflict unless a revision is all that there is: nothing uncommitted, and no other head upstream. It
// returns the revision, and the head of the upstream if there is one.
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
		return "", "", croft.Errorf(croft.Conflict, "%s%s is not committed: commit, so that what is applied has a revision",
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
