package trust

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"croft"
	"croft/internal/httpapi"
	"croft/trust/invitation"
	"croft/trust/pki"
)

// Server is the HTTP API at which hosts join the cloud and renew their certificates.
type Server struct {
	Credentials *Credentials // with the authority
	Store       Registry
	Admission   *Admission
	Strict      bool // hosts reach no etcd
	Log         *slog.Logger
}

// Limits of a request's body, and of an answer's.
const (
	maxBody  = 64 << 10
	bodyTime = 10 * time.Second
)

// joinRequest asks for the certificates of a host. The signature proves possession of the token.
type joinRequest struct {
	Signed    []byte `json:"signed"` // a joinOrder
	Signature []byte `json:"signature"`
}

// joinOrder is the signed part of a joinRequest. Private keys never leave the host, so the answer is useless to
// anyone else.
type joinOrder struct {
	Invitation string                   `json:"invitation"`
	Host       croft.HostID             `json:"host"`
	Requests   map[pki.Authority][]byte `json:"requests"`
	// Names are the addresses of a host that will serve etcd and Placement; empty for other hosts.
	Names []string `json:"names,omitempty"`
}

// isMember reports whether the host will serve etcd and Placement.
func (o joinOrder) isMember() bool { return len(o.Names) > 0 }

// joinAnswer holds the certificates of a host and the grant sealed for its token.
type joinAnswer struct {
	Issued map[pki.Authority]pki.Issued `json:"issued"`
	Sealed []byte                       `json:"sealed,omitempty"`
	Trust  string                       `json:"trust"` // what the host may reach
}

// renewRequest asks for a certificate to replace the one that the caller shows.
type renewRequest struct {
	Authority pki.Authority `json:"authority"`
	Request   []byte        `json:"request"`
}

// Handler serves the API. Without a certificate a host may only join.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/join", answering(s.Log, s.join))
	mux.HandleFunc("POST /v1/renew", answering(s.Log, s.renew))
	mux.HandleFunc("GET /v1/authorities/{authority}", answering(s.Log, s.authority))
	return mux
}

// answering makes a handler from a function of a request to its answer.
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
			httpapi.Answer(w, croft.HTTPStatus(err), refusal{croft.KindOf(err), err.Error()})
			return
		}
		httpapi.Answer(w, http.StatusOK, answer)
	}
}

// refusal is the body of an error answer.
type refusal struct {
	Kind    croft.Kind `json:"kind"`
	Message string     `json:"message"`
}

func readRequest(w http.ResponseWriter, r *http.Request, into any) error {
	if r.Method == http.MethodGet {
		return nil
	}
	text, err := httpapi.ReadBody(w, r, maxBody, bodyTime)
	if err == nil {
		err = httpapi.Decode(text, into)
	}
	if err != nil {
		return croft.Errorf(croft.Invalid, "this request cannot be read: %w", err)
	}
	return nil
}

// join admits a host to this cloud.
func (s *Server) join(r *http.Request, ask joinRequest) (a joinAnswer, err error) {
	var order joinOrder
	if err := json.Unmarshal(ask.Signed, &order); err != nil {
		return a, croft.Errorf(croft.Invalid, "this request cannot be read: %w", err)
	}
	host, err := croft.ParseHostID(string(order.Host))
	if err != nil {
		return a, err
	}
	invited, err := s.Store.Invitation(r.Context(), order.Invitation)
	switch {
	case err != nil:
		return a, err
	case !invitation.Verify(invited.Verifier, s.Credentials.Partition, ask.Signed, ask.Signature):
		return a, croft.Errorf(croft.Invalid, "the request does not have the token's secret")
	case invited.Host != "" && invited.Host != host:
		return a,
			croft.Errorf(croft.Conflict,
				"this token is for host %s, and this is %s: use one that was made with `croft token create` alone",
				invited.Host, host)
	}
	strict := s.Strict && !order.isMember()
	if s.Strict && order.isMember() && !invited.Member {
		return a,
			croft.Errorf(croft.Invalid,
				"hosts of this cloud do not reach its etcd, unless their token was made for that: make one with `croft token create --etcd-member`")
	}
	a, stamps, err := s.issue(host, order, strict, comesFrom(r))
	if err != nil {
		return a, err
	}
	if err := s.admit(r.Context(), host, invited.Host != "", stamps); err != nil {
		return joinAnswer{}, err
	}
	s.Log.Info("a host joined", "host", host, "from", r.RemoteAddr)
	a.Sealed, a.Trust = invited.Sealed, Direct
	if strict { // also if the token was made before strict was set
		a.Sealed, a.Trust = nil, Strict
	}
	return a, nil
}

