package main

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"croft"
	"croft/internal/testing/freeport"
	"croft/node"
	"croft/node/settings"
	"croft/trust"
	"croft/trust/pki"
)

const placementToken = "a-token-of-placement"

// startStrict runs a cloud whose etcd and Placement listen only for this machine.
func startStrict(t *testing.T, change ...func(*settings.Settings)) *securedCloud {
	t.Helper()
	free, err := freeport.Addresses(2)
	if err != nil {
		t.Fatal(err)
	}
	return startSecured(t, func(s *settings.Settings) {
		beStrict(s, free)
		for _, more := range change {
			more(s)
		}
	})
}

// beStrict changes settings to those of a control process in strict mode, with its etcd and its Placement at these
// addresses.
func beStrict(s *settings.Settings, at []string) {
	s.Trust = trust.Strict
	s.Etcd.Listen, s.Placement.Listen, s.Placement.Token = at[0], at[1], placementToken
}

// request requests an instance and waits until it runs.
func request(t *testing.T, name string, more ...string) {
	t.Helper()
	command(t, croft.ExitOK, append([]string{"schedule", "--wait", "--name", name,
		"resources=VCPU:1,MEMORY_MB:64,DISK_GB:1", "tiny"}, more...)...)
}

func TestAHostThatIsNotTrustedWithEtcdWorksAsAnyOther(t *testing.T) {
	c := startStrict(t)
	token, _ := command(t, croft.ExitOK, "token", "create")
	s := joining(t, "second")
	stop := joinWith(t, s, token)
	hosts, _ := command(t, croft.ExitOK, "host", "list")
	if strings.Count(hosts, "ready") != 2 {
		t.Errorf("want two hosts that are ready:\n%s", hosts)
	}
	command(t, croft.ExitOK, "host", "drain", "first") // so that all instances go to the new host
	request(t, "one")
	command(t, croft.ExitOK, "schedule", "stop", "--wait", "one")
	command(t, croft.ExitOK, "schedule", "start", "--wait", "one")
	if listed, _ := command(t, croft.ExitOK, "schedule", "list"); !strings.Contains(listed, "second") {
		t.Errorf("it is not on the second host:\n%s", listed)
	}
	command(t, croft.ExitOK, "audit")
	noCredentials(t, c, s.StateDir)
	t.Setenv("CROFT_STATE_DIR", s.StateDir)
	if found, _ := command(t, -1, "doctor", "--hypervisor", "sim"); !strings.Contains(found, "ok    control") {
		t.Errorf("the doctor does not look at control:\n%s", found)
	}
	if code, said := stop(); code != croft.ExitOK {
		t.Errorf("the host ended with %d:\n%s", code, said)
	}
}

// noCredentials searches a host's files for credentials of etcd or Placement.
func noCredentials(t *testing.T, of *securedCloud, dir string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files++
		for _, word := range []string{placementToken, of.settings.Etcd.Listen, of.settings.Placement.Listen} {
			if strings.Contains(string(text), word) {
				t.Errorf("%s holds %q", path, word)
			}
		}
		if base := filepath.Base(path); strings.HasPrefix(base, "etcd") {
			t.Errorf("there is %s", path)
		}
		return nil
	})
	if err != nil || files == 0 {
		t.Fatalf("looked at %d files: %v", files, err)
	}
}

func TestGuestsOutliveTheControlProcessOfAStrictCloud(t *testing.T) {
	c := startStrict(t)
	first := settings.Defaults()
	token, _ := command(t, croft.ExitOK, "token", "create")
	s := joining(t, "second")
	stop := joinWith(t, s, token)
	command(t, croft.ExitOK, "host", "drain", "first")
	request(t, "one")
	control, err := trust.ReadMembership(s.StateDir)
	if err != nil {
		t.Fatal(err)
	}
	if code, said := c.stop(); code != croft.ExitOK {
		t.Fatalf("the control process ended with %d:\n%s", code, said)
	}
	running := guestsOf(t, s.StateDir)
	first.StateDir, first.Hypervisor, first.Host.Name = c.dir, "sim", "first"
	first.Join.Listen, first.API.Listen = control.Servers[0], net.JoinHostPort(c.address, "0")
	beStrict(&first, []string{c.settings.Etcd.Listen, c.settings.Placement.Listen})
	startHost(t, first)
	t.Setenv("CROFT_STATE_DIR", c.dir)
	await(t, "the second host is back", func() bool {
		hosts, _ := command(t, croft.ExitOK, "host", "list")
		return strings.Contains(hosts, "second") && !strings.Contains(hosts, "silent")
	})
	request(t, "two")
	command(t, croft.ExitOK, "schedule", "destroy", "--wait", "two")
	stop()
	startHost(t, s)
	if again := guestsOf(t, s.StateDir); running == "" || again != running {
		t.Errorf("guests before %q and after %q", running, again)
	}
	command(t, croft.ExitOK, "schedule", "destroy", "--wait", "one")
	await(t, "nothing is left", func() bool { out, _ := command(t, -1, "audit"); return out == "" })
}

