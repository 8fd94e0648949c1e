package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"croft"
	"croft/control/cloud/direct"
	"croft/internal/checks"
	"croft/node"
	"croft/node/settings"
	"croft/trust"
	"croft/trust/pki"
)

func TestAnAuthorityFollowsAnother(t *testing.T) {
	c := startSecured(t, nil)
	token, _ := command(t, croft.ExitOK, "token", "create")
	s := joining(t, "second")
	stop := joinWith(t, s, token)
	command(t, croft.ExitNotFound, "ca", "rotate", "--finish", "--state-dir", c.dir)
	left := t.TempDir() // belongs to a host that never renews
	for _, a := range pki.Authorities {
		leave(t, trust.Certificate(s.StateDir, a), trust.Certificate(left, a))
	}

	command(t, croft.ExitOK, "ca", "rotate", "--state-dir", c.dir)
	command(t, croft.ExitConflict, "ca", "rotate", "--state-dir", c.dir)
	if _, said := command(t, croft.ExitConflict, "ca", "rotate", "--finish", "--state-dir",
		c.dir); !strings.Contains(said, "not renewed yet: second;") {
		t.Errorf("a host that has not renewed: %s", said)
	}
	if err := node.Join(t.Context(), joining(t, "third"), token, false, &bytes.Buffer{}); err != nil {
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
	j, err := trust.ReadMembership(s.StateDir)
	if err != nil {
		t.Fatal(err)
	}
	stale := trust.Certificate(left, pki.Hosts).Client(j.Partition, anyone)
	if _, err := trust.NewClient(j.Servers, stale).Trusted(t.Context(), pki.Etcd); err == nil {
		t.Error("control takes a certificate of the authority before")
	}
	command(t, croft.ExitOK, "ca", "renew", "--state-dir", c.dir) // which an etcd of the previous authority accepts
	command(t, croft.ExitOK, "host", "list")
	stop()
	c.stop()
	startHost(t, c.settings)
	command(t, croft.ExitOK, "host", "list")
	e := c.access(t).Etcd
	e.Cert, e.Key = trust.Certificate(left, pki.Etcd).Pair(), trust.Certificate(left, pki.Etcd).Pair()
	if store, err := e.Open(t.Context(), false); err == nil {
		t.Errorf("etcd takes a certificate of the authority before: %v", store.Close())
	}
}

// leave copies the files of a certificate, with the authorities trusted now.
func leave(t *testing.T, from, to pki.Files) {
	t.Helper()
	for _, file := range []string{from.Pair(), from.CA()} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.MkdirAll(to.Dir, 0o700), os.WriteFile(filepath.Join(to.Dir, filepath.Base(file)), text,
			0o600)); err != nil {
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
	command(t, croft.ExitOK, append([]string{"schedule", "--wait", "--name", "one",
		"resources=VCPU:1,MEMORY_MB:64,DISK_GB:1", "tiny"}, settings...)...)
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
	command(t, croft.ExitUsage, "ca", "issue", "--state-dir", c.dir, "--operator", "a/b", "--to",
		filepath.Join(t.TempDir(), "x"))
}

func TestCertificatesAreShownWithTheirState(t *testing.T) {
	c := startSecured(t, nil)
	shown, _ := command(t, croft.ExitOK, "ca", "show", "--state-dir", c.dir, "-o", "json")
	var all []trust.Held
	if err := json.Unmarshal([]byte(shown), &all); err != nil || len(all) != 6 {
		t.Fatalf("%d certificates, %v, want 6: %s", len(all), err, shown)
	}
	for _, one := range all {
		if one.State != "good" || time.Until(one.Until) < pki.Life-time.Hour {
			t.Errorf("%s of %s: %s until %s", one.Authority, one.Of, one.State, one.Until)
		}
	}
	if f := node.Certificates(c.dir); f.Level != checks.OK ||
		!strings.Contains(f.Found, "6, the first counts until") {
		t.Errorf("doctor finds %+v", f)
	}
	if f := node.Certificates(t.TempDir()); f.Level != checks.OK {
		t.Errorf("where there are none doctor finds %+v", f)
	}
	if err := os.Chmod(trust.Certificate(c.dir, pki.Etcd).Pair(), 0o644); err != nil {
		t.Fatal(err)
	}
	if f := node.Certificates(c.dir); f.Level != checks.Fail ||
		!strings.Contains(f.Found, "others may read") {
		t.Errorf("with a key that others may read doctor finds %+v", f)
	}
}

func TestAnInsecureCloudHasNoCertificates(t *testing.T) {
	c := startSecured(t, nil)
	before, _ := command(t, croft.ExitOK, "ca", "show", "--state-dir", c.dir)
	c.stop()
	s := c.settings
	s.Etcd.Listen, s.Placement.Listen, s.API.Listen, s.Join.Listen = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0", ""
	s.Etcd.Insecure = true
	startHost(t, s)
	after, _ := command(t, croft.ExitOK, "ca", "show", "--state-dir", c.dir)
	if strings.Count(before, "\n") != 6 || strings.Count(after, "\n") != 2 {
		t.Errorf("before:\n%s\nafter, want the authority alone:\n%s", before, after)
	}
	if _, err := direct.ReadLocal(c.dir); croft.KindOf(err) != croft.NotFound {
		t.Errorf("commands are told where it listened: %v", err)
	}
}

func TestMetricsSayWhenCertificatesRunOut(t *testing.T) {
	c := startSecured(t, nil)
	s := settings.Defaults()
	s.StateDir = c.dir
	own, err := node.CredentialsOnDisk(&s)
	if err != nil {
		t.Fatal(err)
	}
	metrics := prometheus.NewPedanticRegistry()
	metrics.MustRegister(own.Collector())
	families, err := metrics.Gather()
	if err != nil || len(families) != 2 {
		t.Fatal(families, err)
	}
	for i, life := range []time.Duration{10 * 365 * 24 * time.Hour, pki.Life} { // of the authority, of the certificates
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
