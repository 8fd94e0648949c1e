package placementclient_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"croft"
	"croft/etcdstore/etcdtest"
	"croft/placement"
)

// A caller in the process of the server gets the same candidates as over HTTP.
func TestCandidatesOfThisProcessAreThoseOfTheAPI(t *testing.T) {
	store := etcdtest.Start(t)
	server, err := placement.New(placement.Config{Store: store.Placement(0), Partition: store.Partition()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var run sync.WaitGroup
	run.Go(func() { _ = server.Run(ctx) })
	web := httptest.NewServer(server.Handler())
	t.Cleanup(func() { web.Close(); cancel(); run.Wait() })
	client := newClient(t, web.URL)
	for i := range 3 {
		if err := client.EnsureProvider(t.Context(), croft.Provider{
			ID: croft.NewHostID(), Name: fmt.Sprintf("host-%d", i), Traits: []croft.Trait{"HW_CPU_X86_AVX2"},
			Inventories: map[croft.ResourceClass]croft.Inventory{croft.VCPU: {Total: 4}, croft.MemoryMB: {Total: 1024}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	byHost := func(all []croft.Candidate) []croft.Candidate {
		slices.SortFunc(all, func(a, b croft.Candidate) int {
			return strings.Compare(fmt.Sprint(a.Allocations), fmt.Sprint(b.Allocations))
		})
		return all
	}
	const query = "resources=VCPU:1,MEMORY_MB:256&required=HW_CPU_X86_AVX2"
	for want, query := range map[int]string{3: query, 0: "resources=VCPU:5"} {
		over := etcdtest.Must(client.Candidates(t.Context(), query, 10))(t)
		here := etcdtest.Must(server.Candidates(t.Context(), query, 10))(t)
		if diff := cmp.Diff(byHost(over), byHost(here)); len(here) != want || diff != "" {
			t.Errorf("%d candidates, want %d: -over HTTP +here:\n%s", len(here), want, diff)
		}
	}
	if limited := etcdtest.Must(server.Candidates(t.Context(), query, 2))(t); len(limited) != 2 {
		t.Errorf("%d candidates, want 2", len(limited))
	}
	_, over := client.Candidates(t.Context(), "resources=CUSTOM_NONE:1", 1)
	_, here := server.Candidates(t.Context(), "resources=CUSTOM_NONE:1", 1)
	if croft.KindOf(over) != croft.Invalid || croft.KindOf(here) != croft.Invalid {
		t.Errorf("an unknown class: %v, %v", over, here)
	}
	if told := etcdtest.Must(client.Home(t.Context()))(t); told != store.Partition() {
		t.Errorf("it tells the partition %q", told)
	}
	if told := etcdtest.Must(newClient(t, serve(t)).Home(t.Context()))(t); told != "" {
		t.Errorf("a Placement that does not tell its partition tells %q", told)
	}
}
