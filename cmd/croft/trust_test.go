package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"croft"
	"croft/control/cloud/direct"
	"croft/internal/endpoint"
	"croft/internal/testing/patient"
	"croft/node"
	"croft/node/settings"
	"croft/trust"
	"croft/trust/invitation"
	"croft/trust/pki"
)

// reachable returns an address of this machine that other machines reach.
func reachable(t *testing.T) string {
	t.Helper()
	own := endpoint.OwnAddresses()
	if len(own) == 0 {
		t.Skip("this machine has no address but the loopback interface's")
	}
	return own[0]
}

// securedCloud is a croft up that listens to other machines, configured only with its addresses.
type securedCloud struct {
	settings     settings.Settings
	address, dir string
	stop         func() (code int, said string)
}

// startSecured runs one, with changed settings, and configures commands to use it.
func startSecured(t *testing.T, change func(*settings.Settings)) *securedCloud {
	t.Helper()
	c := &securedCloud{address: reachable(t), dir: filepath.Join(t.TempDir(), "first")}
	s := settings.Defaults()
	s.StateDir, s.Hypervisor, s.Host.Name = c.dir, "sim", "first"
	s.Etcd.Listen = net.JoinHostPort(c.address, "0")
	s.Placement.Listen, s.API.Listen, s.Join.Listen = s.Etcd.Listen, s.Etcd.Listen, s.Etcd.Listen
	if change != nil {
		change(&s)
	}
	c.settings, c.stop = s, startHost(t, s)
	t.Setenv("CROFT_STATE_DIR", c.dir)
	return c
}

// startHost runs croft up with these settings, and returns once it is ready or has ended.
func startHost(t *testing.T, s settings.Settings) (stop func() (int, string)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var words bytes.Buffer
	var code int
	ready := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		err := node.Up(ctx, s, slog.New(slog.NewTextHandler(&words, nil)), sync.OnceFunc(func() { close(ready) }))
		if err != nil {
			words.WriteString("croft: " + err.Error() + "\n")
		}
		code = croft.ExitCode(err)
	})
	ended := make(chan struct{})
	go func() { work.Wait(); close(ended) }()
	select {
	case <-ready:
	case <-ended:
		t.Logf("host %s ended before it was ready:\n%s", s.Host.Name, words.String())
	case <-patient.Context(t).Done():
		t.Error("it is never ready")
	}
	stop = sync.OnceValues(func() (int, string) {
		cancel()
		<-ended
		return code, words.String()
	})
	t.Cleanup(func() { stop() })
	return stop
}

// joining are the settings of a host that joins the cloud.
func joining(t *testing.T, name string) settings.Settings {
	t.Helper()
	s := settings.Defaults()
	s.StateDir, s.Hypervisor, s.Host.Name = filepath.Join(t.TempDir(), name), "sim", name
	s.API.Listen = net.JoinHostPort(reachable(t), "0")
	return s
}

// command runs a command, which must exit with want; -1: with any code.
func command(t *testing.T, want int, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, words bytes.Buffer
	if code := Run(t.Context(), append([]string{"croft"}, args...), nil, &out, &words); code != want && want >= 0 {
		t.Fatalf("%q ended with %d, want %d: %s", args, code, want, words.String())
	}
	return strings.TrimSpace(out.String()), words.String()
}

// joinWith joins with a token and starts the host.
func joinWith(t *testing.T, s settings.Settings, token string) (stop func() (int, string)) {
	t.Helper()
	return joinAs(t, s, token, false)
}

// joinAs is joinWith for a host that also serves etcd and Placement if member is set.
func joinAs(t *testing.T, s settings.Settings, token string, member bool) (stop func() (int, string)) {
	t.Helper()
	if err := node.Join(t.Context(), s, token, member, &bytes.Buffer{}); err != nil {
		t.Fatal(err)
	}
	return startHost(t, s)
}

