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

// KeptExpired is how long a store keeps an expired token, to tell its holder why it is invalid.
const KeptExpired = 7 * 24 * time.Hour

// Tokens stores tokens. Tokens of projects outside of a scope are treated as absent; only the scope of operators
// includes tokens without a project.
type Tokens interface {
	// Create stores a new token. Invalid. Conflict: its project has a token with this ID.
	Create(ctx context.Context, t Token) error
	// Find returns a token. NotFound.
	Find(ctx context.Context, scope Scope, id TokenID) (Token, error)
	// List returns the tokens by time of creation, including tokens that expired within KeptExpired.
	List(ctx context.Context, scope Scope) ([]Token, error)
	// Revoke removes a token at once and returns it. NotFound.
	Revoke(ctx context.Context, scope Scope, id TokenID) (Token, error)
}

// TokenFeed watches all tokens.
type TokenFeed interface {
	// Watch calls all with every existing token, at first and whenever changes may have been missed. Between these
	// calls it calls changed with each new token, or with nil for a removed one. Calls do not overlap. It returns only
	// when ctx ends.
	Watch(ctx context.Context, all func([]Token), changed func(TokenID, *Token)) error
}

// Bearer authenticates tokens of this cloud, sent as "Authorization: Bearer croft_...". It keeps all tokens in memory,
// so that no request with a known token waits for the store, and a revoked token is refused as soon as the feed reports
// it. While the feed is disconnected from the store, Bearer uses the last known tokens; nothing else works for their
// holders then, either. If the feed implements Behind, Bearer lets it catch up before it refuses an unknown token.
type Bearer struct {
	feed      TokenFeed
	partition croft.PartitionID
	now       func() time.Time

	mu    sync.RWMutex
	known map[TokenID]Token // nil: not read yet
	gone  map[TokenID]bool  // removed tokens, which are refused without asking the store
}

var _ Authenticator = (*Bearer)(nil)

// NewBearer returns an authenticator that knows no tokens until Run. A nil now means time.Now.
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

// mostGone bounds the number of remembered removed tokens.
const mostGone = 100_000

// forget remembers that a token was removed. IDs are not reused.
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

// Authenticate implements Authenticator. It ignores other schemes than Bearer, and bearer tokens that do not start with
// croft_.
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
		Token: t.ID, Delegated: delegatedBy(t), Roles: slices.Clone(t.Roles), Via: "token " + string(t.ID),
		Expires: t.Expires}, true, nil
}

// token returns the token with an ID, which another server may have created a moment ago; the zero Token: none exists.
// Unavailable.
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

// parents refuses a token whose parent was revoked or has expired.
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

// maxParents bounds the length of a chain of parents.
const maxParents = 32

// delegatedBy returns the creator of a delegated token; empty: the token is not delegated.
func delegatedBy(t Token) string {
	if t.Delegated {
		return t.CreatedBy
	}
	return ""
}

// BearerToken returns the bearer token of a request, of any kind. False: it has none. Denied: it has several
// Authorization headers, which proxies might interpret differently.
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
