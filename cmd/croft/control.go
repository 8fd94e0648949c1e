package main

import (
	"cmp"
	"context"
	"crypto/subtle"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"croft"
	"croft/etcdstore"
	"croft/internal/connlimit"
	"croft/trust/invitation"
	"croft/trust/pki"
)

// control is the server at which hosts join this cloud and renew their certificates.
type control struct {
	trust    *trust
	store    *etcdstore.Store
	admitted *admitted
	strict   bool // hosts reach no etcd
	log      *slog.Logger
}

// What a request to control may hold, and how long it may take to come.
const (
	maxControlBody  = 64 << 10
	controlBodyTime = 10 * time.Second
)

// joinRequest asks for the certificates of a host, and proves that who asks has a token.
type joinRequest struct {
	Signed    []byte `json:"signed"` // a joinOrder
	Signature []byte `json:"signature"`
}

// joinOrder is what the token's secret vouches for. Its keys stay where they were made,
// so that whoever learns of it can do nothing with the answer.
type joinOrder struct {
	Invitation string                   `json:"invitation"`
	Host       croft.HostID             `json:"host"`
	Requests   map[pki.Authority][]byte `json:"requests"`
	// Names are what the others call a host that serves etcd and Placement too; none
	// for a host that does not.
	Names []string `json:"names,omitempty"`
}

// isMember tells whether the host is to serve etcd and Placement.
func (o joinOrder) isMember() bool { return len(o.Names) > 0 }

// joinAnswer is what a host gets: certificates, and what was sealed for the token.
type joinAnswer struct {
	Issued map[pki.Authority]pki.Issued `json:"issued"`
	Sealed []byte                       `json:"sealed,omitempty"`
	Trust  string                       `json:"trust"` // what the host may reach
}

// renewRequest asks for the next certificate of whoever shows the last one.
type renewRequest struct {
	Authority pki.Authority `json:"authority"`
	Request   []byte        `json:"request"`
}

// handler answers hosts. Without a certificate they may only join.
func (c *control) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/join", answering(c.log, c.join))
	mux.HandleFunc("POST /v1/renew", answering(c.log, c.renew))
	mux.HandleFunc("GET /v1/authorities/{authority}", answering(c.log, c.authority))
	return mux
}

// answering makes a handler of a function from a request to what is answered.
func answering[Q, A any](log *slog.Logger, do func(*http.Request, Q) (A, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var ask Q
		var answer A
		err := readRequest(w, r, &ask)
		if err == nil {
			answer, err = do(r, ask)
		}
		if err != nil {
			if croft.KindOf(err) == "" {
				log.Warn("a host was not answered", "op", r.URL.Path, "from", r.RemoteAddr, "err", err)
			}
			writeAnswer(w, croft.HTTPStatus(err), controlError{croft.KindOf(err), err.Error()})
			return
		}
		writeAnswer(w, http.StatusOK, answer)
	}
}

// controlError is how control says no.
type controlError struct {
	Kind    croft.Kind `json:"kind"`
	Message string     `json:"message"`
}

func readRequest(w http.ResponseWriter, r *http.Request, into any) error {
	if r.Method == http.MethodGet {
		return nil
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(controlBodyTime)) // a server of ours can
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxControlBody))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return croft.Errorf(croft.Invalid, "this request cannot be read: %w", err)
	}
	return nil
}

func writeAnswer(w http.ResponseWriter, status int, answer any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer) // who asked may have gone
}

