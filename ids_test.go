package croft_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"croft"
)

func TestParseIDs(t *testing.T) {
	const canonical = "b8756be5-a30d-4311-920c-0ad996367a8e"
	for _, c := range []struct {
		name, in, want string
	}{
		{"canonical form stays as it is", canonical, canonical},
		{"upper case becomes lower", "B8756BE5-A30D-4311-920C-0AD996367A8E", canonical},
		{"dashes may be left out", "b8756be5a30d4311920c0ad996367a8e", canonical},
		{"nothing is no UUID", "", ""},
		{"a name is no UUID", "vm-b8756be5", ""},
		{"a UUID in braces is refused", "{" + canonical + "}", ""},
		{"a UUID as URN is refused", "urn:uuid:" + canonical, ""},
		{"one digit short", canonical[1:], ""},
		{"a letter that is no digit", "g" + canonical[1:], ""},
		{"36 characters with the dashes elsewhere", "b8756be5a-30d-4311-920c-0ad996367a8e", ""},
		{"32 characters that are no digits", "this-is-a-name-of-32-characters.", ""},
		{"blanks around it", " " + canonical + " ", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			instance, err := croft.ParseInstanceID(c.in)
			host, hostErr := croft.ParseHostID(c.in)
			if string(instance) != c.want || string(host) != c.want {
				t.Errorf("got instance %q, host %q, want %q", instance, host, c.want)
			}
			refused := c.want == ""
			if errors.Is(err, croft.Invalid) != refused || errors.Is(hostErr, croft.Invalid) != refused {
				t.Errorf("errors %v and %v, want Invalid: %v", err, hostErr, refused)
			}
		})
	}
}

func TestNewIDsParseAndDiffer(t *testing.T) {
	id := croft.NewInstanceID()
	if got, err := croft.ParseInstanceID(string(id)); got != id || err != nil {
		t.Errorf("ParseInstanceID(%q) = %q, %v", id, got, err)
	}
	seen := map[string]bool{}
	for range 100 {
		seen[string(croft.NewInstanceID())] = true
		seen[string(croft.NewHostID())] = true
		seen[string(croft.NewPartitionID())] = true
	}
	if len(seen) != 300 {
		t.Errorf("%d different IDs of 300", len(seen))
	}
}

func TestMACIsDerivedFromTheID(t *testing.T) {
	const id croft.InstanceID = "b8756be5-a30d-4311-920c-0ad996367a8e"
	// Guests' disks refer to their network card by this address: it must never change.
	if got, want := id.MAC(0).String(), "52:54:fe:84:d0:b6"; got != want {
		t.Errorf("MAC(0) = %s, want %s", got, want)
	}
	seen := map[string]bool{}
	for n := range 8 {
		mac := id.MAC(n)
		if mac[0]&1 != 0 || mac[0]&2 == 0 {
			t.Errorf("MAC(%d) = %s is not a locally administered unicast address", n, mac)
		}
		seen[mac.String()] = true
		seen[croft.NewInstanceID().MAC(n).String()] = true
	}
	if len(seen) != 16 {
		t.Errorf("%d different addresses of 16", len(seen))
	}
}

func TestWhatAProjectMayBeCalled(t *testing.T) {
	for _, good := range []croft.Project{"default", "web", "A.b-c_9", "0f3c6a52d1c84d0f9a5c3f1c8b0b7a11"} {
		if err := good.Check(); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []croft.Project{"", "../x", "a/b", ".", "..", "a b", "a\x1b[2J", "a\u202eb", "\n", "-a", "ä",
		croft.Project(strings.Repeat("a", 64))} {
		if err := bad.Check(); !errors.Is(err, croft.Invalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// Before, commands that put tags, aggregates, distances and tokens on "the host h2" silently took one of two hosts of
// that name.
func TestANameThatTwoHostsHaveIsNoHost(t *testing.T) {
	const one, two, three = croft.HostID("0b8756be-a30d-4311-920c-0ad996367a8e"),
		croft.HostID("1b8756be-a30d-4311-920c-0ad996367a8e"), croft.HostID("2b8756be-a30d-4311-920c-0ad996367a8e")
	all := []croft.Host{{ID: two, Name: "h2"}, {ID: one, Name: "h2"}, {ID: three, Name: string(one)}}
	for _, c := range []struct {
		name, called string
		want         croft.HostID
		kind         croft.Kind
	}{
		{"the UUID of one", string(two), two, ""},
		{"the UUID of one that is another's name", string(one), one, ""},
		{"a UUID in another form", strings.ToUpper(string(two)), two, ""},
		{"the name of two", "h2", "", croft.Conflict},
		{"nobody's name", "h3", "", croft.NotFound},
		{"nothing", "", "", croft.NotFound},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, err := croft.HostCalled(slices.Values(all), c.called)
			if h.ID != c.want || croft.KindOf(err) != c.kind {
				t.Errorf("got %s, %v", h.ID, err)
			}
			if c.kind == croft.Conflict && !strings.HasSuffix(err.Error(), "one of "+string(one)+", "+string(two)) {
				t.Errorf("it does not say which: %v", err)
			}
		})
	}
}
