package sshca_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/ssh"

	"croft"
	"croft/grid/machine"
	gridssh "croft/grid/ssh"
	"croft/grid/ssh/sshtest"
	"croft/grid/sshca"
	"croft/internal/testing/patient"
)

const serverRoles = `roles:
  ops: {users: [eva], principals: [ops], extensions: [permit-pty]}
  dev: {users: [eva], principals: [dev]}
  away: {users: [eva], principals: [ops], source_address: [10.0.0.0/8]}
  near: {users: [eva], principals: [ops], source_address: [127.0.0.0/8]}
  show: {users: [eva], principals: [ops], force_command: echo forced}
`

// A server is an sshd that trusts an authority, and accepts the principal ops.
type server struct {
	*sshca.CA
	grid *sshtest.Grid
	node *sshtest.Node
	key  string // the file of a private key
}

func newServer(t *testing.T) *server {
	t.Helper()
	a := authority(t, serverRoles)
	principals := filepath.Join(t.TempDir(), "principals")
	write(t, principals, "ops\n")
	g := sshtest.Start(t, sshtest.Options{Sshd: []string{"TrustedUserCAKeys " + filepath.Join(a.Dir, "user.pub"),
		"RevokedKeys " + a.KRLFile(), "AuthorizedPrincipalsFile " + principals, "AcceptEnv NONE"}})
	write(t, g.AuthorizedKeys(), "") // accept only certificates
	return &server{a, g, g.Nodes[0], g.KeyFile}
}

// sign writes a certificate for the server's key next to the key file.
func (s *server) sign(t *testing.T, role string) *ssh.Certificate {
	t.Helper()
	c, err := s.SignUser(t.Context(), sshca.Request{Key: publicKey(t, s.key), User: "eva", Role: role})
	if err != nil {
		t.Fatal(err)
	}
	write(t, s.key+"-cert.pub", sshca.Text(c))
	return c
}

func publicKey(t *testing.T, file string) ssh.PublicKey {
	t.Helper()
	text, err := os.ReadFile(file + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	key, err := sshca.ParseKey(text)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// run runs a command with OpenSSH's ssh.
func (s *server) run(t *testing.T, argv ...string) (string, error) {
	t.Helper()
	args := []string{"-F", "none", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o",
		"UserKnownHostsFile=" + s.grid.KnownHosts(), "-i", s.key, "-o", "IdentitiesOnly=yes", "-p", s.node.Port}
	args = append(append(args, argv[:len(argv)-1]...), s.node.Unit.User+"@"+s.node.Host, argv[len(argv)-1])
	out, err := exec.CommandContext(t.Context(), "ssh", args...).CombinedOutput()
	return string(out), err
}

func TestSshdLetsInWhoHasAValidCertificate(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	allowed := func(what string) {
		t.Helper()
		if out, err := s.run(t, "echo here"); err != nil || !strings.HasSuffix(out, "here\n") {
			t.Errorf("%s: %s, %v", what, out, err)
		}
	}
	refused := func(what, why string) {
		t.Helper()
		before := len(s.node.Log())
		if out, err := s.run(t, "echo here"); err == nil || !strings.Contains(out, "Permission denied") {
			t.Errorf("%s: %s, %v", what, out, err)
		}
		// sshd may answer before it has logged the reason.
		patient.Until(t, fmt.Sprintf("of %s the log says %q", what, why), func() bool {
			return strings.Contains(s.node.Log()[before:], why)
		})
	}
	if out, err := s.run(t, "true"); err == nil {
		t.Fatalf("a key without a certificate is let in: %s", out)
	}
	s.sign(t, "ops")
	allowed("a certificate")
	s.sign(t, "dev")
	refused("another principal", "does not contain an authorized principal")
	s.sign(t, "away")
	refused("from elsewhere", "not from a permitted source address")
	s.sign(t, "near")
	allowed("from a permitted address")
	synctest.Test(t, func(t *testing.T) { s.sign(t, "ops") }) // at the beginning of 2000
	refused("one that has ended", "Certificate invalid: expired")
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(100 * 365 * 24 * time.Hour)
		s.sign(t, "ops")
	})
	refused("one that has not begun", "Certificate invalid: not yet valid")

	revoke := func(what string) {
		t.Helper()
		r, err := s.Find(what)
		if err != nil {
			t.Fatal(err)
		}
		if changed, err := s.Revoke(t.Context(), []sshca.Revocation{r}); !changed || err != nil {
			t.Fatal(changed, err)
		}
		if changed, err := s.Revoke(t.Context(), []sshca.Revocation{r}); changed || err != nil {
			t.Error("it is revoked twice", changed, err)
		}
	}
	c := s.sign(t, "ops")
	allowed("before it is revoked")
	revoke(c.KeyId)
	refused("a revoked certificate", "revoked")
	c = s.sign(t, "ops")
	allowed("the next certificate for the same key")
	revoke(fmt.Sprint(c.Serial))
	refused("a revoked serial number", "revoked")
	s.sign(t, "ops")
	revoke(s.key + "-cert.pub")
	refused("a revoked file", "revoked")
	s.sign(t, "ops")
	allowed("before the key is revoked")
	revoke(s.key + ".pub")
	refused("any certificate of a revoked key", "revoked")
	_, err := s.SignUser(t.Context(), sshca.Request{Key: publicKey(t, s.key), User: "eva", Role: "ops"})
	if !errors.Is(err, croft.Denied) || !strings.Contains(err.Error(), "was revoked at") {
		t.Errorf("another certificate for it: %v", err)
	}
	if text, err := os.ReadFile(s.RevokedKeysFile()); err != nil || !strings.HasPrefix(string(text), "ssh-ed25519 ") {
		t.Errorf("the list of keys has %q, %v", text, err)
	}
}

