package foreign_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"croft"
	"croft/grid/ipam/foreign"
	"croft/grid/ipam/setexpr"
)

func record(prefix, owner string, tags []string, facts map[string]string, at string) foreign.Record {
	if facts == nil {
		facts = map[string]string{}
	}
	return foreign.Record{Prefix: netip.MustParsePrefix(prefix), Owner: owner, Tags: tags, Facts: facts, At: at}
}

func TestLists(t *testing.T) {
	for _, c := range []struct {
		name, format, text string
		want               []foreign.Record
	}{
		{"a table with commas", foreign.CSV, "name,address\nweb,10.0.0.1\n",
			[]foreign.Record{record("10.0.0.1/32", "", nil, map[string]string{"name": "web"}, "line 2")}},
		{"with semicolons, quotes and a mark of the byte order", foreign.CSV,
			"\ufeffIP Address;Description;Tags\n10.0.0.1/24;\"a; b\nc\";x,y z\n",
			[]foreign.Record{record("10.0.0.1/32", "", []string{"x", "y", "z"},
				map[string]string{"description": "a; b\nc"},
				"line 2")}},
		{"with tabs and prefixes", foreign.CSV, "prefix\trole\n10.0.0.0/8\tlan\n2001:db8::/32\t\n", []foreign.Record{
			record("10.0.0.0/8", "", nil, map[string]string{"role": "lan"}, "line 2"),
			record("2001:db8::/32", "", nil, nil, "line 3")}},
		{"leases of Kea", foreign.CSV, "address,hwaddr,hostname,state\n192.0.2.1,02:00:00:00:00:01,a.example,0\n",
			[]foreign.Record{record("192.0.2.1/32", "", nil,
				map[string]string{"hwaddr": "02:00:00:00:00:01", "hostname": "a.example", "state": "0"}, "line 2")}},
		{"owners", foreign.CSV, "ip,owner\n10.0.0.1,web/0\n", []foreign.Record{record("10.0.0.1/32", "web/0", nil, nil,
			"line 2")}},
		{"a list of objects", foreign.JSON, `[{"address":"::ffff:10.0.0.1","n":7,"tags":["A b"],"id":3}]`,
			[]foreign.Record{record("10.0.0.1/32", "", []string{"a_b"}, map[string]string{"n": "7"}, "item 1")}},
		{"Kea's answer", foreign.JSON,
			`{"arguments":{"leases":[{"ip-address":"x","ip_address":"10.0.0.1"}]},"result":0}`,
			[]foreign.Record{record("10.0.0.1/32", "", nil, map[string]string{"ip-address": "x"}, "item 1")}},
		{"prefixes of NetBox", foreign.JSON, `{"results":[{"prefix":"10.0.0.0/8","site":{"slug":"syd"},"vlan":null}]}`,
			[]foreign.Record{record("10.0.0.0/8", "", nil, map[string]string{"site": "syd"}, "item 1")}},
		{"addresses of ip -j addr", foreign.JSON, `[{"ifname":"lo","addr_info":[{"local":"127.0.0.1","scope":"host"}]},
			{"ifname":"e0","address":"02:00:00:00:00:01","addr_info":[{"local":"2001:db8::1","scope":"global"}]}]`,
			[]foreign.Record{record("2001:db8::1/128", "", nil,
				map[string]string{"interface": "e0", "mac": "02:00:00:00:00:01"}, "item 2")}},
		{"dnsmasq", foreign.Dnsmasq, "1700000000 02:00:00:00:00:01 10.0.0.1 web *\n0 02:00:00:00:00:02 10.0.0.2 * *\n" +
			"duid 00:01\n1700000000 123 2001:db8::1 web6 00:01\n", []foreign.Record{
			record("10.0.0.1/32", "", nil, map[string]string{"mac": "02:00:00:00:00:01", "name": "web"}, "line 1"),
			record("10.0.0.2/32", "", nil, map[string]string{"mac": "02:00:00:00:00:02"}, "line 2"),
			record("2001:db8::1/128", "", nil, map[string]string{"name": "web6"}, "line 4")}},
		{"dhcpd, a log of which the last counts", foreign.Dhcpd,
			"lease 10.0.0.1 {\n  binding state active;\n}\nlease 10.0.0.2 {\n  binding state free;\n}\n" +
				"lease 10.0.0.1 {\n  binding state active;\n  client-hostname \"b\";\n}\n",
			[]foreign.Record{record("10.0.0.1/32", "", nil, map[string]string{"name": "b"}, "line 7")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			format, err := foreign.Guess([]byte(c.text))
			if err != nil || format != c.format {
				t.Errorf("it looks like %s, %v", format, err)
			}
			got, err := foreign.Read([]byte(c.text), c.format)
			if diff := cmp.Diff(c.want, got, cmp.Comparer(func(a,
				b netip.Prefix) bool {
				return a == b
			})); err != nil || diff != "" {
				t.Errorf("%v\n%s", err, diff)
			}
		})
	}
}

