package unit

import "testing"

func TestAUnitsNameFitsAHostName(t *testing.T) {
	u := Unit{Cluster: "0123456789abcdef0123456789abcdef", Job: "web/front@7", Slot: 2}
	if got := u.Name(); got != "f-01234567-web.front.7-2" {
		t.Errorf("got %s", got)
	}
	u.Job = "a-long-name-that-says-what-it-is-for/and-another-one-below-it"
	long := u.Name()
	u.Job += "x"
	if other := u.Name(); len(long) > 63 || len(other) > 63 || long == other {
		t.Errorf("got %s and %s", long, other)
	}
}

func TestTheHashOfAUnit(t *testing.T) {
	u := Unit{Job: "web", Files: []File{{Path: "/etc/x", Content: "a", Digest: "1"}}}
	hash := u.Hash()
	same := u
	same.Ready, same.Confirm, same.Exclusive = Check{URL: "http://x"}, 60, true
	if same.Hash() != hash {
		t.Error("how it is applied changes the hash")
	}
	if u.Files[0].Content != "a" {
		t.Error("hashing changed the unit")
	}
	u.Files = []File{{Path: "/etc/x", Content: "b", Digest: "2"}}
	if u.Hash() == hash {
		t.Error("another file has the same hash")
	}
}

func TestPortsOverlap(t *testing.T) {
	for _, c := range []struct {
		name string
		a, b Port
		want bool
	}{
		{"the same", Port{"", 80, 1, "tcp"}, Port{"", 80, 2, "tcp"}, true},
		{"another number", Port{"", 80, 1, "tcp"}, Port{"", 81, 1, "tcp"}, false},
		{"another protocol", Port{"", 80, 1, "tcp"}, Port{"", 80, 1, "udp"}, false},
		{"all addresses and one", Port{"", 80, 1, "tcp"}, Port{"::1", 80, 1, "tcp"}, true},
		{"two addresses", Port{"10.0.0.1", 80, 1, "tcp"}, Port{"10.0.0.2", 80, 1, "tcp"}, false},
		{"one address in two forms", Port{"10.0.0.1", 80, 1, "tcp"}, Port{"::ffff:10.0.0.1", 80, 1, "tcp"}, true},
		{"all of a family and one of it", Port{"0.0.0.0", 80, 1, "tcp"}, Port{"10.0.0.2", 80, 1, "tcp"}, true},
		{"all of a family and one of the other", Port{"0.0.0.0", 80, 1, "tcp"}, Port{"::1", 80, 1, "tcp"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.a.Overlaps(c.b) != c.want || c.b.Overlaps(c.a) != c.want {
				t.Errorf("%s and %s: want %v", c.a, c.b, c.want)
			}
		})
	}
}

// TestASecretWithoutAModeKeepsItsHash: an upgrade must not replace units.
func TestASecretWithoutAModeKeepsItsHash(t *testing.T) {
	u := Unit{Job: "web", Files: []File{{Path: "/key", Mode: 0o644, Digest: "1", Secret: true}}}
	was := u.Hash()
	u.Files[0].ModeUnset = true
	if u.Hash() != was {
		t.Error("its hash is another one")
	}
	if !u.Files[0].ModeUnset {
		t.Error("the hash changed the unit")
	}
}
