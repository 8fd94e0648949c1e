package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// TestARogueGuestReadsNothingOfAnothers: a guest that takes the address of another,
// on a host whose packet filter does not stop it, gets nothing of the other's, be it
// running, killed behind croft's back, stopped or destroyed.
func TestARogueGuestReadsNothingOfAnothers(t *testing.T) {
	c := newCloud(t, "")
	c.signal(syscall.SIGTERM)
	c.write(c.settings, strings.Replace(c.settingsText(), "virt_type: qemu", "virt_type: qemu, allow_spoofing: true", 1))
	c.start()
	key := c.newKey()
	c.write(c.home+"/secret", "#!/bin/sh\necho the-secret-of-the-victim\n")
	victim := c.id(c.must("--name", "victim", "--user-data", c.home+"/secret", small, guestImage))
	c.must("--name", "rogue", "--key", key+".pub", "--wait=ready", "--timeout", patience.String(), small, guestImage)
	c.must("wait", "victim", "--for", "ready", "--timeout", patience.String())
	inside := func(command string) string {
		t.Helper()
		r := c.schedule("ssh", "--user", "root", "--identity", key, "rogue", command)
		if r.exit == 255 {
			t.Fatalf("the rogue cannot be reached: %v", r)
		}
		return r.stdout + r.stderr
	}

	address := c.must("victim")
	gateway := address[:strings.LastIndex(address, ".")] + ".1"
	// What goes to the metadata server leaves with the victim's address, and the host
	// is told that this is where the address is.
	inside("ip address add " + address + "/32 dev eth0; ip route add 169.254.169.254/32 via " + gateway + " src " + address)
	if got := inside("ip route get 169.254.169.254"); !strings.Contains(got, "src "+address) {
		t.Fatalf("the rogue has no use for the address: %s", got)
	}
	steal := func() string {
		t.Helper()
		return inside("arping -q -U -c 2 -I eth0 " + address + "; for path in openstack/latest/user_data latest/user-data latest/meta-data/instance-id; do" +
			" (printf 'GET /%s HTTP/1.0\\r\\n\\r\\n' $path; sleep 1) | timeout 5 nc 169.254.169.254 80; done; echo tried")
	}
	nothing := func(when string) (answered bool) {
		t.Helper()
		got := steal()
		if !strings.Contains(got, "tried") || strings.Contains(got, "secret") || strings.Contains(got, victim) || strings.Contains(got, " 200 OK") {
			t.Errorf("%s, the rogue reads\n%s", when, got)
		}
		return strings.Contains(got, " 404 Not Found")
	}
	refused := func(when string) {
		t.Helper()
		eventually(t, when+", the rogue is answered", func(context.Context) error {
			if nothing(when) || t.Failed() {
				return nil
			}
			return fmt.Errorf("no answer")
		})
	}

	refused("while the victim runs")
	var work sync.WaitGroup
	work.Go(func() { // it is started anew at once
		if _, err := virsh("destroy", "croft-"+victim); err != nil {
			t.Error(err)
		}
	})
	for range 3 {
		nothing("while the victim is killed and started anew")
	}
	work.Wait()
	c.must("stop", "--wait", "victim")
	refused("when the victim is stopped")
	c.must("destroy", "--wait", "victim")
	refused("when the victim is destroyed")
	c.must("destroy", "--wait", "rogue")
}
