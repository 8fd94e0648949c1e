package assertion

import (
	"context"
	"testing"

	"croft"
	"croft/control/federation"
	"croft/tenant/access"
)

// pinned implements Pins.
type pinned map[croft.Project]croft.ProjectID

func (p pinned) PinMapping(_ context.Context, m federation.Mapping, id croft.ProjectID) error {
	if p[m.Theirs] != "" && p[m.Theirs] != id {
		return croft.Errorf(croft.Conflict, "another project")
	}
	p[m.Theirs] = id
	return nil
}

const (
	first croft.ProjectID = "aaaaaaaa-aaaa-5aaa-8aaa-aaaaaaaaaaaa"
	later croft.ProjectID = "bbbbbbbb-bbbb-5bbb-8bbb-bbbbbbbbbbbb"
)

// from sends a request that is signed for a project with this identity; empty: by a program that does not support
// identities.
func (s *sides) from(t testing.TB, id croft.ProjectID, spoil func(*Signed)) (access.Caller, bool, error) {
	t.Helper()
	a := s.good(t)
	a.ProjectID = id
	signed, err := signBoth(a, s.private, s.public.ID())
	if err != nil {
		t.Fatal(err)
	}
	if spoil != nil {
		spoil(&signed)
	}
	r := request(t)
	signed.SetHeaders(r.Header)
	return s.asked.Authenticate(context.Background(), r)
}

func TestALaterProjectOfTheSameNameHasNoMapping(t *testing.T) {
	for name, c := range map[string]struct {
		mapped croft.ProjectID
		asks   []croft.ProjectID
		passes []bool
	}{
		"named by its UUID":  {first, []croft.ProjectID{later, first, ""}, []bool{false, true, false}},
		"named by the first": {"", []croft.ProjectID{first, later, first}, []bool{true, false, true}},
		"of an older cloud":  {"", []croft.ProjectID{"", ""}, []bool{true, true}},
	} {
		s, pins := newSides(t), pinned{}
		s.asked.Pins = pins
		peer, m, _ := s.asked.Book.mapping(here, "web")
		for i, id := range c.asks {
			m.TheirsID = c.mapped
			s.asked.Book.replace([]federation.Partition{peer}, []federation.Mapping{m})
			caller, ok, err := s.from(t, id, nil)
			if ok != c.passes[i] || !ok && croft.KindOf(err) != croft.Denied {
				t.Errorf("%s: request %d of %q: %v, %v", name, i, id, ok, err)
			}
			if ok && (caller.PeerProject != "web" || caller.PeerProjectID != id) {
				t.Errorf("%s: %+v", name, caller)
			}
		}
	}
}

func TestTheStatementAboutAProjectCountsForItsAssertionOnly(t *testing.T) {
	s := newSides(t)
	s.know(access.Member, access.Member)
	foreign := newSides(t)
	for name, spoil := range map[string]func(*Signed){
		"of another assertion": func(signed *Signed) {
			a := s.good(t)
			a.ProjectID = first
			other, _ := signBoth(a, s.private, s.public.ID())
			signed.Identity = other.Identity
		},
		"signed by somebody else": func(signed *Signed) {
			signed.Identity, _ = sign(identity{digestOf(signed.Assertion), first}, identityType, foreign.private,
				s.public.ID())
		},
		"of another type": func(signed *Signed) {
			signed.Identity, _ = sign(identity{digestOf(signed.Assertion), first}, jwsType, s.private, s.public.ID())
		},
		"of no UUID": func(signed *Signed) {
			signed.Identity, _ = sign(identity{digestOf(signed.Assertion), "web"}, identityType, s.private,
				s.public.ID())
		},
		"no statement": func(signed *Signed) { signed.Identity = "x" },
	} {
		if _, ok, err := s.from(t, first, spoil); ok || croft.KindOf(err) != croft.Denied {
			t.Errorf("%s: %v, %v", name, ok, err)
		}
	}
}
