package session_test

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"croft"
	"croft/control/page/session"
)

// memory is a store in memory for one session.
type memory struct {
	session.Store
	mu     sync.Mutex
	stored *session.Record
}

func (m *memory) Put(_ context.Context, _, _ string, r session.Record, _ int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stored = &r
	return nil
}

func (m *memory) Get(context.Context, string, string) (session.Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stored == nil {
		return session.Record{}, croft.NotFound
	}
	return *m.stored, nil
}

func (m *memory) Replace(_ context.Context, _, _ string, former, r session.Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stored == nil || !reflect.DeepEqual(*m.stored, former) {
		return croft.Conflict
	}
	m.stored = &r
	return nil
}

func (m *memory) Remove(context.Context, string, string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stored = nil
	return nil
}

func begin(t *testing.T) (session.Sessions, session.Secret) {
	t.Helper()
	all := session.Sessions{Store: &memory{}}
	secret, _, err := all.Begin(t.Context(), "ann", "oidc", session.Credentials{Token: "1", Refresh: "r1",
		Expires: time.Now().Add(time.Minute)}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	return all, secret
}

func TestOneOfManyRequestsRenewsTheCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, secret := begin(t)
		var mu sync.Mutex
		asked := 0
		renew := func(_ context.Context, c session.Credentials) (session.Credentials, error) {
			time.Sleep(time.Second)
			mu.Lock()
			defer mu.Unlock()
			asked++
			if c.Refresh != fmt.Sprint("r", asked) {
				return c, croft.Errorf(croft.Denied, "this refresh token was used")
			}
			return session.Credentials{Token: fmt.Sprint(asked + 1), Refresh: fmt.Sprint("r", asked+1),
				Expires: time.Now().Add(time.Minute)}, nil
		}
		if err := all.Choose(t.Context(), secret, "lab"); err != nil {
			t.Fatal(err)
		}
		for round := 1; round <= 3; round++ {
			var work sync.WaitGroup
			for n := range 10 {
				work.Go(func() {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					if n%3 == 0 { // the browser leaves
						time.AfterFunc(time.Millisecond, cancel)
					}
					c, err := all.Credentials(ctx, secret, renew)
					if ctx.Err() == nil && (err != nil || c.Token != fmt.Sprint(round) || c.Project != "lab") {
						t.Errorf("round %d: got %v, %v", round, c, err)
					}
				})
			}
			work.Wait()
			time.Sleep(40 * time.Second)
		}
		if asked != 2 {
			t.Errorf("the issuer was asked %d times", asked)
		}
	})
}

func TestCredentialsThatCannotBeRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, secret := begin(t)
		time.Sleep(45 * time.Second)
		fail := func(kind croft.Kind) session.Renew {
			return func(_ context.Context, c session.Credentials) (session.Credentials, error) {
				return c, croft.Errorf(kind, "no")
			}
		}
		for range 2 { // at once, too
			if _, err := all.Credentials(t.Context(), secret, fail(croft.Unavailable)); croft.KindOf(err) !=
				croft.Unavailable {
				t.Errorf("an issuer that is away: %v", err)
			}
		}
		died := func(ctx context.Context, c session.Credentials) (session.Credentials, error) {
			panic("the server dies")
		}
		func() {
			defer func() { _ = recover() }()
			_, _ = all.Credentials(t.Context(), secret, died)
		}()
		began := time.Now()
		if _, err := all.Credentials(t.Context(), secret, fail(croft.Denied)); croft.KindOf(err) != croft.Denied ||
			time.Since(began) > 30*time.Second {
			t.Errorf("after a server died: %v, after %s", err, time.Since(began))
		}
		if _, err := all.Credentials(t.Context(), secret, nil); croft.KindOf(err) != croft.Denied {
			t.Errorf("the session goes on: %v", err)
		}
		if err := all.Choose(t.Context(), secret, "lab"); croft.KindOf(err) != croft.Denied {
			t.Errorf("the session can be changed: %v", err)
		}
	})
}

func TestHandshakesBelongToOneBrowserForTenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, other := session.NewHandshake("/ui/hosts?x=1"), session.NewHandshake("/ui/hosts?x=1")
		read, err := session.ParseHandshake(a.Text())
		if err != nil || read.Next != a.Next || read.State() != a.State() || read.Nonce() != a.Nonce() ||
			read.Verifier() != a.Verifier() || len(a.Verifier()) != 43 {
			t.Fatalf("read %v, %v", read, err)
		}
		if a.State() == other.State() || a.Nonce() == a.Verifier() || a.Nonce() == a.State() {
			t.Error("values are used twice")
		}
		changed := read
		changed.Next = "/ui/elsewhere"
		for what, err := range map[string]error{"another attempt": a.Check(other.State()), "no state": a.Check(""),
			"another address": changed.Check(a.State())} {
			if croft.KindOf(err) != croft.Denied {
				t.Errorf("%s: %v", what, err)
			}
		}
		time.Sleep(session.HandshakeLife - 2*time.Second)
		if err := read.Check(a.State()); err != nil {
			t.Error(err)
		}
		time.Sleep(3 * time.Second)
		if err := read.Check(a.State()); croft.KindOf(err) != croft.Denied {
			t.Errorf("after ten minutes: %v", err)
		}
		for _, text := range []string{"", ".", "x", a.Text()[:50], a.Text() + "!", "0123456789abcdef." + a.Text()} {
			if _, err := session.ParseHandshake(text); croft.KindOf(err) != croft.Denied {
				t.Errorf("%q: %v", text, err)
			}
		}
	})
}
