package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"croft/internal/testing/patient"
)

// agent is one of several agents of a cloud on this machine, which share its libvirt network.
type agent struct {
	c        *cloud
	name     string // of the host and of its site
	api      string
	settings string // file
	log      *os.File
	process  *exec.Cmd // nil: not running
}

// newAgent prepares an agent. Its process, if it runs, ends before the test removes the domains.
func (c *cloud) newAgent(name string) *agent {
	c.t.Helper()
	dir := stateDir(c.t)
	c.t.Cleanup(func() { removeDomains(dir) })
	a := &agent{c: c, name: name, api: freePorts(c.t, 1)[0], settings: filepath.Join(c.home, name+".yaml")}
	c.write(a.settings, fmt.Sprintf(`state_dir: %s
host: {name: %s, location: %s}
libvirt: {virt_type: qemu}
network: {name: %s}
etcd: {endpoints: ["http://%s"], insecure: true}
placement: {endpoint: "http://%s"}
api: {listen: "%s"}
`, dir, name, name, c.network, c.etcd, c.placement, a.api))
	var err error
	if a.log, err = os.Create(filepath.Join(c.home, name+".log")); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		a.stop()
		a.log.Close()
		text, _ := os.ReadFile(a.log.Name())
		if strings.Contains(string(text), dataRace) {
			c.t.Errorf("agent %s has a data race", name)
		}
		if c.t.Failed() {
			c.t.Logf("log of agent %s:\n%s", name, text[max(0, len(text)-4000):])
		}
	})
	return a
}

// start starts the agent and returns when it takes orders.
func (a *agent) start() {
	a.c.t.Helper()
	a.process = exec.Command(filepath.Join(binaries, "compute"), "--settings", a.settings)
	a.process.Stdout, a.process.Stderr, a.process.Env = a.log, a.log, a.c.plainEnvironment()
	a.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := a.process.Start(); err != nil {
		a.c.t.Fatal(err)
	}
	eventually(a.c.t, "agent "+a.name+" takes orders", func(ctx context.Context) error {
		return get(ctx, "http://"+a.api+"/readyz", nil)
	})
}

func (a *agent) stop() {
	if a.process == nil {
		return
	}
	_ = a.process.Process.Signal(syscall.SIGTERM)
	_ = a.process.Wait()
	a.process = nil
}

// TestGuestsKeepTheMetadataServerWhileASecondAgentOnTheMachineStarts: the guests of an agent find the metadata server
// after the agent was restarted, even if another agent on the machine started for the first time meanwhile.
func TestGuestsKeepTheMetadataServerWhileASecondAgentOnTheMachineStarts(t *testing.T) {
	t.Parallel()
	c := newCloud(t, "hypervisor: sim\n") // its simulated host gets no orders: the requests name a site
	one, two := c.newAgent("one"), c.newAgent("two")
	key := c.newKey()
	request := func(a *agent, more ...string) {
		t.Helper()
		c.must(append([]string{"--name", "on-" + a.name, "--in", a.name, "--key", key + ".pub", "--timeout",
			patience.String(), small, guestImage}, more...)...)
	}
	asks := func(name string) string {
		t.Helper()
		r := c.schedule("ssh", "--user", "root", "--identity", key, name,
			"wget -q -T 10 -O - http://169.254.169.254/openstack/latest/meta_data.json")
		return r.stdout + r.stderr
	}
	check := func(when, name string) {
		t.Helper()
		patient.Until(t, when+", the metadata server answers "+name, func() bool {
			got := asks(name)
			return strings.Contains(got, `"name":"`+name+`"`) || strings.Contains(got, `"name": "`+name+`"`)
		})
	}
	one.start()
	request(one, "--wait=ready")
	check("at first", "on-one")
	one.stop()
	two.start()
	request(two, "--wait")
	c.waitForConsole("on-two", "metadata: NoCloud disk")
	one.start()
	check("after the restart of its agent", "on-one")
	two.stop()
	two.start()
	check("after a restart of the other agent", "on-one")
	c.must("destroy", "--wait", "on-one", "on-two")
}
