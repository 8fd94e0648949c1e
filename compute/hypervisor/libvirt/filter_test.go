package libvirt

import (
	"net"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"croft"
	"croft/compute"
	"croft/compute/hypervisor/libvirt/packetfilter"
)

const filteredCloud = croft.PartitionID("2c5ea4c0-4067-41fe-8bad-9b1deb4d3b7d")

func TestRulesOfNetworks(t *testing.T) {
	table := packetfilter.TableOf(filteredCloud)
	mac := net.HardwareAddr{0x52, 0x54, 0xaa, 0, 0, 1}
	addrs := func(list ...string) (all []netip.Addr) {
		for _, a := range list {
			all = append(all, netip.MustParseAddr(a))
		}
		return all
	}
	pools := pool{hosts: map[string]netip.Addr{mac.String(): netip.MustParseAddr("10.9.0.11")}}
	fd09 := []netip.Prefix{netip.MustParsePrefix("fd09::/64"), netip.MustParsePrefix("fd0a::/80")}
	const local, made = "fe80::5054:aaff:fe00:1", "fd09::5054:aaff:fe00:1"
	for name, c := range map[string]struct {
		nic    markNIC
		facts  networkFacts
		leased []netip.Addr
		want   packetfilter.Port
		kept   []netip.Addr
	}{
		"IPv4 alone: the address that is reserved": {markNIC{Network: "n", Address: "10.9.0.11"},
			networkFacts{Network{Bridge: "br"}, pools}, nil,
			packetfilter.Port{Own: addrs("10.9.0.11"), Asks: true}, nil},
		"not reserved yet: it cannot ask for it": {markNIC{Network: "n", Address: "10.9.0.12"},
			networkFacts{Network{Bridge: "br"}, pools}, nil,
			packetfilter.Port{Own: addrs("10.9.0.12")}, nil},
		"a network that is gone: what it had": {markNIC{Network: "n", Address: "10.9.0.11"}, networkFacts{}, nil,
			packetfilter.Port{Own: addrs("10.9.0.11")}, nil},
		"IPv6 too: what it makes of its MAC, and what was leased": {markNIC{Network: "n", Address: "10.9.0.11"},
			networkFacts{Network{Bridge: "br", Subnets6: fd09}, pools}, addrs("10.9.0.99", "fd09::77"),
			packetfilter.Port{Own: addrs("10.9.0.11", local, made, "fd09::77"), Asks: true}, nil},
		"IPv6, and no IPv4 from the host": {markNIC{Network: "n"},
			networkFacts{Network{Bridge: "br", Subnets6: fd09}, pool{}}, nil,
			packetfilter.Port{Own: addrs(local, made), Open4: true},
			addrs("10.9.0.1", "10.9.0.21", "fd09::5054:aaff:fe00:1", "fe80::1")},
		"a network without addresses": {markNIC{Network: "n"}, networkFacts{Network{Bridge: "br"}, pool{}}, nil,
			packetfilter.Port{Open4: true, Open6: true}, addrs("10.9.0.1", "10.9.0.21", "fe80::1")},
		"a bridge of the host": {markNIC{Bridge: "br"}, networkFacts{}, nil,
			packetfilter.Port{Open4: true, Open6: true}, addrs("10.9.0.1", "10.9.0.21", "fe80::1")},
	} {
		t.Run(name, func(t *testing.T) {
			c.nic.MAC = mac.String()
			other := domain{nics: []markNIC{{MAC: "52:54:bb:00:00:01", Network: "o", Address: "10.9.0.21"}}}
			other.Partition = "another cloud's"
			one := domain{nics: []markNIC{c.nic}, leasedTo: map[string][]netip.Addr{mac.String(): c.leased}}
			one.Partition = filteredCloud
			one.Project, one.Open = "red", []string{"tcp/80", "what a later croft wrote"}
			got := rulesOf(filteredCloud, []domain{other, one}, map[string]networkFacts{"n": c.facts},
				func(bridge string) []netip.Addr {
					if bridge != "br" {
						t.Errorf("asked for the host's addresses on %q", bridge)
					}
					return addrs("10.9.0.1", "fe80::1")
				})
			c.want.Name, c.want.MAC = table.PortName(mac), mac
			c.want.Owner, c.want.Reached = string(filteredCloud)+"/red", []croft.OpenPort{{Protocol: "tcp", Port: 80}}
			stranger := packetfilter.Port{MAC: net.HardwareAddr{0x52, 0x54, 0xbb, 0, 0, 1}, Own: addrs("10.9.0.21"),
				Owner: "another cloud's/"}
			stranger.Name = packetfilter.TableOf("another cloud's").PortName(stranger.MAC)
			want := packetfilter.Rules{Ports: []packetfilter.Port{c.want}, Others: []packetfilter.Port{stranger},
				Kept: c.kept}
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestDefinitionsOfBeforeAreAdopted checks that a guest with libvirt's own filter, or with the ports of another
// setting, gets the current ones at its next start.
func TestDefinitionsOfBeforeAreAdopted(t *testing.T) {
	m := fixedMachine()
	k := newMark(m)
	filtered, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	open, err := New(Config{AllowSpoofing: true})
	if err != nil {
		t.Fatal(err)
	}
	define := func(d *Driver) string {
		names := d.network.filter.portNames(filteredCloud, k.NICs)
		text, _, err := definition{Virt: VirtQEMU, Ports: names}.define(m, k)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	before := strings.Replace(define(open), "</interface>",
		`<filterref filter="croft-own-address"><parameter name="IP" value="10.9.0.11"/></filterref></interface>`, 1)
	for name, c := range map[string]struct {
		driver *Driver
		text   string
		want   string
	}{
		"one with libvirt's filter":         {filtered, before, define(filtered)},
		"one without any":                   {filtered, define(open), define(filtered)},
		"one of today":                      {filtered, define(filtered), ""},
		"one with ours, where none is used": {open, define(filtered), define(open)},
		"one without, where none is used":   {open, define(open), ""},
	} {
		got, changed, err := renamePorts(c.text, c.driver.network.filter.portNames(filteredCloud, k.NICs))
		if err != nil || changed != (c.want != "") {
			t.Errorf("%s: changed %v, %v", name, changed, err)
		}
		// The digest is still the one of croft's original definition, so the next Define rewrites it.
		digest := regexp.MustCompile(`digest="[0-9a-f]*"`)
		if diff := cmp.Diff(digest.ReplaceAllString(c.want, ""), digest.ReplaceAllString(got, "")); changed &&
			diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestEveryInterfaceHasAPortOfItsOwn(t *testing.T) {
	d, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	m := fixedMachine()
	m.NICs = append(m.NICs, compute.NIC{MAC: m.ID.MAC(1).String(), Bridge: "br0"})
	names := d.network.filter.portNames(filteredCloud, newMark(m).NICs)
	if one, two := names[m.ID.MAC(0).String()], names[m.ID.MAC(1).String()]; one == "" || two == "" || one == two {
		t.Errorf("they are %v", names)
	}
}

func TestUnreservedAddresses(t *testing.T) {
	at := func(p croft.PartitionID, id croft.InstanceID, nics ...markNIC) domain {
		one := domain{nics: nics}
		one.ID, one.Partition = id, p
		return one
	}
	facts := map[string]networkFacts{"n": {pool: pool{hosts: map[string]netip.Addr{"a": netip.MustParseAddr("10.9.0.1"),
		"g": netip.MustParseAddr("10.9.0.5")}, names: map[string]string{"a": "vm-a", "g": ""}}}}
	got := unreserved(filteredCloud, []domain{
		at(filteredCloud, "reserved", markNIC{MAC: "a", Network: "n", Address: "10.9.0.1"}),
		at(filteredCloud, "missing", markNIC{MAC: "a", Network: "n", Address: "10.9.0.1"},
			markNIC{MAC: "b", Network: "n", Address: "10.9.0.2"}),
		at(filteredCloud, "without an address", markNIC{MAC: "c", Network: "n"}),
		at(filteredCloud, "on a bridge", markNIC{MAC: "d", Bridge: "br0"}),
		at(filteredCloud, "on a network that is gone", markNIC{MAC: "e", Network: "o", Address: "10.9.0.3"}),
		at(filteredCloud, "without a name", markNIC{MAC: "g", Network: "n", Address: "10.9.0.5"}),
		at("another cloud", "another cloud's", markNIC{MAC: "f", Network: "n", Address: "10.9.0.4"}),
	}, facts)
	if diff := cmp.Diff([]croft.InstanceID{"missing", "without a name"}, got); diff != "" {
		t.Error(diff)
	}
}
