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
	"croft/access"
	"croft/federation"
)

// Nonces remembers which assertions were used, for all servers of the API.
type Nonces interface {
	// Use remembers a nonce of a peer for at least Kept. Conflict: it was used before.
	Use(ctx context.Context, peer croft.PartitionID, nonce string) error
}

// Pins binds mappings to the identity of the project of the peer that they name.
type Pins interface {
	// PinMapping binds a mapping that is bound to no identity yet. Conflict: it is bound to another one, or gone.
	PinMapping(ctx context.Context, m federation.Mapping, id croft.ProjectID) error
}

// Authenticator recognizes the users of peers.
type Authenticator struct {
	Partition croft.PartitionID // home
	Book      *Book
	Nonces    Nonces
	Pins      Pins             // nil: mappings stay as they are
	Most      int64            // bytes of a body
	Now       func() time.Time // nil: time.Now

	mu    sync.Mutex
	rates map[croft.PartitionID]*rate.Limiter
}

var _ access.Authenticator = (*Authenticator)(nil)

// How often the users of one peer may ask one server. It bounds what Nonces has to remember.
const (
	peerRate  = 200 // per second
	peerBurst = 400
)

// accepted is the body of a request whose assertion was accepted: the assertion counts once, and for seconds, but a
// request that goes on for long is looked at again.
type accepted struct {
	io.ReadCloser
	assertion Assertion
	key       string
}

// Authenticate implements access.Authenticator. It reads the body of the request, and puts it back. Other schemes of
// Authorization than Scheme are not of its kind.
func (a *Authenticator) Authenticate(ctx context.Context, r *http.Request) (access.Caller, bool, error) {
	if before, again := r.Body.(*accepted); again {
		caller, err := a.caller(before.assertion, before.key)
		return caller, err == nil, err
	}
	values := r.Header.Values("Authorization")
	if len(values) != 1 {
		return access.Caller{}, false, nil // several are refused by access.Bearer
	}
	scheme, text, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, Scheme) {
		return access.Caller{}, false, nil
	}
	caller, err := a.accept(ctx, r, text)
	return caller, err == nil, err
}

// accept verifies an assertion and uses it up. The signature is looked at before anything that
// costs more, except that many requests together may have the book catch up with what is stored.
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
	if croft.KindOf(err) == croft.Denied { // what the mapping allows may have changed just now at another server
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

// pin binds the mapping of an accepted assertion to the project that it is of, if the mapping has only the name of
// that project yet. From then on no other project of that name gets in. Denied: it is bound to another project by now.
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

// errOtherProject refuses the users of a project that has the name of a mapping, but is not the one that was mapped.
func errOtherProject(p croft.Project) error {
	return croft.Errorf(croft.Denied, "the project %s of your cloud is not the one of this name that has members here: "+
		"ask the operators of this cloud to remove the mapping and add it again", p)
}

// verify checks the signature against the keys of the peer that the assertion names, and reads which project it is of.
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

// caller is who the user of a peer is here, as things are now. Denied. Unavailable.
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

// mayAsk bounds how often the users of a peer ask.
func (a *Authenticator) mayAsk(p croft.PartitionID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.rates == nil {
		a.rates = map[croft.PartitionID]*rate.Limiter{}
	}
	if a.rates[p] == nil { // there are as many as peers
		a.rates[p] = rate.NewLimiter(peerRate, peerBurst)
	}
	return a.rates[p].Allow()
}
