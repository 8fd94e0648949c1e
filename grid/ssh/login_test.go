package ssh_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	xssh "golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"croft"
	"croft/grid/ssh"
	"croft/grid/ssh/sshtest"
	"croft/internal/testing/sshagent"
)

// keyring serves an agent with keys from files, and returns its socket.
func keyring(t *testing.T, files ...string) string {
	t.Helper()
	var keys []agent.AddedKey
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		key, err := xssh.ParseRawPrivateKey(text)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, agent.AddedKey{PrivateKey: key})
	}
	return sshagent.Serve(t, keys...)
}

func withAgent(socket string) func(*ssh.Config) { return func(c *ssh.Config) { c.Agent = socket } }

// certified writes a certificate for a key file beside it.
func certified(t *testing.T, ca xssh.Signer, file string, change func(*xssh.Certificate)) {
	t.Helper()
	text, err := os.ReadFile(file + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	key, _, _, _, err := xssh.ParseAuthorizedKey(text)
	if err != nil {
		t.Fatal(err)
	}
	cert := &xssh.Certificate{Key: key, CertType: xssh.UserCert, KeyId: "eva", ValidPrincipals: []string{"ops"},
		ValidAfter: uint64(time.Now().Add(-time.Minute).Unix()), ValidBefore: uint64(time.Now().Add(time.Hour).Unix())}
	change(cert)
	if err := cert.SignCert(random{}, ca); err != nil {
		t.Fatal(err)
	}
	write(t, file+"-cert.pub", string(xssh.MarshalAuthorizedKey(cert)))
}

// random is not.
type random struct{}

func (random) Read(p []byte) (int, error) { return len(p), nil }

func TestWaysToLogIn(t *testing.T) {
	g := sshtest.Start(t, sshtest.Options{})
	n := g.Nodes[0]
	authorize := func(lines ...string) { write(t, g.AuthorizedKeys(), strings.Join(lines, "\n")+"\n") }
	one, oneKey := newKey(t, "ed25519")
	two, twoKey := newKey(t, "ed25519")
	rsa, rsaKey := newKey(t, "rsa")
	caFile, caKey := newKey(t, "ed25519")
	text, err := os.ReadFile(caFile)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := xssh.ParsePrivateKey(text)
	if err != nil {
		t.Fatal(err)
	}
	denied := func(err error, words ...string) {
		t.Helper()
		if !errors.Is(err, croft.Denied) {
			t.Errorf("got %v, want Denied", err)
			return
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("got %v, want %q in it", err, w)
			}
		}
	}
	allowed := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	identity := func(lines ...string) { write(t, g.ConfigFile(), strings.Join(lines, "\n")+"\n") }

	authorize(line(oneKey))
	allowed(connect(t, g, n.Unit, withAgent(keyring(t, two, one))))
	denied(connect(t, g, n.Unit, withAgent(keyring(t, two))), "does not let us in: tried: the agent's SHA256:",
		"id_ed25519")
	denied(connect(t, g, n.Unit, withAgent("/no/such/socket")), "the agent does not answer")
	identity("IdentityFile " + one)
	allowed(connect(t, g, n.Unit))
	identity("IdentityFile "+two, "IdentityFile "+one)
	allowed(connect(t, g, n.Unit))
	identity("IdentityFile /no/such/key")
	denied(connect(t, g, n.Unit), "no key was found; /no/such/key: ")
	identity("IdentityFile "+one, "IdentitiesOnly yes") // of many keys in the agent, the one
	many := []string{two, two, two, two, two, two}
	for i := range many {
		many[i], _ = newKey(t, "ed25519")
	}
	allowed(connect(t, g, n.Unit, withAgent(keyring(t, append(many, one)...))))
	identity("IdentityFile " + one) // it comes first: sshd lets us try six
	allowed(connect(t, g, n.Unit, withAgent(keyring(t, append(many, one)...))))

	if err := os.Chmod(one, 0o644); err != nil {
		t.Fatal(err)
	}
	denied(connect(t, g, n.Unit), "others may read this private key (mode 0644): chmod 600 "+one)
	if out, err := exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-p", "-P", "", "-N", "secret", "-f", two).
		CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	identity("IdentityFile " + two)
	denied(connect(t, g, n.Unit), two+" has a passphrase: ssh-add "+two)
	authorize(line(rsaKey))
	identity("IdentityFile " + rsa)
	allowed(connect(t, g, n.Unit))
	if !strings.Contains(n.Log(), "Accepted publickey for "+n.Unit.User) {
		t.Error("no login is in the log")
	}

	authorize(fmt.Sprintf(`cert-authority,principals="ops" %s`, line(caKey)))
	if err := os.Chmod(one, 0o600); err != nil {
		t.Fatal(err)
	}
	identity("IdentityFile " + one)
	denied(connect(t, g, n.Unit))
	certified(t, ca, one, func(*xssh.Certificate) {})
	allowed(connect(t, g, n.Unit))
	certified(t, ca, one, func(c *xssh.Certificate) { c.ValidPrincipals = []string{"dev"} })
	denied(connect(t, g, n.Unit), `certificate "eva"`)
	certified(t, ca, one, func(c *xssh.Certificate) { c.ValidBefore = c.ValidAfter + 1 })
	denied(connect(t, g, n.Unit), one+"-cert.pub ended at ")
	certified(t, ca, rsa, func(*xssh.Certificate) {})
	identity("IdentityFile "+g.KeyFile, "CertificateFile "+rsa+"-cert.pub")
	denied(connect(t, g, n.Unit), "its private key is in no key file that can be used, and not in the agent")
	allowed(connect(t, g, n.Unit, withAgent(keyring(t, rsa)))) // a certificate in a file for a key in the agent
	_ = twoKey
}

// A credential that gives a signer, or fails.
type credential struct {
	signers []xssh.Signer
	err     error
}

func (c credential) Signers(context.Context) ([]xssh.Signer, error) { return c.signers, c.err }

func TestACredentialIsUsedAfterTheAgent(t *testing.T) {
	g := sshtest.Start(t, sshtest.Options{})
	file, key := newKey(t, "ed25519")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := xssh.ParsePrivateKey(text)
	if err != nil {
		t.Fatal(err)
	}
	write(t, g.AuthorizedKeys(), line(key)+"\n")
	with := func(c credential) error {
		return connect(t, g, g.Nodes[0].Unit, func(o *ssh.Config) { o.Credential = c })
	}
	if err := with(credential{signers: []xssh.Signer{signer}}); err != nil {
		t.Error(err)
	}
	if err := with(credential{err: errors.New("the CA is away")}); !errors.Is(err, croft.Denied) ||
		!strings.Contains(err.Error(), "no certificate: the CA is away") {
		t.Errorf("got %v", err)
	}
}

func TestAUserThatMayNotLogIn(t *testing.T) {
	g := sshtest.Start(t, sshtest.Options{Sshd: []string{"DenyUsers nobody"}})
	node := g.Nodes[0].Unit
	node.User = "nobody"
	if err := connect(t, g, node); !errors.Is(err, croft.Denied) || !strings.Contains(err.Error(), "nobody@127.0.") {
		t.Errorf("got %v", err)
	}
	write(t, g.ConfigFile(), "User nobody\n")
	node.User = ""
	if err := connect(t, g, node); !errors.Is(err, croft.Denied) || !strings.Contains(err.Error(), "nobody@127.0.") {
		t.Errorf("the configuration's user: %v", err)
	}
}