func TestACertificateAllowsNothingMore(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.sign(t, "show")
	if out, err := s.run(t, "echo other"); err != nil || !strings.HasSuffix(out, "forced\n") {
		t.Errorf("force_command: %s, %v", out, err)
	}
	s.sign(t, "near")
	if out, _ := s.run(t, "-tt", "true"); !strings.Contains(out, "PTY allocation request failed") {
		t.Errorf("a terminal without permit-pty: %s", out)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if out, err := s.run(t, "-W", l.Addr().String(), ""); err == nil {
		t.Errorf("a forwarded port: %s", out)
	}
	s.sign(t, "ops")
	if out, err := s.run(t, "-tt", "tty"); err != nil || !strings.Contains(out, "/dev/pts/") {
		t.Errorf("a terminal with permit-pty: %s, %v", out, err)
	}
}

func TestSshKeygenReadsWhatWasSigned(t *testing.T) {
	t.Parallel()
	a := authority(t, roles)
	c, err := a.SignUser(t.Context(), sshca.Request{Key: newKey(t), User: "tom"})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "cert.pub")
	write(t, file, sshca.Text(c))
	out, err := exec.CommandContext(t.Context(), "ssh-keygen", "-L", "-f", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	ca, err := a.Public(sshca.User)
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Join(strings.Fields(string(out)), " ")
	for _, want := range []string{"ssh-ed25519-cert-v01@openssh.com user certificate", ssh.FingerprintSHA256(ca),
		fmt.Sprintf(`Key ID: "tom@ops#%d"`, c.Serial), fmt.Sprintf("Serial: %d", c.Serial), "Principals: ops tom",
		"Critical Options: force-command /usr/bin/uptime source-address 10.0.0.0/8,::1", "Extensions: permit-pty"} {
		if !strings.Contains(words, want) {
			t.Errorf("ssh-keygen says %s, want %q", words, want)
		}
	}
}

func TestHostCertificatesVouchForHosts(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.sign(t, "ops")
	c, err := s.SignHost(t.Context(), s.node.HostKey, "n1", []string{s.node.Host}, 0)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(s.node.Dir, "host_key-cert.pub"), sshca.Text(c))
	if err := s.node.Restart("HostCertificate " + filepath.Join(s.node.Dir, "host_key-cert.pub")); err != nil {
		t.Fatal(err)
	}
	ca, err := s.Public(sshca.Host)
	if err != nil {
		t.Fatal(err)
	}
	write(t, s.grid.KnownHosts(), "@cert-authority * "+string(ssh.MarshalAuthorizedKey(ca)))
	if out, err := s.run(t, "true"); err != nil {
		t.Errorf("%s, %v", out, err)
	}
	r, err := s.Find(c.KeyId)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Revoke(t.Context(), []sshca.Revocation{r}); err != nil {
		t.Fatal(err)
	}
	out, err := s.run(t, "-o", "RevokedHostKeys="+s.KRLFile(), "true")
	if err == nil || !strings.Contains(out, "revoked") {
		t.Errorf("a revoked host certificate: %s, %v", out, err)
	}
	write(t, s.RevokedFile(), `{"serial":1,"kind":"host"}`+"\n"+`{"kind":"x","serial":1}`)
	if err := s.WriteLists(t.Context()); err == nil || !strings.Contains(err.Error(), "revoked.jsonl:2: ") {
		t.Errorf("a line that is wrong: %v", err)
	}
}

