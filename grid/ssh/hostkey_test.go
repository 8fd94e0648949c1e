package ssh_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	xssh "golang.org/x/crypto/ssh"

	"croft"
	"croft/grid/machine"
	"croft/grid/ssh"
	"croft/grid/ssh/sshtest"
	"croft/grid/unit"
	"croft/internal/testing/patient"
)

// line is a key as in known_hosts, after the host.
func line(key xssh.PublicKey) string {
	return strings.TrimSpace(string(xssh.MarshalAuthorizedKey(key)))
}

// newKey makes a key of a type with ssh-keygen, and returns its file.
func newKey(t *testing.T, kind string) (string, xssh.PublicKey) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key")
	if out, err := exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-t", kind, "-N", "", "-f", file).
		CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen: %v: %s", err, out)
	}
	text, err := os.ReadFile(file + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	key, _, _, _, err := xssh.ParseAuthorizedKey(text)
	if err != nil {
		t.Fatal(err)
	}
	return file, key
}

// configure replaces the user's ssh configuration.
func configure(t *testing.T, g *sshtest.Grid, text string) {
	t.Helper()
	if err := g.Configure(text); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// connect connects anew.
func connect(t *testing.T, g *sshtest.Grid, n unit.Node, change ...func(*ssh.Config)) error {
	t.Helper()
	r := dialer(t, g, change...).Remote(n)
	defer r.Close()
	return r.Connect(patient.Context(t))
}

func TestKnownHosts(t *testing.T) {
	t.Parallel()
	certified := sshtest.Start(t, sshtest.Options{HostCA: true})
	plain := sshtest.Start(t, sshtest.Options{})
	_, stranger := newKey(t, "ed25519")
	for name, c := range map[string]struct {
		lines string // HOST, PORT, KEY and CA stand for the node's
		// whether a server with a certificate, and one without, is accepted; the words of the error
		certified, plain bool
		why              string
	}{
		"no file says anything":          {"", false, false, "its host key is not known: ssh-ed25519 SHA256:"},
		"its key":                        {"[HOST]:PORT KEY", true, true, ""},
		"another key":                    {"[HOST]:PORT STRANGER", false, false, "host key has changed"},
		"a revoked key":                  {"[HOST]:PORT KEY\n@revoked * KEY", false, false, "is revoked"},
		"an authority":                   {"@cert-authority * CA", true, false, "is not known"},
		"another authority":              {"@cert-authority * STRANGER", false, false, "is not known"},
		"an authority, and another key":  {"@cert-authority * CA\n[HOST]:PORT STRANGER", true, false, "has changed"},
		"a revoked authority":            {"@cert-authority * CA\n@revoked * CA", false, false, ""},
		"a line that is none, and a key": {"host\n[HOST]:PORT STRANGER", false, false, "known_hosts:2;"},
	} {
		t.Run(name, func(t *testing.T) {
			for g, want := range map[*sshtest.Grid]bool{certified: c.certified, plain: c.plain} {
				n := g.Nodes[0]
				ca := stranger
				if g.HostCA != nil {
					ca = g.HostCA.PublicKey()
				} else if strings.Contains(c.lines, "CA") {
					ca = certified.HostCA.PublicKey()
				}
				text := strings.NewReplacer("HOST", n.Host, "PORT", n.Port, "KEY", line(n.HostKey), "CA", line(ca),
					"STRANGER", line(stranger)).Replace(c.lines)
				write(t, g.KnownHosts(), text+"\n")
				err := connect(t, g, n.Unit)
				if (err == nil) != want {
					t.Errorf("certificate %v: accepted: %v, want %v", g.HostCA != nil, err, want)
				}
				if !want {
					denied(t, err, c.why)
				}
			}
		})
	}
}

func TestAnUnknownHostIsAcceptedByTheCommandInTheError(t *testing.T) {
	t.Parallel()
	g := sshtest.Start(t, sshtest.Options{})
	write(t, g.KnownHosts(), "")
	err := connect(t, g, g.Nodes[0].Unit)
	if err == nil {
		t.Fatal("a host that is not known was accepted")
	}
	_, command, _ := strings.Cut(err.Error(), "accept it with:\n")
	if out, err := exec.CommandContext(t.Context(), "sh", "-c", command).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", command, err, out)
	}
	if err := connect(t, g, g.Nodes[0].Unit); err != nil {
		t.Error(err)
	}
	write(t, g.KnownHosts(), "")
	configure(t, g, "StrictHostKeyChecking no\nNoHostAuthenticationForLocalhost yes")
	if err := connect(t, g, g.Nodes[0].Unit); !errors.Is(err, croft.Denied) ||
		!strings.Contains(err.Error(), "(StrictHostKeyChecking no has no effect here") {
		t.Errorf("there is no switch that leaves out the check: %v", err)
	}
	write(t, g.KnownHosts(), "[127.0.0.1]:22 ssh-ed25519 !!!\n")
	if err := connect(t, g, g.Nodes[0].Unit); !errors.Is(err, croft.Denied) ||
		!strings.Contains(err.Error(), "is not known") {
		t.Errorf("a line that cannot be read makes no host known: %v", err)
	}
}

