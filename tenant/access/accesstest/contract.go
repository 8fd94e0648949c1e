// Package accesstest provides the shared parts of tests of access: a token store in memory, and contract tests for
// token stores.
package accesstest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"croft"
	"croft/internal/testing/patient"
	"croft/tenant/access"
)

// Store is a new, empty store of tokens.
type Store struct {
	access.Tokens
	access.TokenFeed
	// Break interrupts the watches, calls do, and resumes the watches when the history of do's changes is lost.
	Break func(do func())
}

// Run tests a store. open returns a new one that ends with its test.
func Run(t *testing.T, open func(*testing.T) Store) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Store)
	}{
		{"a token is read as it was written", testWritten},
		{"an ID is taken once", testTaken},
		{"a token that cannot be is not stored", testInvalid},
		{"a scope hides the tokens of other projects, also from revocation", testScopes},
		{"tokens are listed by time of creation", testListed},
		{"a revoked token is gone", testRevoked},
		{"a watch tells what there is, what comes and what goes", testWatch},
		{"a watch whose history is lost tells everything anew", testCompacted},
		{"a revoked token is refused at once", testRefused},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, open(t)) })
	}
}

// NewToken returns a token of a project, or of an operator if p is empty, and its secret. It is created minutes from
// now, and expires an hour later.
func NewToken(t testing.TB, p croft.Project, minutes int) (access.Token, access.Secret) {
	t.Helper()
	at := time.Now().UTC().Truncate(time.Second).Add(time.Duration(minutes) * time.Minute)
	want := access.Token{User: "ann", Project: p, Roles: []access.Role{access.Member}, Note: "for CI", Created: at,
		CreatedBy: "root", Expires: at.Add(time.Hour)}
	if p == "" {
		want.Roles = []access.Role{access.PartitionAdmin}
	}
	token, secret, err := access.NewToken(want)
	if err != nil {
		t.Fatal(err)
	}
	return token, secret
}