// join makes a host one of this cloud.
func (c *control) join(r *http.Request, ask joinRequest) (a joinAnswer, err error) {
	var order joinOrder
	if err := json.Unmarshal(ask.Signed, &order); err != nil {
		return a, croft.Errorf(croft.Invalid, "this request cannot be read: %w", err)
	}
	host, err := croft.ParseHostID(string(order.Host))
	if err != nil {
		return a, err
	}
	invited, err := c.store.Invitation(r.Context(), order.Invitation)
	switch {
	case err != nil:
		return a, err
	case !invitation.Verify(invited.Verifier, c.trust.partition, ask.Signed, ask.Signature):
		return a, croft.Errorf(croft.Invalid, "who asks does not have the token's secret")
	case invited.Host != "" && invited.Host != host:
		return a, croft.Errorf(croft.Conflict, "this token is for host %s, and this is %s: use one that was made with `croft token create` alone", invited.Host, host)
	}
	strict := c.strict && !order.isMember()
	if c.strict && order.isMember() && !invited.Member {
		return a, croft.Errorf(croft.Invalid, "hosts of this cloud do not reach its etcd, unless their token was made for that: make one with `croft token create --etcd-member`")
	}
	a, stamps, err := c.issue(host, order, strict, comesFrom(r))
	if err != nil {
		return a, err
	}
	if err := c.admit(r.Context(), host, invited.Host != "", stamps); err != nil {
		return joinAnswer{}, err
	}
	c.log.Info("a host joined", "host", host, "from", r.RemoteAddr)
	a.Sealed, a.Trust = invited.Sealed, trustDirect
	if strict { // also where the token was made before
		a.Sealed, a.Trust = nil, trustStrict
	}
	return a, nil
}

// issue signs what a host asked for, which comes from an address.
func (c *control) issue(host croft.HostID, order joinOrder, strict bool, from []string) (a joinAnswer, stamps map[string]etcdstore.Stamp, err error) {
	id := pki.HostIdentity(c.trust.partition, host)
	if order.isMember() {
		id = pki.MemberIdentity(c.trust.partition, host)
	}
	a.Issued, stamps = map[pki.Authority]pki.Issued{}, map[string]etcdstore.Stamp{}
	for _, authority := range authoritiesFor(strict) {
		csr, asked := order.Requests[authority]
		if !asked {
			return a, nil, croft.Errorf(croft.Invalid, "a host has to ask for a certificate of %s", authority)
		}
		if stamps[string(authority)], err = c.stamp(authority); err != nil {
			return a, nil, err
		}
		names := order.Names
		if !order.isMember() {
			names = servesAt(authority, from)
		}
		a.Issued[authority], err = c.trust.ca.Sign(authority, id, names, csr)
		if err != nil {
			return a, nil, err
		}
	}
	return a, stamps, nil
}

// comesFrom is the address that a request comes from.
func comesFrom(r *http.Request) []string {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return nil
	}
	return []string{from.Addr().Unmap().WithZone("").String()}
}

// servesAt are the names in the certificate of a host that serves its API alone: the
// address that it comes from, which nobody can claim, so that programs which know a host by
// that, as Prometheus does, can verify it. croft goes by the identity. Certificates of
// etcd's authority have none: etcd would refuse those of hosts with several addresses.
func servesAt(a pki.Authority, from []string) []string {
	if a == pki.Etcd {
		return nil
	}
	return from
}

// stamp is that of a certificate which is about to be signed.
func (c *control) stamp(a pki.Authority) (etcdstore.Stamp, error) {
	current, _, err := c.trust.ca.Certificates(a)
	if err != nil {
		return etcdstore.Stamp{}, err
	}
	now := time.Now().UTC().Truncate(time.Second)
	return etcdstore.Stamp{By: pki.Pin(current), Made: now, Until: now.Add(c.trust.ca.LeafLife())}, nil
}

// authoritiesFor are those that a host gets certificates of: with one of etcd's it can
// read and change everything.
func authoritiesFor(strict bool) []pki.Authority {
	if strict {
		return []pki.Authority{pki.Hosts}
	}
	return pki.Authorities
}

// admit notes that the host is one of the cloud. A token that was not made for it lets
// nobody be a host that there is already.
func (c *control) admit(ctx context.Context, host croft.HostID, known bool, stamps map[string]etcdstore.Stamp) error {
	err := c.store.Admit(ctx, host, known, stamps)
	if errors.Is(err, croft.Conflict) {
		err = croft.Errorf(croft.Conflict, "this cloud has a host %s already: if it is this machine, use a token of `croft token create --host %s`; "+
			"if this one is a copy, remove host-id from its state directory", host, host)
	}
	return err
}

