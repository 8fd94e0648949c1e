package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"croft/internal/testing/libvirttest"
)

// TestOpenStackAndThreeMembers: a guest's whole life with OpenStack's Placement behind Keystone, and an etcd of
// three members that use TLS, one of which dies.
func TestOpenStackAndThreeMembers(t *testing.T) {
	if os.Getenv("CROFT_TEST_CLOUDS") == "" {
		t.Skip("CROFT_TEST_CLOUDS names no clouds.yaml: make test-openstack starts a Keystone and a Placement")
	}
	libvirttest.Start(t)
	sweep()
	s := &site{cloud: cloud{t: t, dir: stateDir(t), home: t.TempDir()}, address: ownAddress(t)}
	s.network = newNetwork(t)
	t.Cleanup(func() { removeDomains(s.dir) })
	s.up("first", s.dir, "libvirt: {virt_type: qemu}\nnetwork: {name: "+s.network+"}\n")
	s.waitForMembers(1)
	token := filepath.Join(s.home, "token")
	if err := os.WriteFile(token, []byte(s.croft("token", "create")), 0o600); err != nil {
		t.Fatal(err)
	}
	lost := s.up("second", filepath.Join(s.home, "second"), "hypervisor: none\n", "--join", "@"+token, "--etcd-member")
	s.waitForMembers(2)
	s.up("third", filepath.Join(s.home, "third"), "hypervisor: none\n", "--join", "@"+token, "--etcd-member")
	s.waitForMembers(3)

	address := s.must("VCPU:1,MEMORY_MB:96,DISK_GB:1", guestImage, "--name", "web", "--wait", "--timeout",
		patience.String())
	var id string
	for line := range strings.Lines(address) {
		if strings.HasPrefix(line, "NOTIFIED") {
			id = s.id(line)
		}
	}
	s.mustAnswer(s.must("web"), "web", id)
	_ = lost.Process.Kill()
	s.must("destroy", "--wait", "--timeout", patience.String(), "web")
	if left := s.domains(); len(left) > 0 {
		t.Errorf("domains are left: %q", left)
	}
	if r := s.run("croft", "audit"); r.exit != 0 || r.stdout != "" {
		t.Errorf("croft audit: %v", r)
	}
	for _, h := range s.hosts() {
		if h.Claimed["VCPU"] != 0 {
			t.Errorf("host %s: %d VCPUs are claimed", h.Name, h.Claimed["VCPU"])
		}
	}
}

// site is a cloud whose servers listen on an address that other machines can reach.
type site struct {
	cloud
	address string
}

// environment finds the cloud through the settings that the first host wrote for root, and Placement through Keystone.
func (s *site) environment() []string {
	return append(s.ofKeystone(), "CROFT_PLACEMENT_CLOUD=admin", "CROFT_STATE_DIR="+s.dir, "GORACE=atexit_sleep_ms=0")
}

// ofKeystone returns an environment with Keystone's settings only.
func (s *site) ofKeystone() []string {
	return append(s.plainEnvironment(), "OS_CLIENT_CONFIG_FILE="+os.Getenv("CROFT_TEST_CLOUDS"))
}

// up starts croft up with separate settings.
func (s *site) up(name, dir, more string, args ...string) *exec.Cmd {
	s.t.Helper()
	ports := freePorts(s.t, 4)
	for i, port := range ports {
		_, number, _ := net.SplitHostPort(port)
		ports[i] = net.JoinHostPort(s.address, number)
	}
	file := filepath.Join(s.home, name+".yaml")
	s.write(file,
		fmt.Sprintf("state_dir: %s\nhost: {name: %s-%d}\nplacement: {cloud: admin}\netcd: {listen: %q, peer_listen: %q}\napi: {listen: %q}\njoin: {listen: %q}\n%s",
			dir, name, os.Getpid(), ports[0], ports[1], ports[2], ports[3], more))
	log, err := os.Create(filepath.Join(s.home, name+".log"))
	if err != nil {
		s.t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(binaries, "croft"), append([]string{"up", "--settings", file}, args...)...)
	cmd.Env, cmd.Stdout, cmd.Stderr = s.ofKeystone(), log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		_ = log.Close()
		text, _ := os.ReadFile(log.Name())
		if strings.Contains(string(text), "WARNING: DATA RACE") {
			s.t.Errorf("%s has a data race", name)
		}
		if s.t.Failed() {
			s.t.Logf("log of %s:\n%s", name, text[max(0, len(text)-4000):])
		}
	})
	return cmd
}

// run and must are the same as on cloud, with this environment.
func (s *site) run(name string, args ...string) result {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(binaries, name), args...)
	var out, errs strings.Builder
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = s.home, s.environment(), &out, &errs
	_ = cmd.Run() // the exit code is checked
	return result{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

func (s *site) must(args ...string) string {
	s.t.Helper()
	r := s.run("schedule", args...)
	if r.exit != 0 {
		s.t.Fatalf("schedule %q: %v", args, r)
	}
	return strings.TrimSpace(r.stdout)
}

func (s *site) croft(args ...string) string {
	s.t.Helper()
	r := s.run("croft", args...)
	if r.exit != 0 {
		s.t.Fatalf("croft %q: %v", args, r)
	}
	return strings.TrimSpace(r.stdout)
}

// listed is the part of croft host list that the test reads.
type listed struct {
	Name, Etcd, State string
	Claimed           map[string]int
}

func (s *site) hosts() (all []listed) {
	s.t.Helper()
	r := s.run("croft", "host", "list", "-o", "json")
	_ = json.Unmarshal([]byte(r.stdout), &all) // a decoding error shows up as a difference
	return all
}

func (s *site) waitForMembers(n int) {
	s.t.Helper()
	eventually(s.t, fmt.Sprint(n, " members serve"), func(context.Context) error {
		serving, ready := 0, false
		all := s.hosts()
		for _, h := range all {
			if h.Etcd == "leader" || h.Etcd == "member" {
				serving++
			}
			ready = ready || strings.HasPrefix(h.Name, "first-") && h.State == "ready"
		}
		if serving != n || !ready {
			return fmt.Errorf("there are %+v", all)
		}
		return nil
	})
}

// ownAddress returns an address of this machine that others could reach.
func ownAddress(t *testing.T) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.IsGlobalUnicast() && ip.IP.To4() != nil {
			return ip.IP.String()
		}
	}
	t.Skip("this machine has no address but the loopback interface's")
	return ""
}