func TestAPinnedKeyDecidesAlone(t *testing.T) {
	t.Parallel()
	file, ecdsa := newKey(t, "ecdsa")
	rsa, rsaKey := newKey(t, "rsa")
	g := sshtest.Start(t, sshtest.Options{Sshd: []string{"HostKey " + file, "HostKey " + rsa}})
	n := g.Nodes[0]
	write(t, g.KnownHosts(), "")
	for _, key := range []xssh.PublicKey{n.HostKey, ecdsa, rsaKey} {
		node := n.Unit
		node.HostKey = xssh.FingerprintSHA256(key)
		if err := connect(t, g, node); err != nil {
			t.Errorf("pinned %s: %v", key.Type(), err)
		}
		write(t, g.KnownHosts(), fmt.Sprintf("@revoked * %s\n", line(key)))
		if err := connect(t, g, node); !errors.Is(err, croft.Denied) || !strings.Contains(err.Error(), "is revoked") {
			t.Errorf("pinned and revoked %s: %v", key.Type(), err)
		}
		write(t, g.KnownHosts(), "")
	}
	_, stranger := newKey(t, "ed25519")
	write(t, g.KnownHosts(), fmt.Sprintf("[%s]:%s %s\n", n.Host, n.Port, line(n.HostKey)))
	node := n.Unit
	node.HostKey = xssh.FingerprintSHA256(stranger)
	err := connect(t, g, node)
	if !errors.Is(err, croft.Denied) || !strings.Contains(err.Error(), "is not the pinned "+node.HostKey) ||
		strings.Count(err.Error(), "SHA256:") != 4 {
		t.Errorf("another one is pinned: %v, want the three that were shown", err)
	}
	node.HostKey = "SHA256:short"
	if err := connect(t, g, node); !errors.Is(err, croft.Invalid) {
		t.Errorf("no fingerprint: %v", err)
	}
}

func TestAHostCertificateOfOthersOrOfThePastIsRefused(t *testing.T) {
	t.Parallel()
	g := sshtest.Start(t, sshtest.Options{HostCA: true})
	n := g.Nodes[0]
	for name, change := range map[string]func(*xssh.Certificate){
		"it has ended":           func(c *xssh.Certificate) { c.ValidBefore = c.ValidAfter + 1 },
		"it is another host's":   func(c *xssh.Certificate) { c.ValidPrincipals = []string{"other"} },
		"it is a user's":         func(c *xssh.Certificate) { c.CertType = xssh.UserCert },
		"it has unknown options": func(c *xssh.Certificate) { c.CriticalOptions = map[string]string{"x": "y"} },
	} {
		if err := n.Recertify(g.HostCA, change); err != nil {
			t.Fatal(err)
		}
		if err := connect(t, g, n.Unit); !errors.Is(err, croft.Denied) && !errors.Is(err, croft.Unavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := n.Recertify(g.HostCA, func(*xssh.Certificate) {}); err != nil {
		t.Fatal(err)
	}
	if err := connect(t, g, n.Unit); err != nil {
		t.Error(err)
	}
}

func TestAChangedHostKeyIsRefusedByAConnectedUserToo(t *testing.T) {
	t.Parallel()
	g := sshtest.Start(t, sshtest.Options{})
	n := g.Nodes[0]
	r := dialer(t, g).Remote(n.Unit)
	if _, err := machine.Output(patient.Context(t), r, nil, "true"); err != nil {
		t.Fatal(err)
	}
	if _, err := sshtest.NewKey(filepath.Join(n.Dir, "host_key")); err != nil {
		t.Fatal(err)
	}
	if err := n.Restart(); err != nil {
		t.Fatal(err)
	}
	if err := connect(t, g, n.Unit); !errors.Is(err, croft.Denied) || !strings.Contains(err.Error(), "has changed") ||
		!strings.Contains(err.Error(), g.KnownHosts()+":1") {
		t.Errorf("got %v", err)
	}
	if _, err := machine.Output(patient.Context(t), r, nil, "true"); !errors.Is(err, croft.Unavailable) {
		t.Errorf("the old connection: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := dialer(t, g).Remote(n.Unit).Connect(ctx); !errors.Is(err, croft.Unavailable) {
		t.Errorf("a context that has ended: %v", err)
	}
}
