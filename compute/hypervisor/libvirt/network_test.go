package libvirt

import (
	"bytes"
	"net"
	"net/netip"
	"reflect"
	"testing"

	"croft"
)

const networkText = `<network><name>lab</name><bridge name='virbr7' stp='on' delay='0'/>
<ip family='ipv6' address='fd00::1' prefix='64'/>
<ip address='10.9.0.1' netmask='255.255.255.0'><dhcp>
  <range start='10.9.0.10' end='10.9.0.12'/><range start='10.9.0.20' end='10.9.0.20'/>
  <host mac='52:54:00:AA:00:01' ip='10.9.0.11'/><host mac='52:54:00:aa:00:02' name='named'/>
</dhcp></ip></network>`

func TestParseNetwork(t *testing.T) {
	fd00 := []netip.Prefix{netip.MustParsePrefix("fd00::/64")}
	for name, c := range map[string]struct {
		text string
		want Network
		kind croft.Kind
	}{
		"its first IPv4 address is the gateway": {networkText,
			Network{"lab", "virbr7", netip.MustParseAddr("10.9.0.1"), netip.MustParsePrefix("10.9.0.0/24"), fd00}, ""},
		"a prefix does as well as a netmask": {`<network><name>n</name><bridge name='b'/><ip address='10.1.2.3' prefix='16'/></network>`,
			Network{"n", "b", netip.MustParseAddr("10.1.2.3"), netip.MustParsePrefix("10.1.0.0/16"), nil}, ""},
		"IPv6 is seen beside it": {`<network><name>n</name><bridge name='b'/><ip family='ipv6' address='fd00::1' prefix='64'/><ip address='10.1.2.3' prefix='16'/></network>`,
			Network{"n", "b", netip.MustParseAddr("10.1.2.3"), netip.MustParsePrefix("10.1.0.0/16"), fd00}, ""},
		"a network may have no address": {`<network><name>n</name><bridge name='b'/></network>`,
			Network{Name: "n", Bridge: "b"}, ""},
		"one without a bridge is not for croft": {`<network><name>n</name><forward mode='hostdev'/></network>`,
			Network{}, croft.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseNetwork(c.text)
			if croft.KindOf(err) != c.kind || !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v, %v; want %+v", got, err, c.want)
			}
		})
	}
}

func TestDefaultNetworkCanBeReadBack(t *testing.T) {
	text, err := defaultNetworkXML(netip.MustParsePrefix("192.168.130.0/24"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := parsePool(text)
	if err != nil {
		t.Fatal(err)
	}
	want := addrRange{netip.MustParseAddr("192.168.130.2"), netip.MustParseAddr("192.168.130.254")}
	if len(p.ranges) != 1 || p.ranges[0] != want {
		t.Errorf("got %v from\n%s", p.ranges, text)
	}
}

func TestFreeSubnetOverlapsNothing(t *testing.T) {
	for name, c := range map[string]struct {
		used []string
		want string
		kind croft.Kind
	}{
		"an empty host has libvirt's own":     {nil, "192.168.122.0/24", ""},
		"a host that is a guest of libvirt":   {[]string{"192.168.122.0/24"}, "192.168.123.0/24", ""},
		"a wide route takes many":             {[]string{"192.168.120.0/21"}, "192.168.128.0/24", ""},
		"a single address takes its subnet":   {[]string{"192.168.122.9/32"}, "192.168.123.0/24", ""},
		"all of them in use is a conflict":    {[]string{"192.168.0.0/16"}, "", croft.Conflict},
		"other private subnets do not matter": {[]string{"10.0.0.0/8", "172.16.0.0/12"}, "192.168.122.0/24", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var used []netip.Prefix
			for _, u := range c.used {
				used = append(used, netip.MustParsePrefix(u))
			}
			got, err := freeSubnet(used)
			if croft.KindOf(err) != c.kind || c.want != "" && got.String() != c.want {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}

func TestChoose(t *testing.T) {
	p, err := parsePool(networkText)
	if err != nil {
		t.Fatal(err)
	}
	addr := netip.MustParseAddr
	none := netip.Addr{}
	for name, c := range map[string]struct {
		own   netip.Addr
		taken []string
		want  []string // one of these; none: the pool is full
	}{
		"a free address, never a reserved one": {none, nil, []string{"10.9.0.10", "10.9.0.12", "10.9.0.20"}},
		"the only one that is left": {none, []string{"10.9.0.10", "10.9.0.20"},
			[]string{"10.9.0.12"}},
		"the last range counts to its end": {none, []string{"10.9.0.10", "10.9.0.12"},
			[]string{"10.9.0.20"}},
		"the address it had": {addr("10.9.0.12"), nil, []string{"10.9.0.12"}},
		"not the address it had, where that is reserved": {addr("10.9.0.11"), []string{"10.9.0.10", "10.9.0.20"},
			[]string{"10.9.0.12"}},
		"not the address it had on another range": {addr("10.9.0.99"), []string{"10.9.0.10", "10.9.0.20"},
			[]string{"10.9.0.12"}},
		"none where all are taken": {none, []string{"10.9.0.10", "10.9.0.12", "10.9.0.20"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			taken := map[netip.Addr]bool{}
			for _, a := range c.taken {
				taken[addr(a)] = true
			}
			got, ok := p.choose("52:54:00:00:00:09", c.own, taken)
			again, _ := p.choose("52:54:00:00:00:09", c.own, taken)
			if got != again {
				t.Errorf("it chose %v, then %v", got, again)
			}
			found := !ok && len(c.want) == 0
			for _, w := range c.want {
				found = found || ok && got == addr(w)
			}
			if !found {
				t.Errorf("got %v, %v", got, ok)
			}
		})
	}
}

func TestParsePoolOfAnythingIsUsable(t *testing.T) {
	for name, text := range map[string]string{
		"a range the wrong way round": `<network><ip address='10.0.0.1'><dhcp><range start='10.0.0.9' end='10.0.0.2'/></dhcp></ip></network>`,
		"no server":                   `<network><ip address='10.0.0.1'/></network>`,
		"a server of IPv6":            `<network><ip family='ipv6' address='fd00::1'><dhcp><range start='fd00::2' end='fd00::9'/></dhcp></ip></network>`,
	} {
		t.Run(name, func(t *testing.T) {
			p, err := parsePool(text)
			if err != nil || len(p.ranges) != 0 {
				t.Errorf("got %+v, %v", p, err)
			}
		})
	}
}

func TestReleaseMessage(t *testing.T) {
	hw := net.HardwareAddr{0x52, 0x54, 1, 2, 3, 4}
	got := releaseMessage(hw, lease{netip.MustParseAddr("10.9.0.12"), "01:52:54:01:02:03:04"},
		netip.MustParseAddr("10.9.0.1"))
	if len(got) < 300 {
		t.Errorf("it has %d bytes, and a BOOTP message at least 300", len(got))
	}
	for name, part := range map[string]struct {
		at   int
		want []byte
	}{
		"a request over Ethernet":       {0, []byte{1, 1, 6, 0}},
		"the client's address":          {12, []byte{10, 9, 0, 12}},
		"the client's hardware address": {28, hw},
		"cookie, type release, server, client identifier, end": {236, []byte{
			0x63, 0x82, 0x53, 0x63, 53, 1, 7, 54, 4, 10, 9, 0, 1, 61, 7, 1, 0x52, 0x54, 1, 2, 3, 4, 255}},
	} {
		if !bytes.Equal(got[part.at:part.at+len(part.want)], part.want) {
			t.Errorf("%s: got % x, want % x", name, got[part.at:part.at+len(part.want)], part.want)
		}
	}
}