func TestACredentialIsRenewedInTime(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	request := []string{"env", "SSHCA_DIR=" + s.Dir, "SSHCA_KEYS=" + s.Keys, self, "sign --role ops"}
	dir := filepath.Join(t.TempDir(), "kept")
	c := &sshca.Credential{Request: request, Dir: dir}
	serial := func(c *sshca.Credential) uint64 {
		t.Helper()
		file, err := c.KeyFile(patient.Context(t))
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(file + "-cert.pub")
		if err != nil {
			t.Fatal(err)
		}
		key, _, _, _, err := ssh.ParseAuthorizedKey(text)
		if err != nil {
			t.Fatal(err)
		}
		return key.(*ssh.Certificate).Serial
	}
	first := serial(c)
	again, other := serial(c), serial(&sshca.Credential{Request: request, Dir: dir})
	if again != first || other != first {
		t.Errorf("serials %d, %d and %d, want the same one", first, again, other)
	}
	out, err := machine.Output(patient.Context(t), s.remote(t, c), nil, "echo", "here")
	if out != "here\n" || err != nil {
		t.Errorf("log in by it: %q, %v", out, err)
	}

	short := &sshca.Credential{Request: append(request[:4:4], "sign --role ops --ttl 4m"), Dir: dir + "2"}
	one := serial(short)
	if two := serial(short); two == one {
		t.Error("with 4 minutes left it was not renewed")
	}
	short.Request = []string{"false"}
	serial(short) // the old certificate is still valid
	if err := os.RemoveAll(dir + "2"); err != nil {
		t.Fatal(err)
	}
	for name, argv := range map[string][]string{
		"no program":                  nil,
		"a program that is not there": {"/no/such"},
		"one that fails":              {"sh", "-c", "echo no >&2; exit 1"},
		"words":                       {"echo", "hello"},
		"another's certificate":       {"cat", filepath.Join(dir, "key-cert.pub")},
		"nothing":                     {"true"},
		"a role that is not allowed":  append(request[:4:4], "sign --role root"),
		"endless output":              {"sh", "-c", "yes | head -c 10000000"},
	} {
		_, err := (&sshca.Credential{Request: argv, Dir: dir + "3"}).KeyFile(patient.Context(t))
		if err == nil || !strings.HasPrefix(err.Error(), "get a certificate: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// remote returns the server as a target for a user who has only a credential.
func (s *server) remote(t *testing.T, c *sshca.Credential) machine.Machine {
	t.Helper()
	if err := s.grid.Configure("IdentityFile /no/such/key"); err != nil {
		t.Fatal(err)
	}
	d := gridssh.New(gridssh.Config{File: s.grid.ConfigFile(), Credential: c})
	t.Cleanup(d.Close)
	return d.Remote(s.node.Unit)
}
