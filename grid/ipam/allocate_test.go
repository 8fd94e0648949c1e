package ipam

import (
	"crypto/sha256"
	"fmt"
	"math/big"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"croft"
)

func TestWhatAPoolGives(t *testing.T) {
	for _, c := range []struct {
		name, pool string
		extra      map[string]string
		want       []string // the addresses given, in this order; then the pool is exhausted
		counts     string   // the counts in the error
	}{
		{"the lowest free first, without network and broadcast", "prefix: 10.0.0.0/29", nil,
			[]string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"},
			"of the 8 in 10.0.0.0/29 are 2 network and broadcast, 6 leased"},
		{"both of a /31", "prefix: 10.0.0.0/31", nil, []string{"10.0.0.0", "10.0.0.1"},
			"2 in 10.0.0.0/31 are 2 leased"},
		{"the one of a /32", "prefix: 10.0.0.0/32", nil, []string{"10.0.0.0"}, "are 1 leased"},
		{"neither the gateway nor what is excluded",
			"{prefix: 10.0.0.0/29, gateway: 10.0.0.1, exclude: [10.0.0.2-10.0.0.3, 10.0.0.6/32]}",
			nil, []string{"10.0.0.4", "10.0.0.5"}, "2 network and broadcast, 1 gateway, 3 excluded, 2 leased"},
		{"an address that is excluded for two reasons counts once",
			"{prefix: 10.0.0.0/30, gateway: 10.0.0.0, exclude: 10.0.0.0/31}",
			nil, []string{"10.0.0.2"}, "are 2 network and broadcast, 1 excluded, 1 leased"},
		{"of IPv6 not the anycast address of the routers", "prefix: 2001:db8::/126", nil,
			[]string{"2001:db8::1", "2001:db8::2", "2001:db8::3"}, "are 1 for the routers, 3 leased"},
		{"both of a /127", "prefix: 2001:db8::/127", nil, []string{"2001:db8::", "2001:db8::1"}, "are 2 leased"},
		{"nothing of a pool within", "prefix: 10.0.0.0/29", map[string]string{
			"net/pools/inner.yaml": "{prefix: 10.0.0.4/30, within: web}"},
			[]string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}, "2 network and broadcast, 3 of pools within, 3 leased"},
		{"nothing that is leased, or held for others", "prefix: 10.0.0.0/29", map[string]string{
			"net/lease/v4/10.0.0.1": "-> ../../../alloc/other/0",
			"net/lease/v4/10.0.0.2": "{freed: other/0, until: 2999-01-01T00:00:00Z}",
			"net/lease/v4/10.0.0.3": "{freed: other/0, until: 1999-01-01T00:00:00Z}"},
			[]string{"10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"},
			"5 leased, 1 held; the next held one becomes free at 2999-01-01T00:00:00Z"},
		{"nothing that is reserved", "prefix: 10.0.0.0/29", map[string]string{
			"net/meta/v4/10.0.0.0_30.yaml": "reserved: true", "net/meta/v4/10.0.0.2.yaml": "reserved: false",
			"net/meta/v4/10.0.0.5.yaml": "reserved: true"},
			[]string{"10.0.0.2", "10.0.0.4", "10.0.0.6"}, "3 reserved"},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := map[string]string{"net/pools/web.yaml": c.pool}
			for name, text := range c.extra {
				files[name] = text
			}
			d := tree(t, files)
			for i, want := range c.want {
				got, err := get(d, "web", Owner{"job", i}, netip.Addr{})
				if err != nil || got.String() != want {
					t.Fatalf("number %d is %s, %v; want %s", i, got, err, want)
				}
			}
			before := listing(t, d)
			_, err := get(d, "web", Owner{"job", 999}, netip.Addr{})
			if croft.KindOf(err) != croft.NoCapacity || !strings.Contains(err.Error(), c.counts) {
				t.Errorf("then it says %v, want %s", err, c.counts)
			}
			if after := listing(t, d); after != before {
				t.Errorf("a refusal changed something:\n%s", after)
			}
		})
	}
}