func TestListsThatAreNone(t *testing.T) {
	for _, c := range []struct{ name, format, text, want string }{
		{"an empty table", foreign.CSV, "", "the list is empty"},
		{"a table without addresses", foreign.CSV, "a,b\n1,2\n", "line 1: no column is called address or prefix"},
		{"a line too short", foreign.CSV, "address,b\n10.0.0.1\n", "record on line 2: wrong number of fields"},
		{"no address", foreign.CSV, "address\nx\n", `line 2: "x" is no address`},
		{"a prefix with more bits", foreign.CSV, "prefix\n10.0.0.1/8\n",
			"line 2: 10.0.0.1/8 has bits beyond its length"},
		{"a tag that can be none", foreign.CSV, "address,tags\n10.0.0.1,-\n", `line 2: "-" cannot be a tag`},
		{"half of an object", foreign.JSON, `[{"address":`, "JSON: unexpected EOF"},
		{"two values", foreign.JSON, `[] []`, "JSON: more than one value"},
		{"no list", foreign.JSON, `{"a":1}`, "JSON: want a list of objects"},
		{"a list of texts", foreign.JSON, `["10.0.0.1"]`, "item 1: want an object"},
		{"an object without an address", foreign.JSON, `[{"a":1}]`,
			`item 1: no key is called address or prefix: there are ["a"]`},
		{"a page of many", foreign.JSON, `{"next":"http://x","results":[]}`, "one page of several"},
		{"a line of something else", foreign.Dnsmasq, "hello\n", "line 1: want a lease of dnsmasq"},
		{"a lease without an end", foreign.Dhcpd, "lease 10.0.0.1 {\n", "line 1: the lease has no end"},
		{"a lease of no address", foreign.Dhcpd, "lease x {\n}\n", `line 1: "x" is no address`},
		{"UTF-16", foreign.CSV, "\xff\xfea\x00", "in UTF-16: save it as UTF-8"},
		{"not UTF-8", foreign.CSV, "address\n\xff", "not in UTF-8"},
		{"no format", "xml", "", `format "xml" is not one of`},
	} {
		_, err := foreign.Read([]byte(c.text), c.format)
		if croft.KindOf(err) != croft.Invalid || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: it says %v, want %s", c.name, err, c.want)
		}
	}
}

// FuzzRead checks that the records of any list can be stored.
func FuzzRead(f *testing.F) {
	for _, text := range []string{"address,tags\n10.0.0.1,a b", `[{"address":"10.0.0.1","tags":[{"slug":"x"}]}]`,
		"1 02:00:00:00:00:01 10.0.0.1 web *", "lease 10.0.0.1 {\n binding state active;\n}\n",
		`[{"addr_info":[{"local":"::1"}]}]`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, format := range foreign.Formats {
			all, err := foreign.Read([]byte(text), format)
			if err != nil {
				if croft.KindOf(err) != croft.Invalid {
					t.Fatalf("%s %q: %v", format, text, err)
				}
				continue
			}
			for _, r := range all {
				if !r.Prefix.IsValid() || r.Prefix.Masked() != r.Prefix || r.Prefix.Addr().Is4In6() &&
					r.Prefix.Bits() >= 96 {
					t.Fatalf("%s %q: %v", format, text, r)
				}
				for _, tag := range r.Tags {
					if !setexpr.NameForm.MatchString(tag) {
						t.Fatalf("%s %q: the tag %q", format, text, tag)
					}
				}
				for k, v := range r.Facts {
					if !setexpr.NameForm.MatchString(k) || v == "" {
						t.Fatalf("%s %q: %q is %q", format, text, k, v)
					}
				}
			}
		}
	})
}
