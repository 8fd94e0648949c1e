// Package packetfilter restricts the guests of this host to their own addresses, and keeps guests of different projects
// from each other, with one nftables table of the family bridge for each cloud.
//
// A table is replaced as a whole, in one transaction: packets meet the old rules or the new ones, never none. It
// filters the frames that guests send at bridge ports whose names have the table's prefix; a port that is not listed
// sends nothing. So a guest is filtered from its first packet if its port's name is known before it starts. Traffic
// from other ports passes.
//
// Guests of one owner exchange any packets. Between owners only TCP and UDP to open ports pass, with the answers and
// with the ARP and neighbour discovery that they need; fragments and broadcasts do not pass. This holds on a bridge,
// and through the host as a router between bridges. The host itself, and machines beyond it, are not restricted.
//
// The rules are text for nft, because people can read, check and list this form.
package packetfilter

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"croft"
)

// Table is the packet filter of one cloud on this host.
type Table struct {
	Name   string // name of the nftables table
	Prefix string // prefix of the names of its ports; no other interface on the host has it
}

// TableOf returns the table of a partition.
func TableOf(p croft.PartitionID) Table {
	sum := sha256.Sum256([]byte(p))
	digits := hex.EncodeToString(sum[:])
	return Table{Name: "croft-" + digits[:12], Prefix: "cr" + digits[:5]}
}

// PortName returns the port name of a network card: the prefix and the distinguishing part of croft's MAC.
// Linux allows 15 characters.
func (t Table) PortName(mac net.HardwareAddr) string {
	return t.Prefix + hex.EncodeToString(mac[max(0, len(mac)-4):])
}

// Port connects a guest's network card to a host bridge.
type Port struct {
	Name string
	MAC  net.HardwareAddr
	// Own lists the addresses that the guest may use.
	Own []netip.Addr
	// Open4 and Open6: croft does not assign addresses of that protocol, as on a bridge into a LAN. The guest
	// may use all addresses except Rules.Kept.
	Open4, Open6 bool
	// Asks: the guest may request its IPv4 address by DHCP. With Open4 it always may.
	Asks bool
	// Owner identifies the project. Guests of one owner exchange any packets.
	Owner string
	// Reached lists the ports that guests of other owners reach.
	Reached []croft.OpenPort
}

// Rules is the content of a table.
type Rules struct {
	Ports  []Port
	Others []Port       // of other clouds' guests on this host
	Kept   []netip.Addr // forbidden to guests at open ports
}

// Replace installs the rules atomically. Unavailable: nftables rejects them, and the previous rules stay in force.
func (t Table) Replace(ctx context.Context, r Rules) error {
	return nft(ctx, t.script(r), "write the packet filter "+t.Name)
}

// Remove ends the filter: ports with its prefix send anything.
func (t Table) Remove(ctx context.Context) error {
	return nft(ctx, fmt.Sprintf("table bridge %s {}\ndelete table bridge %s\n", t.Name, t.Name),
		"remove the packet filter "+t.Name)
}

// Counts reports whether the table exists with these rules, as Replace wrote them.
func (t Table) Counts(ctx context.Context, r Rules) bool {
	program, err := find("nft")
	if err != nil {
		return false
	}
	out, err := exec.CommandContext(ctx, program, "-t", "list", "table", "bridge", t.Name).Output()
	return err == nil && bytes.Contains(out, []byte(digest(t.body(r))))
}

// Supported returns why this host cannot filter; nil: it can.
func Supported(ctx context.Context) error {
	t := Table{Name: "croft-try", Prefix: "crtry"}
	return nft(ctx, t.script(Rules{}), "try the packet filter", "--check")
}

// find returns the path of a program, including directories that a user's PATH may lack.
func find(program string) (string, error) {
	if path, err := exec.LookPath(program); err == nil {
		return path, nil
	}
	return exec.LookPath(filepath.Join("/usr/sbin", program))
}

func nft(ctx context.Context, script, what string, flags ...string) error {
	program, err := find("nft")
	if err != nil {
		return croft.Errorf(croft.Unavailable, "%s: there is no program nft: install nftables", what)
	}
	cmd := exec.CommandContext(ctx, program, append(flags, "--file", "-")...)
	cmd.Stdin = strings.NewReader(script)
	var words bytes.Buffer
	cmd.Stderr = &words
	err = cmd.Run()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return croft.Errorf(croft.Unavailable, "%s: %w", what, context.Cause(ctx))
	}
	first, _, _ := strings.Cut(strings.TrimSpace(words.String()), "\n")
	return croft.Errorf(croft.Unavailable, "%s: nft: %s (%w)", what, cmp.Or(first, "it said nothing"), err)
}