func TestAHostJoinsOverTLS(t *testing.T) {
	startSecured(t, nil)
	token, _ := command(t, croft.ExitOK, "token", "create")
	s := joining(t, "second")
	stop := joinWith(t, s, token)
	hosts, _ := command(t, croft.ExitOK, "host", "list")
	if strings.Count(hosts, "ready") != 2 {
		t.Errorf("want two hosts that are ready:\n%s", hosts)
	}
	shown, _ := command(t, croft.ExitOK, "host", "show", "second", "-o", "json")
	if !strings.Contains(shown, `"api": "https://`) {
		t.Errorf("its API speaks no TLS: %s", shown)
	}
	verifiable(t, s.StateDir, shown)
	command(t, croft.ExitOK, "schedule", "--wait", "--name", "one", "resources=VCPU:1,MEMORY_MB:64,DISK_GB:1", "tiny")
	command(t, croft.ExitOK, "audit") // calls every agent's API
	command(t, croft.ExitOK, "schedule", "destroy", "--wait", "one")
	if code, said := stop(); code != croft.ExitOK || strings.Contains(said, token) {
		t.Errorf("the host ended with %d:\n%s", code, said)
	}
	// The next start needs no token.
	startHost(t, s)
	if err := node.Join(t.Context(), joining(t, "third"), token, false, &bytes.Buffer{}); err != nil {
		t.Errorf("the token is for any number of hosts: %v", err)
	}
}

// access returns the access that was written for commands on the host.
func (c *securedCloud) access(t *testing.T) direct.Settings {
	t.Helper()
	s := direct.Defaults()
	if err := direct.AddLocal(c.dir, &s.Etcd, &s.Placement); err != nil {
		t.Fatal(err)
	}
	return s
}

// askPlacement sends a request to Placement, with a certificate or without.
func askPlacement(t *testing.T, s direct.PlacementSettings, f *pki.Files) (status int, body string) {
	t.Helper()
	roots := x509.NewCertPool()
	text, err := os.ReadFile(s.CA)
	if err != nil || !roots.AppendCertsFromPEM(text) {
		t.Fatal(err)
	}
	config := &tls.Config{RootCAs: roots}
	if f != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return f.Load() }
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.Endpoint+"/resource_providers", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-Auth-Token", s.Token)
	answer, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(answer.Body); err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, b.String()
}

