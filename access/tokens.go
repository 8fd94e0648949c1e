package access

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"croft"
)

// KeptExpired is how long a store keeps an expired token, so that its holder is told why it counts no more.
const KeptExpired = 7 * 24 * time.Hour

// Tokens stores tokens. Tokens of projects outside a scope are treated as if they were not there; those of no project
// are in the scope of operators alone.
type Tokens interface {
	// Create stores a new token. Invalid. Conflict: its project has a token of this ID.
	Create(ctx context.Context, t Token) error
	// Find returns a token. NotFound.
	Find(ctx context.Context, scope Scope, id TokenID) (Token, error)
	// List returns the tokens by time of creation, for KeptExpired also expired ones.
	List(ctx context.Context, scope Scope) ([]Token, error)
	// Revoke removes a token at once and returns it. NotFound.
	Revoke(ctx context.Context, scope Scope, id TokenID) (Token, error)
}

// TokenFeed tells about all tokens and every change of them.
type TokenFeed interface {
	// Watch calls all with every token that there is, at first and whenever changes may have been missed; between,
	// changed with each token that is made, or with nil for one that is gone. Calls do not overlap. It returns only
	// when ctx ends.
	Watch(ctx context.Context, all func([]Token), changed func(TokenID, *Token)) error
}

// Bearer recognizes the tokens of this cloud, sent as "Authorization: Bearer croft_...". It keeps all tokens in
// memory, so that no request with a known token waits for the store, and a revoked token is refused as soon as the feed
// says so. While the feed is cut off from the store, it goes by the tokens as they were; then nothing else works for
// their holders either. A feed that is Behind catches up before an unknown token is refused.
type Bearer struct {
	feed      TokenFeed
	partition croft.PartitionID
	now       func() time.Time

	mu    sync.RWMutex
	known map[TokenID]Token // nil: not read yet
	gone  map[TokenID]bool  // were known: no look at the store is needed to refuse them
}

var _ Authenticator = (*Bearer)(nil)

// NewBearer returns an authenticator that knows no token until it runs. A nil now is time.Now.
func NewBearer(feed TokenFeed, p croft.PartitionID, now func() time.Time) *Bearer {
	if now == nil {
		now = time.Now
	}
	return &Bearer{feed: feed, partition: p, now: now}
}

// Run keeps the tokens up to date until ctx ends.
func (b *Bearer) Run(ctx context.Context) error { return b.feed.Watch(ctx, b.replace, b.change) }

func (b *Bearer) replace(all []Token) {
	known := make(map[TokenID]Token, len(all))
	for _, t := range all {
		known[t.ID] = t
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for id := range b.known {
		if _, still := known[id]; !still {
			b.forget(id)
		}
	}
	b.known = known
}

// mostGone bounds the tokens that are remembered as gone.
const mostGone = 100_000

// forget remembers that a token is gone. IDs are not used again.
func (b *Bearer) forget(id TokenID) {
	if b.gone == nil || len(b.gone) >= mostGone {
		b.gone = map[TokenID]bool{}
	}
	b.gone[id] = true
}

func (b *Bearer) change(id TokenID, t *Token) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t == nil {
		delete(b.known, id)
		b.forget(id)
	} else {
		b.known[id] = *t
	}
}

// Authenticate implements Authenticator. Other schemes than Bearer, and other bearer tokens than croft_..., are not of
// its kind.
func (b *Bearer) Authenticate(ctx context.Context, r *http.Request) (Caller, bool, error) {
	text, ok, err := BearerToken(r)
	if !ok || !strings.HasPrefix(text, secretPrefix) {
		return Caller{}, false, err
	}
	s, err := ParseSecret(text)
	if err != nil {
		return Caller{}, false, croft.Errorf(croft.Denied, "%s", err.Error())
	}
	t, err := b.token(ctx, s.ID)
	if err != nil {
		return Caller{}, false, err
	}
	if err := t.admit(s, b.now()); err != nil {
		return Caller{}, false, err
	}
	if err := b.parents(t); err != nil {
		return Caller{}, false, err
	}
	return Caller{Partition: b.partition, User: t.User, Project: t.Project, ProjectID: t.ProjectID,
		Token: t.ID, Delegated: delegatedBy(t), Roles: slices.Clone(t.Roles), Via: "token " + string(t.ID)}, true, nil
}

// token returns the token with an ID, which may have been made just now at another server; the zero Token: there is
// none. Unavailable.
func (b *Bearer) token(ctx context.Context, id TokenID) (Token, error) {
	look := func() (t Token, decided, read bool) {
		b.mu.RLock()
		defer b.mu.RUnlock()
		t, known := b.known[id]
		return t, known || b.gone[id], b.known != nil
	}
	t, decided, read := look()
	if !read {
		return Token{}, croft.Errorf(croft.Unavailable, "the tokens of this cloud are still being read: try again")
	}
	if decided {
		return t, nil
	}
	if err := CatchUp(ctx, b.feed); err != nil {
		return Token{}, err
	}
	t, _, _ = look()
	return t, nil
}

// parents refuses a token that was made with one that was revoked or has expired.
func (b *Bearer) parents(t Token) error {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for n := 0; t.Parent != ""; n++ {
		parent, known := b.known[t.Parent]
		if !known || !b.now().Before(parent.Expires) || n > maxParents {
			return croft.Errorf(croft.Denied, "the token (%s) with which this one (%s) was made counts no more: ask for another",
				t.Parent, t.ID)
		}
		t = parent
	}
	return nil
}

// maxParents bounds a chain of tokens that were made with each other.
const maxParents = 32

// delegatedBy names who made a token in the name of somebody else; empty: nobody did.
func delegatedBy(t Token) string {
	if t.Delegated {
		return t.CreatedBy
	}
	return ""
}

// BearerToken returns the bearer token of a request, of whatever kind. False: it has none. Denied: it has several
// Authorization headers, which programs on the way might understand differently.
func BearerToken(r *http.Request) (string, bool, error) {
	values := r.Header.Values("Authorization")
	if len(values) > 1 {
		return "", false, croft.Errorf(croft.Denied, "the request has %d Authorization headers: send one", len(values))
	}
	if len(values) == 0 {
		return "", false, nil
	}
	scheme, text, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", false, nil
	}
	return strings.TrimLeft(text, " "), true, nil
}
