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
	"golang.org/x/crypto/ssh/knownhosts"

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

// openSSH reports whether ssh connects with the user's files.
func openSSH(t *testing.T, g *sshtest.Grid, n *sshtest.Node) (bool, string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ssh", "-F", "none", "-o", "BatchMode=yes", "-o",
		"StrictHostKeyChecking=yes", "-o", "UserKnownHostsFile="+g.KnownHosts(), "-o", "GlobalKnownHostsFile=none",
		"-o", "UpdateHostKeys=no", "-i", g.KeyFile, "-o", "IdentitiesOnly=yes", "-p", n.Port,
		n.Unit.User+"@"+n.Host, "true").CombinedOutput()
	return err == nil, string(out)
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

// TestHostsAreKnownAsForSSH compares with ssh, for servers with a certificate and without.
func TestHostsAreKnownAsForSSH(t *testing.T) {
	certified := sshtest.Start(t, sshtest.Options{HostCA: true})
	plain := sshtest.Start(t, sshtest.Options{})
	_, stranger := newKey(t, "ed25519")
	_, ecdsa := newKey(t, "ecdsa")
	for name, c := range map[string]struct {
		lines string // HOST, PORT, KEY and CA stand for the node's
		// whether a server with a certificate, and one without, is accepted; the words of the error
		certified, plain bool
		why              string
	}{
		"no file says anything":               {"", false, false, "its host key is not known: ssh-ed25519 SHA256:"},
		"its key":                             {"[HOST]:PORT KEY", true, true, ""},
		"its key under several names":         {"x,[HOST]:PORT,y KEY", true, true, ""},
		"a hashed name":                       {"HASH KEY", true, true, ""},
		"its key for another port":            {"[HOST]:1 KEY", false, false, "is not known"},
		"its key without a port":              {"HOST KEY", true, true, ""},
		"a pattern":                           {"[127.0.*]:PORT KEY", true, true, ""},
		"a pattern for any port":              {"127.0.* KEY", true, true, ""},
		"an exception":                        {"[127.0.*]:PORT,![HOST]:PORT KEY", false, false, "is not known"},
		"another key":                         {"[HOST]:PORT STRANGER", false, false, "config has changed"},
		"another key, and its own":            {"[HOST]:PORT STRANGER\n[HOST]:PORT KEY", true, true, ""},
		"a key of another type":               {"[HOST]:PORT ECDSA", false, false, "has changed"},
		"a key of another type, and its own":  {"[HOST]:PORT ECDSA\n[HOST]:PORT KEY", true, true, ""},
		"a revoked key":                       {"[HOST]:PORT KEY\n@revoked * KEY", false, false, "is revoked by"},
		"an authority for any host and port":  {"@cert-authority * CA", true, false, "is not known"},
		"an authority for the host":           {"@cert-authority [HOST]:PORT CA", true, false, "is not known"},
		"an authority for the host, any port": {"@cert-authority HOST CA", true, false, "is not known"},
		"an authority for a pattern":          {"@cert-authority 127.* CA", true, false, "is not known"},
		"an authority for others":             {"@cert-authority 10.* CA", false, false, "is not known"},
		"another authority":                   {"@cert-authority * STRANGER", false, false, "is not known"},
		"another authority, and the key":      {"@cert-authority * STRANGER\n[HOST]:PORT KEY", true, true, ""},
		"an authority, and another key": {"@cert-authority * CA\n[HOST]:PORT STRANGER", true, false,
			"has changed"},
		"a revoked authority":                    {"@cert-authority * CA\n@revoked * CA", false, false, ""},
		"an authority, and the key is revoked":   {"@cert-authority * CA\n@revoked * KEY", false, false, "revoked"},
		"the authority's key listed as a host's": {"[HOST]:PORT CA", false, false, "has changed"},
		"a key of protocol 1 before it": {"old 1024 35 143272250049166269737933547513323306924766577123720650\n[HOST]:PORT KEY",
			true, true, ""},
		"lines that are none":                  {"|1|x|y KEY\nhost\nx ssh-ed25519 AAAA\n@what * KEY\n[HOST]:PORT KEY", true, true, ""},
		"a line that is none, and another key": {"host\n[HOST]:PORT STRANGER", false, false, "known_hosts:2)"},
		"a line that is none, and a revoked key": {"host\n[HOST]:PORT KEY\n@revoked * KEY",
			false, false, "known_hosts:3"},
		"comments and empty lines": {"# x\n\n  [HOST]:PORT KEY a comment\n", true, true, ""},
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
					"STRANGER", line(stranger), "ECDSA", line(ecdsa),
					"HASH", knownhosts.HashHostname(knownhosts.Normalize(n.Unit.Address))).Replace(c.lines)
				write(t, g.KnownHosts(), text+"\n")
				if oracle, said := openSSH(t, g, n); oracle != want {
					t.Errorf("certificate %v: ssh accepts it: %v, want %v: %s", g.HostCA != nil, oracle, want, said)
				}
				err := connect(t, g, n.Unit)
				if (err == nil) != want {
					t.Errorf("certificate %v: accepted: %v, want %v", g.HostCA != nil, err, want)
				}
				why, _ := strings.CutPrefix(c.why, "config ")
				if err != nil && (!errors.Is(err, croft.Denied) || !strings.Contains(err.Error(), why)) {
					t.Errorf("certificate %v: %v, want Denied with %q", g.HostCA != nil, err, why)
				}
			}
		})
	}
}