func TestNobodyIsServedWithoutACertificate(t *testing.T) {
	c := startSecured(t, nil)
	s := c.access(t)
	if status, body := askPlacement(t, s.Placement, nil); status != http.StatusUnauthorized ||
		!strings.Contains(body, "only with a certificate") {
		t.Errorf("the token alone: %d %s", status, body)
	}
	operator := pki.Files{Dir: filepath.Dir(s.Placement.CA), Authority: pki.Hosts}
	for what, url := range map[string]string{"etcd": s.Etcd.Endpoints[0], "Placement": s.Placement.Endpoint} {
		old := &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}
		if conn, err := (&tls.Dialer{Config: old}).DialContext(t.Context(), "tcp",
			strings.TrimPrefix(url, "https://")); err == nil {
			t.Errorf("%s speaks TLS 1.2: %v", what, conn.Close())
		}
	}
	if status, body := askPlacement(t, s.Placement, &operator); status != http.StatusOK {
		t.Errorf("with a certificate: %d %s", status, body)
	}
	if s.Placement.Token == direct.DefaultToken {
		t.Error("Placement listens to others with the token that everybody knows")
	}
	for name, change := range map[string]func(*direct.EtcdSettings){
		"no certificate":            func(e *direct.EtcdSettings) { e.Cert, e.Key = "", "" },
		"one of hosts, not of etcd": func(e *direct.EtcdSettings) { e.Cert, e.Key = operator.Pair(), operator.Pair() },
	} {
		e := s.Etcd
		change(&e)
		store, err := e.Open(t.Context(), false)
		if err == nil {
			t.Errorf("%s: etcd let it in", name)
			_ = store.Close()
		} else if croft.KindOf(err) != croft.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// anyone accepts every identity.
func anyone(pki.Identity) error { return nil }

// TestAnotherJoinServerIsToldNothing: an attacker between a new host and the join server, with a certificate for the
// same names, gets no data.
func TestAnotherJoinServerIsToldNothing(t *testing.T) {
	p := croft.NewPartitionID()
	real, err := pki.OpenCA(filepath.Join(t.TempDir(), "real"), p)
	if err != nil {
		t.Fatal(err)
	}
	root, _, err := real.Certificates(pki.Hosts)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := pki.OpenCA(filepath.Join(t.TempDir(), "theirs"), p)
	if err != nil {
		t.Fatal(err)
	}
	files := pki.Files{Dir: t.TempDir(), Authority: pki.Hosts}
	k := pki.Keeper{Files: files, Issuer: theirs.For(pki.MemberIdentity(p, croft.NewHostID())),
		Log: slog.New(slog.DiscardHandler)}
	if _, err := k.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int32
	between := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	between.Listener = tls.NewListener(between.Listener, files.Server(p, true, anyone))
	between.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	between.Start()
	defer between.Close()
	token := invitation.New(invitation.JoinToken{Servers: []string{between.Listener.Addr().String()},
		Pin:       pki.Pin(root),
		Partition: p})
	s := settings.Defaults()
	s.StateDir = filepath.Join(t.TempDir(), "state")
	err = node.Join(t.Context(), s, token.String(), false, &bytes.Buffer{})
	if croft.KindOf(err) != croft.Invalid || !strings.Contains(err.Error(), "no certificate of the given authority") {
		t.Errorf("got %v", err)
	}
	if asked.Load() != 0 {
		t.Error("it was asked something")
	}
	if _, err := os.Stat(s.StateDir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something was written: %v", err)
	}
}

func TestATokenLetsNobodyBeAnotherHost(t *testing.T) {
	startSecured(t, nil)
	token, _ := command(t, croft.ExitOK, "token", "create")
	s := joining(t, "second")
	stop := joinWith(t, s, token)
	var words bytes.Buffer
	if err := node.Join(t.Context(), s, token, false, &words); err != nil ||
		!strings.Contains(words.String(), "already") {
		t.Errorf("a host that joined joins once more: %v, %s", err, words.String())
	}
	id, err := os.ReadFile(filepath.Join(s.StateDir, "host-id"))
	if err != nil {
		t.Fatal(err)
	}
	copied := joining(t, "copy")
	if err := errors.Join(os.MkdirAll(copied.StateDir, 0o755),
		os.WriteFile(filepath.Join(copied.StateDir, "host-id"), id, 0o644)); err != nil {
		t.Fatal(err)
	}
	if err := node.Join(t.Context(), copied, token, false, &words); croft.KindOf(err) != croft.Conflict ||
		!strings.Contains(err.Error(), "croft token create --host") {
		t.Errorf("another machine with the host's ID: %v", err)
	}
	forIt, _ := command(t, croft.ExitOK, "token", "create", "--host", "second")
	if err := node.Join(t.Context(), joining(t, "fourth"), forIt, false, &words); croft.KindOf(err) != croft.Conflict ||
		!strings.Contains(err.Error(), "is for host") {
		t.Errorf("a new host with the token of another: %v", err)
	}
	if _, said := command(t, croft.ExitNotFound, "token", "create", "--host", "secnod"); !strings.Contains(said,
		"second") {
		t.Errorf("a host that there is not: %s", said)
	}
	stop()
	if err := node.Join(t.Context(), s, forIt, false, &words); err != nil {
		t.Errorf("the host with its own token: %v", err)
	}
	parsed, err := invitation.Parse(token)
	if err != nil {
		t.Fatal(err)
	}
	parsed.Secret[0] ^= 1
	if err := node.Join(t.Context(), joining(t, "fifth"), parsed.String(), false,
		&words); croft.KindOf(err) != croft.NotFound {
		t.Errorf("another secret: %v", err)
	}
}

func TestAForgottenHostIsRefused(t *testing.T) {
	c := startSecured(t, nil)
	token, _ := command(t, croft.ExitOK, "token", "create")
	s := joining(t, "second")
	stop := joinWith(t, s, token)
	j, err := trust.ReadMembership(s.StateDir)
	if err != nil {
		t.Fatal(err)
	}
	mine := trust.Certificate(s.StateDir, pki.Hosts)
	control := trust.NewClient(j.Servers, mine.Client(j.Partition, pki.Kinds(pki.Member)))
	if _, err := control.Trusted(t.Context(), pki.Hosts); err != nil {
		t.Fatal(err)
	}
	stop()
	command(t, croft.ExitOK, "host", "forget", "second", "--force")
	await(t, "it is refused", func() bool {
		_, err := control.Trusted(t.Context(), pki.Hosts)
		return croft.KindOf(err) == croft.NotFound && strings.Contains(err.Error(), "was forgotten")
	})
	_, csr, err := pki.Request()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := control.Issue(t.Context(), pki.Etcd, csr); croft.KindOf(err) != croft.NotFound {
		t.Errorf("its certificate was renewed: %v", err)
	}
	if status, body := askPlacement(t, c.access(t).Placement, &mine); status != http.StatusForbidden {
		t.Errorf("Placement answers it %d %s", status, body)
	}
	if code, said := startHost(t, s)(); code != croft.ExitNotFound || !strings.Contains(said, "was forgotten") {
		t.Errorf("it starts again: %d, %s", code, said)
	}
	joinWith(t, s, token) // like any new host
	if _, err := control.Trusted(t.Context(), pki.Hosts); err != nil {
		t.Errorf("after it joined again: %v", err)
	}
}

// await waits until a condition holds.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	patient.Until(t, what, is)
}

