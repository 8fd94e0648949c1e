package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"croft"
	"croft/cloud/direct"
	"croft/doctor"
	"croft/etcdstore"
	"croft/trust/invitation"
	"croft/trust/pki"
)

func TestAnAuthorityFollowsAnother(t *testing.T) {
	c := startSecured(t, nil)
	token, _ := command(t, croft.ExitOK, "token", "create")
	s := joining(t, "second")
	stop := joinWith(t, s, token)
	command(t, croft.ExitNotFound, "ca", "rotate", "--finish", "--state-dir", c.dir)
	left := t.TempDir() // what a host has that never renews
	for _, a := range pki.Authorities {
		leave(t, certificates(s.StateDir, a), certificates(left, a))
	}

	command(t, croft.ExitOK, "ca", "rotate", "--state-dir", c.dir)
	command(t, croft.ExitConflict, "ca", "rotate", "--state-dir", c.dir)
	if _, said := command(t, croft.ExitConflict, "ca", "rotate", "--finish", "--state-dir", c.dir); !strings.Contains(said, "not renewed yet: second;") {
		t.Errorf("a host that has not renewed: %s", said)
	}
	if err := join(t.Context(), joining(t, "third"), token, false, &bytes.Buffer{}); err != nil {
		t.Errorf("a token from before: %v", err)
	}
	command(t, croft.ExitNotFound, "ca", "rotate", "--state-dir", s.StateDir)
	command(t, croft.ExitOK, "ca", "renew", "--state-dir", s.StateDir)
	shown, _ := command(t, croft.ExitOK, "ca", "show", "--state-dir", c.dir)
	if strings.Count(shown, "the authority before it") != 2 {
		t.Errorf("want both authorities before:\n%s", shown)
	}
	command(t, croft.ExitOK, "ca", "rotate", "--finish", "--state-dir", c.dir)
	if hosts, _ := command(t, croft.ExitOK, "host", "list"); strings.Count(hosts, "ready") != 2 {
		t.Errorf("want two hosts that are ready:\n%s", hosts)
	}
	command(t, croft.ExitOK, "audit")
	j, err := readJoined(s.StateDir)
	if err != nil {
		t.Fatal(err)
	}
	stale := certificates(left, pki.Hosts).Client(j.Partition, anyone)
	if _, err := newControlClient(j.Control, stale).Trusted(t.Context(), pki.Etcd); err == nil {
		t.Error("control takes a certificate of the authority before")
	}
	command(t, croft.ExitOK, "ca", "renew", "--state-dir", c.dir) // which an etcd of the authority before believes
	command(t, croft.ExitOK, "host", "list")
	stop()
	c.stop()
	startHost(t, c.settings)
	command(t, croft.ExitOK, "host", "list")
	e := c.access(t).Etcd
	e.Cert, e.Key = certificates(left, pki.Etcd).Pair(), certificates(left, pki.Etcd).Pair()
	if store, err := e.Open(t.Context(), false); err == nil {
		t.Errorf("etcd takes a certificate of the authority before: %v", store.Close())
	}
}