func TestAnUnknownHostIsAcceptedByTheCommandInTheError(t *testing.T) {
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
	write(t, g.ConfigFile(), "Host *\n StrictHostKeyChecking no\n")
	if err := connect(t, g, g.Nodes[0].Unit); !errors.Is(err, croft.Denied) ||
		!strings.Contains(err.Error(), "config:2: StrictHostKeyChecking no has no effect here") {
		t.Errorf("there is no switch that leaves out the check: %v", err)
	}
	write(t, g.KnownHosts(), "[127.0.0.1]:22 ssh-ed25519 !!!\n")
	if err := connect(t, g, g.Nodes[0].Unit); !errors.Is(err, croft.Denied) ||
		!strings.Contains(err.Error(), "is not known") {
		t.Errorf("a line that cannot be read makes no host known: %v", err)
	}
}

func TestAPinnedKeyDecidesAlone(t *testing.T) {
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
		if err := connect(t, g, node); !errors.Is(err, croft.Denied) || !strings.Contains(err.Error(), "revoked by") {
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

// A configuration limits the algorithms of authorities and the length of RSA keys, as crypto policies of Fedora do.
func TestACryptoPolicyLimitsKeys(t *testing.T) {
	g := sshtest.Start(t, sshtest.Options{HostCA: true})
	n := g.Nodes[0]
	write(t, g.KnownHosts(), "@cert-authority * "+line(g.HostCA.PublicKey())+"\n")
	rsa, _ := newKey(t, "rsa")
	text, err := os.ReadFile(rsa + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	allowed, err := os.ReadFile(g.AuthorizedKeys())
	if err != nil {
		t.Fatal(err)
	}
	write(t, g.AuthorizedKeys(), string(allowed)+string(text))
	ca := g.HostCA.PublicKey().Type()
	for _, c := range []struct{ name, config, why string }{
		{"the algorithms in use", "PubkeyAcceptedAlgorithms ssh-ed25519\nCASignatureAlgorithms " + ca, ""},
		{"another algorithm of the authority", "CASignatureAlgorithms -" + ca,
			"which CASignatureAlgorithms leaves out"},
		{"an RSA key", "IdentityFile " + rsa, ""},
		{"one algorithm of RSA", "IdentityFile " + rsa + "\nPubkeyAcceptedAlgorithms rsa-sha2-256", ""},
		{"by the former name", "IdentityFile " + rsa + "\nPubkeyAcceptedKeyTypes ssh-ed25519",
			"PubkeyAcceptedAlgorithms leaves out rsa-sha2-512 and rsa-sha2-256"},
		{"a short RSA key", "IdentityFile " + rsa + "\nRequiredRSASize 4096",
			"an RSA key of 3072 bits is shorter than RequiredRSASize, 4096"},
	} {
		t.Run(c.name, func(t *testing.T) {
			write(t, g.ConfigFile(), c.config+"\n")
			err := connect(t, g, n.Unit)
			if c.why == "" && err != nil ||
				c.why != "" && (!errors.Is(err, croft.Denied) || !strings.Contains(err.Error(), c.why)) {
				t.Errorf("got %v, want %q", err, c.why)
			}
		})
	}
}