// issue signs a host's certificates; from is the source address of its request.
func (s *Server) issue(host croft.HostID, order joinOrder, strict bool, from []string) (a joinAnswer,
	stamps map[string]Stamp, err error) {
	id := pki.HostIdentity(s.Credentials.Partition, host)
	if order.isMember() {
		id = pki.MemberIdentity(s.Credentials.Partition, host)
	}
	a.Issued, stamps = map[pki.Authority]pki.Issued{}, map[string]Stamp{}
	for _, authority := range authoritiesFor(strict) {
		csr, asked := order.Requests[authority]
		if !asked {
			return a, nil, croft.Errorf(croft.Invalid, "a host has to ask for a certificate of %s", authority)
		}
		if stamps[string(authority)], err = s.stamp(authority); err != nil {
			return a, nil, err
		}
		names := order.Names
		if !order.isMember() {
			names = servesAt(authority, from)
		}
		a.Issued[authority], err = s.Credentials.ca.Sign(authority, id, names, csr)
		if err != nil {
			return a, nil, err
		}
	}
	return a, stamps, nil
}

// comesFrom returns the source address of a request.
func comesFrom(r *http.Request) []string {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return nil
	}
	return []string{from.Addr().Unmap().WithZone("").String()}
}

// servesAt returns the names in the certificate of a host that serves only its agent's API: the source address
// of its request. A host cannot claim another's address, so programs that know hosts by address (Prometheus)
// can verify it; croft verifies the identity. Certificates of etcd's authority have no names: etcd would refuse
// a host with several addresses.
func servesAt(a pki.Authority, from []string) []string {
	if a == pki.Etcd {
		return nil
	}
	return from
}

// stamp describes a certificate that is about to be signed.
func (s *Server) stamp(a pki.Authority) (Stamp, error) {
	current, _, err := s.Credentials.ca.Certificates(a)
	if err != nil {
		return Stamp{}, err
	}
	now := time.Now().UTC().Truncate(time.Second)
	return Stamp{By: pki.Pin(current), Made: now, Until: now.Add(s.Credentials.ca.LeafLife())}, nil
}

// authoritiesFor lists the authorities that a host gets certificates of. A certificate of etcd's authority
// gives full access to etcd.
func authoritiesFor(strict bool) []pki.Authority {
	if strict {
		return []pki.Authority{pki.Hosts}
	}
	return pki.Authorities
}

// admit records that the host joined. Only a token made for an existing host lets a machine join as that host.
func (s *Server) admit(ctx context.Context, host croft.HostID, known bool, stamps map[string]Stamp) error {
	err := s.Store.RecordJoin(ctx, host, known, stamps)
	if errors.Is(err, croft.Conflict) {
		err = croft.Errorf(croft.Conflict,
			"this cloud has a host %s already: if it is this machine, use a token of `croft token create --host %s`; "+
				"if this one is a copy, remove host-id from its state directory", host, host)
	}
	return err
}

// renew signs a new certificate for a caller whose present one is valid.
func (s *Server) renew(r *http.Request, ask renewRequest) (pki.Issued, error) {
	id, err := s.Admission.Caller(r)
	if err != nil {
		return pki.Issued{}, err
	}
	if id.Kind != pki.Host && id.Kind != pki.Member {
		return pki.Issued{},
			croft.Errorf(croft.Invalid, "only certificates of hosts are renewed here: `croft ca` makes other ones")
	}
	authority, err := authorityNamed(string(ask.Authority))
	if err == nil && id.Kind == pki.Host && !slices.Contains(authoritiesFor(s.Strict), authority) {
		err = croft.Errorf(croft.Conflict,
			"hosts of this cloud get no certificates of %s any more (trust: strict): let this one join again, with a token of `croft token create --host %s`", authority, id.ID)
	}
	if err != nil {
		return pki.Issued{}, err
	}
	if err := s.Admission.mayRenew(id.ID); err != nil {
		return pki.Issued{}, err
	}
	stamp, err := s.stamp(authority)
	if err != nil {
		return pki.Issued{}, err
	}
	names := pki.CallerNames(r)
	if id.Kind == pki.Host {
		names = servesAt(authority, comesFrom(r))
	}
	issued, err := s.Credentials.ca.Sign(authority, id, names, ask.Request)
	if err != nil {
		return issued, err
	}
	if err := s.Store.Renewed(r.Context(), croft.HostID(id.ID), string(authority), stamp); err != nil {
		return pki.Issued{}, err
	}
	s.Log.Info("certificate renewed", "host", id.ID, "authority", authority)
	return issued, nil
}

// authority returns the trusted certificates of an authority.
func (s *Server) authority(r *http.Request, _ struct{}) (pki.Issued, error) {
	if _, err := s.Admission.Caller(r); err != nil {
		return pki.Issued{}, err
	}
	authority, err := authorityNamed(r.PathValue("authority"))
	if err != nil {
		return pki.Issued{}, err
	}
	trusted, err := s.Credentials.ca.Trusted(authority)
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
