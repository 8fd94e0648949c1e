package sshca_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"croft"
	"croft/grid/sshca"
	"croft/internal/testing/sshagent"
)

func TestAPassphraseOrAnAgentOpensTheKey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := &sshca.CA{Dir: filepath.Join(dir, "repository", "ca"), Keys: filepath.Join(dir, "keys")}
	if _, err := a.Init(t.Context(), []byte("secret")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(a.Dir, "roles.yaml"), roles)
	sign := func() error {
		_, err := a.SignUser(t.Context(), sshca.Request{Key: newKey(t), User: "tom"})
		return err
	}
	if err := sign(); !errors.Is(err, croft.Invalid) {
		t.Errorf("nobody to ask: %v", err)
	}
	word := "wrong"
	a.Passphrase = func(context.Context, string) ([]byte, error) { return []byte(word), nil }
	if err := sign(); !errors.Is(err, croft.Denied) {
		t.Errorf("a wrong passphrase: %v", err)
	}
	word = "secret"
	if err := sign(); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(filepath.Join(a.Keys, "user_ca"))
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.ParseRawPrivateKeyWithPassphrase(text, []byte(word))
	if err != nil {
		t.Fatal(err)
	}
	a.Passphrase, a.Agent = nil, sshagent.Serve(t, agent.AddedKey{PrivateKey: key})
	if err := sign(); err != nil {
		t.Errorf("an agent that has the key: %v", err)
	}
	a.Agent = sshagent.Serve(t)
	if err := sign(); !errors.Is(err, croft.NotFound) {
		t.Errorf("an agent that does not: %v", err)
	}
}

func TestServe(t *testing.T) {
	t.Parallel()
	a := authority(t, roles)
	key := string(ssh.MarshalAuthorizedKey(newKey(t)))
	for command, want := range map[string]croft.Kind{
		"sign": croft.Invalid, "sign --role ops": "", "sign --role=dev --ttl=5m": "", "sign  --ttl 10m --role ops": "",
		"": croft.Invalid, "sign --user root --role ops": croft.Invalid, "sign --role": croft.Invalid,
		"sign --ttl x": croft.Invalid, "sign --ttl -5m --role dev": croft.Invalid,
		"sign --role ops extra": croft.Invalid,
		"sign --role ../x":      croft.Invalid, "sign --role root": croft.Denied, "list": croft.Invalid,
		"sign --ttl 0 --role ops": croft.Invalid, "sign;id": croft.Invalid, "sign --ttl 17h --role ops": croft.Denied,
	} {
		c, err := a.Serve(t.Context(), "eva", command, strings.NewReader(key))
		if croft.KindOf(err) != want || (err == nil) != (want == "") {
			t.Errorf("%q: %v, want %q", command, err, want)
		}
		if err == nil && !strings.HasPrefix(c.KeyId, "eva@") {
			t.Errorf("%q: %s", command, c.KeyId)
		}
	}
	_, err := a.Serve(t.Context(), "mallory", "sign --role ops", strings.NewReader(key))
	if !errors.Is(err, croft.Denied) {
		t.Errorf("got %v", err)
	}
}

func FuzzServe(f *testing.F) {
	dir := f.TempDir()
	a := &sshca.CA{Dir: filepath.Join(dir, "r", "ca"), Keys: filepath.Join(dir, "keys")}
	if _, err := a.Init(f.Context(), nil); err != nil {
		f.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(a.Dir, "roles.yaml"), []byte(roles), 0o600); err != nil {
		f.Fatal(err)
	}
	f.Add("sign --role ops", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDt0PDUPhTT7EPDuOZ2PHXn89x59oMOwdtXj2niAW15K")
	f.Add("sign --ttl=1h --role=dev", "x")
	f.Fuzz(func(t *testing.T, command, key string) {
		c, err := a.Serve(t.Context(), "tom", command, strings.NewReader(key))
		if err == nil && (!strings.HasPrefix(c.KeyId, "tom@ops#") || len(c.ValidPrincipals) != 2 ||
			c.ValidBefore-c.ValidAfter > uint64((8*time.Hour+time.Minute)/time.Second)) {
			t.Errorf("%q gave %+v", command, c)
		}
		if err != nil && croft.KindOf(err) == "" {
			t.Errorf("%q: an error of no kind: %v", command, err)
		}
	})
}
