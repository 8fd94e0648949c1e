package schedule_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"croft"
	"croft/schedule"
)

// member is a request for a member of the group web.
func member(t *testing.T, name string, rule croft.AffinityRule) schedule.Request {
	t.Helper()
	r := request(t, name)
	r.Affinities = []croft.Affinity{{Group: "web", Rule: rule}}
	return r
}

// hostNames requests members one after the other and returns their hosts.
func (c *cloud) hostNames(t *testing.T, rule croft.AffinityRule, names ...string) string {
	t.Helper()
	var hosts []string
	for _, name := range names {
		d, err := c.Request(t.Context(), member(t, name, rule))
		if err != nil {
			t.Fatal(err)
		}
		hosts = append(hosts, d.Host.Name)
	}
	return strings.Join(hosts, " ")
}

func TestGroupsChooseHosts(t *testing.T) {
	for _, c := range []struct {
		rule   croft.AffinityRule
		places []int64
		want   string // of three members, first host first
	}{
		{croft.Apart, []int64{3, 3, 3}, "host1 host2 host3"},
		{croft.ApartSoft, []int64{3, 3}, "host1 host2 host1"},
		{croft.Together, []int64{3, 3}, "host1 host1 host1"},
		{croft.TogetherSoft, []int64{1, 2, 9}, "host1 host2 host2"},
	} {
		t.Run(string(c.rule), func(t *testing.T) {
			if got := newCloud(t, c.places...).hostNames(t, c.rule, "a", "b", "c"); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestHardRulesRefuse(t *testing.T) {
	for _, c := range []struct {
		name  string
		rule  croft.AffinityRule
		first []string
		want  string
	}{
		{"who must be apart and has no host left", croft.Apart, []string{"a", "b"},
			"host1: has instance a of group web, whose members stay apart"},
		{"who must be together and finds the host full", croft.Together, []string{"a", "b"}, "1 GB short of DISK_GB 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cloud := newCloud(t, 2, 2)
			cloud.hostNames(t, c.rule, c.first...)
			_, err := cloud.Request(t.Context(), member(t, "late", c.rule))
			wantKind(t, err, croft.NoCapacity)
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
			if len(cloud.placement.Claimed()) != 2 || len(cloud.instances(t)) != 2 {
				t.Errorf("left: claims %q, records %q", cloud.placement.Claimed(), cloud.instances(t))
			}
		})
	}
}

func TestAGroupGoesByOneRule(t *testing.T) {
	c := newCloud(t, 2)
	c.hostNames(t, croft.Apart, "a")
	_, err := c.Request(t.Context(), member(t, "b", croft.Together))
	wantKind(t, err, croft.Conflict)
	if got := c.instances(t); !slices.Equal(got, []string{"a"}) {
		t.Errorf("records are %q", got)
	}
}

// A rival joins the group after the request has chosen: the order is refused, the claim released, and the rule checked
// again.
func TestARivalJoinsTheGroup(t *testing.T) {
	for _, c := range []struct {
		name  string
		rule  croft.AffinityRule
		rival string // the only host that is a candidate for the rival
		want  string
	}{
		{"apart, on the host that was chosen", croft.Apart, "host1", "host2"},
		{"apart, on another host", croft.Apart, "host2", "host1"},
		{"together, on another host", croft.Together, "host2", "host2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cloud := newCloud(t, 2, 2)
			only := &schedule.Policy{Sample: 256, Order: func(all []croft.Candidate) []croft.Candidate {
				return slices.DeleteFunc(all, func(one croft.Candidate) bool {
					_, first := one.Allocations[cloud.hosts[0]]
					return first != (c.rival == "host1")
				})
			}}
			cloud.placement.Fail("Claim", func() error {
				rival := member(t, "rival", c.rule)
				rival.Policy = only
				other, err := schedule.New(schedule.Config{Partition: cloud.Partition,
					Records: cloud.store, Holds: cloud.store,
					View: cloud.store, Registry: cloud.store, Groups: cloud.store, Claims: cloud.placement})
				if err != nil {
					return err
				}
				_, err = other.Request(t.Context(), rival)
				return err
			})
			if got := cloud.hostNames(t, c.rule, "web"); got != c.want {
				t.Errorf("went to %s, want %s", got, c.want)
			}
			if n := len(cloud.placement.Claimed()); n != 2 {
				t.Errorf("%d claims, want 2", n)
			}
		})
	}
}

func TestRequestRefusesWhatIsNoGroup(t *testing.T) {
	web := croft.Affinity{Group: "web", Rule: croft.Apart}
	for name, groups := range map[string][]croft.Affinity{
		"a slash":      {{Group: "a/b", Rule: croft.Apart}},
		"no name":      {{Rule: croft.Apart}},
		"no such rule": {{Group: "web", Rule: "nearby"}},
		"named twice":  {web, {Group: "web", Rule: croft.Together}},
		"too many":     groups(17),
	} {
		t.Run(name, func(t *testing.T) {
			c, r := newCloud(t, 1), request(t, "web")
			r.Affinities = groups
			_, err := c.Request(t.Context(), r)
			wantKind(t, err, croft.Invalid)
			c.nothingLeft(t)
		})
	}
}

// groups returns n groups.
func groups(n int) (all []croft.Affinity) {
	for i := range n {
		all = append(all, croft.Affinity{Group: fmt.Sprint("g", i), Rule: croft.ApartSoft})
	}
	return all
}

func TestAnInstanceIsInSixteenGroups(t *testing.T) {
	c, r := newCloud(t, 1), request(t, "web")
	r.Affinities = groups(16)
	if _, err := c.Request(t.Context(), r); err != nil {
		t.Error(err)
	}
}

// Members of one group are not counted for another.
func TestGroupsAreCountedSeparately(t *testing.T) {
	c := newCloud(t, 3, 3)
	c.store.SetAlive(c.hosts[0], -1)
	for _, name := range []string{"a", "b"} {
		r := request(t, name)
		r.Affinities = []croft.Affinity{{Group: "other", Rule: croft.TogetherSoft}}
		if _, err := c.Request(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	c.store.SetAlive(c.hosts[0], +1)
	r := request(t, "c")
	r.Affinities = []croft.Affinity{{Group: "other", Rule: croft.TogetherSoft}, {Group: "web", Rule: croft.ApartSoft}}
	if d, err := c.Request(t.Context(), r); err != nil || d.Host.Name != "host2" {
		t.Errorf("went to %s, %v", d.Host.Name, err)
	}
}

// Concurrent requests that have all read the same usages spread as if they were sequential, since their scheduler
// tracks each choice.
func TestRequestsAtOnceCountEachOther(t *testing.T) {
	const n = 6
	c := newCloud(t, 4, 4, 4)
	var all sync.WaitGroup
	all.Add(n)
	meet := func() error { all.Done(); all.Wait(); return nil }
	c.placement.Fail("Claim", slices.Repeat([]func() error{meet}, n)...)
	on := make([]string, n)
	var work sync.WaitGroup
	for i := range n {
		r := request(t, fmt.Sprintf("web-%d", i))
		r.Policy = schedule.Spread
		work.Go(func() {
			d, err := c.Request(t.Context(), r)
			if err != nil {
				t.Error(err)
			}
			on[i] = d.Host.Name
		})
	}
	work.Wait()
	slices.Sort(on)
	if got := strings.Join(on, " "); got != "host1 host1 host2 host2 host3 host3" {
		t.Errorf("went to %s", got)
	}
}

// A hundred requests that find no room read all providers at most twice: the second read is for the requests that came
// during the first.
func TestThoseWhoAskWhyAtOnceShareTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t, 0, 0)
		reads := 0
		slowly := func() error { reads++; time.Sleep(time.Second); return nil }
		c.placement.Fail("Providers", slices.Repeat([]func() error{slowly}, 100)...)
		var work sync.WaitGroup
		for i := range 100 {
			r := request(t, fmt.Sprintf("web-%d", i))
			work.Go(func() {
				_, err := c.Request(t.Context(), r)
				if croft.KindOf(err) != croft.NoCapacity || !strings.Contains(err.Error(), "1 short of VCPU 1") {
					t.Errorf("got %v", err)
				}
			})
		}
		work.Wait()
		if reads > 2 {
			t.Errorf("read %d times", reads)
		}
		if _, err := c.Request(t.Context(), request(t, "late")); err == nil || reads != 3 {
			t.Errorf("got %v after %d readings: who asks later wants to know what is now", err, reads)
		}
	})
}

func TestExplainChangesNothing(t *testing.T) {
	c := newCloud(t, 2, 4, 4, 0)
	r := request(t, "web")
	r.Policy = schedule.Spread
	got, err := c.Explain(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	var fits []string
	for _, f := range got.Fits {
		fits = append(fits, fmt.Sprintf("%d %.2f", f.Rank, f.Free))
	}
	if strings.Join(fits, ", ") != "1 0.75, 1 0.75, 3 0.50" || got.Fits[2].Host != "host1" || got.Hosts != 4 ||
		len(got.Rows) != 1 {
		t.Errorf("got %+v", got)
	}
	c.nothingLeft(t)
}
