// Package placementtest tests the guarantees of a Placement client, against any server.
package placementtest

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"croft"
	"croft/placementclient"
)

// Options describes the limits of a server under test.
type Options struct {
	Serial bool                 // no concurrent requests
	Auth   placementclient.Auth // if the token admin does not work
}

// Run tests a client of the server at endpoint, which need not be empty. If endpoint is "", it tests the server that
// o.Auth finds.
func Run(t *testing.T, endpoint string, o Options) {
	transport := &counter{under: http.DefaultTransport.(*http.Transport).Clone()}
	client, err := placementclient.New(placementclient.Config{Endpoint: endpoint, Auth: o.Auth, Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(transport.under.CloseIdleConnections)
	s := &suite{client: client, sent: transport}
	t.Run("a provider becomes what it is said to be", s.ensure)
	t.Run("to say the same again writes nothing", s.ensureAgain)
	t.Run("a name is taken once", s.nameTaken)
	t.Run("custom classes and traits are made, unknown standard ones left out", s.custom)
	t.Run("a claim takes what the candidate says and nothing more", s.claim)
	t.Run("the same claim again is there already", s.claimAgain)
	t.Run("what does not fit is no capacity", s.full)
	t.Run("release gives back, also what is not there", s.release)
	t.Run("a claim moves at once or not at all", s.reclaim)
	t.Run("a claim is released where it is", s.releaseWhere)
	t.Run("claims stay, and do not grow, on a provider that became smaller than its use", s.shrunk)
	t.Run("a disk is claimed from what its host shares, and the rest from the host", s.shared)
	t.Run("a UUID that is used again has another claim", s.reuse)
	t.Run("what an owner claims is what Placement says that it uses", s.usage)
	t.Run("a provider goes once nobody claims from it", s.removeProvider)
	t.Run("a drained provider has no candidates", s.drained)
	t.Run("traits narrow the candidates, unknown ones are invalid", s.traits)
	t.Run("a query that Placement refuses is invalid", s.refused)
	t.Run("claims of an unknown provider are not found", s.unknown)
	if !o.Serial {
		t.Run("of many at once as many as fit get a place", s.race)
	}
}

// owner owns the claims of the tests.
var owner = croft.Owner{Partition: croft.NewPartitionID(), Project: "project"}

type suite struct {
	client *placementclient.Client
	sent   *counter
}

// counter counts requests that write. It does not count croft's own requests that are answered 204, because those
// changed nothing.
type counter struct {
	under  *http.Transport
	writes atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (c *counter) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := c.under.RoundTrip(r)
	nothing := err == nil && resp.StatusCode == http.StatusNoContent && strings.HasPrefix(r.URL.Path, "/croft/")
	if r.Method != http.MethodGet && !nothing {
		c.writes.Add(1)
	}
	return resp, err
}

func host(name string) croft.Provider {
	id := croft.NewHostID()
	return croft.Provider{ID: id, Name: name + "-" + string(id[:8]),
		Inventories: map[croft.ResourceClass]croft.Inventory{
			croft.VCPU:     {Total: 4, MinUnit: 1, MaxUnit: 4, StepSize: 1, AllocationRatio: 2},
			croft.MemoryMB: {Total: 4096, Reserved: 512, MinUnit: 1, MaxUnit: 4096, StepSize: 1, AllocationRatio: 1},
			croft.DiskGB:   {Total: 100, MinUnit: 1, MaxUnit: 100, StepSize: 1, AllocationRatio: 1},
		}, Traits: []croft.Trait{"COMPUTE_NODE", "HW_CPU_X86_AVX2"}, Aggregates: []string{uuid.NewString()}}
}

// add creates a provider.
func (s *suite) add(t *testing.T, p croft.Provider) croft.Provider {
	t.Helper()
	if err := s.client.EnsureProvider(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	return p
}

// read returns one provider from the list of all providers.
func (s *suite) read(t *testing.T, id croft.HostID) croft.Provider {
	t.Helper()
	all, err := s.client.Providers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(all, func(p croft.Provider) bool { return p.ID == id })
	if at < 0 {
		t.Fatalf("provider %s is not listed", id)
	}
	slices.Sort(all[at].Traits)
	return all[at]
}

// query asks for resources on one provider.
func query(p croft.Provider, resources string) string {
	return "resources=" + resources + "&in_tree=" + string(p.ID)
}

func (s *suite) candidates(t *testing.T, query string) []croft.Candidate {
	t.Helper()
	list, err := s.client.Candidates(t.Context(), query, 10)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func (s *suite) ensure(t *testing.T) {
	p := s.add(t, host("ensure"))
	p.Root, p.Used = p.ID, croft.Resources{croft.VCPU: 0, croft.MemoryMB: 0, croft.DiskGB: 0}
	if diff := cmp.Diff(p, s.read(t, p.ID)); diff != "" {
		t.Error("differs (-want +got):", diff)
	}
	p.Name += "-renamed"
	p.Inventories[croft.VCPU] = croft.Inventory{Total: 8, Reserved: 1, MinUnit: 1, MaxUnit: 8, StepSize: 1,
		AllocationRatio: 1.5}
	delete(p.Inventories, croft.DiskGB)
	delete(p.Used, croft.DiskGB)
	p.Traits, p.Aggregates = []croft.Trait{"COMPUTE_NODE"}, []string{uuid.NewString(), uuid.NewString()}
	slices.Sort(p.Aggregates)
	s.add(t, p)
	got := s.read(t, p.ID)
	slices.Sort(got.Aggregates)
	if diff := cmp.Diff(p, got); diff != "" {
		t.Error("after a change (-want +got):", diff)
	}
}

func (s *suite) ensureAgain(t *testing.T) {
	p := host("again")
	p.Traits = append(p.Traits, "HW_CPU_X86_NOT_KNOWN_TO_ANYBODY")
	s.add(t, p)
	before := s.sent.writes.Load()
	s.add(t, p)
	if n := s.sent.writes.Load() - before; n != 0 {
		t.Errorf("%d requests that write", n)
	}
}

func (s *suite) nameTaken(t *testing.T) {
	p := s.add(t, host("name"))
	rival := host("other")
	rival.Name = p.Name
	if err := s.client.EnsureProvider(t.Context(), rival); !errors.Is(err, croft.Conflict) {
		t.Errorf("got %v, want a conflict", err)
	}
}

func (s *suite) custom(t *testing.T) {
	p := host("custom")
	class := croft.ResourceClass("CUSTOM_THING_" + suffix())
	trait := croft.Trait("CUSTOM_QUALITY_" + suffix())
	p.Inventories[class] = croft.Inventory{Total: 2}
	p.Traits = append(p.Traits, trait, "HW_CPU_X86_NOT_KNOWN_TO_ANYBODY")
	s.add(t, p)
	got := s.read(t, p.ID)
	if i := got.Inventories[class]; i.Total != 2 || i.MinUnit != 1 || i.MaxUnit != 2 || i.StepSize != 1 ||
		i.AllocationRatio != 1 {
		t.Errorf("inventory of %s is %+v", class, i)
	}
	if want := []croft.Trait{"COMPUTE_NODE", trait, "HW_CPU_X86_AVX2"}; !sameTraits(got.Traits, want) {
		t.Errorf("traits are %v, want %v", got.Traits, want)
	}
}

func suffix() string { return fmt.Sprintf("%X", uuid.New().ID()) }

func sameTraits(a, b []croft.Trait) bool {
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

func (s *suite) claim(t *testing.T) {
	p := s.add(t, host("claim"))
	list := s.candidates(t, query(p, "VCPU:2,MEMORY_MB:1024"))
	if len(list) != 1 {
		t.Fatalf("%d candidates, want 1", len(list))
	}
	want := croft.Candidate{
		Allocations: map[croft.HostID]croft.Resources{p.ID: {croft.VCPU: 2, croft.MemoryMB: 1024}},
		Summaries: map[croft.HostID]croft.Summary{p.ID: {
			Root:     p.ID,
			Capacity: croft.Resources{croft.VCPU: 8, croft.MemoryMB: 3584, croft.DiskGB: 100},
			Used:     croft.Resources{croft.VCPU: 0, croft.MemoryMB: 0, croft.DiskGB: 0},
		}},
	}
	if diff := cmp.Diff(want, list[0]); diff != "" {
		t.Error("candidate (-want +got):", diff)
	}
	id := croft.NewInstanceID()
	if err := s.client.Claim(t.Context(), id, owner, list[0]); err != nil {
		t.Fatal(err)
	}
	claims, err := s.client.Claims(t.Context(), p.ID)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[croft.InstanceID]croft.Resources{id: {croft.VCPU: 2, croft.MemoryMB: 1024}},
		claims); diff != "" {
		t.Error("claims (-want +got):", diff)
	}
	if used := s.read(t, p.ID).Used; used[croft.VCPU] != 2 || used[croft.MemoryMB] != 1024 {
		t.Errorf("used %v", used)
	}
}

// take claims on a provider and returns the error of Claim.
func (s *suite) take(t *testing.T, p croft.Provider, id croft.InstanceID, r croft.Resources) error {
	return s.client.Claim(t.Context(), id, owner,
		croft.Candidate{Allocations: map[croft.HostID]croft.Resources{p.ID: r}})
}

func (s *suite) claimAgain(t *testing.T) {
	p, id := s.add(t, host("twice")), croft.NewInstanceID()
	for range 2 {
		if err := s.take(t, p, id, croft.Resources{croft.VCPU: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.take(t, p, id, croft.Resources{croft.VCPU: 2}); !errors.Is(err, croft.Conflict) {
		t.Errorf("another claim for the same instance: got %v, want a conflict", err)
	}
	if used := s.read(t, p.ID).Used[croft.VCPU]; used != 1 {
		t.Errorf("used %d, want 1", used)
	}
}

func (s *suite) full(t *testing.T) {
	p := s.add(t, host("full"))
	for n := range 8 {
		if err := s.take(t, p, croft.NewInstanceID(), croft.Resources{croft.VCPU: 1}); err != nil {
			t.Fatalf("claim %d: %v", n, err)
		}
	}
	if err := s.take(t, p, croft.NewInstanceID(), croft.Resources{croft.VCPU: 1}); !errors.Is(err, croft.NoCapacity) {
		t.Errorf("got %v, want no capacity", err)
	}
	if list := s.candidates(t, query(p, "VCPU:1")); len(list) != 0 {
		t.Errorf("a full provider is a candidate: %v", list)
	}
}

func (s *suite) release(t *testing.T) {
	p, id := s.add(t, host("release")), croft.NewInstanceID()
	if err := s.take(t, p, id, croft.Resources{croft.VCPU: 8}); err == nil {
		t.Fatal("more than max_unit was granted")
	}
	if err := s.take(t, p, id, croft.Resources{croft.VCPU: 4}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.client.Release(t.Context(), id, croft.On()); err != nil {
			t.Fatal(err)
		}
	}
	if claims, err := s.client.Claims(t.Context(), p.ID); err != nil || len(claims) != 0 {
		t.Errorf("claims %v, %v", claims, err)
	}
	if err := s.take(t, p, id, croft.Resources{croft.VCPU: 4}); err != nil {
		t.Errorf("claim after release: %v", err)
	}
}

func (s *suite) drained(t *testing.T) {
	p := s.add(t, host("drained"))
	for class, i := range p.Inventories {
		i.Reserved = i.Total
		p.Inventories[class] = i
	}
	s.add(t, p)
	if list := s.candidates(t, query(p, "VCPU:1")); len(list) != 0 {
		t.Errorf("candidates %v", list)
	}
}

func (s *suite) traits(t *testing.T) {
	p := s.add(t, host("traits"))
	for q, want := range map[string]int{
		"&required=HW_CPU_X86_AVX2":                             1,
		"&required=HW_CPU_X86_AVX512F":                          0,
		"&required=!HW_CPU_X86_AVX512F":                         1,
		"&required=in:HW_CPU_X86_AVX2,HW_CPU_X86_AVX512F":       1,
		"&member_of=" + p.Aggregates[0]:                         1,
		"&member_of=!" + p.Aggregates[0]:                        0,
		"&member_of=in:" + p.Aggregates[0] + "," + string(p.ID): 1,
	} {
		if list := s.candidates(t, query(p, "VCPU:1")+q); len(list) != want {
			t.Errorf("%s: %d candidates, want %d", q, len(list), want)
		}
	}
	if _, err := s.client.Candidates(t.Context(), query(p, "VCPU:1")+"&required=NO_SUCH_TRAIT", 1); !errors.Is(err,
		croft.Invalid) {
		t.Errorf("unknown trait: got %v, want invalid", err)
	}
}

func (s *suite) refused(t *testing.T) {
	for _, q := range []string{"resources=VCPU:none", "resources=", "resources=NO_SUCH_CLASS:1", "nothing=1"} {
		if _, err := s.client.Candidates(t.Context(), q, 1); !errors.Is(err, croft.Invalid) {
			t.Errorf("%s: got %v, want invalid", q, err)
		}
	}
}

func (s *suite) unknown(t *testing.T) {
	if _, err := s.client.Claims(t.Context(), croft.NewHostID()); !errors.Is(err, croft.NotFound) {
		t.Errorf("got %v, want not found", err)
	}
}

func (s *suite) race(t *testing.T) {
	p := s.add(t, host("race"))
	const clients = 32
	var work sync.WaitGroup
	errs := make([]error, clients)
	for i := range clients {
		work.Go(func() { errs[i] = s.take(t, p, croft.NewInstanceID(), croft.Resources{croft.VCPU: 1}) })
	}
	work.Wait()
	granted := 0
	for _, err := range errs {
		switch {
		case err == nil:
			granted++
		case !errors.Is(err, croft.NoCapacity):
			t.Errorf("got %v, want no capacity", err)
		}
	}
	if used := s.read(t, p.ID).Used[croft.VCPU]; granted != 8 || used != 8 {
		t.Errorf("granted %d, used %d of 8", granted, used)
	}
}
