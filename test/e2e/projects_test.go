package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"croft"
)

// TestGuestsOfTwoProjectsAreApart: guests of one project reach each other on the default network, and guests of two
// projects do not reach each other by ARP, ping and SSH. This holds from the first packet on, and again after the agent
// was restarted, the rules were deleted by another program, and libvirt's network was stopped and started.
func TestGuestsOfTwoProjectsAreApart(t *testing.T) {
	t.Parallel()
	c := newCloud(t, "")
	key := c.newKey()
	for _, name := range []string{"red", "blue"} {
		if r := c.run("croft", "project", "create", name); r.exit != 0 {
			t.Fatalf("create the project: %v", r)
		}
	}
	request := func(project, name string, more ...string) (id, address string) {
		t.Helper()
		args := append([]string{"--project", project, "--name", name, "--key", key + ".pub", "--wait=ready",
			"--timeout", patience.String()}, more...)
		id = c.id(c.must(append(args, small, guestImage)...))
		return id, c.must("--project", project, name)
	}
	redID, red := request("red", "red")
	_, brother := request("red", "brother")
	// From its first second on, the guest of blue tries to reach the guest of red.
	c.write(c.home+"/eager", strings.ReplaceAll(`#!/bin/sh
for i in 1 2 3 4 5 6 7 8; do
	arping -q -f -c 1 -w 1 -I eth0 RED && echo ARP >> /tmp/heard
	ping -c 1 -W 1 RED > /dev/null && echo ping >> /tmp/heard
done
echo tried >> /tmp/heard
`, "RED", red))
	id, blue := request("blue", "blue", "--user-data", c.home+"/eager")
	mac := croft.InstanceID(id).MAC(0).String()
	defer func() {
		c.must("destroy", "--project", "red", "--wait", "red", "brother")
		c.must("destroy", "--project", "blue", "--wait", "blue")
	}()
	inside := func(command string) string {
		t.Helper()
		r := c.schedule("ssh", "--project", "red", "--user", "root", "--identity", key, "red", command)
		if r.exit == 255 {
			t.Fatalf("the guest cannot be reached: %v", r)
		}
		return r.stdout + r.stderr
	}
	apart := func() error {
		got := inside(strings.NewReplacer("BROTHER", brother, "BLUE", blue, "MAC", mac).Replace(`
exec 2> /dev/null
ip neigh flush dev eth0 > /dev/null
ping -c 1 -W 2 BROTHER > /dev/null && echo brother answers a ping
nc -w 2 BROTHER 22 < /dev/null | grep -q SSH && echo brother answers ssh
ping -c 2 -W 1 BLUE > /dev/null && echo blue answers a ping
arping -q -f -c 2 -w 2 -I eth0 BLUE && echo blue answers ARP
nc -w 2 BLUE 22 < /dev/null | grep -q SSH && echo blue answers ssh
ip neigh add BLUE lladdr MAC dev eth0 nud permanent
nc -w 2 BLUE 22 < /dev/null | grep -q SSH && echo blue answers ssh by its MAC
ip neigh del BLUE dev eth0
echo tried`))
		want := "brother answers a ping\nbrother answers ssh\ntried"
		if strings.TrimSpace(got) != want {
			return fmt.Errorf("a guest of red says %q", got)
		}
		return nil
	}
	check := func(when string) {
		t.Helper()
		if err := apart(); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	check("at first")
	eventually(t, "the guest of blue has tried", func(context.Context) error {
		r := c.schedule("ssh", "--project", "blue", "--user", "root", "--identity", key, "blue", "cat /tmp/heard")
		if !strings.Contains(r.stdout, "tried") {
			return fmt.Errorf("it says %v", r)
		}
		if strings.TrimSpace(r.stdout) != "tried" {
			t.Errorf("from its first second on, the guest of blue hears\n%s", r.stdout)
		}
		return nil
	})

	c.signal(syscall.SIGTERM)
	c.start()
	check("after a restart of the agent")

	deleted := 0
	for _, table := range nftTables(t) {
		text, err := exec.CommandContext(t.Context(), "nft", "list", "table", "bridge", table).Output()
		if err == nil && strings.Contains(string(text), croft.InstanceID(redID).MAC(0).String()) {
			if out, err := exec.CommandContext(t.Context(), "nft", "delete", "table", "bridge",
				table).CombinedOutput(); err != nil {
				t.Fatalf("delete the rules: %v: %s", err, out)
			}
			deleted++
		}
	}
	if deleted != 1 {
		t.Errorf("%d tables have the MAC address of red", deleted)
	}
	eventually(t, "the rules are back after another program deleted them", func(context.Context) error {
		return apart()
	})

	xml, err := virsh("net-dumpxml", c.network)
	if err != nil {
		t.Fatal(err)
	}
	c.write(c.home+"/network.xml", xml)
	defer func() { _, _ = virsh("net-undefine", c.network) }()
	// A network that is not defined loses its leases when it is destroyed.
	for _, command := range [][]string{{"net-define", c.home + "/network.xml"}, {"net-destroy", c.network},
		{"net-start", c.network}} {
		if _, err := virsh(command...); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the guests are on the network again, and apart", func(context.Context) error {
		r := c.schedule("ssh", "--project", "red", "--user", "root", "--identity", key, "red", "true")
		if r.exit != 0 {
			return fmt.Errorf("red is not reached: %v", r)
		}
		return apart()
	})
}

// nftTables lists the tables of nftables for bridges.
func nftTables(t *testing.T) (names []string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "nft", "list", "tables", "bridge").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		names = append(names, strings.TrimSpace(strings.TrimPrefix(line, "table bridge ")))
	}
	return names
}