// created stores a new token of a project.
func created(t *testing.T, s Store, p croft.Project) access.Token {
	t.Helper()
	token, _ := NewToken(t, p, 0)
	must(t, s.Create(t.Context(), token))
	return token
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantKind(t *testing.T, err error, want croft.Kind, what string) {
	t.Helper()
	if croft.KindOf(err) != want {
		t.Errorf("%s: got %v (%s), want %s", what, err, croft.KindOf(err), want)
	}
}

func testWritten(t *testing.T, s Store) {
	token := created(t, s, "lab")
	got, err := s.Find(t.Context(), access.Everything(), token.ID)
	must(t, err)
	if diff := cmp.Diff(token, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func testTaken(t *testing.T, s Store) {
	token := created(t, s, "lab")
	other, _ := NewToken(t, "lab", 0)
	other.ID, other.User = token.ID, "joe"
	wantKind(t, s.Create(t.Context(), other), croft.Conflict, "an ID that is taken")
	wantKind(t, s.Create(t.Context(), token), croft.Conflict, "the same token once more")
	if got, err := s.Find(t.Context(), access.Everything(), token.ID); err != nil || got.User != "ann" {
		t.Errorf("it is %s's now, %v", got.User, err)
	}
}

func testInvalid(t *testing.T, s Store) {
	for what, spoil := range map[string]func(*access.Token){
		"an ID that leads elsewhere": func(t *access.Token) { t.ID = "../../authority" },
		"no role":                    func(t *access.Token) { t.Roles = nil },
		"a project with a slash":     func(t *access.Token) { t.Project = "lab/x" },
	} {
		token, _ := NewToken(t, "lab", 0)
		spoil(&token)
		wantKind(t, s.Create(t.Context(), token), croft.Invalid, what)
	}
	if all, err := s.List(t.Context(), access.Everything()); err != nil || len(all) != 0 {
		t.Errorf("it has %v, %v", all, err)
	}
}

func testScopes(t *testing.T, s Store) {
	lab, shop, operators := created(t, s, "lab"), created(t, s, "shop"), created(t, s, "")
	for _, c := range []struct {
		name  string
		scope access.Scope
		sees  []access.Token
	}{
		{"nothing", access.Scope{}, nil},
		{"one project", access.Within("lab"), []access.Token{lab}},
		{"two projects", access.Within("shop", "lab"), []access.Token{lab, shop}},
		{"a project that is not there", access.Within("la"), nil},
		{"everything", access.Everything(), []access.Token{lab, shop, operators}},
	} {
		all, err := s.List(t.Context(), c.scope)
		must(t, err)
		if len(all) != len(c.sees) {
			t.Errorf("%s: the list has %d tokens, want %d", c.name, len(all), len(c.sees))
		}
		for _, token := range []access.Token{lab, shop, operators} {
			sees := slices.ContainsFunc(c.sees, func(t access.Token) bool { return t.ID == token.ID })
			listed := slices.ContainsFunc(all, func(t access.Token) bool { return t.ID == token.ID })
			_, err := s.Find(t.Context(), c.scope, token.ID)
			if listed != sees || (err == nil) != sees {
				t.Errorf("%s: the token of %q is listed %v, found with %v; want %v", c.name, token.Project, listed, err,
					sees)
			}
			if !sees {
				wantKind(t, err, croft.NotFound, c.name)
				_, err = s.Revoke(t.Context(), c.scope, token.ID)
				wantKind(t, err, croft.NotFound, c.name+": revocation")
			}
		}
	}
	if all, err := s.List(t.Context(), access.Everything()); err != nil || len(all) != 3 {
		t.Errorf("%d tokens are left, %v", len(all), err)
	}
}

func testListed(t *testing.T, s Store) {
	var want []access.TokenID
	for i := range 20 {
		token, _ := NewToken(t, croft.Project([]string{"lab", "shop"}[i%2]), i)
		want = append(want, token.ID)
		must(t, s.Create(t.Context(), token)) // IDs are random, so they have another order
	}
	all, err := s.List(t.Context(), access.Everything())
	must(t, err)
	var got []access.TokenID
	for _, token := range all {
		got = append(got, token.ID)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func testRevoked(t *testing.T, s Store) {
	token, other := created(t, s, "lab"), created(t, s, "lab")
	got, err := s.Revoke(t.Context(), access.Within("lab"), token.ID)
	if err != nil || got.ID != token.ID || got.Note != token.Note {
		t.Errorf("revoked %+v, %v", got, err)
	}
	for _, id := range []access.TokenID{token.ID, "0123456789ab", "", "../x"} {
		_, err = s.Revoke(t.Context(), access.Everything(), id)
		wantKind(t, err, croft.NotFound, "the revocation of "+string(id))
		_, err = s.Find(t.Context(), access.Everything(), id)
		wantKind(t, err, croft.NotFound, string(id))
	}
	if all, err := s.List(t.Context(), access.Within("lab")); err != nil || len(all) != 1 || all[0].ID != other.ID {
		t.Errorf("left: %v, %v", all, err)
	}
}

// seen is the reports of a watch.
type seen struct {
	mu    sync.Mutex
	known map[access.TokenID]access.Token
	lists int // number of complete reports
}

// watched watches a store until the end of the test. It returns after the first complete report.
func watched(t *testing.T, s Store) *seen {
	t.Helper()
	w := &seen{}
	background(t, func(ctx context.Context) {
		_ = s.Watch(ctx, func(all []access.Token) {
			w.note(func() {
				w.known = map[access.TokenID]access.Token{}
				for _, t := range all {
					w.known[t.ID] = t
				}
				w.lists++
			})
		}, func(id access.TokenID, token *access.Token) {
			w.note(func() {
				if w.known == nil {
					t.Error("a change was told before everything was")
				} else if token == nil {
					delete(w.known, id)
				} else {
					w.known[id] = *token
				}
			})
		})
	})
	w.await(t, "a first list", func() bool { return w.lists > 0 })
	return w
}

// background runs do until the end of the test.
func background(t *testing.T, do func(context.Context)) {
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	work.Go(func() { do(ctx) })
	t.Cleanup(func() { cancel(); work.Wait() })
}

func (w *seen) note(do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	do()
}

// await waits until the watch reported something.
func (w *seen) await(t *testing.T, what string, is func() bool) {
	t.Helper()
	patient.Until(t, "the watch tells "+what, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return is()
	})
}

func (w *seen) has(id access.TokenID) func() bool {
	return func() bool { _, ok := w.known[id]; return ok }
}

func (w *seen) lacks(id access.TokenID) func() bool {
	return func() bool { _, ok := w.known[id]; return !ok }
}

func testWatch(t *testing.T, s Store) {
	there := created(t, s, "lab")
	w := watched(t, s)
	w.await(t, "what was there", w.has(there.ID))
	comes := created(t, s, "shop")
	w.await(t, "what comes", func() bool { return cmp.Diff(w.known[comes.ID], comes) == "" })
	_, err := s.Revoke(t.Context(), access.Everything(), there.ID)
	must(t, err)
	w.await(t, "what goes", w.lacks(there.ID))
	w.await(t, "everything only once", func() bool { return w.lists == 1 })
}

func testCompacted(t *testing.T, s Store) {
	stays, goes := created(t, s, "lab"), created(t, s, "lab")
	w := watched(t, s)
	var comes access.Token
	s.Break(func() {
		_, err := s.Revoke(t.Context(), access.Everything(), goes.ID)
		must(t, err)
		comes = created(t, s, "lab")
	})
	w.await(t, "what went meanwhile", w.lacks(goes.ID))
	w.await(t, "what came meanwhile", w.has(comes.ID))
	w.await(t, "what stayed", w.has(stays.ID))
	later := created(t, s, "lab")
	w.await(t, "what comes later", w.has(later.ID))
}

func testRefused(t *testing.T, s Store) {
	b := access.NewBearer(s, "p", nil)
	background(t, func(ctx context.Context) { _ = b.Run(ctx) })
	token, secret := NewToken(t, "lab", 0)
	must(t, s.Create(t.Context(), token))
	patient.Until(t, "a new token counts", func() bool {
		caller, ok, _ := b.Authenticate(t.Context(), Request(t, secret))
		return ok && caller.Project == "lab" && caller.User == "ann" && caller.Has(access.Member)
	})
	_, err := s.Revoke(t.Context(), access.Everything(), token.ID)
	must(t, err)
	patient.Until(t, "a revoked token is refused", func() bool {
		_, _, err := b.Authenticate(t.Context(), Request(t, secret))
		return croft.KindOf(err) == croft.Denied
	})
}
