package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"

	"croft"
)

// TestARogueGuestReadsNothingOfAnothers: a guest that takes another guest's address, on a host without a working packet
// filter, cannot read the metadata of the other guest, whether that runs, was killed without croft's knowledge, is
// stopped or was destroyed.
func TestARogueGuestReadsNothingOfAnothers(t *testing.T) {
	t.Parallel()
	c := newCloud(t, "")
	c.signal(syscall.SIGTERM)
	c.write(c.settings, strings.Replace(c.settingsText(), "virt_type: qemu", "virt_type: qemu, allow_spoofing: true",
		1))
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
	tolerant := func(command string) string {
		r := c.schedule("ssh", "--user", "root", "--identity", key, "rogue", command)
		return r.stdout + r.stderr // with another guest's MAC it may not answer
	}
	if got := stealMAC(t, tolerant, victim, address, gateway); strings.Contains(got, "secret") ||
		strings.Contains(got, victim) || strings.Contains(got, " 200 OK") {
		t.Errorf("with the victim's MAC too, the rogue reads\n%s", got)
	}
	// Requests to the metadata server are sent from the victim's address, and the host learns that the address is
	// here.
	inside("ip address add " + address + "/32 dev eth0; ip route add 169.254.169.254/32 via " + gateway + " src " +
		address)
	if got := inside("ip route get 169.254.169.254"); !strings.Contains(got, "src "+address) {
		t.Fatalf("the rogue has no use for the address: %s", got)
	}
	steal := func() string {
		t.Helper()
		return inside("arping -q -U -c 2 -I eth0 " + address +
			"; for path in openstack/latest/user_data latest/user-data latest/meta-data/instance-id; do" +
			" (printf 'GET /%s HTTP/1.0\\r\\n\\r\\n' $path; sleep 1) | timeout 5 nc 169.254.169.254 80; done; echo tried")
	}
	nothing := func(when string) (answered bool) {
		t.Helper()
		got := steal()
		if !strings.Contains(got, "tried") || strings.Contains(got, "secret") || strings.Contains(got, victim) ||
			strings.Contains(got, " 200 OK") {
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
	work.Go(func() { // it is restarted immediately
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

// stealMAC makes a guest request metadata with the MAC and address of another, and returns the answer after
// restoring its own MAC.
func stealMAC(t *testing.T, inside func(string) string, victim, address, gateway string) string {
	t.Helper()
	inside("cat > /tmp/steal <<'X'\n" + strings.NewReplacer("VICTIM", address, "GATEWAY", gateway, "MAC",
		croft.InstanceID(victim).MAC(0).String()).Replace(`
own=$(cat /sys/class/net/eth0/address)
card() { ip link set eth0 down; ip link set eth0 address "$1"; ip link set eth0 up; ip route add default via GATEWAY; }
card MAC
ip address add VICTIM/32 dev eth0
ip route add 169.254.169.254/32 via GATEWAY src VICTIM
ip route replace 169.254.169.254/32 via GATEWAY src VICTIM
arping -q -U -c 2 -I eth0 VICTIM
for path in openstack/latest/user_data latest/user-data latest/meta-data/instance-id; do
	(printf 'GET /%s HTTP/1.0\r\n\r\n' $path; sleep 1) | timeout 5 nc 169.254.169.254 80
done
ip route del 169.254.169.254/32
ip address del VICTIM/32 dev eth0
card $own
arping -q -U -c 2 -I eth0 $(ip -4 address show dev eth0 | sed -n 's/.*inet \([0-9.]*\).*/\1/p' | head -n 1)
echo it has tried
X
`) + "(sh /tmp/steal < /dev/null > /tmp/stolen 2>&1 &)")
	var got string
	eventually(t, "the rogue has its own card again", func(context.Context) error {
		if got = inside("cat /tmp/stolen"); strings.Contains(got, "it has tried") {
			return nil
		}
		return fmt.Errorf("it says %q", got)
	})
	return got
}

// TestARogueGuestSendsNothingOfAnothers: with the packet filter, packets of a guest with another's address and MAC
// are dropped, and the other guest stays reachable.
func TestARogueGuestSendsNothingOfAnothers(t *testing.T) {
	t.Parallel()
	c := sharedCloud(t)
	key := c.newKey()
	c.write(c.home+"/secret", "#!/bin/sh\necho the-secret-of-the-victim\n")
	victim := c.id(c.must("--name", "victim", "--user-data", c.home+"/secret", "--key", key+".pub", small, guestImage))
	c.must("--name", "rogue", "--key", key+".pub", "--wait=ready", "--timeout", patience.String(), small, guestImage)
	c.must("wait", "victim", "--for", "ready", "--timeout", patience.String())
	address := c.must("victim")
	gateway := address[:strings.LastIndex(address, ".")] + ".1"
	inside := func(command string) string {
		r := c.schedule("ssh", "--user", "root", "--identity", key, "rogue", command)
		return r.stdout + r.stderr // with another guest's MAC it does not answer
	}
	got := stealMAC(t, inside, victim, address, gateway)
	if strings.Contains(got, "HTTP/1") || strings.Contains(got, "secret") {
		t.Errorf("the rogue is answered:\n%s", got)
	}
	if r := c.schedule("ssh", "--user", "root", "--identity", key, "victim", "echo it is me"); r.exit != 0 ||
		!strings.Contains(r.stdout, "it is me") {
		t.Errorf("the victim cannot be reached any more: %v", r)
	}
	c.must("destroy", "--wait", "rogue", "victim")
}
