// Package nft writes access rules as an nftables table for one machine: one table of the family inet, which is replaced
// in one transaction.
//
// The table filters only packets from and to the managed addresses. A packet passes if a rule allows it, or if it is a
// reply in an allowed connection. Removing a rule ends the connections that it allowed. IPv6 neighbor discovery passes,
// and so does ssh to the addresses at which the machine itself is managed.
//
// User-defined names appear only in comments and log prefixes, and are checked, so they cannot inject nft syntax.
package nft

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"go4.org/netipx"

	"croft"
	"croft/grid/ipam/setexpr"
	"croft/internal/lazyregexp"
)

// The protocols of rules.
const (
	TCP  = "tcp"
	UDP  = "udp"
	ICMP = "icmp" // ICMP of IPv4 and of IPv6
	Any  = "any"
)

// Ports is a range of ports, each from 0 to 65535, including both ends.
type Ports struct{ First, Last uint16 }

func (p Ports) String() string {
	if p.First == p.Last {
		return fmt.Sprint(p.First)
	}
	return fmt.Sprintf("%d-%d", p.First, p.Last)
}

// A Rule allows connections from one set of addresses to another.
type Rule struct {
	Name     string
	From, To *netipx.IPSet
	Protocol string  // TCP, UDP, ICMP or Any
	Ports    []Ports // destination ports, for TCP and UDP; empty: all
	Log      bool    // log each new connection
}

// Table is the packet filter of one machine.
type Table struct {
	Cluster string        // the cluster's id; empty: the cluster has none
	Managed *netipx.IPSet // the addresses whose packets are filtered
	SSH     []netip.AddrPort
	SSHPort uint16 // port for ssh at every local address, if SSH cannot list the addresses; 0: none
	Rules   []Rule
	LogDrop bool // log dropped packets, at most 10 per second
}

// Name returns the name of a cluster's tables.
func Name(cluster string) string {
	if len(cluster) < 8 {
		cluster = "00000000"
	}
	return "fission_" + cluster[:8]
}

// clusterForm is the form of a cluster's id, which may be empty.
var clusterForm = lazyregexp.New(`^([0-9a-f]{32})?$`)

// plainName is the form of names that are safe within quotes.
var plainName = lazyregexp.New(`^[a-z0-9][a-z0-9._-]{0,62}$`)

// Script returns an nft script that replaces the table in one transaction, whatever the table was before. Without
// managed addresses or rules, the script removes the table. Invalid: a name or protocol is not valid.
func (t Table) Script() (string, error) {
	name := Name(t.Cluster)
	if !clusterForm.MatchString(t.Cluster) {
		return "", croft.Errorf(croft.Invalid, "%q is no id of a cluster", t.Cluster)
	}
	head := fmt.Sprintf("add table inet %[1]s\ndelete table inet %[1]s\n", name)
	if t.Managed == nil || len(t.Managed.Ranges()) == 0 || len(t.Rules) == 0 {
		return head, nil
	}
	w := writer{sets: map[string]string{}}
	var allow strings.Builder
	for _, r := range t.Rules {
		if !plainName.MatchString(r.Name) || !slices.Contains([]string{TCP, UDP, ICMP, Any}, r.Protocol) {
			return "", croft.Errorf(croft.Invalid, "access rule %q: its name or protocol %q is none", r.Name,
				r.Protocol)
		}
		if err := w.rule(&allow, r, t.Managed); err != nil {
			return "", err
		}
	}
	filter := w.filter(t)
	var b strings.Builder
	fmt.Fprintf(&b, "%stable inet %s {\n", head, name)
	for _, s := range w.order {
		b.WriteString(s)
	}
	for _, hook := range []string{"input", "forward", "output"} {
		fmt.Fprintf(&b,
			"\tchain %[1]s {\n\t\ttype filter hook %[1]s priority filter; policy accept;\n\t\tjump filter\n\t}\n",
			hook)
	}
	fmt.Fprintf(&b, "\tchain filter {\n%s\t}\n\tchain access {\n%s", filter, allow.String())
	if t.LogDrop {
		fmt.Fprintf(&b, "\t\tlimit rate 10/second log prefix \"%s drop: \"\n", name)
	}
	b.WriteString("\t\tcounter drop\n\t}\n}\n")
	return b.String(), nil
}

// writer collects the sets that rules refer to, each once.
type writer struct {
	sets  map[string]string // names of sets by their definitions
	order []string
}

