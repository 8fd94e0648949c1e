package revlock

import "context"

// An Answer about ancestry has three values, because a repository that lacks a part of the history cannot say yes or
// no.
type Answer int

// The answers. The zero Answer is Unknown.
const (
	Unknown Answer = iota
	Yes
	No
)

// String implements fmt.Stringer.
func (a Answer) String() string {
	switch a {
	case Yes:
		return "yes"
	case No:
		return "no"
	}
	return "unknown"
}

// A VCS answers questions about the repository that contains the cluster's directory. Revisions are written as
// git:<hash>, hg:<hash> or fossil:<hash>, with the full hash.
type VCS interface {
	// Revision returns the revision that is checked out. NotFound: nothing was committed yet.
	Revision(ctx context.Context) (string, error)

	// Uncommitted lists the paths in the cluster's directory that differ from the revision: changed, added, removed,
	// untracked, and ignored files that would be read.
	Uncommitted(ctx context.Context) ([]string, error)

	// Ancestor reports whether old is new or an ancestor of it. Unknown: this repository lacks old, or revisions
	// between the two. Invalid: one of them is a revision of another version control system.
	Ancestor(ctx context.Context, old, new string) (Answer, error)

	// Upstream fetches, and returns the head of the branch that others push to; "": none is configured. Conflict:
	// nobody has pushed to it yet. Unavailable: the upstream does not answer.
	Upstream(ctx context.Context) (string, error)
}