// TestCertificatesAreRenewedWhileAllRuns uses certificates valid for seconds, and a host that returns after a longer
// absence.
func TestCertificatesAreRenewedWhileAllRuns(t *testing.T) {
	const life = 10 * time.Second
	startSecured(t, func(s *settings.Settings) { s.Join.CertificateLife = life })
	token, _ := command(t, croft.ExitOK, "token", "create")
	s := joining(t, "second")
	stop := joinWith(t, s, token)
	began := time.Now()
	first := map[pki.Authority]time.Time{}
	for _, a := range pki.Authorities {
		first[a] = runsOut(t, s.StateDir, a)
	}
	await(t, "both certificates outlived the first ones", func() bool {
		for _, a := range pki.Authorities {
			if !runsOut(t, s.StateDir, a).After(first[a]) {
				return false
			}
		}
		return time.Since(began) > life+time.Second
	})
	shown, _ := command(t, croft.ExitOK, "host", "show", "second", "-o", "json")
	verifiable(t, s.StateDir, shown)
	command(t, croft.ExitOK, "schedule", "--wait", "--name", "one",
		"resources=VCPU:1,MEMORY_MB:64,DISK_GB:1&in_tree="+hostID(t, s.StateDir), "tiny")
	if code, said := stop(); code != croft.ExitOK || !strings.Contains(said, "certificate made") {
		t.Errorf("the host ended with %d:\n%s", code, said)
	}
	await(t, "the certificates ran out", func() bool {
		return time.Now().After(runsOut(t, s.StateDir, pki.Etcd)) && time.Now().After(runsOut(t, s.StateDir, pki.Hosts))
	})
	code, said := startHost(t, s)()
	if code != croft.ExitUnavailable || !strings.Contains(said, "croft token create --host "+hostID(t, s.StateDir)) {
		t.Errorf("with certificates that ran out it ended with %d:\n%s", code, said)
	}
	if err := node.Join(t.Context(), s, token, false, &bytes.Buffer{}); croft.KindOf(err) != croft.Conflict {
		t.Errorf("with a token for others: %v", err)
	}
	forIt, _ := command(t, croft.ExitOK, "token", "create", "--host", "second")
	joinWith(t, s, forIt)
	if list, _ := command(t, croft.ExitOK, "schedule", "list"); !strings.Contains(list, "running") {
		t.Errorf("its guest: %s", list)
	}
}

// verifiable checks that programs other than croft can verify a host's API by its address, with only the
// authority.
func verifiable(t *testing.T, stateDir, shown string) {
	t.Helper()
	var host struct{ API string }
	if err := json.Unmarshal([]byte(shown), &host); err != nil {
		t.Fatal(err)
	}
	roots, err := trust.Certificate(stateDir, pki.Hosts).Roots()
	if err != nil {
		t.Fatal(err)
	}
	c, err := tls.Dial("tcp", strings.TrimPrefix(host.API, "https://"), &tls.Config{RootCAs: roots})
	if err != nil {
		t.Errorf("the API at %s: %v", host.API, err)
		return
	}
	_ = c.Close()
}

func runsOut(t *testing.T, stateDir string, a pki.Authority) time.Time {
	t.Helper()
	pair, err := trust.Certificate(stateDir, a).Load()
	if err != nil {
		t.Fatal(err)
	}
	return pair.Leaf.NotAfter
}

func hostID(t *testing.T, stateDir string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(stateDir, "host-id"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}