// two lists the words of nft for IPv4 and IPv6.
var two = []struct{ four, proto, kind, icmp string }{
	{"4", "ip", "ipv4_addr", "icmp"}, {"6", "ip6", "ipv6_addr", "ipv6-icmp"},
}

// set defines a set unless an equal one exists, and returns the reference to it.
func (w *writer) set(kind string, elements []string) string {
	text := fmt.Sprintf("\t\ttype %s\n\t\tflags interval\n\t\tauto-merge\n\t\telements = { %s }\n", kind,
		strings.Join(elements, ",\n\t\t\t"))
	if strings.Contains(kind, " . ") {
		text = fmt.Sprintf("\t\ttype %s\n\t\telements = { %s }\n", kind, strings.Join(elements, ",\n\t\t\t"))
	}
	if name := w.sets[text]; name != "" {
		return "@" + name
	}
	name := fmt.Sprintf("s%d", len(w.sets)+1)
	w.sets[text] = name
	w.order = append(w.order, fmt.Sprintf("\tset %s {\n%s\t}\n", name, text))
	return "@" + name
}

// half returns the prefixes of one family in a set.
func half(s *netipx.IPSet, four bool) []netip.Prefix {
	a, b := setexpr.Prefixes(s)
	if four {
		return a
	}
	return b
}

// match returns the nft condition that an address is in a set. The condition is empty if the set has all addresses of
// the family. The result is false if the set is empty.
func (w *writer) match(proto, side, kind string, all []netip.Prefix) (string, bool) {
	switch {
	case len(all) == 0:
		return "", false
	case all[0].Bits() == 0:
		return "", true
	case len(all) == 1:
		return fmt.Sprintf("%s %s %s ", proto, side, element(all[0])), true
	}
	var elements []string
	for _, p := range all {
		elements = append(elements, element(p))
	}
	return fmt.Sprintf("%s %s %s ", proto, side, w.set(kind, elements)), true
}

