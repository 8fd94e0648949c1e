package trust

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"croft"
	"croft/trust/invitation"
	"croft/trust/pki"
)

// registry is a Registry in memory with one invitation.
type registry struct {
	invited Invitation
	joined  map[croft.HostID]Joined
}

func (r *registry) Invitation(_ context.Context, name string) (Invitation, error) {
	if name != r.invited.Name {
		return Invitation{}, croft.Errorf(croft.NotFound, "this token has run out or was revoked")
	}
	return r.invited, nil
}

func (r *registry) RecordJoin(_ context.Context, host croft.HostID, known bool, certificates map[string]Stamp) error {
	if _, has := r.joined[host]; has && !known {
		return croft.Errorf(croft.Conflict, "there is a host %s already", host)
	}
	r.joined[host] = Joined{Since: time.Now(), Certificates: certificates}
	return nil
}

func (r *registry) Renewed(_ context.Context, host croft.HostID, authority string, stamp Stamp) error {
	r.joined[host].Certificates[authority] = stamp
	return nil
}

func (r *registry) Joined(_ context.Context, host croft.HostID) (Joined, error) {
	j, has := r.joined[host]
	if !has {
		return j, croft.Errorf(croft.NotFound, "host %s is not of this cloud: it was forgotten", host)
	}
	return j, nil
}

func (r *registry) Hosts(context.Context, ...croft.HostID) (map[croft.HostID]croft.Host, error) {
	return nil, nil
}

// joinServer is a join server and its token.
type joinServer struct {
	store       *registry
	credentials *Credentials
	token       invitation.JoinToken
}

func newJoinServer(t *testing.T) *joinServer {
	t.Helper()
	p := croft.NewPartitionID()
	own, err := Begin(t.Context(), Config{
		StateDir: t.TempDir(), Host: croft.NewHostID(), Uses: pki.Authorities, Names: []string{"127.0.0.1"},
		Log: slog.New(slog.DiscardHandler),
	}, p)
	if err != nil {
		t.Fatal(err)
	}
	s := &joinServer{store: &registry{joined: map[croft.HostID]Joined{}}, credentials: own}
	admission := &Admission{Self: own.Host, Store: s.store, Known: s.store, Files: own.HostFiles()}
	server := httptest.NewUnstartedServer((&Server{Credentials: own, Store: s.store, Admission: admission,
		Log: slog.New(slog.DiscardHandler)}).Handler())
	server.Listener, _ = own.Listener(server.Listener, true)
	server.Start()
	t.Cleanup(server.Close)
	root, _, err := own.ca.Certificates(pki.Hosts)
	if err != nil {
		t.Fatal(err)
	}
	s.token = invitation.New(invitation.JoinToken{Servers: []string{server.Listener.Addr().String()},
		Pin:       pki.Pin(root),
		Partition: p})
	s.store.invited = Invitation{Name: s.token.Name(), Sealed: s.token.Seal(invitation.Grant{Token: "secret"}),
		Verifier: s.token.Verifier()}
	return s
}

