package access_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"croft"
	"croft/tenant/access"
	"croft/tenant/access/accesstest"
)

// bearer runs a Bearer with a store in memory until the end of the bubble.
func bearer(t *testing.T, m *accesstest.Memory) *access.Bearer {
	t.Helper()
	b := access.NewBearer(m, "partition", nil)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { _ = b.Run(ctx) }()
	t.Cleanup(func() { cancel(); synctest.Wait() })
	synctest.Wait()
	return b
}

func made(t *testing.T, m *accesstest.Memory, p croft.Project) (access.Token, access.Secret) {
	t.Helper()
	token, s := accesstest.NewToken(t, p, 0)
	if err := m.Create(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	return token, s
}

func TestWhoATokenStandsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := accesstest.NewMemory()
		token, s := made(t, m, "lab")
		_, other := made(t, m, "lab")
		b := bearer(t, m)
		text := s.Text()
		unknown := access.NewSecret().Text()
		for _, c := range []struct {
			name    string
			headers []string
			ok      bool
			says    string // part of an error of kind Denied
		}{
			{"its holder", []string{"Authorization", "Bearer " + text}, true, ""},
			{"its holder in small letters", []string{"authorization", "bearer " + text}, true, ""},
			{"its holder after two spaces", []string{"Authorization", "Bearer  " + text}, true, ""},
			{"nobody", nil, false, ""},
			{"another scheme", []string{"Authorization", "Basic " + text}, false, ""},
			{"no scheme", []string{"Authorization", text}, false, ""},
			{"another header", []string{"X-Auth-Token", text}, false, ""},
			{"a token of another kind", []string{"Authorization", "Bearer eyJhbGciOiJSUzI1NiJ9.e30.x"}, false, ""},
			{"a token that is cut off", []string{"Authorization", "Bearer " + text[:40]}, false, "was it cut off?"},
			{"a token that there is not", []string{"Authorization", "Bearer " + unknown}, false, "is not known"},
			{"another token's secret", []string{"Authorization", "Bearer " + text[:19] + other.Text()[19:]}, false,
				"is not known"},
			{"two headers", []string{"Authorization", "Bearer " + text, "Authorization", "Bearer " + text}, false,
				"2 Authorization headers"},
		} {
			caller, ok, err := b.Authenticate(t.Context(), request(t, c.headers...))
			if ok != c.ok || (croft.KindOf(err) == croft.Denied) != (c.says != "") {
				t.Errorf("%s: got %v, %v", c.name, ok, err)
			}
			if c.says != "" && err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: it says %q, want %q in it", c.name, err, c.says)
			}
			if err != nil && strings.Contains(err.Error(), text[19:30]) {
				t.Errorf("%s: the error repeats the secret", c.name)
			}
			if ok && (caller.Partition != "partition" || caller.User != "ann" || caller.Project != "lab" ||
				!caller.Has(access.Member) || len(caller.Roles) != 1 || caller.Via != "token "+string(token.ID)) {
				t.Errorf("%s: it is %+v", c.name, caller)
			}
			if !ok && (caller.User != "" || caller.Roles != nil) {
				t.Errorf("%s: refused as %+v", c.name, caller)
			}
		}
	})
}

func TestATokenCountsUntilItExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := accesstest.NewMemory()
		token, s := made(t, m, "lab")
		b := bearer(t, m)
		time.Sleep(time.Until(token.Expires) - 1)
		if _, ok, err := b.Authenticate(t.Context(), accesstest.Request(t, s)); !ok || err != nil {
			t.Errorf("at the last moment: %v, %v", ok, err)
		}
		time.Sleep(time.Nanosecond)
		_, ok, err := b.Authenticate(t.Context(), accesstest.Request(t, s))
		if ok || croft.KindOf(err) != croft.Denied ||
			!strings.Contains(err.Error(), "expired on 2000-01-01 01:00:00 UTC") {
			t.Errorf("a moment later: %v, %v", ok, err)
		}
		wrong := s.Text()[:19] + access.NewSecret().Text()[19:]
		if _, _, err = b.Authenticate(t.Context(), request(t, "Authorization", "Bearer "+wrong)); err == nil ||
			strings.Contains(err.Error(), "expired on") {
			t.Errorf("with a wrong secret it says %v", err)
		}
	})
}

func TestTheClockMayBeAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := accesstest.NewMemory()
		token, s := made(t, m, "lab")
		b := access.NewBearer(m, "partition", func() time.Time { return token.Expires })
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = b.Run(ctx) }()
		synctest.Wait()
		if _, _, err := b.Authenticate(t.Context(), accesstest.Request(t, s)); croft.KindOf(err) != croft.Denied {
			t.Errorf("got %v", err)
		}
		cancel()
		synctest.Wait()
	})
}

func TestBeforeTheTokensAreReadNobodyIsRefused(t *testing.T) {
	b := access.NewBearer(accesstest.NewMemory(), "partition", nil)
	_, ok, err := b.Authenticate(t.Context(), accesstest.Request(t, access.NewSecret()))
	if ok || croft.KindOf(err) != croft.Unavailable {
		t.Errorf("got %v, %v", ok, err)
	}
}

func TestACallerCannotChangeItsToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := accesstest.NewMemory()
		_, s := made(t, m, "lab")
		b := bearer(t, m)
		caller, _, _ := b.Authenticate(t.Context(), accesstest.Request(t, s))
		caller.Roles[0] = access.PartitionAdmin
		if again, ok, err := b.Authenticate(t.Context(), accesstest.Request(t, s)); !ok || again.Operator() {
			t.Errorf("it is %+v now, %v", again, err)
		}
	})
}

func TestTokensThatComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := accesstest.NewMemory()
		b := bearer(t, m)
		token, s := made(t, m, "lab")
		synctest.Wait()
		if _, ok, err := b.Authenticate(t.Context(), accesstest.Request(t, s)); !ok {
			t.Errorf("a new token: %v", err)
		}
		if _, err := m.Revoke(t.Context(), access.Within("lab"), token.ID); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		_, ok, err := b.Authenticate(t.Context(), accesstest.Request(t, s))
		if ok || croft.KindOf(err) != croft.Denied {
			t.Errorf("a revoked token: %v, %v", ok, err)
		}
	})
}

func TestBearerTokensOfRequests(t *testing.T) {
	for _, c := range []struct {
		header string
		text   string
		ok     bool
	}{
		{"Bearer abc", "abc", true}, {"bEARER  abc", "abc", true}, {"Bearer", "", true}, {"Basic abc", "", false},
		{"abc", "", false}, {"Bearerabc", "", false},
	} {
		if text, ok, err := access.BearerToken(request(t, "Authorization", c.header)); text != c.text || ok != c.ok ||
			err != nil {
			t.Errorf("%q: got %q, %v, %v", c.header, text, ok, err)
		}
	}
}

func TestATokenEndsWithTheOneWithWhichItWasMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := accesstest.NewMemory()
		parent, _ := made(t, m, "lab")
		child, s := accesstest.NewToken(t, "lab", 0)
		child.Parent, child.Delegated, child.CreatedBy = parent.ID, true, "boss"
		if err := m.Create(t.Context(), child); err != nil {
			t.Fatal(err)
		}
		b := bearer(t, m)
		ask := func() (access.Caller, bool, error) {
			return b.Authenticate(t.Context(), request(t, "Authorization", "Bearer "+s.Text()))
		}
		caller, ok, err := ask()
		if !ok || caller.Delegated != "boss" {
			t.Fatalf("%+v, %v", caller, err)
		}
		if err := access.Authorize(caller, access.Operation{Rule: access.Changes, Personal: true}, "lab"); croft.KindOf(
			err,
		) != croft.Denied {
			t.Errorf("what belongs to the user in person: %v", err)
		}
		if err := access.Authorize(caller, access.Operation{Rule: access.Changes}, "lab"); err != nil {
			t.Errorf("what the role permits: %v", err)
		}
		if _, err := m.Revoke(t.Context(), access.Everything(), parent.ID); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if _, ok, err := ask(); ok || croft.KindOf(err) != croft.Denied {
			t.Errorf("after the end of the other: %v, %v", ok, err)
		}
	})
}

// lagging is a feed that reports tokens only in CatchUp.
type lagging struct {
	all     []access.Token
	news    chan access.Token
	revoked chan access.TokenID
	later   []access.Token
	away    bool // the store does not answer
}

func (f *lagging) Watch(ctx context.Context, all func([]access.Token),
	changed func(access.TokenID, *access.Token)) error {
	all(f.all)
	for {
		select {
		case t := <-f.news:
			changed(t.ID, &t)
		case id := <-f.revoked:
			changed(id, nil)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (f *lagging) CatchUp(context.Context) error {
	if f.away {
		return croft.Errorf(croft.Unavailable, "etcd does not answer")
	}
	for _, t := range f.later {
		f.news <- t
	}
	f.later = nil
	synctest.Wait()
	return nil
}

// TestATokenThatWasJustMadeIsKnown checks that an unknown token makes the feed catch up. A token that is known to be
// removed is refused without that, even while the store is unavailable.
func TestATokenThatWasJustMadeIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		token, secret := accesstest.NewToken(t, "lab", 0)
		f := &lagging{news: make(chan access.Token), revoked: make(chan access.TokenID), later: []access.Token{token}}
		b := access.NewBearer(f, "partition", nil)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = b.Run(ctx) }()
		t.Cleanup(func() { cancel(); synctest.Wait() })
		synctest.Wait()
		ask := func(secret access.Secret) error {
			r := httptest.NewRequest(http.MethodGet, "/v1/whoami", nil)
			r.Header.Set("Authorization", "Bearer "+secret.Text())
			_, _, err := b.Authenticate(t.Context(), r)
			return err
		}
		if err := ask(secret); err != nil {
			t.Errorf("just made: %v", err)
		}
		if err := ask(access.NewSecret()); croft.KindOf(err) != croft.Denied {
			t.Errorf("made up: %v", err)
		}
		f.revoked <- token.ID
		synctest.Wait()
		f.away = true
		if err := ask(secret); croft.KindOf(err) != croft.Denied {
			t.Errorf("revoked: %v", err)
		}
		if err := ask(access.NewSecret()); croft.KindOf(err) != croft.Unavailable {
			t.Errorf("unknown while the store is away: %v", err)
		}
	})
}