func element(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// answers is the condition that excludes packets that open a connection. It prevents connections from the ssh port.
const answers = "tcp flags & (syn | ack) != syn"

// filter returns the chain that sends the packets of managed addresses to the rules.
func (w *writer) filter(t Table) string {
	b := &strings.Builder{}
	b.WriteString("\t\tct state related accept\n\t\tct state established ct direction reply accept\n" +
		"\t\ticmpv6 type { nd-router-solicit, nd-router-advert, nd-neighbor-solicit, nd-neighbor-advert, " +
		"mld-listener-query, mld-listener-report, mld-listener-done, mld2-listener-report } accept\n")
	for _, at := range t.SSH {
		proto := two[0].proto
		if at.Addr().Is6() {
			proto = two[1].proto
		}
		fmt.Fprintf(b, "\t\t%s daddr %s tcp dport %d accept\n\t\t%[1]s saddr %[2]s tcp sport %[3]d %s accept\n", proto,
			at.Addr(), at.Port(), answers)
	}
	if t.SSHPort != 0 {
		fmt.Fprintf(b,
			"\t\tfib daddr type local tcp dport %d accept\n\t\tfib saddr type local tcp sport %[1]d %s accept\n",
			t.SSHPort, answers)
	}
	for i, f := range two {
		managed := half(t.Managed, i == 0)
		to, some := w.match(f.proto, "daddr", f.kind, managed)
		if !some {
			continue
		}
		from, _ := w.match(f.proto, "saddr", f.kind, managed)
		if own := ownElements(managed); own != nil {
			fmt.Fprintf(b, "\t\t%s saddr . %[1]s daddr %s accept comment \"to itself\"\n", f.proto,
				w.set(f.kind+" . "+f.kind, own))
		}
		fmt.Fprintf(b, "\t\t%sgoto access\n\t\t%sgoto access\n", protoIfAll(to, f.four), protoIfAll(from, f.four))
	}
	return b.String()
}

// protoIfAll limits a rule about all addresses of a family to that family.
func protoIfAll(match, family string) string {
	if match != "" {
		return match
	}
	return "meta nfproto ipv" + family + " "
}

// ownElements returns each managed address as a pair with itself, to match packets that a machine sends to its own
// address. nil: a managed prefix has more than 256 addresses.
func ownElements(managed []netip.Prefix) []string {
	var all []string
	for _, p := range managed {
		if p.Addr().BitLen()-p.Bits() > 8 {
			// A whole network is managed on a router, for example. It does not see packets of a machine to itself.
			return nil
		}
		for a := p.Addr(); a.IsValid() && p.Contains(a); a = a.Next() {
			all = append(all, a.String()+" . "+a.String())
		}
	}
	return all
}

// rule writes the statements for one rule, restricted to packets whose source or destination is a managed address.
func (w *writer) rule(b *strings.Builder, r Rule, managed *netipx.IPSet) error {
	toUs, err := both(r.To, managed)
	if err != nil {
		return err
	}
	fromUs, err := both(r.From, managed)
	if err != nil {
		return err
	}
	for i, f := range two {
		for j, way := range []struct{ from, to *netipx.IPSet }{{r.From, toUs}, {fromUs, r.To}} {
			from, to := half(way.from, i == 0), half(way.to, i == 0)
			if len(from) == 0 || len(to) == 0 || j == 1 && slices.Equal(to, half(toUs, i == 0)) {
				continue // no packets, or the same packets as in the first iteration
			}
			sender, _ := w.match(f.proto, "saddr", f.kind, from)
			receiver, _ := w.match(f.proto, "daddr", f.kind, to)
			match := sender + receiver
			if match == "" {
				match = "meta nfproto ipv" + f.four + " "
			}
			match += protocol(r, f.icmp)
			if r.Log {
				fmt.Fprintf(b, "\t\t%sct state new log prefix \"%s: \"\n", match, r.Name)
			}
			fmt.Fprintf(b, "\t\t%scounter accept comment \"%s\"\n", match, r.Name)
		}
	}
	return nil
}

func both(a, b *netipx.IPSet) (*netipx.IPSet, error) {
	var c netipx.IPSetBuilder
	c.AddSet(a)
	c.Intersect(b)
	return c.IPSet()
}

func protocol(r Rule, icmp string) string {
	switch r.Protocol {
	case ICMP:
		return "meta l4proto " + icmp + " "
	case TCP, UDP:
		if len(r.Ports) == 0 {
			return "meta l4proto " + r.Protocol + " "
		}
		var ports []string
		for _, p := range merged(r.Ports) {
			ports = append(ports, p.String())
		}
		return fmt.Sprintf("%s dport { %s } ", r.Protocol, strings.Join(ports, ", "))
	}
	return ""
}

// merged returns the same ports in ranges that do not overlap, because nft refuses overlapping ranges.
func merged(all []Ports) []Ports {
	all = slices.SortedFunc(slices.Values(all), func(a, b Ports) int { return int(a.First) - int(b.First) })
	var apart []Ports
	for _, p := range all {
		if last := len(apart) - 1; last >= 0 && int(p.First) <= int(apart[last].Last)+1 {
			apart[last].Last = max(apart[last].Last, p.Last)
		} else {
			apart = append(apart, p)
		}
	}
	return apart
}

// Check lets nft check a script, without changing anything. Unavailable: nft is not installed, lacks permissions, or
// refuses the script.
func Check(ctx context.Context, script string) error {
	program, err := exec.LookPath("nft")
	if err != nil {
		if program, err = exec.LookPath(filepath.Join("/usr/sbin", "nft")); err != nil {
			return croft.Errorf(croft.Unavailable, "check the rules: there is no program nft: install nftables")
		}
	}
	cmd := exec.CommandContext(ctx, program, "--check", "--file", "-")
	cmd.Stdin = strings.NewReader(script)
	var words bytes.Buffer
	cmd.Stderr = &words
	if err := cmd.Run(); err != nil {
		first, _, _ := strings.Cut(strings.TrimSpace(words.String()), "\n")
		return croft.Errorf(croft.Unavailable, "check the rules: nft: %s (%w)", cmp.Or(first, "it said nothing"), err)
	}
	return nil
}

// Packet is the first packet of a connection.
type Packet struct {
	From, To netip.Addr
	Protocol string // TCP, UDP or ICMP
	Port     uint16 // destination port, for TCP and UDP
}

// Allows reports whether a rule lets a packet pass.
func (r Rule) Allows(p Packet) bool {
	if !r.From.Contains(p.From) || !r.To.Contains(p.To) || r.Protocol != Any && r.Protocol != p.Protocol {
		return false
	}
	return len(r.Ports) == 0 || slices.ContainsFunc(r.Ports, func(ports Ports) bool {
		return ports.First <= p.Port && p.Port <= ports.Last
	})
}