func (t Table) script(r Rules) string {
	body := t.body(r)
	return fmt.Sprintf("table bridge %[1]s {}\ndelete table bridge %[1]s\ntable bridge %[1]s {\n\tcomment %[2]q\n%[3]s}\n", t.Name, digest(body), body)
}

// digest identifies rules in the kernel.
func digest(body string) string {
	sum := sha256.Sum256([]byte(body))
	return "rules " + hex.EncodeToString(sum[:16])
}

// body returns the sets, which contain the addresses of each port, and the rules, which are constant.
func (t Table) body(r Rules) string {
	var macs, clients, own4, own6, targets, open4, open6, asks, kept4, kept6, keptTargets []string
	for _, p := range r.Ports {
		port := `"` + p.Name + `"`
		macs = append(macs, port+" . "+p.MAC.String())
		clients = append(clients, port+" . 0x"+hex.EncodeToString(p.MAC))
		if p.Open4 {
			open4 = append(open4, port)
		}
		if p.Open6 {
			open6 = append(open6, port)
		}
		if p.Open4 || p.Asks {
			asks = append(asks, port)
		}
		for _, a := range p.Own {
			if a.Is4() {
				own4 = append(own4, port+" . "+a.String())
			} else {
				own6 = append(own6, port+" . "+a.String())
				targets = append(targets, port+" . "+number(a))
			}
		}
	}
	for _, a := range r.Kept {
		if a.Is4() {
			kept4 = append(kept4, a.String())
		} else {
			kept6 = append(kept6, a.String())
			keptTargets = append(keptTargets, number(a))
		}
	}
	return set("macs", "type ifname . ether_addr", macs) +
		set("clients", "typeof iifname . @th,288,48", clients) +
		set("own4", "type ifname . ipv4_addr", own4) +
		set("own6", "type ifname . ipv6_addr", own6) +
		set("targets", "typeof iifname . @th,64,128", targets) +
		set("open4", "type ifname", open4) +
		set("open6", "type ifname", open6) +
		set("asks", "type ifname", asks) +
		set("kept4", "type ipv4_addr", kept4) +
		set("kept6", "type ipv6_addr", kept6) +
		set("kepttargets", "typeof @th,64,128", keptTargets) +
		owners(r) +
		strings.ReplaceAll(rules, "PREFIX", t.Prefix)
}

// owners returns the sets and chains that define which guests belong together, and which ports guests of other owners
// reach.
func owners(r Rules) string {
	var foreign, reached, all4, all6, chains, senders, routed []string
	service := map[string][]string{} // elements of the sets of open ports, by name
	members := map[string]*[3][]string{}
	for i, p := range slices.Concat(r.Ports, r.Others) {
		port := `"` + p.Name + `"`
		if i >= len(r.Ports) {
			foreign = append(foreign, port)
		} else {
			if members[p.Owner] == nil {
				members[p.Owner] = &[3][]string{}
			}
			members[p.Owner][0] = append(members[p.Owner][0], port)
		}
		if len(p.Reached) > 0 {
			reached = append(reached, port)
		}
		for _, o := range p.Reached {
			service[o.Protocol] = append(service[o.Protocol], fmt.Sprintf("%s . %d", port, o.Port))
		}
		for _, a := range p.Own {
			family, all := 1, &all4
			if a.Is6() {
				family, all = 2, &all6
			}
			if a.IsLinkLocalUnicast() {
				continue // the host does not forward to it
			}
			*all = append(*all, a.String())
			if i < len(r.Ports) {
				members[p.Owner][family] = append(members[p.Owner][family], a.String())
			}
			for _, o := range p.Reached {
				name := o.Protocol + map[int]string{1: "4", 2: "6"}[family]
				service[name] = append(service[name], fmt.Sprintf("%s . %d", a, o.Port))
			}
		}
	}
	for i, owner := range slices.Sorted(maps.Keys(members)) {
		m := members[owner]
		chains = append(chains, set(fmt.Sprintf("ports%d", i), "type ifname", m[0])+
			set(fmt.Sprintf("guests4_%d", i), "type ipv4_addr", m[1])+
			set(fmt.Sprintf("guests6_%d", i), "type ipv6_addr", m[2])+
			fmt.Sprintf(ownerChains, i))
		for _, port := range m[0] {
			senders = append(senders, fmt.Sprintf("%s : goto owner%d", port, i))
			routed = append(routed, fmt.Sprintf("%s : goto routed%d", port, i))
		}
	}
	const answers4 = "type ipv4_addr . inet_service . ipv4_addr . inet_service"
	const answers6 = "type ipv6_addr . inet_service . ipv6_addr . inet_service"
	const dynamic = "\n\t\tsize 524288\n\t\tflags dynamic,timeout\n\t\ttimeout 3m"
	return set("foreign", "type ifname", foreign) +
		set("reached", "type ifname", reached) +
		set("guests4", "type ipv4_addr", all4) +
		set("guests6", "type ipv6_addr", all6) +
		set("tcp_ports", "type ifname . inet_service", service["tcp"]) +
		set("udp_ports", "type ifname . inet_service", service["udp"]) +
		set("tcp_ports4", "type ipv4_addr . inet_service", service["tcp4"]) +
		set("tcp_ports6", "type ipv6_addr . inet_service", service["tcp6"]) +
		set("udp_ports4", "type ipv4_addr . inet_service", service["udp4"]) +
		set("udp_ports6", "type ipv6_addr . inet_service", service["udp6"]) +
		set("answers4", answers4+dynamic, nil) +
		set("answers6", answers6+dynamic, nil) +
		set("asking", "type ifname\n\t\tsize 65535\n\t\tflags dynamic,timeout\n\t\ttimeout 1m", nil) +
		betweenOwners +
		strings.Join(chains, "") +
		element("map", "senders", "type ifname : verdict", senders) +
		element("map", "routed", "type ifname : verdict", routed)
}