// renew signs for whoever shows a certificate that still counts.
func (c *control) renew(r *http.Request, ask renewRequest) (pki.Issued, error) {
	id, err := c.caller(r)
	if err != nil {
		return pki.Issued{}, err
	}
	if id.Kind != pki.Host && id.Kind != pki.Member {
		return pki.Issued{}, croft.Errorf(croft.Invalid, "only certificates of hosts are renewed here: `croft ca` makes those of others")
	}
	authority, err := authorityNamed(string(ask.Authority))
	if err == nil && id.Kind == pki.Host && !slices.Contains(authoritiesFor(c.strict), authority) {
		err = croft.Errorf(croft.Conflict, "hosts of this cloud get no certificates of %s any more (trust: strict): let this one join again, with a token of `croft token create --host %s`", authority, id.ID)
	}
	if err != nil {
		return pki.Issued{}, err
	}
	if err := c.admitted.mayRenew(id.ID); err != nil {
		return pki.Issued{}, err
	}
	stamp, err := c.stamp(authority)
	if err != nil {
		return pki.Issued{}, err
	}
	names := pki.CallerNames(r)
	if id.Kind == pki.Host {
		names = servesAt(authority, comesFrom(r))
	}
	issued, err := c.trust.ca.Sign(authority, id, names, ask.Request)
	if err != nil {
		return issued, err
	}
	if err := c.store.Renewed(r.Context(), croft.HostID(id.ID), string(authority), stamp); err != nil {
		return pki.Issued{}, err
	}
	c.log.Info("certificate renewed", "host", id.ID, "authority", authority)
	return issued, nil
}

// authority says whom to trust.
func (c *control) authority(r *http.Request, _ struct{}) (pki.Issued, error) {
	if _, err := c.caller(r); err != nil {
		return pki.Issued{}, err
	}
	authority, err := authorityNamed(r.PathValue("authority"))
	if err != nil {
		return pki.Issued{}, err
	}
	trusted, err := c.trust.ca.Trusted(authority)
	return pki.Issued{Trusted: trusted}, err
}

func authorityNamed(name string) (pki.Authority, error) {
	for _, a := range pki.Authorities {
		if string(a) == name {
			return a, nil
		}
	}
	return "", croft.Errorf(croft.NotFound, "there is no authority %q", name)
}

// caller is who asks, by their certificate. Invalid: they show none. NotFound: they are
// a host that was forgotten. Unavailable: it does not count any more, or nobody knows.
func (c *control) caller(r *http.Request) (pki.Identity, error) {
	id, shown := pki.Caller(r)
	if !shown {
		return id, croft.Errorf(croft.Invalid, "show the certificate of a host of this cloud")
	}
	if err := cmp.Or(c.admitted.stillTrusted(r), c.admitted.check(r.Context(), id)); err != nil {
		return id, err
	}
	connlimit.Prove(r.Context())
	return id, nil
}

// admitted knows which hosts are of the cloud, and not forgotten, to a moment.
type admitted struct {
	self  croft.HostID // which is always
	store interface {
		Joined(context.Context, croft.HostID) (etcdstore.Joined, error)
		Hosts(context.Context, ...croft.HostID) (map[croft.HostID]croft.Host, error)
	}
	files pki.Files // that say whom to trust; their directory is empty where nobody has certificates

	mu      sync.Mutex
	good    map[string]time.Time // hosts, and when they were found to be
	roots   []*x509.Certificate  // as the files said when they were read
	rootsAt time.Time
	renewed map[string]*rate.Limiter // by host
}

