package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// newKey creates a key pair to log in with and returns the path of the private key.
func (c *cloud) newKey() string {
	c.t.Helper()
	file := filepath.Join(c.home, "id")
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f",
		file).CombinedOutput(); err != nil {
		c.t.Fatalf("ssh-keygen: %v: %s", err, out)
	}
	return file
}

// TestSSHKnowsTheGuest: the first SSH connection reaches the requested guest or fails. Its address is shown once it
// runs and is kept across a rebuild, and it cannot send from any other address.
func TestSSHKnowsTheGuest(t *testing.T) {
	t.Parallel()
	c := sharedCloud(t)
	key := c.newKey()
	id := c.id(c.must("--name", "web", "--key", key+".pub", small, guestImage))
	c.must("wait", "web", "--for", "ready", "--timeout", patience.String())
	address := c.must("web")
	if all := c.show(id).Addresses; len(all) != 1 || all[0] != address {
		t.Errorf("its addresses are %v, want %s alone", all, address)
	}
	ssh := func(command string) result {
		return c.schedule("ssh", "--user", "root", "--identity", key, "web", command)
	}
	if r := ssh("hostname; exit 7"); r.exit != 7 || r.stdout != "web\n" {
		t.Fatalf("a command in the guest: %v, want its output and its exit code", r)
	}

	gateway := address[:strings.LastIndex(address, ".")] + ".1"
	foreign := address[:strings.LastIndex(address, ".")] + ".251"
	if r := ssh("ping -c 1 -W 20 " + gateway); r.exit != 0 {
		t.Errorf("the guest does not reach its gateway: %v", r)
	}
	if r := ssh("ip address add " + foreign + "/24 dev eth0; ping -c 3 -W 3 -I " + foreign + " " +
		gateway); r.exit != 1 {
		t.Errorf("the guest can send from %s: %v", foreign, r)
	}

	// Another server at the guest's address is detected.
	// It may end the connection, after which schedule ssh looks whether a server answers: exit code 6 if none does.
	r := ssh("killall dropbear; rm /etc/dropbear/*; (sleep 1; dropbear -R -s) >/dev/null 2>&1 </dev/null &")
	if r.exit != 0 && r.exit != 255 && r.exit != 6 {
		t.Errorf("to give the guest another key: %v", r)
	}
	eventually(t, "the other key is refused", func(context.Context) error {
		if r := ssh("true"); !strings.Contains(r.stderr, "verification failed") {
			return fmt.Errorf("%v", r)
		}
		return nil
	})

	c.must("rebuild", "--wait=ready", "web")
	if now := c.must("web"); now != address {
		t.Errorf("rebuilt, it has the address %s, and had %s", now, address)
	}
	if r := ssh("hostname"); r.exit != 0 {
		t.Errorf("rebuilt, it has another key or another user's: %v", r)
	}
	if left, err := os.ReadDir(c.temporary); err != nil || len(left) > 0 {
		t.Errorf("ssh leaves %v in the directory for temporary files (%v)", left, err)
	}
	c.must("destroy", "--wait", "web")
	c.nothingLeft(id)
}