// leave copies the files of a certificate, but trusts whoever is there now.
func leave(t *testing.T, from, to pki.Files) {
	t.Helper()
	for _, file := range []string{from.Pair(), from.CA()} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.MkdirAll(to.Dir, 0o700), os.WriteFile(filepath.Join(to.Dir, filepath.Base(file)), text, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAnOperatorWorksFromElsewhere(t *testing.T) {
	c := startSecured(t, nil)
	dir := filepath.Join(t.TempDir(), "anna")
	issue := []string{"ca", "issue", "--state-dir", c.dir, "--operator", "anna", "--to", dir}
	command(t, croft.ExitOK, issue...)
	t.Setenv("CROFT_STATE_DIR", t.TempDir()) // another machine
	settings := []string{"--settings", filepath.Join(dir, direct.SettingsFile)}
	command(t, croft.ExitOK, append([]string{"schedule", "--wait", "--name", "one", "resources=VCPU:1,MEMORY_MB:64,DISK_GB:1", "tiny"}, settings...)...)
	command(t, croft.ExitOK, append([]string{"host", "list"}, settings...)...)
	command(t, croft.ExitOK, append([]string{"audit"}, settings...)...)
	before, err := pki.Files{Dir: dir, Authority: pki.Hosts}.Load()
	if err != nil {
		t.Fatal(err)
	}
	command(t, croft.ExitOK, issue...)
	if after, err := (pki.Files{Dir: dir, Authority: pki.Hosts}).Load(); err != nil || after.Leaf.Equal(before.Leaf) {
		t.Errorf("issued again: %v", err)
	}
	for name, args := range map[string][]string{
		"another operator's directory": {"ca", "issue", "--state-dir", c.dir, "--operator", "ben", "--to", dir},
		"a directory of other things":  {"ca", "issue", "--state-dir", c.dir, "--operator", "ben", "--to", c.dir},
	} {
		if _, said := command(t, croft.ExitConflict, args...); !strings.Contains(said, "is not empty") {
			t.Errorf("%s: %s", name, said)
		}
	}
	command(t, croft.ExitUsage, "ca", "issue", "--state-dir", c.dir, "--operator", "a/b", "--to", filepath.Join(t.TempDir(), "x"))
}

func TestCertificatesAreShownWithTheirState(t *testing.T) {
	c := startSecured(t, nil)
	shown, _ := command(t, croft.ExitOK, "ca", "show", "--state-dir", c.dir, "-o", "json")
	var all []certificateData
	if err := json.Unmarshal([]byte(shown), &all); err != nil || len(all) != 6 {
		t.Fatalf("%d certificates, %v, want 6: %s", len(all), err, shown)
	}
	for _, one := range all {
		if one.State != "good" || time.Until(one.Until) < pki.Life-time.Hour {
			t.Errorf("%s of %s: %s until %s", one.Authority, one.Of, one.State, one.Until)
		}
	}
	if f := lookCertificates(c.dir)(t.Context()); f.Level != doctor.OK || !strings.Contains(f.Found, "6, the first counts until") {
		t.Errorf("doctor finds %+v", f)
	}
	if f := lookCertificates(t.TempDir())(t.Context()); f.Level != doctor.OK {
		t.Errorf("where there are none doctor finds %+v", f)
	}
	if err := os.Chmod(certificates(c.dir, pki.Etcd).Pair(), 0o644); err != nil {
		t.Fatal(err)
	}
	if f := lookCertificates(c.dir)(t.Context()); f.Level != doctor.Fail || !strings.Contains(f.Found, "others may read") {
		t.Errorf("with a key that others may read doctor finds %+v", f)
	}
}

func TestACloudThatListensToItselfAgainHasNoCertificates(t *testing.T) {
	c := startSecured(t, nil)
	before, _ := command(t, croft.ExitOK, "ca", "show", "--state-dir", c.dir)
	c.stop()
	s := c.settings
	s.Etcd.Listen, s.Placement.Listen, s.API.Listen, s.Control.Listen = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0", ""
	startHost(t, s)
	after, _ := command(t, croft.ExitOK, "ca", "show", "--state-dir", c.dir)
	if strings.Count(before, "\n") != 6 || strings.Count(after, "\n") != 2 {
		t.Errorf("before:\n%s\nafter, want the authority alone:\n%s", before, after)
	}
	if _, err := direct.ReadLocal(c.dir); croft.KindOf(err) != croft.NotFound {
		t.Errorf("commands are told where it listened: %v", err)
	}
}

func TestAHostThatDoesNotRenewIsTold(t *testing.T) {
	now := time.Now()
	stamp := func(left time.Duration) etcdstore.Joined {
		return etcdstore.Joined{Certificates: map[string]etcdstore.Stamp{"etcd": {Made: now.Add(left - pki.Life), Until: now.Add(left)}}}
	}
	for _, c := range []struct {
		name string
		j    etcdstore.Joined
		says string
	}{
		{"one that did not join has none", etcdstore.Joined{}, ""},
		{"a new certificate", stamp(pki.Life), ""},
		{"one that is due for renewal", stamp(pki.Life / 4), ""},
		{"one that should have been renewed", stamp(pki.Life / 6), "is not renewed: does it reach control?"},
		{"one that ran out", stamp(-time.Hour), "let it join again"},
	} {
		if got := overdue(c.j); (got == "") != (c.says == "") || !strings.Contains(got, c.says) {
			t.Errorf("%s: %q, want %q", c.name, got, c.says)
		}
	}
}

func TestMetricsSayWhenCertificatesRunOut(t *testing.T) {
	c := startSecured(t, nil)
	s := defaultHostSettings()
	s.StateDir = c.dir
	own, err := s.trustOnDisk()
	if err != nil {
		t.Fatal(err)
	}
	metrics := prometheus.NewPedanticRegistry()
	metrics.MustRegister(own.Collector())
	families, err := metrics.Gather()
	if err != nil || len(families) != 2 {
		t.Fatal(families, err)
	}
	for i, life := range []time.Duration{10 * 365 * 24 * time.Hour, pki.Life} { // the authority's, the certificates'
		for _, m := range families[i].GetMetric() {
			if left := time.Until(time.Unix(int64(m.GetGauge().GetValue()), 0)); left < life-time.Hour || left > life {
				t.Errorf("%s of %s: in %s, want %s", families[i].GetName(), m.GetLabel()[0].GetValue(), left, life)
			}
		}
		if n := len(families[i].GetMetric()); n != 2 {
			t.Errorf("%s is told of %d authorities, want 2", families[i].GetName(), n)
		}
	}
}

// TestControlAnswersWhateverComes sends what no host sends.
func TestControlAnswersWhateverComes(t *testing.T) {
	c := startSecured(t, nil)
	token, _ := command(t, croft.ExitOK, "token", "create")
	parsed, err := invitation.Parse(token)
	if err != nil {
		t.Fatal(err)
	}
	operator := pki.Files{Dir: filepath.Join(c.dir, "tls", "operator"), Authority: pki.Hosts}
	anybody := newControlClient(parsed.Control, pki.Pinned(parsed.Pin, parsed.Partition, anyone))
	anna := newControlClient(parsed.Control, operator.Client(parsed.Partition, anyone))
	order := func(change func(*joinOrder)) joinRequest {
		o := joinOrder{Invitation: parsed.Name(), Host: croft.NewHostID(), Requests: map[pki.Authority][]byte{pki.Etcd: {1}, pki.Hosts: {1}}}
		change(&o)
		signed, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		return joinRequest{Signed: signed, Signature: parsed.Sign(signed)}
	}
	for _, r := range []struct {
		name         string
		from         *controlClient
		method, path string
		ask          any
		want         croft.Kind
		says         string
	}{
		{"no object", anybody, "POST", "/v1/join", "hello", croft.Invalid, "cannot be read"},
		{"an unknown field", anybody, "POST", "/v1/join", map[string]int{"x": 1}, croft.Invalid, "cannot be read"},
		{"too much", anybody, "POST", "/v1/join", strings.Repeat("x", 1<<20), croft.Invalid, "cannot be read"},
		{"nothing signed", anybody, "POST", "/v1/join", joinRequest{}, croft.Invalid, "cannot be read"},
		{"no host", anybody, "POST", "/v1/join", order(func(o *joinOrder) { o.Host = "x" }), croft.Invalid, "not a UUID"},
		{"an unknown invitation", anybody, "POST", "/v1/join", order(func(o *joinOrder) { o.Invitation = "x" }), croft.NotFound, "run out"},
		{"a path for an invitation", anybody, "POST", "/v1/join", order(func(o *joinOrder) { o.Invitation = "../authority" }), croft.NotFound, "run out"},
		{"another's signature", anybody, "POST", "/v1/join", joinRequest{order(func(*joinOrder) {}).Signed, []byte("x")}, croft.Invalid, "does not have the token's secret"},
		{"requests that are none", anybody, "POST", "/v1/join", order(func(*joinOrder) {}), croft.Invalid, "no request for a certificate"},
		{"no requests", anybody, "POST", "/v1/join", order(func(o *joinOrder) { o.Requests = nil }), croft.Invalid, "has to ask for a certificate"},
		{"a renewal without a certificate", anybody, "POST", "/v1/renew", renewRequest{pki.Hosts, nil}, croft.Invalid, "show the certificate"},
		{"a renewal of an operator", anna, "POST", "/v1/renew", renewRequest{pki.Hosts, nil}, croft.Invalid, "only certificates of hosts"},
		{"whom to trust, without a certificate", anybody, "GET", "/v1/authorities/hosts", nil, croft.Invalid, "show the certificate"},
		{"an authority that there is not", anna, "GET", "/v1/authorities/root", nil, croft.NotFound, "no authority"},
	} {
		err := r.from.call(t.Context(), r.method, r.path, r.ask, &struct{}{})
		if croft.KindOf(err) != r.want || !strings.Contains(err.Error(), r.says) {
			t.Errorf("%s: got %v, want %q", r.name, err, r.says)
		}
	}
	if hosts, _ := command(t, croft.ExitOK, "host", "list"); strings.Count(hosts, "\n") != 1 {
		t.Errorf("somebody joined:\n%s", hosts)
	}
}

func TestAHostLearnsWhereControlIs(t *testing.T) {
	c, err := newTestCloud(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	j := &membership{Partition: c.store.Partition(), Control: []string{"10.0.0.1:8777"}}
	own := &trust{partition: j.Partition, stateDir: t.TempDir()}
	follow := func(want ...string) {
		t.Helper()
		if err := j.followControl(t.Context(), own, c.store); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(j.Control, want) {
			t.Errorf("it renews at %q, want %q", j.Control, want)
		}
	}
	follow("10.0.0.1:8777") // nobody says any
	for i, control := range []etcdstore.Control{
		{Addresses: []string{"10.0.0.2:8777"}, Trust: etcdstore.TrustDirect},
		{Addresses: []string{"10.0.0.3:8777"}}, // where nobody joins
	} {
		if err := c.store.PutControl(t.Context(), []croft.HostID{croft.NewHostID(), croft.NewHostID()}[i], control); err != nil {
			t.Fatal(err)
		}
	}
	follow("10.0.0.2:8777")
	if kept, err := readJoined(own.stateDir); err != nil || kept == nil || !slices.Equal(kept.Control, j.Control) {
		t.Errorf("kept: %+v, %v", kept, err)
	}
	if got := own.issuer.(*controlClient).addresses; !slices.Equal(got, j.Control) {
		t.Errorf("asks %q", got)
	}
}
