package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"croft"
	"croft/etcdstore"
	"croft/internal/endpoint"
	"croft/internal/testing/freeport"
	"croft/internal/testing/patient"
	"croft/node"
	"croft/node/settings"
	"croft/trust"
	"croft/trust/pki"
)

// serverSettings are the settings of a host that serves etcd and Placement at an address.
func serverSettings(t *testing.T, name, address string) settings.Settings {
	t.Helper()
	s := settings.Defaults()
	s.StateDir, s.Hypervisor, s.Host.Name = filepath.Join(t.TempDir(), name), "sim", name
	free := func() string {
		return freeport.For(t, address)
	}
	s.Etcd.Listen, s.Etcd.PeerListen, s.Placement.Listen, s.API.Listen = free(), free(), free(), free()
	if s.Etcd.Insecure = endpoint.IsLoopback(s.Etcd.Listen); !s.Etcd.Insecure {
		s.Join.Listen = free()
	}
	return s
}

// roles returns the roles of the hosts' etcd, by name.
func roles(t *testing.T) []string {
	t.Helper()
	text, _ := command(t, -1, "host", "list", "-o", "json")
	var all []struct{ Name, Etcd, State string }
	_ = json.Unmarshal([]byte(text), &all) // an error shows as a difference
	var found []string
	for _, h := range all {
		role := croft.MemberRole(h.Etcd)
		if role == croft.MemberLeads {
			role = croft.MemberFollows // which member leads is random
		}
		found = append(found, fmt.Sprint(h.Name, " ", h.State, " ", role))
	}
	return found
}

func awaitRoles(t *testing.T, want ...string) {
	t.Helper()
	deadline := patient.Deadline(t)
	for {
		got := roles(t)
		if slices.Equal(got, want) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("hosts: %q, want %q", got, want)
		}
		<-time.After(200 * time.Millisecond)
	}
}

// Three hosts serve, with certificates of the cloud's authority. When the first one stops, everything continues; it
// comes back; another one is forgotten and leaves nothing behind.
func TestHostsServeEtcdTogether(t *testing.T) {
	address := reachable(t)
	first := serverSettings(t, "first", address)
	stop := startHost(t, first)
	t.Setenv("CROFT_STATE_DIR", first.StateDir)
	token, _ := command(t, croft.ExitOK, "token", "create")
	second, third := serverSettings(t, "second", address), serverSettings(t, "third", address)
	for _, s := range []settings.Settings{second, third} {
		if err := node.Join(t.Context(), s, token, true, &bytes.Buffer{}); err != nil {
			t.Fatal(err)
		}
	}
	startHost(t, second)
	stopThird := startHost(t, third)
	awaitRoles(t, "first ready member", "second ready member", "third ready member")
	if id, err := trust.Certificate(third.StateDir, pki.Etcd).Identity(); err != nil || id.Kind != pki.Member {
		t.Errorf("the third is %v to etcd, %v", id, err)
	}

	if code, said := stop(); code != croft.ExitOK {
		t.Fatalf("the first ended with %d: %s", code, said)
	}
	awaitRoles(t, "first silent silent", "second ready member", "third ready member")
	command(t, croft.ExitOK, "schedule", "VCPU:1,MEMORY_MB:64,DISK_GB:1", "--name", "web", "--wait")
	if _, said := command(t, croft.ExitConflict, "host", "forget", "--force", "third"); !strings.Contains(said,
		"1 of 2 members would answer, and 2 have to") {
		t.Errorf("a host that is needed: %s", said)
	}
	startHost(t, first)
	awaitRoles(t, "first ready member", "second ready member", "third ready member")

	// The third is emptied, and continues without etcd; then it is forgotten.
	command(t, croft.ExitOK, "host", "drain", "--move", "third")
	awaitRoles(t, "first ready member", "second ready member", "third drained ")
	patient.Until(t, "its etcd is there no more", func() bool {
		_, err := os.Stat(node.EtcdDir(third.StateDir))
		return err != nil
	})
	awaitRoles(t, "first ready member", "second ready member", "third drained ")
	stopThird()
	command(t, croft.ExitOK, "host", "forget", "--force", "third")
	awaitRoles(t, "first ready member", "second ready member")
	command(t, croft.ExitOK, "audit")
}

