package placementclient_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"croft"
	"croft/etcdstore/etcdtest"
	"croft/placementclient"
)

// BenchmarkProviders reads 1,000 hosts as a refusal, an audit and `croft host list` do, with one caller and with eight
// at once: with croft's request for all hosts, and with the requests of every Placement.
func BenchmarkProviders(b *testing.B) {
	address := serveOn(b, etcdtest.Start(b).Placement(0))
	long, _ := before(b, address, func(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/croft/") })
	work := errgroup.Group{}
	work.SetLimit(16)
	client := newClient(b, address)
	for range 1000 {
		id := croft.NewHostID()
		work.Go(func() error {
			return client.EnsureProvider(b.Context(), croft.Provider{
				ID: id, Name: string(id), Traits: []croft.Trait{"COMPUTE_NODE", "HW_CPU_X86_AVX2", "CUSTOM_CROFT"},
				Inventories: map[croft.ResourceClass]croft.Inventory{croft.VCPU: {Total: 64},
					croft.MemoryMB: {Total: 1 << 20},
					croft.DiskGB:   {Total: 8000}},
			})
		})
	}
	if err := work.Wait(); err != nil {
		b.Fatal(err)
	}
	for _, way := range []struct{ name, address string }{{"at once", address}, {"one by one", long}} {
		for _, askers := range []int{1, 8} {
			b.Run(fmt.Sprintf("%s, %d asking", way.name, askers), func(b *testing.B) {
				client := newClient(b, way.address)
				for b.Loop() {
					var asking errgroup.Group
					for range askers {
						asking.Go(func() error {
							all, err := client.Providers(b.Context())
							if err == nil && len(all) != 1000 {
								err = fmt.Errorf("%d providers", len(all))
							}
							return err
						})
					}
					if err := asking.Wait(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func newClient(t testing.TB, address string) *placementclient.Client {
	t.Helper()
	client, err := placementclient.New(placementclient.Config{Endpoint: address})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}
