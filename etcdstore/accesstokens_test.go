package etcdstore_test

import (
	"context"
	"maps"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore"
	"croft/etcdstore/etcdserver"
	"croft/etcdstore/etcdtest"
	"croft/internal/testing/patient"
	"croft/tenant"
	"croft/tenant/access"
	"croft/tenant/access/accesstest"
)

func TestAccessTokensKeepTheContract(t *testing.T) {
	t.Parallel()
	accesstest.Run(t, func(t *testing.T) accesstest.Store {
		server := etcdtest.Server(t)
		store := etcdtest.Open(t, server)
		b := &breakable{}
		store.WatchThrough(b.watch)
		return accesstest.Store{Tokens: store.AccessTokens, TokenFeed: store.AccessTokens.NewFeed(),
			Break: func(do func()) { b.during(t, server, do) }}
	})
}

// breakable passes watches on until it breaks them.
type breakable struct {
	mu    sync.Mutex
	stops []chan struct{}
}

func (b *breakable) watch(ctx context.Context, own clientv3.Watcher, key string,
	opts ...clientv3.OpOption) clientv3.WatchChan {
	answers, stop := make(chan clientv3.WatchResponse), make(chan struct{})
	b.mu.Lock()
	b.stops = append(b.stops, stop)
	b.mu.Unlock()
	from := own.Watch(ctx, key, opts...)
	go func() {
		defer close(answers)
		for {
			select {
			case <-ctx.Done():
				return
			case <-stop: // receives while the history is lost, and is then closed
				<-stop
				select {
				case answers <- clientv3.WatchResponse{CompactRevision: 1 << 40}:
				case <-ctx.Done():
				}
				return
			case answer := <-from:
				select {
				case answers <- answer:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	return answers
}

// during suspends the watches, calls do, compacts the history and lets the watches notice.
func (b *breakable) during(t *testing.T, server *etcdserver.Server, do func()) {
	b.mu.Lock()
	stops := b.stops
	b.stops = nil
	b.mu.Unlock()
	for _, stop := range stops {
		stop <- struct{}{}
	}
	do()
	etcdtest.Compact(t, server)
	for _, stop := range stops {
		close(stop)
	}
}

func TestNothingStoredOfATokenIsItsSecret(t *testing.T) {
	t.Parallel()
	server := etcdtest.Server(t)
	store := etcdtest.Open(t, server)
	token, secret := accesstest.NewToken(t, "lab", 0)
	if err := store.AccessTokens.Create(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	etcd := etcdtest.Client(t, server, etcdstore.Credentials{})
	all := etcdtest.Must(etcd.Get(t.Context(), "/", clientv3.WithPrefix()))(t)
	found := false
	for _, kv := range all.Kvs {
		found = found || strings.HasSuffix(string(kv.Key), "/tokens/lab/"+string(token.ID))
		if strings.Contains(string(kv.Value), secret.Text()[19:]) {
			t.Errorf("%s holds the secret", kv.Key)
		}
	}
	if !found {
		t.Error("the token is not where keys.go says")
	}
}

func TestARecordThatCannotBeReadLetsNobodyIn(t *testing.T) {
	t.Parallel()
	server := etcdtest.Server(t)
	store := etcdtest.Open(t, server)
	spoiled, secret := accesstest.NewToken(t, "lab", 0)
	good, goodSecret := accesstest.NewToken(t, "lab", 0)
	for _, token := range []access.Token{spoiled, good} {
		if err := store.AccessTokens.Create(t.Context(), token); err != nil {
			t.Fatal(err)
		}
	}
	spoil := func(id access.TokenID) {
		if err := etcdtest.Put(t.Context(), server.Endpoint(), store.Partition(), "tokens/lab/"+string(id),
			"no token"); err != nil {
			t.Fatal(err)
		}
	}
	spoil(spoiled.ID)
	b := access.NewBearer(store.AccessTokens.NewFeed(), store.Partition(), nil)
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	work.Go(func() { _ = b.Run(ctx) })
	defer func() { cancel(); work.Wait() }()
	kind := func(s access.Secret) croft.Kind {
		_, _, err := b.Authenticate(t.Context(), accesstest.Request(t, s))
		return croft.KindOf(err)
	}
	patient.Until(t, "a token beside it counts", func() bool { return kind(goodSecret) == "" })
	if got := kind(secret); got != croft.Denied {
		t.Errorf("a spoiled token: %q", got)
	}
	spoil(good.ID)
	patient.Until(t, "a token that is spoiled later counts no more",
		func() bool { return kind(goodSecret) == croft.Denied })
	if _, err := store.AccessTokens.List(t.Context(), access.Everything()); err == nil ||
		!strings.Contains(err.Error(), "decode") {
		t.Errorf("the list hides it: %v", err)
	}
}

func TestTokensGoWithTheirProject(t *testing.T) {
	t.Parallel()
	store := etcdtest.Start(t)
	if _, err := store.Projects.Create(t.Context(), tenant.Tenant{Name: "lab"}); err != nil {
		t.Fatal(err)
	}
	for _, p := range []croft.Project{"lab", "lab", "lab-2", ""} {
		token, _ := accesstest.NewToken(t, p, 0)
		if err := store.AccessTokens.Create(t.Context(), token); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Projects.Remove(t.Context(), "lab"); err != nil {
		t.Fatal(err)
	}
	left := map[croft.Project]int{}
	for _, token := range etcdtest.Must(store.AccessTokens.List(t.Context(), access.Everything()))(t) {
		left[token.Project]++
	}
	if want := map[croft.Project]int{"lab-2": 1, "": 1}; !maps.Equal(left, want) {
		t.Errorf("left are %v, want %v", left, want)
	}
}

// TestNoTokenOutlivesItsProject tests both orders, and a project that is created again, at each moment of the creation.
func TestNoTokenOutlivesItsProject(t *testing.T) {
	t.Parallel()
	create := func(t *testing.T, s *etcdstore.Store) {
		etcdtest.Must(s.Projects.Create(t.Context(), tenant.Tenant{Name: "lab"}))(t)
	}
	remove := func(t *testing.T, s *etcdstore.Store) {
		if err := s.Projects.Remove(t.Context(), "lab"); err != nil {
			t.Error(err)
		}
	}
	for _, c := range []struct {
		name                  string
		before, during, after func(*testing.T, *etcdstore.Store) // nil: nothing happens
		want, within          croft.Kind
	}{
		{"removed afterwards", create, nil, remove, "", ""},
		{"removed meanwhile", create, remove, nil, croft.Conflict, croft.Conflict},
		{"removed and made again meanwhile", create,
			func(t *testing.T, s *etcdstore.Store) { remove(t, s); create(t, s) }, nil, croft.Conflict, croft.Conflict},
		{"removed before", func(t *testing.T, s *etcdstore.Store) { create(t, s); remove(t, s) }, nil, create, "",
			croft.NotFound},
		{"made meanwhile", nil, create, nil, croft.Conflict, croft.NotFound},
	} {
		for n := range 4 {
			within, writing := n%2 == 1, n/2 == 1 // otherwise at the read of the project
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				server := etcdtest.Server(t)
				store, other := etcdtest.Open(t, server), etcdtest.Open(t, server)
				do := func(step func(*testing.T, *etcdstore.Store)) {
					if step != nil {
						step(t, other)
					}
				}
				do(c.before)
				store.BeforeTxn(func() {
					if !writing {
						do(c.during)
						return
					}
					store.BeforeTxn(func() { do(c.during) })
				})
				token, _ := accesstest.NewToken(t, "lab", 0)
				make, want := store.AccessTokens.Create, c.want
				if within {
					make, want = store.AccessTokens.CreateWithin, c.within
				}
				etcdtest.WantKind(t, make(t.Context(), token), want)
				do(c.after)
				left := etcdtest.Must(store.AccessTokens.List(t.Context(), access.Everything()))(t)
				// an operator created it, for a name without a project
				outlives := c.name == "removed before" && !within
				if len(left) > 0 != outlives {
					t.Errorf("there is %+v", left)
				}
				if found := etcdtest.Must(store.Projects.Check(t.Context()))(t); len(found) > 0 {
					t.Errorf("what is counted differs: %+v", found)
				}
			})
		}
	}
}

func TestATokenIsRevokedOnce(t *testing.T) {
	t.Parallel()
	store := etcdtest.Start(t)
	token, _ := accesstest.NewToken(t, "lab", 0)
	if err := store.AccessTokens.Create(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	store.BeforeTxn(func() {
		etcdtest.Must(store.AccessTokens.Revoke(t.Context(), access.Everything(), token.ID))(t)
	})
	_, err := store.AccessTokens.Revoke(t.Context(), access.Everything(), token.ID)
	etcdtest.WantKind(t, err, croft.NotFound)
}

func TestTokensAreUnavailableOnceTheServerHasEnded(t *testing.T) {
	t.Parallel()
	server, err := etcdserver.Start(t.Context(), etcdserver.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0",
		Unsynced: true})
	if err != nil {
		t.Fatal(err)
	}
	store, err := etcdstore.Open(t.Context(), etcdstore.Config{Embedded: server, Mint: true})
	if err != nil {
		t.Fatal(err)
	}
	token, _ := accesstest.NewToken(t, "lab", 0)
	server.Close()
	s := store.AccessTokens
	_, found := s.Find(t.Context(), access.Everything(), token.ID)
	_, listed := s.List(t.Context(), access.Everything())
	_, revoked := s.Revoke(t.Context(), access.Everything(), token.ID)
	for _, err := range []error{s.Create(t.Context(), token), found, listed, revoked} {
		etcdtest.WantKind(t, err, croft.Unavailable)
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
}
