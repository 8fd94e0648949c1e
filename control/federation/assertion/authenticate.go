package assertion

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"croft"
	"croft/control/federation"
	"croft/tenant/access"
)

// Nonces stores the nonces of used assertions, for all servers of the API.
type Nonces interface {
	// Use stores a nonce of a peer for at least Kept. Conflict: it was used before.
	Use(ctx context.Context, peer croft.PartitionID, nonce string) error
}

// Pins binds mappings to the identity of the peer's project that they name.
type Pins interface {
	// PinMapping binds a mapping without an identity. Conflict: it is bound to another identity, or gone.
	PinMapping(ctx context.Context, m federation.Mapping, id croft.ProjectID) error
}

// Authenticator authenticates the users of peers.
type Authenticator struct {
	Partition croft.PartitionID // home
	Book      *Book
	Nonces    Nonces
	Pins      Pins             // nil: mappings are not pinned
	Most      int64            // maximum body size, in bytes
	Now       func() time.Time // nil: time.Now

	mu    sync.Mutex
	rates map[croft.PartitionID]*rate.Limiter
}

var _ access.Authenticator = (*Authenticator)(nil)

// Rate limit for the users of one peer at one server. It bounds the number of nonces to store.
const (
	peerRate  = 200 // per second
	peerBurst = 400
)

// accepted is the body of a request whose assertion was accepted. The assertion can be used once, within seconds, but a
// long request is authenticated again.
type accepted struct {
	io.ReadCloser
	assertion Assertion
	key       string
}

// Authenticate implements access.Authenticator. It reads the body of the request, and puts it back. It ignores
// Authorization headers with a scheme other than Scheme.
func (a *Authenticator) Authenticate(ctx context.Context, r *http.Request) (access.Caller, bool, error) {
	if before, again := r.Body.(*accepted); again {
		caller, err := a.caller(before.assertion, before.key)
		return caller, err == nil, err
	}
	values := r.Header.Values("Authorization")
	if len(values) != 1 {
		return access.Caller{}, false, nil // access.Bearer rejects several headers
	}
	scheme, text, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, Scheme) {
		return access.Caller{}, false, nil
	}
	caller, err := a.accept(ctx, r, text)
	return caller, err == nil, err
}

// accept verifies an assertion and marks it as used. It checks the signature before any more expensive step. An
// exception is that concurrent requests together may make the book read the stored records.
func (a *Authenticator) accept(ctx context.Context, r *http.Request, text string) (access.Caller, error) {
	s, err := parse(text)
	if err != nil {
		return access.Caller{}, croft.Errorf(croft.Denied, "%s", err.Error())
	}
	if err := a.Book.learn(ctx, s.Issuer, s.key, s.Project); err != nil {
		return access.Caller{}, err
	}
	if err := a.verify(&s, r.Header, text); err != nil {
		return access.Caller{}, err
	}
	now := time.Now
	if a.Now != nil {
		now = a.Now
	}
	if s.Audience != a.Partition {
		return access.Caller{}, croft.Errorf(croft.Denied, "the assertion is for partition %s, and this is %s",
			s.Audience,
			a.Partition)
	}
	if err := s.inTime(now()); err != nil {
		return access.Caller{}, err
	}
	caller, err := a.caller(s.Assertion, s.key)
	if croft.KindOf(err) == croft.Denied { // another server may have changed the mapping a moment ago
		if err := access.CatchUp(ctx, a.Book.feed); err != nil {
			return access.Caller{}, err
		}
		caller, err = a.caller(s.Assertion, s.key)
	}
	if err != nil {
		return access.Caller{}, err
	}
	if !a.mayAsk(s.Issuer) {
		return access.Caller{}, croft.Errorf(croft.Unavailable, "the users of this peer ask too often: ask more slowly")
	}
	body, err := s.fits(r, a.Most)
	if err != nil {
		return access.Caller{}, err
	}
	if err := a.Nonces.Use(ctx, s.Issuer, s.Nonce); croft.KindOf(err) == croft.Conflict {
		return access.Caller{}, croft.Errorf(croft.Denied, "the assertion was used before: each counts once")
	} else if err != nil {
		return access.Caller{}, err
	}
	if err := a.pin(ctx, s.Assertion); err != nil {
		return access.Caller{}, err
	}
	r.Body = &accepted{io.NopCloser(bytes.NewReader(body)), s.Assertion, s.key}
	return caller, nil
}

