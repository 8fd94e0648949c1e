package libvirt

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"libvirt.org/go/libvirt"

	"croft"
	"croft/compute"
)

func TestPower(t *testing.T) {
	for name, c := range map[string]struct {
		state   libvirt.DomainState
		reason  int
		power   compute.Power
		crashed bool
	}{
		"a running guest is on":             {libvirt.DOMAIN_RUNNING, 0, compute.PowerOn, false},
		"one that waits for its disk is on": {libvirt.DOMAIN_BLOCKED, 0, compute.PowerOn, false},
		"one that is powering off is on":    {libvirt.DOMAIN_SHUTDOWN, 0, compute.PowerOn, false},
		"one without room on its disk is paused": {libvirt.DOMAIN_PAUSED, int(libvirt.DOMAIN_PAUSED_IOERROR),
			compute.PowerPaused, false},
		"one that sleeps is paused":            {libvirt.DOMAIN_PMSUSPENDED, 0, compute.PowerPaused, false},
		"a crashed one that is kept is paused": {libvirt.DOMAIN_CRASHED, 0, compute.PowerPaused, true},
		"one that powered off is off": {libvirt.DOMAIN_SHUTOFF, int(libvirt.DOMAIN_SHUTOFF_SHUTDOWN),
			compute.PowerOff, false},
		"one whose power was cut is off": {libvirt.DOMAIN_SHUTOFF, int(libvirt.DOMAIN_SHUTOFF_DESTROYED),
			compute.PowerOff, false},
		"one off since the host came up is off": {libvirt.DOMAIN_SHUTOFF, int(libvirt.DOMAIN_SHUTOFF_UNKNOWN),
			compute.PowerOff, false},
		"one whose process died crashed": {libvirt.DOMAIN_SHUTOFF, int(libvirt.DOMAIN_SHUTOFF_CRASHED),
			compute.PowerOff, true},
		"one that did not start crashed": {libvirt.DOMAIN_SHUTOFF, int(libvirt.DOMAIN_SHUTOFF_FAILED),
			compute.PowerOff, true},
		"one libvirtd did not find again crashed": {libvirt.DOMAIN_SHUTOFF, int(libvirt.DOMAIN_SHUTOFF_DAEMON),
			compute.PowerOff, true},
	} {
		t.Run(name, func(t *testing.T) {
			if p, crashed := power(c.state, c.reason); p != c.power || crashed != c.crashed {
				t.Errorf("got %v, %v", p, crashed)
			}
		})
	}
}

func TestExplainGivesTheKindByTheCode(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		kind croft.Kind
		text string
	}{
		"no such domain": {libvirt.Error{Code: libvirt.ERR_NO_DOMAIN, Message: "Domain not found"}, croft.NotFound,
			"start it: Domain not found"},
		"bad XML": {libvirt.Error{Code: libvirt.ERR_XML_ERROR, Message: "bad"}, croft.Invalid,
			"start it: bad"},
		"a lost connection": {libvirt.Error{Code: libvirt.ERR_INTERNAL_ERROR, Domain: libvirt.FROM_RPC,
			Message: "eof"}, croft.Unavailable, "start it: the connection to libvirt is lost: eof"},
		"anything else": {libvirt.Error{Code: libvirt.ERR_INTERNAL_ERROR, Message: "qemu said no"}, "",
			"start it: qemu said no"},
		"a kind of our own":  {croft.Errorf(croft.Conflict, "taken"), croft.Conflict, "start it: taken"},
		"an error of others": {errors.New("else"), "", "start it: else"},
	} {
		t.Run(name, func(t *testing.T) {
			got := explain(task{verb: "start it"}, c.err)
			if croft.KindOf(got) != c.kind || got.Error() != c.text {
				t.Errorf("got %q (%s)", got, croft.KindOf(got))
			}
			if !errors.Is(got, c.err) {
				t.Error("the cause is lost")
			}
		})
	}
}