// stillTrusted refuses who shows a certificate of an authority that was retired since the
// connection began. Unavailable: over a new connection it is taken. Nobody is refused by
// what was known a moment ago: the handshake may know of a newer authority.
func (a *admitted) stillTrusted(r *http.Request) error {
	if a.files.Dir == "" {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Since(a.rootsAt) < admittedFor && pki.StillTrusted(r, a.roots) == nil {
		return nil
	}
	roots, err := a.files.Authorities()
	if err != nil {
		return croft.Errorf(croft.Unavailable, "whom to trust cannot be told now: %w", err)
	}
	a.roots, a.rootsAt = roots, time.Now()
	return pki.StillTrusted(r, a.roots)
}

// How many certificates one host gets: each is signed, and written to etcd.
const (
	renewEvery  = 10 * time.Second
	renewAtOnce = 20
)

// mayRenew refuses a host that renews without end. Unavailable.
func (a *admitted) mayRenew(host string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.renewed[host] == nil {
		a.renewed[host] = rate.NewLimiter(rate.Every(renewEvery), renewAtOnce)
	}
	if !a.renewed[host].Allow() {
		return croft.Errorf(croft.Unavailable, "host %s renews its certificates more often than every %s; ask again later", host, renewEvery)
	}
	return nil
}

// admittedFor is how long a host that was found good is taken for that.
const admittedFor = time.Second

func newAdmitted(store *etcdstore.Store) *admitted {
	return &admitted{store: store, good: map[string]time.Time{}, renewed: map[string]*rate.Limiter{}}
}

// check refuses hosts that were forgotten. NotFound.
func (a *admitted) check(ctx context.Context, id pki.Identity) error {
	if id.Kind != pki.Host && id.Kind != pki.Member || croft.HostID(id.ID) == a.self {
		return nil
	}
	a.mu.Lock()
	at, known := a.good[id.ID]
	a.mu.Unlock()
	if known && time.Since(at) < admittedFor {
		return nil
	}
	err := a.look(ctx, id)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		delete(a.good, id.ID)
		return err
	}
	a.good[id.ID] = time.Now()
	return nil
}

// look asks whether a host joined; the first one of all never did, and is on record.
func (a *admitted) look(ctx context.Context, id pki.Identity) error {
	_, err := a.store.Joined(ctx, croft.HostID(id.ID))
	if id.Kind != pki.Member || croft.KindOf(err) != croft.NotFound {
		return err
	}
	known, failed := a.store.Hosts(ctx, croft.HostID(id.ID))
	if failed != nil || len(known) > 0 {
		return failed
	}
	return err
}

// onlyAdmitted keeps forgotten hosts away, and lets the administrator's token count
// only for those who show a certificate: it is the same for all.
func (a *admitted) onlyAdmitted(token string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, shown := pki.Caller(r)
		switch {
		case r.TLS == nil: // within this machine, or without certificates at all
		case shown:
			if err := cmp.Or(a.stillTrusted(r), a.check(r.Context(), id)); err != nil {
				w.Header().Set("Connection", "close") // the next one shows the certificate of then
				refuseOpenStack(w, croft.HTTPStatus(err), err.Error())
				return
			}
			connlimit.Prove(r.Context())
		case subtle.ConstantTimeCompare([]byte(r.Header.Get("X-Auth-Token")), []byte(token)) == 1:
			refuseOpenStack(w, http.StatusUnauthorized, "this token counts only with a certificate of this cloud: `croft ca issue --operator NAME` makes one")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// refuseOpenStack says no as OpenStack's APIs do.
func refuseOpenStack(w http.ResponseWriter, status int, detail string) {
	if status == http.StatusNotFound {
		status = http.StatusForbidden // the host, not what it asks for
	}
	writeAnswer(w, status, map[string]any{"errors": []map[string]any{{"status": status, "title": http.StatusText(status), "detail": detail}}})
}

// drain reads what is left of an answer, so that its connection is used again.
func drain(body io.ReadCloser) {
	_, _ = io.Copy(io.Discard, io.LimitReader(body, maxControlBody))
	_ = body.Close()
}