// A join that is killed at any point, and retried with the same command, succeeds.
func TestAJoinThatIsKilledAnywhereIsTakenUp(t *testing.T) {
	first := serverSettings(t, "first", "127.0.0.1")
	first.StateDir = filepath.Join(t.TempDir(), "first")
	startHost(t, first)
	t.Setenv("CROFT_ETCD_ENDPOINTS", "http://"+first.Etcd.Listen)
	t.Setenv("CROFT_PLACEMENT_ENDPOINT", "http://"+first.Placement.Listen)
	store, err := etcdstore.Open(t.Context(), etcdstore.Config{Endpoints: []string{"http://" + first.Etcd.Listen}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	token, _ := command(t, croft.ExitOK, "token", "create", "--etcd", "http://"+first.Etcd.Listen, "--placement",
		"http://"+first.Placement.Listen)
	token = "@" + secretFile(t, token)

	second := serverSettings(t, "second", "127.0.0.1")
	is := func(roles ...croft.MemberRole) func() bool {
		return func() bool {
			all, err := store.Cluster.EtcdMembers(t.Context())
			return err == nil && slices.ContainsFunc(all, func(m croft.EtcdMember) bool {
				return m.Name == "second" &&
					slices.Contains(roles, m.Role)
			})
		}
	}
	for _, crossing := range []struct {
		name string
		at   func() bool
	}{
		{"it has joined", func() bool { _, err := os.Stat(trust.MembershipFile(second.StateDir)); return err == nil }},
		{"it has told of itself", is(croft.MemberMissing, croft.MemberLearns, croft.MemberFollows)},
		{"etcd knows it", is(croft.MemberLearns, croft.MemberFollows)},
		{"it has a voice", is(croft.MemberFollows)},
	} {
		process := startServing(t, second, "--join", token, "--etcd-member")
		deadline := patient.Deadline(t)
		for !crossing.at() {
			if time.Now().After(deadline) {
				t.Fatalf("%s: never\n%s", crossing.name, process.said())
			}
			<-time.After(time.Millisecond)
		}
		process.kill()
	}
	// It is now one of two voters: without it there is no quorum until it is back.
	startServing(t, second, "--join", token, "--etcd-member")
	awaitRoles(t, "first ready member", "second ready member")
}

// A host that could not serve is not added to etcd, where it would prevent others from joining.
func TestAMemberWhosePortIsTakenDoesNotJoinEtcd(t *testing.T) {
	first := serverSettings(t, "first", "127.0.0.1")
	startHost(t, first)
	t.Setenv("CROFT_ETCD_ENDPOINTS", "http://"+first.Etcd.Listen)
	t.Setenv("CROFT_PLACEMENT_ENDPOINT", "http://"+first.Placement.Listen)
	token, _ := command(t, croft.ExitOK, "token", "create", "--etcd", "http://"+first.Etcd.Listen, "--placement",
		"http://"+first.Placement.Listen)
	second := serverSettings(t, "second", "127.0.0.1")
	second.Etcd.PeerListen = first.Etcd.PeerListen
	if err := node.Join(t.Context(), second, token, true, &bytes.Buffer{}); err != nil {
		t.Fatal(err)
	}
	if code, said := startHost(t, second)(); code != croft.ExitConflict ||
		!strings.Contains(said, "etcd.peer_listen: "+first.Etcd.PeerListen+" is in use") {
		t.Errorf("it ended with %d: %s", code, said)
	}
	if got := roles(t); !slices.Equal(got, []string{"first ready member"}) {
		t.Errorf("hosts: %q", got)
	}
}

// servingProcess is a croft up that is killed.
type servingProcess struct {
	cmd *exec.Cmd
	log string
}

func startServing(t *testing.T, s settings.Settings, more ...string) *servingProcess {
	t.Helper()
	p := &servingProcess{log: filepath.Join(t.TempDir(), "log")}
	log, err := os.Create(p.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	p.cmd = exec.Command("croft", append([]string{"up", "--hypervisor", "sim", "--state-dir", s.StateDir,
		"--etcd-listen", s.Etcd.Listen, "--placement-listen", s.Placement.Listen, "--api-listen", s.API.Listen},
		more...)...)
	p.cmd.Env = append(os.Environ(), "CROFT_HOST_NAME="+s.Host.Name, "CROFT_ETCD_PEER_LISTEN="+s.Etcd.PeerListen,
		fmt.Sprintf("CROFT_ETCD_INSECURE=%v", s.Etcd.Insecure))
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("croft up said:\n%s", p.said())
		}
	})
	return p
}

func (p *servingProcess) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	_ = p.cmd.Wait()
}

func (p *servingProcess) said() string {
	text, _ := os.ReadFile(p.log)
	return string(text)
}
