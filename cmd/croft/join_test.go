package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"croft"
	"croft/etcdstore/etcdserver"
	"croft/etcdstore/etcdtest"
	"croft/internal/testing/patient"
	"croft/trust"
	"croft/trust/invitation"
)

// croft runs croft with the cloud's addresses and returns its exit code and output.
func (c *testCloud) croft(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, words bytes.Buffer
	code = Run(t.Context(), append([]string{"croft"}, c.args(args...)...), nil, &out, &words)
	return code, out.String(), words.String()
}

// token is the output of croft token create.
func (c *testCloud) token(t *testing.T) string {
	t.Helper()
	code, token, said := c.croft(t, "token", "create")
	if code != croft.ExitOK || strings.Count(token, "\n") != 1 {
		t.Fatalf("exit code %d, stdout %q: %s", code, token, said)
	}
	if strings.Contains(said, strings.TrimSpace(token)) {
		t.Errorf("the token is told twice: %s", said)
	}
	return strings.TrimSpace(token)
}

// upArgs are the arguments of croft up for a host with simulated guests.
func upArgs(dir string, more ...string) []string {
	return append([]string{"croft", "up", "--hypervisor", "sim", "--state-dir", dir, "--api-listen", "127.0.0.1:0"},
		more...)
}

// secretFile is a file with a secret, readable only by its owner.
func secretFile(t *testing.T, secret string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// heard collects the output of several goroutines, like a file.
type heard struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (h *heard) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.Write(b)
}

func (h *heard) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.String()
}

// startUp runs croft up until the returned function is called, which requires it to succeed.
func startUp(t *testing.T, stdin io.Reader, args []string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var out bytes.Buffer
	var words heard
	var code int
	var work sync.WaitGroup
	work.Go(func() { code = Run(ctx, args, stdin, &out, &words) })
	stop = sync.OnceFunc(func() {
		cancel()
		work.Wait()
		if code != croft.ExitOK {
			t.Errorf("%q ended with %d:\n%s", args, code, words.String())
		}
	})
	t.Cleanup(stop)
	return stop
}

// awaitNamed returns the host of that name, once it is alive, or not.
func (c *testCloud) awaitNamed(t *testing.T, name string, alive bool) croft.HostID {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patient.Longest)
	defer cancel()
	found := make(chan croft.HostID, 1)
	_ = c.Store.Instances.WatchInstances(ctx, func() { // called by several goroutines
		hosts, err := c.Store.Registry.Hosts(ctx)
		for _, h := range hosts {
			if err == nil && h.Name == name && h.Alive == alive {
				select {
				case found <- h.ID:
				default:
				}
				cancel()
			}
		}
	})
	select {
	case id := <-found:
		return id
	default:
		t.Fatalf("host %s never came to be alive: %v", name, alive)
		return ""
	}
}

// A host joins with one command, runs instances for which other hosts have no room, comes back without a token, and
// leaves with one command.
func TestAHostJoinsAndLeavesWithOneCommandEach(t *testing.T) {
	c := cloudFor(t, 1)
	t.Setenv("CROFT_HOST_NAME", "joiner")
	dir := filepath.Join(t.TempDir(), "state")
	stop := startUp(t, strings.NewReader(c.token(t)+"\n"), upArgs(dir, "--join", "-"))
	id := c.awaitNamed(t, "joiner", true)
	for _, name := range []string{"one", "two"} { // host1 has room for one
		if code, _, said := c.croft(t, "schedule", "VCPU:1,MEMORY_MB:64,DISK_GB:1", "--name", name,
			"--wait"); code != croft.ExitOK {
			t.Fatalf("%s: exit code %d: %s", name, code, said)
		}
	}
	info, err := os.Stat(trust.MembershipFile(dir))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%s: %v, %v; want it readable by its owner alone", trust.MembershipFile(dir), info.Mode(), err)
	}
	if _, err := os.Stat(filepath.Join(dir, "etcd")); err == nil {
		t.Error("it runs an etcd")
	}
	stop()
	c.awaitNamed(t, "joiner", false)

	stop = startUp(t, nil, upArgs(dir))
	if again := c.awaitNamed(t, "joiner", true); again != id {
		t.Errorf("it came back as host %s, and was %s", again, id)
	}
	stop()
	c.awaitNamed(t, "joiner", false)

	if code, _, said := c.croft(t, "host", "forget", "--force", "joiner"); code != croft.ExitOK {
		t.Fatalf("exit code %d: %s", code, said)
	}
	hosts, err := c.Store.Registry.Hosts(t.Context())
	if err != nil || len(hosts) != 1 {
		t.Errorf("hosts: %v, %v; want host1 alone", hosts, err)
	}
}