// The test computes the hash in another way than the package.
func TestAPoolByHash(t *testing.T) {
	d := tree(t, map[string]string{"net/pools/p.yaml": "{prefix: 10.0.0.0/28, strategy: hash}",
		"net/pools/six.yaml": "{prefix: '2001:db8::/64', strategy: hash}"})
	taken := map[int64]bool{0: true, 15: true}
	for i := range 14 {
		sum := sha256.Sum256(fmt.Appendf(nil, "web/front %d", i))
		at := new(big.Int).Mod(new(big.Int).SetBytes(sum[:]), big.NewInt(16)).Int64()
		for taken[at] {
			at = (at + 1) % 16
		}
		taken[at] = true
		got, err := get(d, "p", Owner{"web/front", i}, netip.Addr{})
		if want := netip.AddrFrom4([4]byte{10, 0, 0, byte(at)}); err != nil || got != want {
			t.Fatalf("slot %d has %s, %v; want %s", i, got, err, want)
		}
	}
	if _, err := get(d, "p", Owner{"web/front", 14}, netip.Addr{}); croft.KindOf(err) != croft.NoCapacity {
		t.Errorf("one too many: %v", err)
	}
	got, err := get(d, "six", Owner{"web/front", 0}, netip.Addr{})
	sum := sha256.Sum256([]byte("web/front 0"))
	var want [16]byte
	copy(want[:], []byte{0x20, 0x01, 0x0d, 0xb8})
	copy(want[8:], sum[24:])
	if err != nil || got != netip.AddrFrom16(want) {
		t.Errorf("IPv6 is %s, %v, want the last 64 bits of the hash", got, err)
	}
}

func TestAnOwnerKeepsItsAddress(t *testing.T) {
	d := tree(t, map[string]string{"net/pools/web.yaml": "prefix: 10.0.0.0/24",
		"net/pools/six.yaml": "prefix: 2001:db8::/64"})
	a, b := Owner{"a", 0}, Owner{"b", 0}
	want := func(pool string, o Owner, at, want string) {
		t.Helper()
		var wanted netip.Addr
		if at != "" {
			wanted = addr(at)
		}
		if got, err := get(d, pool, o, wanted); err != nil || got.String() != want {
			t.Errorf("%s gets %s of %s, %v; want %s", o, got, pool, err, want)
		}
	}
	want("web", a, "", "10.0.0.1")
	want("web", a, "", "10.0.0.1")
	want("six", a, "", "2001:db8::1")
	want("web", b, "10.0.0.9", "10.0.0.9")
	want("web", b, "10.0.0.9", "10.0.0.9")
	for _, c := range []struct {
		o          Owner
		at, reason string
	}{
		{b, "10.0.0.10", "b/0 has 10.0.0.9 of pool web already"},
		{Owner{"c", 0}, "10.0.0.9", "10.0.0.9 is leased to b/0"},
		{Owner{"c", 0}, "10.0.0.0", "never given by pool web: network and broadcast"},
		{Owner{"c", 0}, "10.1.0.0", "10.1.0.0 is not in pool web, which is 10.0.0.0/24"},
		{Owner{"c", 0}, "2001:db8::5", "is not in pool web"},
	} {
		if _, err := get(d, "web", c.o, addr(c.at)); croft.KindOf(err) != croft.Conflict ||
			!strings.Contains(err.Error(), c.reason) {
			t.Errorf("%s at %s: %v, want %s", c.o, c.at, err, c.reason)
		}
	}
	if _, err := get(d, "wep", a, netip.Addr{}); croft.KindOf(err) != croft.NotFound ||
		!strings.Contains(err.Error(), `did you mean "web"?`) {
		t.Errorf("no pool: %v", err)
	}
	if n := read(t, d); n.Leases[addr("10.0.0.1")].Owner != a || len(n.Leases) != 3 {
		t.Errorf("leases: %v", n.Leases)
	}
}