// pin binds the mapping of an accepted assertion to the identity of its project, if the mapping has only the project's
// name. From then on another project of that name is rejected. Denied: it was bound to another project meanwhile.
func (a *Authenticator) pin(ctx context.Context, s Assertion) error {
	if a.Pins == nil || s.ProjectID == "" {
		return nil
	}
	_, m, err := a.Book.mapping(s.Issuer, s.Project)
	if err != nil || m.TheirsID != "" {
		return err
	}
	if err = a.Pins.PinMapping(ctx, m, s.ProjectID); croft.KindOf(err) == croft.Conflict {
		return errOtherProject(s.Project)
	}
	return err
}

// errOtherProject rejects the users of a project that has the name of a mapping, but another identity.
func errOtherProject(p croft.Project) error {
	return croft.Errorf(croft.Denied, "the project %s of your cloud is not the one of this name that has members here: "+
		"ask the operators of this cloud to remove the mapping and add it again", p)
}

// verify checks the signature with the peer's key that the assertion names, and reads the identity of the project.
// Denied. Unavailable.
func (a *Authenticator) verify(s *sealed, h http.Header, text string) error {
	key, err := a.key(s.Issuer, s.key)
	if err != nil {
		return err
	}
	if _, err := s.jws.Verify(key); err != nil {
		return croft.Errorf(croft.Denied, "the assertion was altered, or somebody else signed it")
	}
	s.ProjectID, err = parseIdentity(h, text, s.key, key)
	return err
}

// key returns a key of a peer. Denied. Unavailable.
func (a *Authenticator) key(issuer croft.PartitionID, id string) (ed25519.PublicKey, error) {
	p, _, err := a.Book.mapping(issuer, "")
	if croft.KindOf(err) == croft.NotFound {
		return nil, croft.Errorf(croft.Denied, "the assertion is of partition %s, which is no peer of this cloud",
			issuer)
	}
	if err != nil {
		return nil, err
	}
	key, ok := p.Peer.Key(id)
	if !ok {
		return nil, croft.Errorf(croft.Denied, "the assertion is signed with a key that this cloud does not have of "+
			"partition %s: its operators give those of this cloud a new card (croft partition card)", issuer)
	}
	return key, nil
}

// caller returns the caller that the user of a peer is here, by the current records. Denied. Unavailable.
func (a *Authenticator) caller(s Assertion, key string) (access.Caller, error) {
	if _, err := a.key(s.Issuer, key); err != nil {
		return access.Caller{}, err
	}
	p, m, err := a.Book.mapping(s.Issuer, s.Project)
	if err != nil {
		return access.Caller{}, err
	}
	if m.Project == "" {
		return access.Caller{}, croft.Errorf(croft.Denied, "the project %s of your cloud has no project here: ask the "+
			"operators of this cloud for one", s.Project)
	}
	if m.TheirsID != "" && m.TheirsID != s.ProjectID {
		return access.Caller{}, errOtherProject(s.Project)
	}
	roles := m.Allows(*p.Peer, s.Roles)
	if len(roles) == 0 {
		return access.Caller{}, croft.Errorf(croft.Denied, "the roles of %s in project %s of your cloud give none here",
			s.User, s.Project)
	}
	return access.Caller{Partition: a.Partition, User: s.User + "@" + p.Alias, Project: m.Project, Roles: roles,
		Peer: p.ID, PeerProject: s.Project, PeerProjectID: s.ProjectID,
		Via: "peer " + p.Alias + ", project " + string(s.Project)}, nil
}

// mayAsk limits the request rate of the users of a peer.
func (a *Authenticator) mayAsk(p croft.PartitionID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.rates == nil {
		a.rates = map[croft.PartitionID]*rate.Limiter{}
	}
	if a.rates[p] == nil { // the map has one entry per peer
		a.rates[p] = rate.NewLimiter(peerRate, peerBurst)
	}
	return a.rates[p].Allow()
}
