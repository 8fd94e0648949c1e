package ssh_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	xssh "golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"croft"
	"croft/grid/ssh"
	"croft/grid/ssh/sshtest"
	"croft/internal/testing/patient"
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

func denied(t *testing.T, err error, words ...string) {
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

func TestWaysToLogIn(t *testing.T) {
	t.Parallel()
	g := sshtest.Start(t, sshtest.Options{})
	n := g.Nodes[0]
	one, oneKey := newKey(t, "ed25519")
	two, twoKey := newKey(t, "ed25519")
	write(t, g.AuthorizedKeys(), line(oneKey)+"\n")
	with := func(lines ...string) error {
		configure(t, g, strings.Join(lines, "\n"))
		return connect(t, g, n.Unit)
	}
	allowed := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	allowed(with("IdentityFile " + one))
	allowed(with("IdentityFile "+two, "IdentityFile "+one))
	allowed(with("IdentityAgent " + keyring(t, one)))
	denied(t, with("IdentityAgent "+keyring(t, two)), "does not let us in: tried: ",
		xssh.FingerprintSHA256(twoKey)+" agent", g.KeyFile)
	denied(t, with("IdentityFile /no/such/key"), "no key was found; no such identity: /no/such/key")
	allowed(with("IdentityFile "+two, "Match exec true", " IdentityFile "+one))

	if err := os.Chmod(one, 0o644); err != nil {
		t.Fatal(err)
	}
	denied(t, with("IdentityFile "+one), "Permissions 0644 for '"+one+"' are too open")
	if out, err := exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-p", "-P", "", "-N", "secret", "-f", two).
		CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	write(t, g.AuthorizedKeys(), line(twoKey)+"\n")
	denied(t, with("IdentityFile "+two), two, "if the key has a passphrase, ssh-add it")
}

// What ssh_config says applies, also what only OpenSSH can do.
func TestAnySshConfigurationApplies(t *testing.T) {
	t.Parallel()
	g := sshtest.Start(t, sshtest.Options{})
	n := g.Nodes[0]
	node := n.Unit
	node.Address = "somewhere"
	configure(t, g, fmt.Sprintf("Match exec \"test %%n = somewhere\"\n HostKeyAlias [%s]:%s\n"+
		" ProxyCommand bash -c 'exec 3<>/dev/tcp/%s/%s; cat <&3 & exec cat >&3'\n"+
		" LocalForward 127.0.0.1:1 x:1\n RemoteCommand false\n RequestTTY force\n ControlMaster auto\n"+
		" ControlPath /no/such/%%C\n ControlPersist 1000\n LogLevel QUIET", n.Host, n.Port, n.Host, n.Port))
	if err := connect(t, g, node); err != nil {
		t.Error(err)
	}
	for text, want := range map[string]string{
		"Prot 22": "config: line 1: Bad configuration option: prot", "Host x\n Port y": "Bad port 'y'",
		// ssh runs "exec COMMAND" and kills a command that closes its output: a shell of its own says all first
		"ProxyCommand bash -c 'echo no such tunnel >&2; exit 1'": "",
	} {
		configure(t, g, text)
		kind := croft.Invalid
		if want == "" {
			kind, want = croft.Unavailable, "no such tunnel"
		}
		if err := connect(t, g, n.Unit); !errors.Is(err, kind) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s with %q", text, err, kind, want)
		}
	}
	err := connect(t, g, n.Unit, func(c *ssh.Config) { c.File = "/no/such/file" })
	if !errors.Is(err, croft.Invalid) || !strings.Contains(err.Error(), "/no/such/file") {
		t.Errorf("a configuration that is not there: %v", err)
	}
}

func TestSshIsNotInstalled(t *testing.T) {
	g := sshtest.Start(t, sshtest.Options{})
	t.Setenv("PATH", t.TempDir())
	err := connect(t, g, g.Nodes[0].Unit)
	if !errors.Is(err, croft.Invalid) || !strings.Contains(err.Error(), "install OpenSSH's client") {
		t.Errorf("got %v", err)
	}
}

// A credential that gives a key file, or fails.
type credential struct {
	file string
	err  error
}

func (c credential) KeyFile(context.Context) (string, error) { return c.file, c.err }

func TestACredential(t *testing.T) {
	t.Parallel()
	g := sshtest.Start(t, sshtest.Options{})
	file, key := newKey(t, "ed25519")
	write(t, g.AuthorizedKeys(), line(key)+"\n")
	with := func(c credential) error {
		return connect(t, g, g.Nodes[0].Unit, func(o *ssh.Config) { o.Credential = c })
	}
	if err := with(credential{file: file}); err != nil {
		t.Error(err)
	}
	denied(t, with(credential{err: errors.New("the CA is away")}), "no certificate: the CA is away")
}

func TestAUserThatMayNotLogIn(t *testing.T) {
	t.Parallel()
	g := sshtest.Start(t, sshtest.Options{Sshd: []string{"DenyUsers nobody"}})
	node := g.Nodes[0].Unit
	node.User = "nobody"
	denied(t, connect(t, g, node), "n1: nobody@127.0.")
	configure(t, g, "User nobody")
	node.User = ""
	denied(t, connect(t, g, node), "n1: nobody@127.0.")
}

// A connection is never one of another Remote, or of the user: a change that nobody can log in after is noticed.
func TestEachRemoteLogsIn(t *testing.T) {
	t.Parallel()
	g := sshtest.Start(t, sshtest.Options{})
	n := g.Nodes[0]
	d := dialer(t, g)
	first := d.Remote(n.Unit)
	if err := first.Connect(patient.Context(t)); err != nil {
		t.Fatal(err)
	}
	configure(t, g, "ControlMaster auto\nControlPath "+t.TempDir()+"/%C\nControlPersist 60")
	write(t, g.AuthorizedKeys(), "")
	denied(t, d.Remote(n.Unit).Connect(patient.Context(t)), "does not let us in")
}
