package access

import (
	"context"
	"crypto/sha256"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"croft"
)

// KeystoneUser is the user of a token of OpenStack's Keystone, scoped to a project or to the whole system.
type KeystoneUser struct {
	User    string
	Project string // ID; empty: the token has no project scope
	System  bool
	Roles   []string // including implied ones
	Expires time.Time
}

// KeystoneConfig maps tokens of a Keystone to roles. What it does not name grants nothing.
type KeystoneConfig struct {
	Partition croft.PartitionID

	// Validate asks Keystone for the user of a token. NotFound: the token is invalid. Unavailable: Keystone does not
	// answer. Required.
	Validate func(ctx context.Context, token string) (KeystoneUser, error)

	Projects  map[string]croft.Project // by ID of Keystone's project
	Roles     map[string]Role          // role of a user in a project, by name of Keystone's role
	Operators []string                 // Keystone's roles with system scope that make a user a partition-admin
	Members   Members                  // by ID of Keystone's user; nil: membership grants nothing
}

// How long Keystone's answers are cached, and so how long a revoked token remains valid. Refusals are cached for a
// shorter time, since Keystone may not know a new token at first.
const (
	keystoneFor     = time.Minute
	keystoneRefused = 5 * time.Second
	mostKeystone    = 10_000 // maximum number of cached answers
)

// Keystone authenticates tokens of a Keystone, sent as X-Auth-Token. It caches answers for a minute by the hash of the
// token, and never longer than the token is valid.
type Keystone struct {
	c KeystoneConfig

	mu    sync.Mutex
	known map[[sha256.Size]byte]keystoneAnswer
}

// keystoneAnswer is Keystone's answer about a token.
type keystoneAnswer struct {
	user  KeystoneUser
	err   error // why the token is invalid
	until time.Time
}

var _ Authenticator = (*Keystone)(nil)

// NewKeystone checks the configuration. Invalid.
func NewKeystone(c KeystoneConfig) (*Keystone, error) {
	if c.Validate == nil {
		return nil, croft.Errorf(croft.Invalid, "access: Keystone wants Validate")
	}
	for id, p := range c.Projects {
		if err := p.Check(); err != nil {
			return nil, croft.Errorf(croft.Invalid, "the project for Keystone's project %q: %w", id, err)
		}
	}
	for name, r := range c.Roles {
		if err := r.Check(); err != nil {
			return nil, croft.Errorf(croft.Invalid, "the role for Keystone's role %q: %w", name, err)
		}
		if r == PartitionAdmin || r == Agent {
			return nil, croft.Errorf(croft.Invalid, "Keystone's role %q in a project cannot be the role %s, which is "+
				"about the whole cloud", name, r)
		}
	}
	c.Projects, c.Roles, c.Operators = maps.Clone(c.Projects), maps.Clone(c.Roles), slices.Clone(c.Operators)
	return &Keystone{c: c, known: map[[sha256.Size]byte]keystoneAnswer{}}, nil
}

// Authenticate implements Authenticator.
func (k *Keystone) Authenticate(ctx context.Context, r *http.Request) (Caller, bool, error) {
	values := r.Header.Values("X-Auth-Token")
	switch {
	case len(values) == 0:
		return Caller{}, false, nil
	case len(values) > 1 || values[0] == "":
		return Caller{}, false, croft.Errorf(croft.Denied, "the request needs one X-Auth-Token")
	}
	user, err := k.user(ctx, values[0])
	if croft.KindOf(err) == croft.NotFound {
		return Caller{}, false, croft.Errorf(croft.Denied, "%s", err.Error())
	}
	if err != nil {
		return Caller{}, false, err
	}
	caller, err := k.caller(user, r)
	return caller, err == nil, err
}

// caller maps a user of Keystone to a caller. Denied.
func (k *Keystone) caller(u KeystoneUser, r *http.Request) (Caller, error) {
	c := Caller{Partition: k.c.Partition, User: u.User, Via: "keystone, user " + u.User}
	if u.System {
		if !slices.ContainsFunc(u.Roles, func(r string) bool { return slices.Contains(k.c.Operators, r) }) {
			return Caller{}, croft.Errorf(croft.Denied, "Keystone's token is for the whole system, and none of its "+
				"roles %q operates this cloud", u.Roles)
		}
		c.Roles = []Role{PartitionAdmin}
		return c, nil
	}
	home := k.c.Projects[u.Project]
	if home == "" {
		return Choose(c, Granted{None: croft.Errorf(croft.Denied, "Keystone's project %q is no project of this cloud: "+
			"its operators can say which one it is", u.Project)}, k.c.Members, r)
	}
	var roles []Role
	for _, name := range u.Roles {
		if role, ok := k.c.Roles[name]; ok {
			roles = append(roles, role)
		}
	}
	return Choose(c, Granted{Roles: map[croft.Project][]Role{home: roles}, Home: home,
		None: croft.Errorf(croft.Denied, "none of Keystone's roles %q is a role in this cloud: its operators can say "+
			"what they are", u.Roles)}, k.c.Members, r)
}

// user returns the user of a token, from the cache or from Keystone. Concurrent requests with a new token may ask more
// than once. NotFound, Unavailable.
func (k *Keystone) user(ctx context.Context, token string) (KeystoneUser, error) {
	key := sha256.Sum256([]byte(token)) // so that no token stays in memory
	k.mu.Lock()
	known := k.known[key]
	k.mu.Unlock()
	if time.Now().Before(known.until) {
		return known.user, known.err
	}
	user, err := k.c.Validate(ctx, token)
	now := time.Now()
	answer := keystoneAnswer{user: user, until: now.Add(keystoneFor)}
	if err == nil && !now.Before(user.Expires) {
		err = croft.Errorf(croft.NotFound, "Keystone's token has expired")
	}
	switch {
	case croft.KindOf(err) == croft.NotFound:
		answer = keystoneAnswer{err: err, until: now.Add(keystoneRefused)}
	case err != nil:
		return KeystoneUser{}, err
	case user.Expires.Before(answer.until):
		answer.until = user.Expires
	}
	k.learn(key, answer, now)
	return answer.user, answer.err
}

// learn caches an answer, and drops others if there are too many.
func (k *Keystone) learn(key [sha256.Size]byte, a keystoneAnswer, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.known) >= mostKeystone {
		maps.DeleteFunc(k.known, func(_ [sha256.Size]byte, a keystoneAnswer) bool {
			return a.err != nil || !now.Before(a.until)
		})
	}
	for other := range k.known {
		if len(k.known) < mostKeystone {
			break
		}
		delete(k.known, other)
	}
	k.known[key] = a
}
