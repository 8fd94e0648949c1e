package tenants_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"croft"
	"croft/etcdstore"
	"croft/etcdstore/etcdtest"
	"croft/tenant"
	"croft/tenant/access"
	"croft/tenant/access/accesstest"
)

// newToken stores a token of a project that expired daysAgo days ago.
func newToken(t *testing.T, s *etcdstore.Store, p croft.Project, daysAgo int) access.Token {
	t.Helper()
	token, _ := accesstest.NewToken(t, p, -daysAgo*24*60)
	if err := s.AccessTokens.Create(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	return token
}

func TestTokensAreCountedForTheWholeChain(t *testing.T) {
	t.Parallel()
	server := etcdtest.Server(t)
	stores := []*etcdstore.Store{etcdtest.Open(t, server), etcdtest.Open(t, server), etcdtest.Open(t, server)}
	s := stores[0]
	newProject(t, s, "org", "", tenant.Limits{tenant.CountTokens: 5})
	newProject(t, s, "dev", "org", nil)
	var made, refused atomic.Int64
	var work sync.WaitGroup
	for i := range 12 {
		token, _ := accesstest.NewToken(t, "dev", i)
		work.Go(func() {
			err := stores[i%3].AccessTokens.Create(t.Context(), token)
			refusal, is := errors.AsType[*tenant.Refusal](err)
			want := &tenant.Refusal{Measure: tenant.CountTokens, Limit: 5, Used: 5, Requested: 1, Project: "org",
				Of: "dev"}
			switch {
			case err == nil:
				made.Add(1)
			case croft.KindOf(err) == croft.OverQuota && is && cmp.Diff(want, refusal) == "":
				refused.Add(1)
			default:
				t.Errorf("refused with %v", err)
			}
		})
	}
	work.Wait()
	if made.Load() != 5 || refused.Load() != 7 {
		t.Errorf("%d made and %d refused, want 5 and 7", made.Load(), refused.Load())
	}
	newToken(t, s, "", 0) // an operator's token belongs to no project
	all := etcdtest.Must(s.AccessTokens.List(t.Context(), access.Within("dev")))(t)
	etcdtest.Must(s.AccessTokens.Revoke(t.Context(), access.Everything(), all[0].ID))(t)
	newToken(t, s, "dev", 0) // the released room is available immediately
	countsHold(t, s)
	if err := s.Projects.Remove(t.Context(), "dev"); err != nil {
		t.Fatal(err)
	}
	if left := used(t, s, "org"); len(left) > 0 {
		t.Errorf("a project that is gone leaves %s", left)
	}
	countsHold(t, s)
}

func TestATokenThatExpiredLongAgoIsRemovedAndGivenBack(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t)
	newToken(t, s, "lab", 8)
	late := newToken(t, s, "lab", 6)
	operators := newToken(t, s, "", 8)
	if err := s.AccessTokens.RemoveExpired(t.Context()); err != nil {
		t.Fatal(err)
	}
	left := etcdtest.Must(s.AccessTokens.List(t.Context(), access.Everything()))(t)
	if len(left) != 1 || left[0].ID != late.ID {
		t.Errorf("left: %+v, want %s, and not %s", left, late.ID, operators.ID)
	}
	if diff := cmp.Diff(tenant.Amounts{tenant.CountTokens: 1}, used(t, s, "lab")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	countsHold(t, s)
}

// Tokens and instances of one project are charged at the same time, with limits and without.
func TestTokensAndInstancesTogether(t *testing.T) {
	t.Parallel()
	server := etcdtest.Server(t)
	stores := []*etcdstore.Store{etcdtest.Open(t, server), etcdtest.Open(t, server)}
	newProject(t, stores[0], "tight", "", tenant.Limits{tenant.CountTokens: 100, "VCPU": 100})
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var work sync.WaitGroup
	for w := range 4 {
		work.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(w)))
			s := stores[w%2]
			for range 12 {
				name := []croft.Project{"tight", "free"}[random.IntN(2)]
				vm := fmt.Sprintf("vm-%d-%d", w, random.Int64())
				inst := etcdtest.Must(s.Instances.Create(t.Context(), asked(name, vm, 1)))(t)
				token := newToken(t, s, name, 0)
				if random.IntN(2) == 0 {
					if err := s.Instances.Discard(t.Context(), inst); err != nil {
						t.Error(err)
					}
				}
				if random.IntN(2) == 0 {
					etcdtest.Must(s.AccessTokens.Revoke(t.Context(), access.Everything(), token.ID))(t)
				}
			}
		})
	}
	work.Wait()
	countsHold(t, stores[0])
}

func TestANameThatUsesSomethingIsNotPutBelowAnother(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t)
	newProject(t, s, "org", "", nil)
	token := newToken(t, s, "dev", 0)
	_, err := s.Projects.Create(t.Context(), tenant.Tenant{Name: "dev", Parent: "org"})
	etcdtest.WantKind(t, err, croft.Conflict)
	etcdtest.Must(s.AccessTokens.Revoke(t.Context(), access.Everything(), token.ID))(t)
	newProject(t, s, "dev", "org", nil)
	newToken(t, s, "dev", 0)
	if diff := cmp.Diff(tenant.Amounts{tenant.CountTokens: 1}, used(t, s, "org")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	countsHold(t, s)
}

// TestTokensEndWithTheirMember: the member's tokens in that project are removed, and no others, while tokens are
// created concurrently.
func TestTokensEndWithTheirMember(t *testing.T) {
	t.Parallel()
	s := etcdtest.Open(t, etcdtest.Server(t))
	newProject(t, s, "org", "", nil)
	p := newProject(t, s, "dev", "org", nil)
	newProject(t, s, "other", "", nil)
	p.Members = map[string]access.Role{"ann": access.Member, "bob": access.Member}
	p = etcdtest.Must(s.Projects.Change(t.Context(), p))(t)
	make := func(user string, project croft.Project) access.Token {
		token, _ := accesstest.NewToken(t, project, 60)
		token.User = user
		if err := s.AccessTokens.Create(t.Context(), token); err != nil {
			t.Error(err)
		}
		return token
	}
	make("ann", "dev")
	bobs, elsewhere := make("bob", "dev"), make("ann", "other")
	var work sync.WaitGroup
	for range 8 { // either before the change, which removes them, or after it
		work.Go(func() { make("ann", "dev") })
	}
	delete(p.Members, "ann")
	etcdtest.Must(s.Projects.Change(t.Context(), p))(t)
	work.Wait()
	countsHold(t, s)
	p = etcdtest.Must(s.Projects.List(t.Context(), access.Within("dev")))(t)[0]
	p.Members = map[string]access.Role{"ann": access.Reader, "bob": access.Member}
	p = etcdtest.Must(s.Projects.Change(t.Context(), p))(t)
	delete(p.Members, "ann")
	etcdtest.Must(s.Projects.Change(t.Context(), p))(t)
	left := etcdtest.Must(s.AccessTokens.List(t.Context(), access.Within("dev")))(t)
	if len(left) != 1 || left[0].ID != bobs.ID {
		t.Errorf("left are %+v", left)
	}
	if _, err := s.AccessTokens.Find(t.Context(), access.Everything(), elsewhere.ID); err != nil {
		t.Errorf("that of another project: %v", err)
	}
	countsHold(t, s)
}
