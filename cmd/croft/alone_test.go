package main

import (
	"crypto/tls"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"croft"
	"croft/etcdstore"
)

// nobody is the user without rights on every Linux system.
const nobody = 65534

// The cloud of one machine belongs to root there: without a certificate no user reaches its etcd and its Placement, and
// only root reads the certificates.
func TestAnotherUserOfTheMachineGetsNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	s := aloneSettings(t, dir)
	startHost(t, s)
	command(t, croft.ExitOK, "host", "list")

	ca := filepath.Join(dir, "tls", "operator", "etcd-ca.pem")
	for name, c := range map[string]etcdstore.Config{
		"in plain text": {Endpoints: []string{"http://" + s.Etcd.Listen}},
		"without a certificate": {Endpoints: []string{"https://" + s.Etcd.Listen}, Credentials: etcdstore.Credentials{
			CA: ca}},
	} {
		store, err := etcdstore.Open(t.Context(), c)
		if croft.KindOf(err) != croft.Invalid {
			t.Errorf("etcd, %s: %v", name, err)
		}
		if err == nil {
			_ = store.Close()
		}
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		"https://"+s.Placement.Listen+"/resource_providers", nil)
	if err != nil {
		t.Fatal(err)
	}
	token, err := os.ReadFile(filepath.Join(dir, "placement-token"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Auth-Token", strings.TrimSpace(string(token)))
	if answer, err := client.Do(r); err == nil {
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusUnauthorized {
			t.Errorf("Placement answers %s without a certificate", answer.Status)
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user, to try to read the state directory")
	}
	for _, file := range []string{"local.yaml", "tls/operator/etcd.pem", "placement-token", "ca/etcd.pem"} {
		if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
			t.Error(err)
		}
		cat := exec.Command("cat", filepath.Join(dir, file))
		cat.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		if text, err := cat.Output(); err == nil || len(text) > 0 {
			t.Errorf("another user reads %s: %q", file, text)
		}
	}
}