func TestUnreachableSaysWhatToDo(t *testing.T) {
	d, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"no library": {libvirt.Error{Code: libvirt.ERR_INTERNAL_ERROR,
			Message: "libvirt.so.0: cannot open shared object file"}, "install libvirt-daemon-system"},
		"not allowed": {libvirt.Error{Code: libvirt.ERR_AUTH_UNAVAILABLE, Message: "polkit"}, "join the group libvirt"},
		"no daemon": {libvirt.Error{Code: libvirt.ERR_SYSTEM_ERROR, Domain: libvirt.FROM_RPC,
			Message: "Failed to connect socket"}, "start libvirtd"},
		"who knows": {errors.New("else"), "else"},
	} {
		t.Run(name, func(t *testing.T) {
			got := d.conn.unreachable(c.err)
			if !errors.Is(got, croft.Unavailable) || !strings.Contains(got.Error(), c.want) {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestNewRefusesWhatItCannotDo(t *testing.T) {
	for name, c := range map[string]Config{
		"a type of virtualisation that is none": {VirtType: "xen"},
		"a negative cache":                      {EmulatorCacheMiB: -1},
		"a negative grace":                      {StopGrace: -1},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := New(c); !errors.Is(err, croft.Invalid) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func addressed(id croft.InstanceID, addrs ...string) domain {
	one := domain{}
	one.ID = id
	for _, a := range addrs {
		one.leased = append(one.leased, netip.MustParseAddr(a))
	}
	one.Addresses = one.leased
	return one
}

func TestAddressChanges(t *testing.T) {
	known := map[croft.InstanceID]domain{}
	for _, step := range []struct {
		name string
		now  []domain
		want []croft.InstanceID
	}{
		{"without an address nobody is woken", []domain{addressed("a"), addressed("b")}, nil},
		{"a first address wakes", []domain{addressed("a", "10.0.0.1"), addressed("b")}, []croft.InstanceID{"a"}},
		{"the same again does not", []domain{addressed("a", "10.0.0.1"), addressed("b")}, nil},
		{"another one wakes", []domain{addressed("a", "10.0.0.2"), addressed("b", "10.0.0.1")},
			[]croft.InstanceID{"a", "b"}},
		{"losing it wakes", []domain{addressed("a"), addressed("b", "10.0.0.1")}, []croft.InstanceID{"a"}},
		{"who is gone is forgotten", []domain{addressed("a")}, nil},
		{"and new when it is back", []domain{addressed("a"), addressed("b", "10.0.0.1")}, []croft.InstanceID{"b"}},
	} {
		if got := addressChanges(known, step.now); !slices.Equal(got, step.want) {
			t.Errorf("%s: got %v, want %v", step.name, got, step.want)
		}
	}
}

func TestOwnersAreRememberedForAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table ownerTable
		mine, other := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.9")
		check := func(when string, addr netip.Addr, want croft.InstanceID, wantKnown bool) {
			t.Helper()
			if id, known, _ := table.get(addr); known != wantKnown || known && id != want {
				t.Errorf("%s: got %q, %v", when, id, known)
			}
		}
		check("before anything was read", mine, "", false)
		table.put([]domain{addressed("a", "10.0.0.1")}, 0)
		check("just read", mine, "a", true)
		check("just read, a stranger", other, "", true)
		time.Sleep(strangersLast)
		check("a little later", mine, "a", true)
		check("a little later, a stranger may be known by now", other, "", false)
		time.Sleep(ownersLast)
		check("later", mine, "", false)

		table.put([]domain{addressed("a", "10.0.0.1")}, 0)
		table.invalidate()
		check("after an event", mine, "", false)
		table.put([]domain{addressed("a", "10.0.0.1")}, 0) // this read started before the event
		check("what was read before an event", mine, "", false)
	})
}

func TestPortsOfADomain(t *testing.T) {
	const text = `<domain type='qemu'%s><name>x</name><devices>
		<interface type='network'><mac address='52:54:AA:00:00:01'/><target dev='cr12345aa000001'/></interface>
		<interface type='bridge'><mac address='52:54:aa:00:00:02'/><target dev='vnet7'/></interface>
		<interface type='bridge'><mac address='52:54:aa:00:00:03'/></interface></devices></domain>`
	for name, c := range map[string]struct {
		id   string
		want map[string]string
	}{
		"one that runs is at its ports": {" id='3'", map[string]string{"52:54:aa:00:00:01": "cr12345aa000001",
			"52:54:aa:00:00:02": "vnet7"}},
		"one that is off is at none of them": {"", map[string]string{}},
	} {
		if got, err := parsePorts(fmt.Sprintf(text, c.id)); err != nil || !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestPortsAreForgottenWhenADomainChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table ownerTable
		ports := map[string]string{"mac": "tap"}
		_, known, generation := table.portsOf("one")
		table.putPorts("one", ports, generation)
		if got, ok, _ := table.portsOf("one"); known || !ok || !maps.Equal(got, ports) {
			t.Errorf("they are %v, %v", got, ok)
		}
		table.invalidate() // such as a stop
		table.putPorts("one", ports, generation)
		if got, ok, _ := table.portsOf("one"); ok {
			t.Errorf("what was read before the change is kept: %v", got)
		}
		_, _, generation = table.portsOf("one")
		table.putPorts("one", ports, generation)
		time.Sleep(ownersLast)
		if _, ok, _ := table.portsOf("one"); ok {
			t.Error("they are believed for ever")
		}
	})
}

func TestADomainGetsNoMACOfAnother(t *testing.T) {
	neighbour := domain{nics: []markNIC{{MAC: "52:54:00:00:00:01"}, {MAC: "52:54:00:00:00:02", Bridge: "br0"}}}
	neighbour.ID = "neighbour"
	for mac, taken := range map[string]bool{"52:54:00:00:00:01": true, "52:54:00:00:00:02": true,
		"52:54:00:00:00:03": false} {
		nics := []markNIC{{MAC: "52:54:00:00:00:04"}, {MAC: mac, Network: "n"}}
		err := checkMACs("thief", nics, []domain{neighbour})
		if (err != nil) != taken || taken && croft.KindOf(err) != croft.Conflict {
			t.Errorf("%s: %v", mac, err)
		}
		if err := checkMACs("neighbour", nics, []domain{neighbour}); err != nil {
			t.Errorf("its own MAC %s: %v", mac, err)
		}
	}
}

// TestAGuestKeepsItsAddressWhenItsLeaseIsEnded: a guest has its reserved address until it is off, once it has leased
// it, although another guest may end the lease.
func TestAGuestKeepsItsAddressWhenItsLeaseIsEnded(t *testing.T) {
	const mac = "52:54:00:00:00:01"
	addr := netip.MustParseAddr("10.9.0.11")
	var used usedAddresses
	lists := map[string]map[string][]lease{
		"held":    {mac: {{addr: addr}}},
		"ended":   {},
		"stopped": nil, // of a network that is not active
	}
	for i, step := range []struct {
		name  string
		boot  uint
		lists string
		want  bool
	}{
		{"it has not asked yet", 7, "ended", false},
		{"it has leased it", 7, "held", true},
		{"somebody ended the lease", 7, "ended", true},
		{"its network is stopped", 7, "stopped", false},
		{"its network is back", 7, "ended", true},
		{"it was started again", 8, "ended", false},
		{"it has leased it again", 8, "held", true},
	} {
		r := leaseReader{networks: map[string]map[string][]lease{"n": lists[step.lists]}, used: &used}
		one := domain{nics: []markNIC{{MAC: mac, Network: "n", Address: addr.String()}}, boot: step.boot}
		one.ID = "a"
		one.Power = compute.PowerOn
		if err := r.fill(&one); err != nil {
			t.Fatal(err)
		}
		if got := slices.Contains(one.Addresses, addr); got != step.want || len(one.Addresses) > 1 {
			t.Errorf("%d, %s: it has %v", i, step.name, one.Addresses)
		}
	}
	used.keep(nil)
	if len(used.boots) != 0 {
		t.Errorf("of a domain that is gone, %v is remembered", used.boots)
	}
}

// TestAReservedAddressHasItsOwnerWithoutALease: a guest whose lease was ended by another is known by its address, until
// it is off.
func TestAReservedAddressHasItsOwnerWithoutALease(t *testing.T) {
	addr := netip.MustParseAddr("10.9.0.11")
	for power, want := range map[compute.Power]croft.InstanceID{
		compute.PowerOn: "a", compute.PowerPaused: "a", compute.PowerOff: "",
	} {
		one := addressed("a")
		one.Power, one.Reserved = power, []netip.Addr{addr}
		var table ownerTable
		if got := table.put([]domain{one}, 0)[addr]; got != want {
			t.Errorf("power %v: the owner is %q, want %q", power, got, want)
		}
	}
}