func TestAHostJoinsAndRenews(t *testing.T) {
	s := newJoinServer(t)
	host, dir := croft.NewHostID(), t.TempDir()
	got, err := Enrol(t.Context(), s.token, host, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got.Trust != Direct || got.Grant.Token != "secret" {
		t.Errorf("granted: %+v", got)
	}
	if err := got.Keep(dir); err != nil {
		t.Fatal(err)
	}
	j := &Membership{Partition: s.token.Partition, Servers: s.token.Servers}
	own, err := j.Credentials(dir, host, slog.New(slog.DiscardHandler))
	if err != nil || !own.IsJoined() || !own.Has(pki.Etcd) || !own.Has(pki.Hosts) {
		t.Fatalf("it has %+v, %v", own, err)
	}
	before := s.store.joined[host]
	for _, k := range own.Keepers() {
		if _, err := k.Renew(t.Context(), "a test"); err != nil {
			t.Error(err)
		}
	}
	if len(before.Certificates) != 2 {
		t.Errorf("on record: %+v", before)
	}
	delete(s.store.joined, host)
	if _, err := NewClient(j.Servers, own.Client(pki.Hosts)).Trusted(t.Context(), pki.Hosts); err != nil &&
		croft.KindOf(err) != croft.NotFound {
		t.Errorf("after it was forgotten: %v", err)
	}
}

// TestTheJoinServerAnswersWhateverComes sends invalid requests.
func TestTheJoinServerAnswersWhateverComes(t *testing.T) {
	s := newJoinServer(t)
	operator := s.credentials.OperatorFiles(pki.Hosts)
	anybody := NewClient(s.token.Servers, pki.Pinned(s.token.Pin, s.token.Partition, anyone))
	anna := NewClient(s.token.Servers, operator.Client(s.token.Partition, anyone))
	order := func(change func(*joinOrder)) joinRequest {
		o := joinOrder{Invitation: s.token.Name(), Host: croft.NewHostID(),
			Requests: map[pki.Authority][]byte{pki.Etcd: {1}, pki.Hosts: {1}}}
		change(&o)
		signed, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		return joinRequest{Signed: signed, Signature: s.token.Sign(signed)}
	}
	for _, r := range []struct {
		name         string
		from         *Client
		method, path string
		ask          any
		want         croft.Kind
		says         string
	}{
		{"no object", anybody, "POST", "/v1/join", "hello", croft.Invalid, "cannot be read"},
		{"an unknown field", anybody, "POST", "/v1/join", map[string]int{"x": 1}, croft.Invalid, "cannot be read"},
		{"too much", anybody, "POST", "/v1/join", strings.Repeat("x", 1<<20), croft.Invalid, "cannot be read"},
		{"nothing signed", anybody, "POST", "/v1/join", joinRequest{}, croft.Invalid, "cannot be read"},
		{"no host", anybody, "POST", "/v1/join", order(func(o *joinOrder) { o.Host = "x" }), croft.Invalid,
			"not a UUID"},
		{"an unknown invitation", anybody, "POST", "/v1/join", order(func(o *joinOrder) { o.Invitation = "x" }),
			croft.NotFound, "run out"},
		{"a path for an invitation", anybody, "POST", "/v1/join",
			order(func(o *joinOrder) { o.Invitation = "../authority" }), croft.NotFound, "run out"},
		{"another's signature", anybody, "POST", "/v1/join",
			joinRequest{order(func(*joinOrder) {}).Signed, []byte("x")}, croft.Invalid,
			"does not have the token's secret"},
		{"requests that are none", anybody, "POST", "/v1/join", order(func(*joinOrder) {}), croft.Invalid,
			"not a request for a certificate"},
		{"no requests", anybody, "POST", "/v1/join", order(func(o *joinOrder) { o.Requests = nil }), croft.Invalid,
			"has to ask for a certificate"},
		{"a renewal without a certificate", anybody, "POST", "/v1/renew", renewRequest{pki.Hosts, nil}, croft.Invalid,
			"show the certificate"},
		{"a renewal of an operator", anna, "POST", "/v1/renew", renewRequest{pki.Hosts, nil}, croft.Invalid,
			"only certificates of hosts"},
		{"whom to trust, without a certificate", anybody, "GET", "/v1/authorities/hosts", nil, croft.Invalid,
			"show the certificate"},
		{"an authority that there is not", anna, "GET", "/v1/authorities/root", nil, croft.NotFound, "no authority"},
	} {
		err := r.from.call(t.Context(), r.method, r.path, r.ask, &struct{}{})
		if croft.KindOf(err) != r.want || !strings.Contains(err.Error(), r.says) {
			t.Errorf("%s: %v, want %q with %q", r.name, err, r.want, r.says)
		}
	}
	if len(s.store.joined) != 0 {
		t.Errorf("somebody joined: %v", s.store.joined)
	}
}

func TestCertificatesThatAHostDoesNotNeedAreRemoved(t *testing.T) {
	c := Config{StateDir: t.TempDir(), Host: croft.NewHostID(), Uses: pki.Authorities,
		Log: slog.New(slog.DiscardHandler)}
	p := croft.NewPartitionID()
	if _, err := Begin(t.Context(), c, p); err != nil {
		t.Fatal(err)
	}
	c.Uses = []pki.Authority{pki.Hosts}
	own, err := Begin(t.Context(), c, p)
	if err != nil {
		t.Fatal(err)
	}
	if own.Files(pki.Etcd).Exists() || !own.Files(pki.Hosts).Exists() || !HasAuthority(c.StateDir) {
		t.Errorf("left in %s: %v", filepath.Join(c.StateDir, "tls"), own.Keepers())
	}
}
