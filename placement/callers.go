package placement

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"croft"
	"croft/internal/connlimit"
	"croft/internal/wording"
)

// Identity looks up the callers of tokens.
type Identity interface {
	// Validate returns the caller of a token. NotFound: the token is invalid or expired. Unavailable: it cannot be
	// checked now.
	Validate(ctx context.Context, token string) (Caller, error)
}

// Caller is the user of a token, scoped to one project or to the whole system.
type Caller struct {
	User    string
	Project string // ID; empty: the token has no project scope
	System  bool
	Roles   []string // including implied ones
	Expires time.Time
}

func (c Caller) has(role string) bool { return slices.Contains(c.Roles, role) }

// Keystone configures the validation of tokens by a Keystone.
type Keystone struct {
	Identity Identity // required
	URL      string   // of the Keystone; sent to clients whose token is rejected

	// ReaderProjects are the IDs of projects whose readers may read everything, as system readers may. Readers of other
	// projects may only read their own project's usages. A member is also a reader.
	ReaderProjects []string

	// CacheFor is how long an answer of Identity is reused, 1 m by default and at most 5 m; a revoked token is accepted
	// no longer than that. No answer outlives its token.
	CacheFor time.Duration
}

const (
	cacheFor    = time.Minute
	cacheAtMost = 5 * time.Minute
	refusedFor  = 5 * time.Second // short: Keystone may not know a new token at first
	maxKnown    = 10_000
)

// callers knows the administrator's token and caches the callers of Keystone's tokens. One request per token asks
// Keystone; concurrent requests with the same token wait for its answer.
type callers struct {
	token    string    // the administrator's
	keystone *Keystone // nil: only the administrator's token is valid

	mu    sync.Mutex
	known map[[sha256.Size]byte]*known // by the token's hash, so no token stays in memory
}

// known is a cached answer about a token.
type known struct {
	turn   chan struct{} // full while a request asks Keystone
	caller Caller
	err    error     // why the token is invalid; nil: it is valid
	until  time.Time // expiry of the answer; zero: there is none yet
}

func newCallers(token string, configured *Keystone) (*callers, error) {
	if configured == nil {
		return &callers{token: token}, nil
	}
	k := *configured
	if k.Identity == nil {
		return nil, croft.Errorf(croft.Invalid, "placement: Keystone wants an Identity")
	}
	if k.CacheFor < 0 || k.CacheFor > cacheAtMost {
		return nil, croft.Errorf(croft.Invalid, "placement: an answer about a token counts %s at most, not %s",
			wording.Duration(cacheAtMost), wording.Duration(k.CacheFor))
	}
	k.CacheFor = cmp.Or(k.CacheFor, cacheFor)
	return &callers{token: token, keystone: &k, known: map[[sha256.Size]byte]*known{}}, nil
}

// allow reports whether a caller may make a request, by the rules of OpenStack's server: administrators and services
// may make any request.
func (c *callers) allow(who Caller, policy string, q *request) bool {
	if who.has("admin") || who.has("service") {
		return true
	}
	if !who.has("reader") || q.r.Method != http.MethodGet {
		return false
	}
	if who.System || who.Project != "" && slices.Contains(c.keystone.ReaderProjects, who.Project) {
		return true
	}
	return policy == "usages" && who.Project != "" && q.r.URL.Query().Get("project_id") == who.Project
}

// find looks up the caller of a request.
func (c *callers) find(q *request) (Caller, error) {
	values, sent := q.r.Header["X-Auth-Token"]
	if !sent {
		return Caller{}, c.unauthorized()
	}
	token := strings.Join(values, ",")
	user, _, _ := strings.Cut(token, ":")
	if subtle.ConstantTimeCompare([]byte(user), []byte(c.token)) == 1 {
		connlimit.Prove(q.r.Context())
		return Caller{Roles: []string{"admin"}}, nil
	}
	if c.keystone == nil {
		return Caller{}, nil
	}
	who, err := c.get(q.r.Context(), token)
	switch {
	case errors.Is(err, croft.NotFound):
		return who, c.unauthorized()
	case err != nil:
		return who, &apiError{status: http.StatusServiceUnavailable, detail: err.Error()}
	}
	connlimit.Prove(q.r.Context())
	return who, nil
}

func (c *callers) unauthorized() error {
	e := &apiError{status: http.StatusUnauthorized}
	if c.keystone != nil {
		e.keystone = c.keystone.URL
	}
	return e
}

// get returns the caller of a token, from the cache or from Keystone.
func (c *callers) get(ctx context.Context, token string) (Caller, error) {
	if token == "" {
		return Caller{}, croft.Errorf(croft.NotFound, "the token is empty")
	}
	k := c.entry(sha256.Sum256([]byte(token)))
	if caller, err, ok := c.recall(k); ok {
		return caller, err
	}
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
	case <-ctx.Done():
		return Caller{}, ctx.Err()
	}
	if caller, err, ok := c.recall(k); ok {
		return caller, err
	}
	caller, err := c.keystone.Identity.Validate(ctx, token)
	return c.learn(k, caller, err)
}

// recall returns a cached answer unless it has expired.
func (c *callers) recall(k *known) (Caller, error, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return k.caller, k.err, time.Now().Before(k.until)
}

// learn caches an answer, but not a failure to get one.
func (c *callers) learn(k *known, caller Caller, err error) (Caller, error) {
	now := time.Now()
	until := now.Add(c.keystone.CacheFor)
	if err == nil && !now.Before(caller.Expires) {
		err = croft.Errorf(croft.NotFound, "the token has expired")
	}
	switch {
	case errors.Is(err, croft.NotFound):
		caller, until = Caller{}, now.Add(refusedFor)
	case err != nil:
		return Caller{}, err
	case caller.Expires.Before(until):
		until = caller.Expires
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	k.caller, k.err, k.until = caller, err, until
	return caller, err
}

// entry returns the cache entry of a token, and creates it if necessary.
func (c *callers) entry(key [sha256.Size]byte) *known {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k, ok := c.known[key]; ok {
		return k
	}
	if len(c.known) >= maxKnown {
		c.makeRoom(time.Now())
	}
	k := &known{turn: make(chan struct{}, 1)}
	c.known[key] = k
	return k
}

// makeRoom drops expired answers and refusals, then any others until there is room. Keystone is asked again for a
// dropped answer.
func (c *callers) makeRoom(now time.Time) {
	for key, k := range c.known {
		if k.err != nil || !now.Before(k.until) {
			delete(c.known, key)
		}
	}
	for key := range c.known {
		if len(c.known) < maxKnown {
			return
		}
		delete(c.known, key)
	}
}
