package topology

import (
	"testing"

	"croft"
)

func TestAdmitSumsDistances(t *testing.T) {
	near := func(location string, distance int, soft bool) croft.Near {
		return croft.Near{To: "web", Location: location, Distance: distance, Soft: soft}
	}
	here := croft.Host{ID: "h", Location: "s/r/k"}
	for _, c := range []struct {
		name string
		all  []croft.Near
		host croft.Host
		want int
		kind croft.Kind
	}{
		{"nothing is asked for", nil, croft.Host{ID: "h", Location: "Anywhere"}, 0, ""},
		{"the rack is near enough", []croft.Near{near("s/r/k/i", 1, false)}, here, 1, ""},
		{"the row is not", []croft.Near{near("s/r/l/i", 1, false)}, here, 0, croft.NoCapacity},
		{"all count", []croft.Near{near("s/r/k/i", 0, true), near("s/q/k", 0, true), near("s/r/k", 0, false)}, here, 4,
			""},
		{"a location of another form may be far", []croft.Near{near("s", 3, false)},
			croft.Host{ID: "h", Location: "Somewhere"}, 0, croft.NoCapacity},
		{"a wish takes it for far", []croft.Near{near("s", 0, true)}, croft.Host{ID: "h", Location: "Somewhere"}, Far,
			""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := NewMeasure(c.all, nil, nil, nil).Admit(c.host)
			if got != c.want || croft.KindOf(err) != c.kind {
				t.Errorf("got %d, %v, want %d and kind %q", got, err, c.want, c.kind)
			}
		})
	}
}

func TestLocate(t *testing.T) {
	hosts := []croft.Host{{ID: "h", Location: "s/r/k"}, {ID: "i"}}
	for text, want := range map[string]croft.Kind{"s": "", "s/r": "", "s.r.k": "", "s/r/k/h": "", "t": croft.NotFound,
		"": croft.NotFound, "s//k": croft.Invalid} {
		p, err := Locate(text, hosts)
		if croft.KindOf(err) != want || err == nil && p != path(t, text) {
			t.Errorf("%q: got %q, %v, want kind %q", text, p, err, want)
		}
	}
}
