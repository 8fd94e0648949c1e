package schedule_test

import (
	"strings"
	"testing"

	"croft"
	"croft/schedule"
)

// near returns a request that is near to the texts.
func near(t *testing.T, name string, texts ...string) schedule.Request {
	t.Helper()
	r := request(t, name)
	for _, text := range texts {
		n, err := croft.ParseNear(text)
		if err != nil {
			t.Fatal(err)
		}
		r.Query.Near = append(r.Query.Near, n)
	}
	return r
}

func TestARequestGoesNearToWhatItNames(t *testing.T) {
	locations := []string{"t/r/k", "s/q/k", "s/r/l", "s/r/k", "s/r/k"}
	for _, c := range []struct {
		name, to string
		want     string // of three requests for which host5, where the instance db is, has room for two
	}{
		{"as near as there is room", "db", "host5 host5 host4"},
		{"on the same host", "db:host", "host5 host5 -"},
		{"in the same rack, and near in it", "db:rack", "host5 host5 host4"},
		{"a host by name", "host3:row", "host3 host3 host3"},
		{"a location", "s/q", "host2 host2 host2"},
		{"a site by its name", "t:0", "host1 host1 host1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cloud := newSite(t, locations...)
			cloud.only(t, "db", "host5")
			var got []string
			for _, name := range []string{"a", "b", "c"} {
				d, err := cloud.Request(t.Context(), near(t, name, c.to))
				if err != nil {
					wantKind(t, err, croft.NoCapacity)
					if !strings.Contains(err.Error(), "and is to be there") {
						t.Errorf("got %v, without the reason", err)
					}
					d.Host.Name = "-"
				}
				got = append(got, d.Host.Name)
				if err == nil && (len(d.Instance.Spec.Near) != 1 || d.Instance.Spec.Near[0].Location == "") {
					t.Errorf("the spec says %+v", d.Instance.Spec.Near)
				}
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("got %q, want %s", got, c.want)
			}
		})
	}
}

// only requests an instance that only fits on the host of that name.
func (c *cloud) only(t *testing.T, name, host string) {
	t.Helper()
	if d, err := c.Request(t.Context(), near(t, name, host+":host")); err != nil || d.Host.Name != host {
		t.Fatalf("%s is on %s, %v", name, d.Host.Name, err)
	}
}

func TestRequestRefusesToBeNearToNothing(t *testing.T) {
	c := newSite(t, "s/r/k", "Somewhere")
	for _, r := range []struct {
		name  string
		texts []string
		want  croft.Kind
		says  string
	}{
		{"nobody", []string{"nobody"}, croft.NotFound, "near nobody: there is no instance of that name, no aggregate, no host"},
		{"an empty location", []string{"s/x"}, croft.NotFound, "near s/x"},
		{"a host whose location is unreadable", []string{"host2:rack"}, croft.Invalid, `has a part "Somewhere"`},
		{"too many", []string{"s", "s", "s", "s", "s", "s", "s", "s", "s"}, croft.Invalid, "8 at most"},
	} {
		t.Run(r.name, func(t *testing.T) {
			_, err := c.Request(t.Context(), near(t, "web", r.texts...))
			wantKind(t, err, r.want)
			if !strings.Contains(err.Error(), r.says) {
				t.Errorf("got %v, want %q", err, r.says)
			}
			_, err = c.Explain(t.Context(), near(t, "web", r.texts...))
			wantKind(t, err, r.want)
			c.nothingLeft(t)
		})
	}
}

func TestRequestRefusesToBeNearToANameOfTwoHosts(t *testing.T) {
	c := newSite(t, "s/r/k", "s/r/l")
	hosts, err := c.store.Hosts(t.Context(), c.hosts[1])
	if err != nil {
		t.Fatal(err)
	}
	h := hosts[c.hosts[1]]
	h.Name = "host1"
	if err := c.store.PutHost(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	_, err = c.Request(t.Context(), near(t, "web", "host1"))
	wantKind(t, err, croft.Conflict)
	c.nothingLeft(t)
	if d, err := c.Request(t.Context(), near(t, "web", string(h.ID)+":host")); err != nil || d.Host.ID != h.ID {
		t.Errorf("near to its UUID: it is on %s, %v", d.Host.ID, err)
	}
}

func TestExplainSaysWhatIsTooFar(t *testing.T) {
	c := newSite(t, "s/r/k", "s/q/k", "t")
	got, err := c.Explain(t.Context(), near(t, "web", "s/r/k:rack"))
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Fits) != 1 || got.Fits[0].Host != "host1" || len(got.Rows) != 2 || len(got.Requirements) != 1 ||
		got.Requirements[0].Requirement != "near s/r/k:rack" || got.Requirements[0].Dropped != 2 ||
		got.Rows[0].Missing[0] != "is in the same site as s/r/k and is to be in the same rack" {
		t.Errorf("got %+v", got)
	}
}
