package nft_test

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"go4.org/netipx"

	"croft"
	"croft/grid/ipam/nft"
	"croft/grid/ipam/setexpr"
)

// set evaluates an expression of literals.
func set(t testing.TB, text string) *netipx.IPSet {
	t.Helper()
	x, err := setexpr.Parse(text, "", 1)
	if err != nil {
		t.Fatal(err)
	}
	s, err := setexpr.NewEvaluator(nil).Eval(x)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func script(t testing.TB, table nft.Table) string {
	t.Helper()
	text, err := table.Script()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

const cluster = "0123456789abcdef0123456789abcdef"

func TestNothingManagedIsNoTable(t *testing.T) {
	want := "add table inet fission_01234567\ndelete table inet fission_01234567\n"
	rule := nft.Rule{Name: "a", From: set(t, "all4"), To: set(t, "all4"), Protocol: nft.Any}
	for name, table := range map[string]nft.Table{
		"no rule":         {Cluster: cluster, Managed: set(t, "10.0.0.1")},
		"nothing managed": {Cluster: cluster, Managed: set(t, "none"), Rules: []nft.Rule{rule}},
	} {
		if got := script(t, table); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
	if nft.Name("") != "fission_00000000" {
		t.Errorf("without a cluster it is %s", nft.Name(""))
	}
}

func TestATableHasOnlyWhatItsMachineNeeds(t *testing.T) {
	got := script(t, nft.Table{Cluster: cluster, Managed: set(t, "10.0.0.5 | 10.0.0.6"), Rules: []nft.Rule{
		{Name: "elsewhere", From: set(t, "172.16.0.0/12"), To: set(t, "10.0.0.7"), Protocol: nft.Any},
		{Name: "in", From: set(t, "172.16.0.1 | 172.16.0.3"), To: set(t, "10.0.0.6-10.0.0.9"), Protocol: nft.TCP},
		{Name: "same", From: set(t, "172.16.0.1 | 172.16.0.3"), To: set(t, "10.0.0.5"), Protocol: nft.UDP},
		{Name: "out", From: set(t, "10.0.0.0/24 | 2001:db8::/32"), To: set(t, "all4 | all6"), Protocol: nft.ICMP},
	}})
	for _, without := range []string{"elsewhere", "172.16.0.0/12", "10.0.0.7", "10.0.0.8", "2001:db8"} {
		if strings.Contains(got, without) {
			t.Errorf("it has %s:\n%s", without, got)
		}
	}
	for _, with := range []string{
		"ip saddr @s1 ip daddr 10.0.0.6 meta l4proto tcp counter accept comment \"in\"",
		"ip saddr @s1 ip daddr 10.0.0.5 meta l4proto udp counter accept comment \"same\"",
		"ip daddr 10.0.0.5-10.0.0.6",
	} {
		if with = strings.ReplaceAll(with, "ip daddr 10.0.0.5-10.0.0.6",
			"ip daddr @s2 goto access"); !strings.Contains(got,
			with) {
			t.Errorf("it lacks %s:\n%s", with, got)
		}
	}
}

// No name, wherever it comes from, can inject nft syntax.
func TestHostileNamesAreNoSyntax(t *testing.T) {
	for _, name := range []string{`a"; flush ruleset; "`, "a\nflush ruleset", "a b", "", "A", `\"`, "é",
		strings.Repeat("a", 64), "-a", "$x"} {
		table := nft.Table{Cluster: cluster, Managed: set(t, "10.0.0.1"),
			Rules: []nft.Rule{{Name: name, From: set(t, "all4"), To: set(t, "all4"), Protocol: nft.Any}}}
		if text, err := table.Script(); croft.KindOf(err) != croft.Invalid || text != "" {
			t.Errorf("the name %q gives %s, %v", name, text, err)
		}
		table.Rules[0].Name, table.Rules[0].Protocol = "a", name
		if _, err := table.Script(); croft.KindOf(err) != croft.Invalid {
			t.Errorf("the protocol %q: %v", name, err)
		}
		table.Rules[0].Protocol, table.Cluster = nft.Any, name+strings.Repeat("0\"", 8)
		if _, err := table.Script(); croft.KindOf(err) != croft.Invalid {
			t.Errorf("the cluster %q: %v", table.Cluster, err)
		}
	}
}

func TestARuleAllowsAsItsTextSays(t *testing.T) {
	r := nft.Rule{From: set(t, "10.0.0.0/24"), To: set(t, "10.0.1.0/24"), Protocol: nft.TCP,
		Ports: []nft.Ports{{First: 80, Last: 80}, {First: 8000, Last: 8100}}}
	for _, c := range []struct {
		from, to, proto string
		port            uint16
		want            bool
	}{
		{"10.0.0.1", "10.0.1.1", nft.TCP, 80, true},
		{"10.0.0.1", "10.0.1.1", nft.TCP, 8100, true},
		{"10.0.0.1", "10.0.1.1", nft.TCP, 8101, false},
		{"10.0.0.1", "10.0.1.1", nft.UDP, 80, false},
		{"10.0.1.1", "10.0.0.1", nft.TCP, 80, false},
	} {
		p := nft.Packet{From: netip.MustParseAddr(c.from), To: netip.MustParseAddr(c.to), Protocol: c.proto,
			Port: c.port}
		if got := r.Allows(p); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// many returns a set of n prefixes of which no two can be merged.
func many(t testing.TB, n int) *netipx.IPSet {
	var b netipx.IPSetBuilder
	for i := range n {
		b.AddPrefix(netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(11 + i>>16), byte(i >> 8), byte(i), 0}), 25))
	}
	s, err := b.IPSet()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestAnyRulesAreReadByNft lets nft check tables of all kinds.
func TestAnyRulesAreReadByNft(t *testing.T) {
	w := newWorld(t)
	var rules []nft.Rule
	for i, from := range []string{"all4 | all6", "10.0.0.5", "10.0.0.0/24 | 2001:db8::/64", "192.0.2.1 | 192.0.2.9"} {
		for _, to := range []string{"all4", "all6", "10.0.0.5 | 10.0.0.9 | 2001:db8:2::5", "pool"} {
			if to == "pool" {
				to = "10.0.0.0/24"
			}
			for _, proto := range []string{nft.Any, nft.TCP, nft.UDP, nft.ICMP} {
				r := nft.Rule{Name: fmt.Sprintf("r%d", i), From: set(t, from), To: set(t, to), Protocol: proto,
					Log: i%2 == 0}
				if proto == nft.TCP || proto == nft.UDP {
					r.Ports = []nft.Ports{{First: 80, Last: 90}, {First: 85, Last: 100}, {First: 101, Last: 101},
						{First: 7, Last: 7},
						{First: 65535, Last: 65535}}
				}
				rules = append(rules, r)
			}
		}
	}
	for _, managed := range []string{"10.0.0.5", "10.0.0.4-10.0.0.9 | 2001:db8:2::5", "all4 | all6", "10.0.0.0/16",
		"2001:db8::/64"} {
		w.load(t, nft.Table{Cluster: cluster, Managed: set(t, managed), Rules: rules, LogDrop: true, SSHPort: 22,
			SSH: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:22"),
				netip.MustParseAddrPort("[2001:db8:1::1]:2222")}})
	}
	out, err := exec.Command("ip", "netns", "exec", w.name("node"), "nft", "list", "tables").CombinedOutput()
	if err != nil || strings.Count(string(out), "\n") != 1 {
		t.Errorf("there are tables %s, %v", out, err)
	}
	w.load(t, nft.Table{Cluster: cluster})
	out, err = exec.Command("ip", "netns", "exec", w.name("node"), "nft", "list", "tables").CombinedOutput()
	if err != nil || len(out) != 0 {
		t.Errorf("after the end there are tables %s, %v", out, err)
	}
}

func TestWhatNftRefusesIsTold(t *testing.T) {
	w := newWorld(t)
	w.in(t, "node", func() {
		if err := nft.Check(t.Context(),
			"add rule inet nowhere none accept\n"); croft.KindOf(err) != croft.Unavailable ||
			!strings.Contains(err.Error(), "check the rules: nft: ") {
			t.Errorf("it says %v", err)
		}
		if err := nft.Check(t.Context(), script(t, nft.Table{})); err != nil {
			t.Errorf("an empty table: %v", err)
		}
	})
}

// BenchmarkScript has access rules with a set of 10,000 prefixes, also as nft loads it.
func BenchmarkScript(b *testing.B) {
	table := nft.Table{Cluster: cluster, Managed: set(b, "10.0.0.0/28"), Rules: []nft.Rule{
		{Name: "a", From: many(b, 10_000), To: set(b, "10.0.0.0/24"), Protocol: nft.Any}}}
	b.Run("write", func(b *testing.B) {
		for b.Loop() {
			_ = script(b, table)
		}
	})
	b.Run("load", func(b *testing.B) {
		w := newWorld(b)
		for b.Loop() {
			w.load(b, table)
		}
	})
}
