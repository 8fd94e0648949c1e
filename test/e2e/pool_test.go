package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	poolclient "croft/pool/api"
)

// servePool runs a pool manager for the cloud's own instances until the test ends.
func (c *cloud) servePool(pools string) {
	c.t.Helper()
	file := filepath.Join(c.home, "pools.yaml")
	c.write(file, pools)
	at := freePorts(c.t, 1)[0]
	log, err := os.Create(filepath.Join(c.home, "pool.log"))
	if err != nil {
		c.t.Fatal(err)
	}
	manager := exec.Command(filepath.Join(binaries, "croft"), "pool", "serve", "--pools", file, "--listen", at,
		"--state-dir", filepath.Join(c.home, "pools"))
	manager.Env, manager.Stdout, manager.Stderr = c.environment(), log, log
	manager.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := manager.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		_ = manager.Process.Signal(syscall.SIGTERM)
		_ = manager.Wait()
		text, _ := os.ReadFile(log.Name())
		if strings.Contains(string(text), "WARNING: DATA RACE") || c.t.Failed() {
			c.t.Errorf("log of the manager of pools:\n%s", text)
		}
		_ = log.Close()
	})
	c.pools = "http://" + at
}

// croft runs croft against the cloud's pool manager; it must succeed.
func (c *cloud) croft(args ...string) string {
	c.t.Helper()
	r := c.run("croft", append(args, "--server", c.pools)...)
	if r.exit != 0 {
		c.t.Fatalf("croft %q: %v", args, r)
	}
	return strings.TrimSuffix(r.stdout, "\n")
}

// ready returns the resources that are available immediately.
func (c *cloud) ready() (all []poolclient.Resource) {
	c.t.Helper()
	var list []poolclient.Resource
	if err := json.Unmarshal([]byte(c.croft("pool", "resources", "-o", "json")), &list); err != nil {
		c.t.Fatal(err)
	}
	for _, r := range list {
		if r.State == "UP" && r.Ticket == 0 {
			all = append(all, r)
		}
	}
	return all
}

// waitForReady waits until n resources are ready, not counting those in not.
func (c *cloud) waitForReady(n int, not ...int64) (all []poolclient.Resource) {
	c.t.Helper()
	eventually(c.t, fmt.Sprintf("%d are ready", n), func(context.Context) error {
		all = c.ready()
		if len(all) != n ||
			slices.ContainsFunc(all, func(r poolclient.Resource) bool { return slices.Contains(not, r.ID) }) {
			return fmt.Errorf("%d are: %s", len(all), c.croft("pool", "resources"))
		}
		return nil
	})
	return all
}

// emptyPool drains a pool, and waits until its machines and their guests are gone.
func (c *cloud) emptyPool(name string) {
	c.t.Helper()
	c.croft("pool", "drain", name)
	eventually(c.t, "nothing is left of the pool", func(context.Context) error {
		if left := c.croft("pool", "resources", "-o", "json"); left != "[]" {
			return fmt.Errorf("resources %s", left)
		}
		return nil
	})
	if left := c.domains(); len(left) > 0 {
		c.t.Errorf("the pool has nothing, and there are the domains %v", left)
	}
}

// TestAPoolOfInstances: a ticket gets a running machine, returned machines are destroyed and replaced by warm ones,
// and a guest that dies is replaced.
func TestAPoolOfInstances(t *testing.T) {
	t.Parallel()
	c := sharedCloud(t)
	key := c.newKey()
	c.servePool(fmt.Sprintf(`
vm:
  instance: {resources: "VCPU:1,MEMORY_MB:128,DISK_GB:1", image: %q, keys: [%q], ready: ssh}
  max: 2
  max_prealloc: 2
  max_starting: 2
  tags: [vm]
`, guestImage, key+".pub"))
	first := c.waitForReady(2)

	ticket, address, _ := strings.Cut(c.croft("ticket", "open", "--tag", "vm", "--wait"), "\n")
	ssh := exec.CommandContext(t.Context(), "ssh", "-i", key, "-o", "StrictHostKeyChecking=no", "-o",
		"UserKnownHostsFile=/dev/null",
		"-o", "LogLevel=ERROR", "-o", "BatchMode=yes", "-o", "ConnectTimeout=60", "root@"+address, "hostname")
	if out, err := ssh.CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "vm-0000000") {
		t.Fatalf("the machine of the ticket, %s, says %q, %v", address, out, err)
	}

	taken := first[0].ID
	if len(c.ready()) > 0 && c.ready()[0].ID == taken {
		taken = first[1].ID
	}
	c.croft("ticket", "close", ticket)
	second := c.waitForReady(2, taken)

	if _, err := virsh("destroy", "croft-"+second[0].Instance); err != nil {
		t.Fatalf("to kill a guest: %v", err)
	}
	c.waitForReady(2, second[0].ID)
	var gone poolclient.Resource
	if err := json.Unmarshal([]byte(c.croft("pool", "resource", fmt.Sprint(second[0].ID), "-o", "json")),
		&gone); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(gone.Reason, "it is lost: ") {
		t.Errorf("the guest that was killed: %s, %q", gone.State, gone.Reason)
	}

	c.emptyPool("vm")
	eventually(t, "nothing is claimed", func(context.Context) error {
		if used := c.usages(); used["VCPU"] != 0 {
			return fmt.Errorf("%v", used)
		}
		return nil
	})
}
