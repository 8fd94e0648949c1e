package libvirt

import (
	"errors"
	"os"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"croft"
)

// Stopping a libvirt network removes its bridge; after it starts again, the guests' ports are on no bridge.
func TestAPortThatLostItsBridgeJoinsTheNextOne(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("making a bridge needs root")
	}
	runtime.LockOSThread() // the thread, which has its own network namespace, ends with the test's goroutine
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(unix.Unshare(unix.CLONE_NEWNET))
	bridge := func() *netlink.Bridge {
		b := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br"}}
		check(netlink.LinkAdd(b))
		return b
	}
	master := func() int {
		link, err := netlink.LinkByName("port")
		check(err)
		return link.Attrs().MasterIndex
	}
	prepared := ""
	join := func() (bool, error) {
		return joinBridge("port", "br", func(name string) error { prepared = name; return nil })
	}
	if joined, err := join(); joined || err != nil {
		t.Errorf("a port that does not exist: %v, %v", joined, err)
	}
	first := bridge()
	check(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "port", MasterIndex: first.Index},
		PeerName: "guest"}))
	if joined, err := join(); joined || err != nil || prepared != "" {
		t.Errorf("a port on its bridge: %v, %v, prepared %q", joined, err, prepared)
	}
	check(netlink.LinkDel(first))
	if !isLoose("port") || isLoose("none") {
		t.Error("a port whose bridge is gone is not loose, or one that does not exist is")
	}
	if joined, err := join(); joined || !errors.Is(err, croft.NotFound) {
		t.Errorf("a port whose bridge is gone: %v, %v", joined, err)
	}
	second := bridge()
	if joined, err := join(); !joined || err != nil || master() != second.Index || isLoose("port") || prepared != "br" {
		t.Errorf("a port whose bridge returned: %v, %v, on %d, prepared %q", joined, err, master(), prepared)
	}
}
