package topology

import (
	"strings"
	"testing"

	"croft"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       string // "!" and a part of the error: the text is refused
		level      croft.Level
	}{
		{"nothing is the top", "", "", ""},
		{"three parts are site, row and rack", "site1/row2/rack7", "site1/row2/rack7", croft.LevelRack},
		{"dots separate as well", "site1.row2.rack7", "site1/row2/rack7", croft.LevelRack},
		{"a fourth part is a host", "site1.row1.rack1.host1", "site1/row1/rack1/host1", croft.LevelHost},
		{"slashes around it do not matter", "/site1/row2/", "site1/row2", croft.LevelRow},
		{"a part may name its level", "site1/rack=rack7", "site1/rack=rack7", croft.LevelRack},
		{"a level that is named without need is left out", "site=a/row=b", "a/b", croft.LevelRow},
		{"what follows a named level goes on from there", "a/rack=7/h", "a/rack=7/h", croft.LevelHost},
		{"too many parts", "eu/de/berlin/room/rack", "!more than four parts", ""},
		{"an empty part", "a//b", `!a part ""`, ""},
		{"capitals", "DC1/b", `!a part "DC1"`, ""},
		{"a dash at the end", "a-/b", `!a part "a-"`, ""},
		{"mixed separators", "a/b.c", `!a part "b.c"`, ""},
		{"a level twice", "a/site=b", "!names a site below a site", ""},
		{"a level above the one before it", "rack=7/row=2", "!names a row below a rack", ""},
		{"no such level", "room=1", `!names a level "room"`, ""},
		{"a long part", strings.Repeat("a", 129), "!128 characters at most", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := Parse(c.text)
			if part, refused := strings.CutPrefix(c.want, "!"); refused {
				if croft.KindOf(err) != croft.Invalid || !strings.Contains(err.Error(), part) {
					t.Errorf("got %v, want an Invalid with %q", err, part)
				}
				return
			}
			if err != nil || p.String() != c.want || p.Level() != c.level {
				t.Errorf("got %q of level %q, %v, want %q of %q", p, p.Level(), err, c.want, c.level)
			}
		})
	}
}

func TestTheLocationOfAHost(t *testing.T) {
	for _, c := range []struct {
		name string
		host croft.Host
		want string // with its location of the level rack
	}{
		{"as it says", croft.Host{Location: "s/r/k"}, "s/r/k/id, rack s/r/k"},
		{"without one, a name of four parts says it", croft.Host{Name: "s.r.k.n"}, "s/r/k/id, rack s/r/k"},
		{"a location is worth more than the name", croft.Host{Name: "s.r.k.n", Location: "t"},
			"t/host=id, rack t/host=id"},
		{"a name of another form is a name", croft.Host{Name: "node1.example.org"}, "host=id, rack host=id"},
		{"a name with four parts of another form as well", croft.Host{Name: "N.a.b.c"}, "host=id, rack host=id"},
		{"the ID stands for a host that the location names", croft.Host{Location: "s/r/k/n"}, "s/r/k/id, rack s/r/k"},
		{"a missing row is the rack", croft.Host{Location: "s/rack=k"}, "s/rack=k/id, rack s/rack=k"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.host.ID = "id"
			p, err := Of(c.host)
			if got := p.String() + ", rack " + p.At(croft.LevelRack).String(); err != nil || got != c.want {
				t.Errorf("got %s, %v, want %s", got, err, c.want)
			}
		})
	}
	if _, err := Of(croft.Host{ID: "id", Location: "Here"}); croft.KindOf(err) != croft.Invalid {
		t.Errorf("a location of another form: got %v", err)
	}
	if p := (Path{}).At(croft.LevelRow); p != (Path{}) || p.Parent() != p || p.Name() != "" {
		t.Errorf("the top is in %q", p)
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"", "a/b/c/d", "a.b", "a/rack=7", "host=h", "a/b.c", "=", "a=b=c", "/", "site1/"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse(text)
		if err != nil {
			if croft.KindOf(err) != croft.Invalid || p != (Path{}) {
				t.Errorf("got %q and %v", p, err)
			}
			return
		}
		if again, err := Parse(p.String()); err != nil || again != p {
			t.Errorf("%q is %q, which is %q, %v", text, p, again, err)
		}
		if !p.In(p.Parent()) || p.Parent() != p && p.Parent().In(p) {
			t.Errorf("%q is not below %q", p, p.Parent())
		}
	})
}