// If etcd requires certificates, the token carries the authority, and the host has its own certificate.
func TestAHostJoinsAnEtcdThatAsksForCertificates(t *testing.T) {
	a := etcdtest.NewAuthority(t)
	kind := etcdserver.Config{ClientCA: a.File}
	kind.Cert, kind.Key = a.Issue("server")
	c, err := newTestCloudOf(context.WithoutCancel(t.Context()), t.TempDir(), kind)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	cert, key := a.Issue("host")
	t.Setenv("CROFT_ETCD_CERT", cert)
	t.Setenv("CROFT_ETCD_KEY", key)
	t.Setenv("CROFT_ETCD_CA", a.File)
	token := c.token(t)
	t.Setenv("CROFT_ETCD_CA", "")
	t.Setenv("CROFT_HOST_NAME", "joiner")
	stop := startUp(t, nil, upArgs(filepath.Join(t.TempDir(), "state"), "--join", "@"+secretFile(t, token)))
	c.awaitNamed(t, "joiner", true)
	stop()

	t.Setenv("CROFT_ETCD_CERT", "")
	t.Setenv("CROFT_ETCD_KEY", "")
	var out, words bytes.Buffer
	code := Run(t.Context(), upArgs(filepath.Join(t.TempDir(), "state"), "--join", "@"+secretFile(t, token)), nil, &out,
		&words)
	if code != croft.ExitUsage || !strings.Contains(words.String(), "set etcd.cert and etcd.key") {
		t.Errorf("without a certificate: exit code %d: %s", code, words.String())
	}
}

func TestAHostThatMayNotJoinIsNotChanged(t *testing.T) {
	c := cloudFor(t, 1)
	good := c.token(t)
	parsed, err := invitation.Parse(good)
	if err != nil {
		t.Fatal(err)
	}
	never, elsewhere, away := parsed, parsed, parsed
	never.Secret = bytes.Repeat([]byte{1}, len(parsed.Secret))
	elsewhere.Partition = croft.NewPartitionID()
	away.Endpoints = []string{"http://127.0.0.1:1"}
	ownCloud, otherCloud := t.TempDir(), t.TempDir()
	if err := os.Mkdir(filepath.Join(ownCloud, "etcd"), 0o700); err != nil {
		t.Fatal(err)
	}
	of := trust.Membership{Partition: croft.NewPartitionID()}
	of.Etcd.Endpoints = []string{"http://10.9.9.9:2379"}
	if err := of.Write(otherCloud); err != nil {
		t.Fatal(err)
	}
	for _, r := range []struct {
		name, token, dir string
		code             int
		says             string
	}{
		{"no token at all", "let-me-in", "", croft.ExitUsage, "this is not a join token"},
		{"half a token", good[:40], "", croft.ExitUsage, "is not whole"},
		{"a token that was never given, or ran out", never.String(), "", croft.ExitNotFound, "has run out"},
		{"a token of a cloud that is not there", elsewhere.String(), "", croft.ExitUsage, "holds another cloud"},
		{"an etcd that does not answer", away.String(), "", croft.ExitUnavailable, "does not answer"},
		{"a host with a cloud of its own", good, ownCloud, croft.ExitConflict, "has a cloud of its own"},
		{"a host of another cloud", good, otherCloud, croft.ExitConflict,
			"is of another cloud, at http://10.9.9.9:2379"},
	} {
		t.Run(r.name, func(t *testing.T) {
			dir := r.dir
			if dir == "" {
				dir = filepath.Join(t.TempDir(), "state")
			}
			before := filesIn(t, dir)
			var out, words bytes.Buffer
			code := Run(t.Context(), upArgs(dir, "--join", "-"), strings.NewReader(r.token), &out, &words)
			if code != r.code || !strings.Contains(words.String(), r.says) || strings.Count(words.String(), "\n") != 1 {
				t.Errorf("exit code %d, want %d; it says %q, want one line with %q", code, r.code, words.String(),
					r.says)
			}
			if after := filesIn(t, dir); !slices.Equal(before, after) {
				t.Errorf("there was %q and is %q", before, after)
			}
		})
	}
}

func filesIn(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// A token for other machines never contains an address by which they would reach themselves.
func TestATokenNeedsAddressesThatOthersReach(t *testing.T) {
	c := cloudFor(t, 1)
	t.Setenv("CROFT_ETCD_ENDPOINTS", c.Etcd.Endpoint())
	t.Setenv("CROFT_PLACEMENT_ENDPOINT", c.Placement.URL)
	for _, r := range []struct {
		name string
		args []string
		says string
	}{
		{"etcd for this machine alone", nil, "etcd listens where only this machine reaches it"},
		{"a life of nothing", []string{"--for", "0s"}, "use something between"},
		{"a life of a year", []string{"--for", "9000h"}, "use something between"},
	} {
		var out, words bytes.Buffer
		code := Run(t.Context(), append([]string{"croft", "token", "create"}, r.args...), nil, &out, &words)
		if code != croft.ExitUsage || !strings.Contains(words.String(), r.says) || out.Len() > 0 {
			t.Errorf("%s: exit code %d, %q: %s", r.name, code, out.String(), words.String())
		}
	}
}