// guestsOf are the guests of a host's simulated hypervisor.
func guestsOf(t *testing.T, stateDir string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(stateDir, "sim.json"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestAForgottenHostOfAStrictCloudIsLetInNowhere(t *testing.T) {
	startStrict(t)
	token, _ := command(t, croft.ExitOK, "token", "create")
	s := joining(t, "second")
	stop := joinWith(t, s, token)
	command(t, croft.ExitOK, "host", "forget", "--force", "second")
	j, err := trust.ReadMembership(s.StateDir)
	if err != nil {
		t.Fatal(err)
	}
	client, err := node.OpenGate(j, s.StateDir)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	await(t, "it is let in nowhere", func() bool {
		err := client.Usable(t.Context())
		return err != nil && strings.Contains(err.Error(), "was forgotten")
	})
	stop()
	if code, said := startHost(t, s)(); code != croft.ExitNotFound || !strings.Contains(said, "was forgotten") {
		t.Errorf("it starts again: %d, %s", code, said)
	}
	if hosts, _ := command(t, croft.ExitOK, "host", "list"); strings.Contains(hosts, "second") {
		t.Errorf("it is there again:\n%s", hosts)
	}
}

func TestAHostBehindTheGateOutlivesItsCertificates(t *testing.T) {
	const life = 15 * time.Second
	startStrict(t, func(s *settings.Settings) { s.Join.CertificateLife = life })
	token, _ := command(t, croft.ExitOK, "token", "create")
	s := joining(t, "second")
	stop := joinWith(t, s, token)
	began, first := time.Now(), runsOut(t, s.StateDir, pki.Hosts)
	command(t, croft.ExitOK, "host", "drain", "first")
	await(t, "the first certificate ran out", func() bool {
		if hosts, _ := command(t, croft.ExitOK, "host", "list"); strings.Contains(hosts, "silent") {
			t.Fatalf("after %s:\n%s", time.Since(began), hosts)
		}
		return time.Since(began) > life+2*time.Second && runsOut(t, s.StateDir, pki.Hosts).After(first)
	})
	request(t, "one")
	if code, said := stop(); code != croft.ExitOK {
		t.Errorf("the host ended with %d:\n%s", code, said)
	}
}

// Three hosts serve etcd, which agents do not reach. When the first one, through which the agents joined, stops, they
// continue with the others.
func TestAgentsOfAStrictCloudOutliveItsFirstHost(t *testing.T) {
	address := reachable(t)
	first := serverSettings(t, "first", address)
	first.Trust = trust.Strict
	stop := startHost(t, first)
	t.Setenv("CROFT_STATE_DIR", first.StateDir)
	token, _ := command(t, croft.ExitOK, "token", "create", "--etcd-member")
	second, third := serverSettings(t, "second", address), serverSettings(t, "third", address)
	for _, s := range []settings.Settings{second, third} {
		serveToo(t, s, token)
	}
	token, _ = command(t, croft.ExitOK, "token", "create")
	agent := joining(t, "agent")
	stopAgent := joinWith(t, agent, token)
	await(t, "the agent knows three gates", func() bool {
		text, _ := os.ReadFile(filepath.Join(agent.StateDir, "gates"))
		return len(strings.Fields(string(text))) == 3
	})
	there := "resources=VCPU:1,MEMORY_MB:64,DISK_GB:1&in_tree=" + hostID(t, agent.StateDir)
	command(t, croft.ExitOK, "schedule", "--wait", "--name", "one", there, "tiny")

	if code, said := stop(); code != croft.ExitOK {
		t.Fatalf("the first host ended with %d:\n%s", code, said)
	}
	t.Setenv("CROFT_STATE_DIR", second.StateDir)
	awaitRoles(t, "agent ready ", "first silent silent", "second ready member", "third ready member")
	command(t, croft.ExitOK, "schedule", "destroy", "--wait", "one")
	stopAgent() // it starts while the first host is away
	startHost(t, agent)
	command(t, croft.ExitOK, "schedule", "--wait", "--name", "two", there, "tiny")
}

func TestAStrictCloudSaysWhereHostsReachIt(t *testing.T) {
	s := settings.Defaults()
	s.Trust = trust.Strict
	if err := s.Servers(nil).CheckTrust(); croft.KindOf(err) != croft.Invalid {
		t.Errorf("got %v, want that join.listen is missing", err)
	}
	s.Trust = "strictly"
	if err := s.Validate(); croft.KindOf(err) != croft.Invalid {
		t.Errorf("got %v, want that there is no such trust", err)
	}
}
