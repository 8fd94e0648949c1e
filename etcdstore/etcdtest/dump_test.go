package etcdtest_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"

	"croft"
	"croft/etcdstore/etcdtest"
	"croft/internal/hostkey"
	"croft/tenant/access"
	"croft/trust/invitation"
)

// Every breach is reported, even one that has been removed since, and correct content is not.
func TestADumpShowsBreaches(t *testing.T) {
	server := etcdtest.Server(t)
	s := etcdtest.Open(t, server)
	inst := etcdtest.NewInstance("web")
	inst.Spec.HostKey = etcdtest.Must(hostkey.New())(t)
	etcdtest.Must(s.Instances.Create(t.Context(), inst))(t)
	etcdtest.CheckDump(t, server.Endpoint()) // a cloud without breaches

	home, other := s.Partition(), croft.NewPartitionID()
	secret := access.NewSecret()
	raw := strings.Repeat("issued-secret-", 2)
	etcdtest.Issued(secret.Text(), raw)
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	invited := invitation.New(invitation.JoinToken{Partition: home, Endpoints: []string{"https://127.0.0.1:1"}})
	word := fmt.Sprintf("%x", key[:8])
	in64 := base64.StdEncoding.EncodeToString
	for _, c := range []struct {
		name      string
		partition croft.PartitionID
		key       string
		value     string
		want      string
	}{
		{"a key that nobody lists", home, "notes/" + word, "", "is none of etcdstore/keys.go"},
		{"a key below one that is listed", home, "instances/a/b", "", "is none of etcdstore/keys.go"},
		{"a key of another partition", other, "instances/" + word, "", "is of another partition than home"},
		{"a key of no partition", "instances", word, "", "is none of etcdstore/keys.go"},
		{"an access token", home, "keys/lab/a", secret.Text(), "an access token is in"},
		{"its secret alone", home, "keys/lab/b", `{"x": "` + secret.Text()[len("croft_0123456789ab_"):] + `"}`,
			"a secret that was issued is in"},
		{"a secret of a test in base64", home, "keys/lab/c", `{"a": [{"b": "` + in64([]byte(raw)) + `"}]}`,
			"a secret that was issued is in"},
		{"a secret as a name", home, "keys/lab/d", `{"` + raw + `": 1}`, "a secret that was issued is in"},
		{"an invitation", home, "invitations/a", `{"token": "` + invited.String() + `"}`, "an invitation is in"},
		{"a private key", home, "authority", inst.Spec.HostKey, "a private key is in"},
		{"a host key elsewhere", home, "observed/h/i", fmt.Sprintf(`{"spec": {"host_key": %q}}`, inst.Spec.HostKey),
			"a private key is in"},
		{"a token of an agent elsewhere", home, "alive/h", `{"token": "` + raw + `"}`, "a secret that was issued is in"},
	} {
		if err := etcdtest.Put(t.Context(), server.Endpoint(), c.partition, c.key, c.value); err != nil {
			t.Fatal(err)
		}
		if err := etcdtest.Delete(t.Context(), server.Endpoint(), c.partition, c.key); err != nil {
			t.Fatal(err)
		}
		found := etcdtest.Must(etcdtest.Breaches(t.Context(), server.Endpoint()))(t)
		if !slices.ContainsFunc(found, func(b string) bool {
			return strings.Contains(b, c.want) && strings.Contains(b, c.key)
		}) {
			t.Errorf("%s is not noticed: %q", c.name, found)
		}
	}
	if err := etcdtest.Put(t.Context(), server.Endpoint(), other, "imported/head", "{}"); err != nil {
		t.Fatal(err)
	}
	found := etcdtest.Must(etcdtest.Breaches(t.Context(), server.Endpoint()))(t)
	if slices.ContainsFunc(found, func(b string) bool { return strings.Contains(b, "imported") }) {
		t.Errorf("an import is a breach: %q", found)
	}
}