// TestAnOwnerOfTwoAddressesIsToldTheLowest: a merge of two branches may leave an owner with two addresses.
func TestAnOwnerOfTwoAddressesIsToldTheLowest(t *testing.T) {
	d := tree(t, map[string]string{"net/pools/web.yaml": "prefix: 10.0.0.0/24",
		"net/lease/v4/10.0.0.7": "-> ../../../alloc/a/0", "net/lease/v4/10.0.0.30": "-> ../../../alloc/a/0",
		"net/lease/v4/10.0.0.9": "-> ../../../alloc/a/0"})
	for range 10 { // leases are in a map
		if got, err := get(d, "web", Owner{"a", 0}, netip.Addr{}); err != nil || got != addr("10.0.0.7") {
			t.Fatalf("it gets %s, %v", got, err)
		}
	}
}

// TestAFullPoolSaysWhenTheNextAddressIsFree: the error names the earliest end of all holds.
func TestAFullPoolSaysWhenTheNextAddressIsFree(t *testing.T) {
	d := tree(t, map[string]string{"net/pools/web.yaml": "prefix: 10.0.0.0/29",
		"net/lease/v4/10.0.0.1": "{freed: a/0, until: 2998-01-01T00:00:00Z}",
		"net/lease/v4/10.0.0.2": "{freed: a/1, until: 2996-01-01T00:00:00Z}",
		"net/lease/v4/10.0.0.3": "{freed: a/2, until: 2999-01-01T00:00:00Z}",
		"net/lease/v4/10.0.0.4": "{freed: a/3, until: 2997-01-01T00:00:00Z}",
		"net/lease/v4/10.0.0.5": "-> ../../../alloc/b/0", "net/lease/v4/10.0.0.6": "-> ../../../alloc/b/1"})
	for range 10 { // leases are in a map
		_, err := get(d, "web", Owner{"c", 0}, netip.Addr{})
		if croft.KindOf(err) != croft.NoCapacity ||
			!strings.Contains(err.Error(), "the next held one becomes free at 2996-01-01") {
			t.Fatalf("it says %v", err)
		}
	}
}

func TestAFreedAddressIsHeld(t *testing.T) {
	d := tree(t, map[string]string{"net/pools/web.yaml": "{prefix: 10.0.0.0/24, hold: 24h}"})
	synctest.Test(t, func(t *testing.T) {
		a, b := Owner{"a", 0}, Owner{"b", 0}
		want := func(o Owner, want string) {
			t.Helper()
			if got, err := get(d, "web", o, netip.Addr{}); err != nil || got.String() != want {
				t.Fatalf("%s gets %s, %v, want %s", o, got, err, want)
			}
		}
		want(a, "10.0.0.1")
		if freed, err := free(d, a, true); err != nil || len(freed) != 1 {
			t.Fatalf("freed: %v, %v", freed, err)
		}
		want(b, "10.0.0.2") // 10.0.0.1 is held
		want(a, "10.0.0.1") // it is held for a, its former owner
		_, err := free(d, a, true)
		must(t, err)
		if freed, err := free(d, a, true); err != nil || len(freed) != 0 {
			t.Fatalf("freed twice: %v, %v", freed, err)
		}
		if _, err := get(d, "web", Owner{"c", 0}, addr("10.0.0.1")); err == nil ||
			!strings.Contains(err.Error(), "10.0.0.1 is held for its former owner a/0 until") {
			t.Errorf("held: %v", err)
		}
		time.Sleep(24*time.Hour - 2*time.Second)
		want(Owner{"c", 0}, "10.0.0.3")
		time.Sleep(3 * time.Second)
		want(Owner{"d", 0}, "10.0.0.1")
		want(a, "10.0.0.4")
		_, err = free(d, b, false)
		must(t, err)
		want(Owner{"e", 0}, "10.0.0.2")
		// A change removes the files of all addresses whose hold has ended, whoever the former owner is.
		_, err = free(d, Owner{"d", 0}, true)
		must(t, err)
		time.Sleep(25 * time.Hour)
		_, err = free(d, Owner{"c", 0}, true)
		must(t, err)
		if _, is := read(t, d).Leases[addr("10.0.0.1")]; is {
			t.Error("an address whose hold has ended still has a file")
		}
	})
}

