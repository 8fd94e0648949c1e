package revlock

import "context"

// An Answer about ancestry has three values: a repository that lacks a part of the history knows neither yes nor no.
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

// A VCS answers questions about the repository that the cluster's directory is in. Revisions are written as
// git:<hash>, hg:<hash> or fossil:<hash>, the hash in full.
type VCS interface {
	// Revision returns the revision that is checked out. NotFound: nothing was committed yet.
	Revision(ctx context.Context) (string, error)

	// Uncommitted lists paths of the cluster's directory that are not in the revision as they are: changed, added,
	// removed, untracked, and ignored ones that would be read.
	Uncommitted(ctx context.Context) ([]string, error)

	// Ancestor says whether the revision old is new, or one that new was made from. Unknown: this repository does not
	// have old, or not all between them. Invalid: one of them is a revision of another system.
	Ancestor(ctx context.Context, old, new string) (Answer, error)

	// Upstream fetches, and returns the head of the branch that others push to; "" if none is configured. Conflict:
	// nobody has pushed to it yet. Unavailable.
	Upstream(ctx context.Context) (string, error)
}