// ownerChains has the chains of one owner: for frames to another port of the bridge, and to the host as a router.
const ownerChains = `	chain owner%[1]d {
		oifname @ports%[1]d accept
		goto between
	}
	chain routed%[1]d {
		ip daddr @guests4_%[1]d accept
		ip6 daddr @guests6_%[1]d accept
		goto between
	}
`

// betweenOwners decides about packets from a guest of one owner to a guest of another. If the packet goes to the host
// as a router, the name of the outgoing port is empty and matches nothing.
//
// A TCP answer comes from an open port and has the flag ACK or RST, so that it opens no connection, and no scan without
// these flags passes. A UDP answer goes to an address from which a packet to the open port came within the last
// minutes; replacing the table clears this memory. Each port may start 200 such exchanges per second, so that no guest
// fills this memory for all others.
const betweenOwners = `	chain between {
		ether type ip ip frag-off & 0x1fff != 0 drop
		ether type ip6 frag frag-off != 0 drop
		ether type arp oifname @reached accept
		ether type arp iifname @reached accept
		icmpv6 type { 135, 136 } oifname @reached accept
		icmpv6 type { 135, 136 } iifname @reached accept
		oifname . tcp dport @tcp_ports accept
		ip daddr . tcp dport @tcp_ports4 accept
		ip6 daddr . tcp dport @tcp_ports6 accept
		iifname . tcp sport @tcp_ports tcp flags & (ack | rst) != 0 accept
		oifname . udp dport @udp_ports goto ask
		ip daddr . udp dport @udp_ports4 goto ask
		ip6 daddr . udp dport @udp_ports6 goto ask
		ip daddr . udp dport . ip saddr . udp sport @answers4 accept
		ip6 daddr . udp dport . ip6 saddr . udp sport @answers6 accept
		drop
	}
	chain ask {
		ip saddr . udp sport . ip daddr . udp dport @answers4 goto again
		ip6 saddr . udp sport . ip6 daddr . udp dport @answers6 goto again
		update @asking { iifname limit rate over 200/second burst 1000 packets } drop
		goto again
	}
	chain again {
		update @answers4 { ip saddr . udp sport . ip daddr . udp dport } accept
		update @answers6 { ip6 saddr . udp sport . ip6 daddr . udp dport } accept
		drop
	}
`

// number returns an address in nft's notation for packet parts without a name.
func number(a netip.Addr) string {
	b := a.As16()
	return "0x" + hex.EncodeToString(b[:])
}

func set(name, kind string, elements []string) string { return element("set", name, kind, elements) }

// element returns a set or a map.
func element(what, name, kind string, elements []string) string {
	text := "\t" + what + " " + name + " {\n\t\t" + kind + "\n"
	slices.Sort(elements)
	if elements = slices.Compact(elements); len(elements) > 0 {
		text += "\t\telements = { " + strings.Join(elements, ",\n\t\t\t") + " }\n"
	}
	return text + "\t}\n"
}