// TestGivingAndFreeingAsInAModel gives and frees addresses at random, and compares the leases with a map of owners.
func TestGivingAndFreeingAsInAModel(t *testing.T) {
	seed := rand.Uint64()
	for _, strategy := range []string{First, Hash} {
		pool := "{prefix: 10.0.0.0/28, gateway: 10.0.0.1, strategy: " + strategy + "}"
		d := tree(t, map[string]string{"net/pools/p.yaml": pool})
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 2))
			has := map[Owner]netip.Addr{}
			type freed struct {
				o     Owner
				until time.Time
			}
			held := map[netip.Addr]freed{}
			for range 400 {
				o := Owner{"job", r.IntN(20)}
				time.Sleep(time.Duration(r.IntN(240)) * time.Minute)
				switch r.IntN(5) {
				case 0, 1:
					hold := r.IntN(4) > 0
					if _, err := free(d, o, hold); err != nil {
						t.Fatalf("seed %d: %v", seed, err)
					}
					if a, ok := has[o]; ok && hold {
						held[a] = freed{o, time.Now().Add(24 * time.Hour)}
					}
					if !hold {
						for a, f := range held {
							if f.o == o {
								delete(held, a)
							}
						}
					}
					delete(has, o)
				default:
					got, err := get(d, "p", o, netip.Addr{})
					if before, ok := has[o]; ok && got != before {
						t.Fatalf("seed %d: %s had %s and gets %s, %v", seed, o, before, got, err)
					}
					if err != nil && croft.KindOf(err) != croft.NoCapacity {
						t.Fatalf("seed %d: %v", seed, err)
					}
					if err != nil {
						continue
					}
					for other, a := range has {
						if a == got && other != o {
							t.Fatalf("seed %d: %s is given to %s and %s", seed, got, other, o)
						}
					}
					if f, ok := held[got]; ok && f.o != o && time.Now().Before(f.until.Truncate(time.Second)) {
						t.Fatalf("seed %d: %s is held for %s and given to %s", seed, got, f.o, o)
					}
					last := got.As4()[3]
					if got.As4()[2] != 0 || last < 2 || last > 14 {
						t.Fatalf("seed %d: %s is given", seed, got)
					}
					has[o] = got
				}
				n := read(t, d)
				leased := 0
				for a, l := range n.Leases {
					if !l.Freed() {
						leased++
						if has[l.Owner] != a {
							t.Fatalf("seed %d: %s has %s in the files, and %s", seed, l.Owner, a, has[l.Owner])
						}
					}
				}
				if leased != len(has) {
					t.Fatalf("seed %d: %d leases, want %d", seed, leased, len(has))
				}
			}
		})
	}
}

// TestAPoolCarvedOutOfAUsedOneMovesNothing: owners keep the addresses that the outer pool gave them before.
func TestAPoolCarvedOutOfAUsedOneMovesNothing(t *testing.T) {
	d := tree(t, map[string]string{"net/pools/web.yaml": "prefix: 10.0.0.0/24"})
	owners := []Owner{{"a", 0}, {"b", 0}}
	var had []netip.Addr
	for _, o := range owners {
		l, err := get(d, "web", o, netip.Addr{})
		if err != nil {
			t.Fatal(err)
		}
		had = append(had, l)
	}
	if err := d.Change(t.Context(), func(n *Net) error {
		part := &Pool{Name: "part", Prefix: netip.MustParsePrefix("10.0.0.0/26"), Within: "web", Hold: DefaultHold}
		if err := n.Put(part); err != nil {
			return err
		}
		return n.Put(&Pool{Name: "deep", Prefix: netip.MustParsePrefix("10.0.0.0/28"),
			Within: "part", Hold: DefaultHold})
	}); err != nil {
		t.Fatal(err)
	}
	for i, o := range owners {
		if l, err := get(d, "web", o, netip.Addr{}); err != nil || l != had[i] {
			t.Errorf("%s had %s, and gets %v, %v", o, had[i], l, err)
		}
		n, err := d.Read()
		if err != nil {
			t.Fatal(err)
		}
		if l, ok := n.LeaseOf("web", o); !ok || l.Addr != had[i] {
			t.Errorf("the lease of %s in web is %v, %t", o, l, ok)
		}
	}
	if l, err := get(d, "web", Owner{"c", 0}, netip.Addr{}); err != nil ||
		l != netip.MustParseAddr("10.0.0.64") {
		t.Errorf("a new owner gets %v, %v of the inner pool's", l, err)
	}
}
