package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// What every host offers; all are equal.
var (
	hostInventory = map[string]map[string]any{
		"VCPU":      {"total": 64, "reserved": 2, "allocation_ratio": 16.0, "max_unit": 64},
		"MEMORY_MB": {"total": 1 << 20, "reserved": 512, "allocation_ratio": 1.0, "max_unit": 1 << 20},
		"DISK_GB":   {"total": 8000, "reserved": 10, "allocation_ratio": 1.0, "max_unit": 8000},
	}
	hostTraits = []string{"COMPUTE_NODE", "HW_CPU_X86_AVX2", "HW_CPU_X86_SSE42", "HW_CPU_X86_VMX"}
)

const wanted = "resources=VCPU:1,MEMORY_MB:256,DISK_GB:1"

func hostUUID(n int) string { return fmt.Sprintf("c0f7c0f7-0000-4000-8000-%012x", n) }

// register creates a host's provider, inventory and traits.
func register(ctx context.Context, c *client, uuid string) error {
	if err := c.expect(ctx, http.MethodPost, "/resource_providers",
		map[string]any{"uuid": uuid, "name": "host-" + uuid}, 200); err != nil {
		return err
	}
	inventory := map[string]any{"resource_provider_generation": 0, "inventories": hostInventory}
	if err := c.expect(ctx, http.MethodPut, "/resource_providers/"+uuid+"/inventories", inventory, 200); err != nil {
		return err
	}
	traits := map[string]any{"resource_provider_generation": 1, "traits": hostTraits}
	return c.expect(ctx, http.MethodPut, "/resource_providers/"+uuid+"/traits", traits, 200)
}

// registerAsAgent registers a host as croft's agent does: in one request if the server is croft's, otherwise in the
// three of the API.
func registerAsAgent(ctx context.Context, c *client, uuid string) error {
	if !c.croft {
		return register(ctx, c, uuid)
	}
	host := map[string]any{"name": "host-" + uuid, "inventories": hostInventory, "traits": hostTraits,
		"aggregates": []string{}}
	return c.expect(ctx, http.MethodPut, "/croft/providers/"+uuid, host, 201)
}

// registerAll registers hosts 1 to n through the API, many concurrently.
func registerAll(ctx context.Context, c *client, n int) error {
	work, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range 64 {
		work.Go(func() error {
			for i := int(next.Add(1)); i <= n; i = int(next.Add(1)) {
				if err := register(ctx, c, hostUUID(i)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return work.Wait()
}

// insertAll is registerAll for the original. It writes to the database what the three requests of each host would have
// written, since those take 18 ms per host.
func (o *original) insertAll(ctx context.Context, n int) error {
	var b strings.Builder
	b.WriteString("USE placement;\nSET foreign_key_checks = 0;\nBEGIN;\n")
	for i := range n {
		fmt.Fprintf(&b,
			"INSERT INTO resource_providers (id, uuid, name, generation, root_provider_id, created_at, updated_at) VALUES (%d, '%s', 'host-%[2]s', 2, %[1]d, UTC_TIMESTAMP(), UTC_TIMESTAMP());\n", i+1, hostUUID(i+1))
	}
	for _, class := range slices.Sorted(maps.Keys(hostInventory)) {
		v := hostInventory[class]
		fmt.Fprintf(&b,
			"INSERT INTO inventories (resource_provider_id, resource_class_id, total, reserved, min_unit, max_unit, step_size, allocation_ratio, created_at) SELECT p.id, c.id, %v, %v, 1, %v, 1, %v, UTC_TIMESTAMP() FROM resource_providers p, resource_classes c WHERE c.name = '%s';\n",
			v["total"], v["reserved"], v["max_unit"], v["allocation_ratio"], class)
	}
	for _, trait := range hostTraits {
		fmt.Fprintf(&b,
			"INSERT INTO resource_provider_traits (resource_provider_id, trait_id, created_at) SELECT p.id, t.id, UTC_TIMESTAMP() FROM resource_providers p, traits t WHERE t.name = '%s';\n", trait)
	}
	b.WriteString("COMMIT;\nANALYZE TABLE resource_providers, inventories, resource_provider_traits;\n")
	return o.sql(ctx, b.String())
}

// sameHosts checks that two servers hold the same data, by comparing candidates, summaries and a full sample of hosts.
func sameHosts(ctx context.Context, a, b *client, n int) error {
	for _, path := range []string{
		"/allocation_candidates?" + wanted,
		"/resource_providers/" + hostUUID(n),
		"/resource_providers/" + hostUUID(1+n/2) + "/inventories",
		"/resource_providers/" + hostUUID(1) + "/traits",
	} {
		left, err := a.canonical(ctx, path)
		if err != nil {
			return err
		}
		right, err := b.canonical(ctx, path)
		if err != nil {
			return err
		}
		if left != right {
			return fmt.Errorf("the servers do not hold the same: %s differs\n%.400s\n%.400s", path, left, right)
		}
	}
	return nil
}

// canonical reads an answer and sorts everything in it.
func (c *client) canonical(ctx context.Context, path string) (string, error) {
	status, body, err := c.do(ctx, http.MethodGet, path, nil)
	if err != nil {
		return "", err
	}
	if status != 200 {
		return "", fmt.Errorf("GET %s: %d %s", path, status, body)
	}
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		return "", err
	}
	return sorted(v), nil
}

// sorted formats a JSON value with its lists sorted.
func sorted(v any) string {
	var items []string
	switch v := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			items = append(items, key+":"+sorted(v[key]))
		}
		return "{" + strings.Join(items, ",") + "}"
	case []any:
		for _, e := range v {
			items = append(items, sorted(e))
		}
		slices.Sort(items)
		return "[" + strings.Join(items, ",") + "]"
	}
	return fmt.Sprint(v)
}