// rules accept permitted frames and drop the rest. A header that is truncated or lies in a later fragment does not
// match: later fragments pass, but the first fragment, without which they are useless, must show its headers.
//
// Only ARP, IPv4 and IPv6 pass, all without a VLAN tag. No guest may act as a DHCP server or IPv6 router, or send
// redirects.
//
// No guest may act as a multicast router (PIM, 103) or send queries for members of multicast groups. After a query the
// bridge forwards multicasts to known members alone. Guests of other projects do not see the query and report nothing,
// so neighbour discovery would no longer find them.
//
// A DHCP server identifies a client by the MAC in the message (chaddr). The chain to_dhcp passes only requests for the
// guest's own MAC that come through no relay (giaddr). Options have no fixed place in the message and are not read,
// so a guest can send the client identifier of another guest.
const rules = `	chain bridged {
		type filter hook forward priority -350; policy accept
		oifname != "PREFIX*" accept
		iifname vmap @senders
		iifname @foreign goto between
	}
	chain through_host {
		type filter hook input priority -350; policy accept
		iifname != "PREFIX*" accept
		ip daddr @guests4 iifname vmap @routed
		ip6 daddr @guests6 iifname vmap @routed
	}
	chain ports {
		type filter hook prerouting priority -350; policy accept
		iifname != "PREFIX*" accept
		iifname . ether saddr != @macs drop
		ether type arp goto from_arp
		ether type ip goto from_ipv4
		ether type ip6 goto from_ipv6
		drop
	}
	chain from_arp {
		arp htype != 1 drop
		arp ptype != ip drop
		arp hlen != 6 drop
		arp plen != 4 drop
		iifname . arp saddr ether != @macs drop
		iifname . arp saddr ip @own4 accept
		arp saddr ip 0.0.0.0 iifname . arp daddr ip @own4 accept
		iifname @open4 arp saddr ip 0.0.0.0 arp daddr ip @kept4 drop
		iifname @open4 arp saddr ip != @kept4 accept
		drop
	}
	chain from_ipv4 {
		ip protocol udp jump from_udp
		ip protocol igmp jump from_igmp
		ip protocol 103 drop
		ip frag-off & 0x1fff == 0 udp dport 67 jump to_dhcp
		iifname . ip saddr @own4 accept
		ip saddr 0.0.0.0 ip daddr 255.255.255.255 udp sport 68 udp dport 67 iifname @asks accept
		iifname @open4 ip saddr != 0.0.0.0 ip saddr != @kept4 accept
		drop
	}
	chain from_ipv6 {
		meta l4proto 103 drop
		meta l4proto != 255 goto read_ipv6
		drop
	}
	chain read_ipv6 {
		meta l4proto udp jump from_udp
		meta l4proto icmpv6 jump from_icmpv6
		iifname . ip6 saddr @own6 accept
		ip6 saddr :: icmpv6 type { 131, 132, 143 } accept
		ip6 saddr :: icmpv6 type 135 iifname . @th,64,128 @targets accept
		ip6 saddr :: icmpv6 type 135 iifname @open6 @th,64,128 != @kepttargets accept
		iifname @open6 ip6 saddr != :: ip6 saddr != @kept6 accept
		drop
	}
	chain from_udp {
		udp sport != { 67, 547 } return
		ether type ip ip frag-off & 0x1fff != 0 return
		ether type ip6 frag frag-off != 0 return
		drop
	}
	chain from_igmp {
		igmp type { 0x12, 0x16, 0x17, 0x22 } return
		drop
	}
	chain to_dhcp {
		@th,64,24 != 0x010106 drop
		@th,256,32 != 0 drop
		iifname . @th,288,48 @clients return
		drop
	}
	chain from_icmpv6 {
		icmpv6 type 136 iifname . @th,64,128 @targets return
		icmpv6 type 136 iifname @open6 @th,64,128 != @kepttargets return
		icmpv6 type != { 130, 134, 136, 137, 151, 153 } return
		frag frag-off != 0 return
		drop
	}
`

// noLinkLocalLearn is the kernel's BR_BOOLOPT_NO_LL_LEARN.
const noLinkLocalLearn = 1 << 0

// LearnNothingUnfiltered keeps a bridge from learning MAC locations from frames of bridge protocols, such as STP. The
// kernel passes those to no packet filter: with one of them a guest could redirect another guest's traffic to itself.
//
// NotFound: there is no such bridge.
func LearnNothingUnfiltered(bridge string) error {
	link, err := netlink.LinkByName(bridge)
	if _, absent := errors.AsType[netlink.LinkNotFoundError](err); absent {
		return croft.Errorf(croft.NotFound, "there is no network interface %s", bridge)
	}
	if err != nil {
		return fmt.Errorf("find the bridge %s: %w", bridge, err)
	}
	req := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_ACK)
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(link.Attrs().Index)
	req.AddData(msg)
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("bridge"))
	options := binary.NativeEndian.AppendUint32(nil, noLinkLocalLearn)    // the values
	options = binary.NativeEndian.AppendUint32(options, noLinkLocalLearn) // the mask of options to change
	info.AddRtAttr(nl.IFLA_INFO_DATA, nil).AddRtAttr(unix.IFLA_BR_MULTI_BOOLOPT, options)
	req.AddData(info)
	if _, err := req.Execute(unix.NETLINK_ROUTE, 0); err != nil {
		return fmt.Errorf("keep the bridge %s from learning from unfiltered frames: %w", bridge, err)
	}
	return nil
}
