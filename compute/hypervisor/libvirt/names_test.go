package libvirt

import (
	"fmt"
	"net/netip"
	"testing"

	"croft"
	"croft/compute"
)

// named returns a domain with an address on the network n.
func named(name, project, addr string) domain {
	return domain{Domain: compute.Domain{Ordered: compute.Ordered{Name: name, Project: croft.Project(project)}},
		nics: []markNIC{{Network: "n", Address: addr}}}
}

func TestNamesAreThoseOfTheDomains(t *testing.T) {
	t.Parallel()
	addr := netip.MustParseAddr
	web := newRecord(addr("10.9.0.2"), "web.p.croft")
	for _, c := range []struct {
		what   string
		have   []record
		domain domain
		lacks  bool
		stale  string // addresses
	}{
		{"none yet", nil, named("web", "p", "10.9.0.2"), true, ""},
		{"its own", []record{web}, named("web", "p", "10.9.0.2"), false, ""},
		{"another name at its address", []record{newRecord(addr("10.9.0.2"), "db.p.croft")},
			named("web", "p", "10.9.0.2"), true, "10.9.0.2"},
		{"its name at a former address", []record{newRecord(addr("10.9.0.3"), "web.p.croft")},
			named("web", "p", "10.9.0.2"), false, "10.9.0.3"}, // until that is removed
		{"a name of the operator", []record{{addr("10.9.0.9"), []string{"web.p.croft"}}},
			named("web", "p", "10.9.0.2"), false, ""},
		{"the operator's name for its address", []record{{addr("10.9.0.2"), []string{"printer"}}},
			named("web", "p", "10.9.0.2"), false, ""},
		{"a name that cannot be", nil, named("wpad", "p", "10.9.0.2"), false, ""},
		{"a domain of an older version", nil, named("", "p", "10.9.0.2"), false, ""},
		{"an address that is not known yet", nil, named("web", "p", ""), false, ""},
		{"the record of a domain that is gone", []record{web}, named("db", "p", "10.9.0.3"), true, "10.9.0.2"},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			p := pool{records: c.have}
			if got := p.lacks(c.domain.Name, c.domain.Project, c.domain.nics[0]); got != c.lacks {
				t.Errorf("it lacks its name: %v", got)
			}
			stale := ""
			for _, r := range p.stale("n", []domain{c.domain}) {
				stale += fmt.Sprint(r.addr)
			}
			if stale != c.stale {
				t.Errorf("stale are %s, want %s", stale, c.stale)
			}
			if len(p.stale("another", []domain{c.domain})) < len(stale)/len("10.9.0.2") {
				t.Error("a domain keeps a name on another network")
			}
		})
	}
}

func TestAnAddressTellsNoName(t *testing.T) {
	t.Parallel()
	text := "<network><name>n</name><dns>" + newRecord(netip.MustParseAddr("10.9.0.2"), "web.p.croft").xml() +
		"</dns></network>"
	p, err := parsePool(text)
	if err != nil || len(p.records) != 1 || !p.records[0].ours() || p.records[0].names[0] != "ip-10-9-0-2.croft" {
		t.Errorf("%s: %+v, %v", text, p.records, err)
	}
}
