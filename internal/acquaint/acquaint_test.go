package acquaint_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/crypto/ssh"

	"croft/internal/acquaint"
	"croft/internal/testing/freeport"
	"croft/internal/testing/patient"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// python runs statements after the program of a source, like a member that has read the lines told.
func python(ctx context.Context, t *testing.T, told, statements string) *exec.Cmd {
	t.Helper()
	dir := t.TempDir()
	member := filepath.Join(dir, "member")
	told += "register " + filepath.Join(filepath.Dir(dir), "members.json") + "\n"
	if err := os.WriteFile(member, []byte(told), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, "python3", "-IS", "-c", "import os\nimport sys\nimport time\n"+
		string(acquaint.Master)+"\n"+statements)
	cmd.Env = []string{"CROFT_MEMBER=" + member, "PATH=" + os.Getenv("PATH")}
	return cmd
}

func output(t *testing.T, told, statements string) string {
	t.Helper()
	cmd := python(t.Context(), t, told, statements)
	var wrong bytes.Buffer
	cmd.Stderr = &wrong
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, &wrong)
	}
	return string(out)
}

func TestTheClusterKeyFollowsFromTheSecret(t *testing.T) {
	keys := map[string]bool{}
	for _, secret := range []string{"a", "b", strings.Repeat("x", 64)} {
		told := "secret " + secret + "\nname c-master\nrole master\n"
		private := output(t, told, `print(ask("cluster-key"), end="")`)
		public := output(t, told, `print(ask("cluster-key.pub"), end="")`)
		key, err := ssh.ParseRawPrivateKey([]byte(private))
		if err != nil {
			t.Fatalf("%v\n%s", err, private)
		}
		own, is := key.(*ed25519.PrivateKey)
		if !is {
			t.Fatalf("the key is a %T", key)
		}
		if !bytes.Equal(ed25519.NewKeyFromSeed(own.Seed()), *own) {
			t.Error("the public half is not that of the private one")
		}
		signer, err := ssh.NewSignerFromKey(own)
		if err != nil {
			t.Fatal(err)
		}
		if want := string(ssh.MarshalAuthorizedKey(signer.PublicKey())); public != want {
			t.Errorf("the public key is %q, want %q", public, want)
		}
		keys[public] = true
	}
	if len(keys) != 3 {
		t.Errorf("three secrets give %d keys", len(keys))
	}
}

// address matches the address of this machine in a list of members.
var address = regexp.MustCompile(`(?m)^[0-9a-f.:]+ `)

func TestSlavesAnnounceThemselvesToTheMaster(t *testing.T) {
	port := freePort(t)
	hostKey := filepath.Join(t.TempDir(), "host.pub")
	if err := os.WriteFile(hostKey, []byte("ssh-ed25519 AAAA root@c-slave-0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	told := func(secret, name, role, more string) string {
		return fmt.Sprintf("secret %s\nname %s\nrole %s\nport %s\n%s", secret, name, role, port, more)
	}
	master := told("s3cret", "c-master", "master", "host_key /nowhere\n")
	slave := func(secret, name, key string) string {
		list := output(t, told(secret, name, "slave", "master 127.0.0.1\nhost_key "+key+"\n"),
			`print(ask("peers"), end="")`)
		return address.ReplaceAllString(list, "ADDRESS ")
	}
	serve := func(before string) (end func()) {
		ctx, cancel := context.WithCancel(t.Context())
		cmd := python(ctx, t, master, before+"\nwhile ask('peers'): time.sleep(0.05)")
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		patient.Until(t, "the master listens", func() bool {
			c, err := new(net.Dialer).DialContext(t.Context(), "tcp", net.JoinHostPort("127.0.0.1", port))
			if err == nil {
				_ = c.Close()
			}
			return err == nil
		})
		return func() { cancel(); _ = cmd.Wait() }
	}
	const own = "ADDRESS c-master master\n"
	for _, c := range []struct{ name, secret, member, key, want string }{
		{"no slave knows a master that is not there", "s3cret", "c-slave-0", hostKey, "None"},
		{"the first slave learns of the master and itself", "s3cret", "c-slave-0", hostKey,
			own + "ADDRESS c-slave-0 slave ssh-ed25519 AAAA\n"},
		{"a second one learns of the first", "s3cret", "c-slave-10", "/nowhere",
			own + "ADDRESS c-slave-0 slave ssh-ed25519 AAAA\nADDRESS c-slave-10 slave\n"},
		{"a machine with another secret is told nothing", "wrong", "c-slave-1", hostKey, "None"},
		{"nobody takes the place of the master", "s3cret", "c-master", hostKey, "None"},
		{"slaves are in the order of their numbers", "s3cret", "c-slave-2", "/nowhere", own +
			"ADDRESS c-slave-0 slave ssh-ed25519 AAAA\nADDRESS c-slave-2 slave\nADDRESS c-slave-10 slave\n"},
	} {
		if got := slave(c.secret, c.member, c.key); got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", c.name, got, c.want)
		}
		if c.want == "None" && c.secret == "s3cret" && c.member != "c-master" {
			defer serve("")()
		}
	}
}

func TestTheMasterKeepsItsListOverRestartsAndForgetsWhoIsSilent(t *testing.T) {
	master := fmt.Sprintf("secret s\nname c-master\nrole master\nport %s\nhost_key /nowhere\n", freePort(t))
	got := output(t, master, `
me = member()
first = Register(me)
first.note("c-slave-0", "192.0.2.7 c-slave-0 slave")
first.server.close()
me["port"] = "0"
again = Register(me)
print(again.text().count("c-slave-0"))
again.note("c-slave-1", "192.0.2.8 c-slave-1 slave")
now = time.monotonic()
again.slaves["c-slave-0"] = (again.slaves["c-slave-0"][0], now - FORGET - 1)
print(again.text().count("c-slave-0"), again.text().count("c-slave-1"))
`)
	if got != "1\n0 1\n" {
		t.Errorf("got %q", got)
	}
}

// freePort returns a port of this machine that is free now.
func freePort(t *testing.T) string {
	t.Helper()
	_, port, err := net.SplitHostPort(freeport.For(t, "127.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// TestOneProgramServesBothSources: members write the same files with every source, and every source answers the
// requests of the program.
func TestOneProgramServesBothSources(t *testing.T) {
	for name, source := range map[string]acquaint.Source{"metadata": acquaint.Metadata, "master": acquaint.Master} {
		text := acquaint.Script(source)
		if strings.Contains(text, "#include") || strings.Count(text, "\ndef ask(name):") != 1 {
			t.Errorf("%s: the parts are not in their places:\n%s", name, text)
		}
		_, program, _ := strings.Cut(text, "cat >$program <<'END'\n")
		program, _, _ = strings.Cut(program, "\nEND\n")
		cmd := exec.CommandContext(t.Context(), "python3", "-IS", "-c",
			"compile(__import__('sys').stdin.read(), 'p', 'exec')")
		cmd.Stdin = strings.NewReader(program)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}
