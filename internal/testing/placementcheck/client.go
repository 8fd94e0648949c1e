package placementcheck

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// group is two providers and the consumers that use only them. Groups share no objects, so each has a separate history.
type group struct {
	providers [2]string // UUIDs
	start     state
}

// caller sends requests to any of the servers.
type caller struct {
	servers []string
	suspect []atomic.Bool // by server: it left a request unanswered
	token   string
	http    *http.Client
}

// send returns the status and the body. A server that left a request unanswered gets the next one only when it reports
// ready, as behind a load balancer. If a server does not listen, the next server is tried, since nothing was sent. That
// repeats until a server accepts the request or ctx ends.
func (c *caller) send(ctx context.Context, method, path string, body any) (int, []byte, error) {
	text := ""
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return 0, nil, fmt.Errorf("encode a request: %w", err)
		}
		text = string(b)
	}
	for {
		for _, i := range rand.Perm(len(c.servers)) {
			if c.suspect[i].Load() && !c.ready(ctx, i) {
				continue
			}
			status, out, err := c.sendTo(context.WithoutCancel(ctx), c.servers[i], method, path, text)
			if err != nil || status == http.StatusServiceUnavailable {
				c.suspect[i].Store(true)
			}
			if op, ok := errors.AsType[*net.OpError](err); !ok || op.Op != "dial" {
				return status, out, err
			}
		}
		select {
		case <-ctx.Done():
			return 0, nil, errUnsent
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// errUnsent reports that no server accepted a request before ctx ended.
var errUnsent = errors.New("no server is ready")

func (c *caller) ready(ctx context.Context, i int) bool {
	status, _, err := c.sendTo(ctx, c.servers[i], "GET", "/readyz", "")
	if err == nil && status == http.StatusOK {
		c.suspect[i].Store(false)
		return true
	}
	return false
}

func (c *caller) sendTo(ctx context.Context, server, method, path, body string) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, server+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("X-Auth-Token", c.token)
	req.Header.Set("OpenStack-API-Version", "placement 1.39")
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	return resp.StatusCode, out, err
}

type object = map[string]any

// allocation returns the request body that gives a consumer these amounts.
func (g *group) allocation(want amounts, generation int64) object {
	allocations := object{}
	for p, n := range want {
		if n > 0 {
			allocations[g.providers[p]] = object{"resources": object{"VCPU": n}}
		}
	}
	o := object{"allocations": allocations, "project_id": "check", "user_id": "check", "consumer_type": "CHECK",
		"consumer_generation": nil}
	if generation != none {
		o["consumer_generation"] = generation
	}
	return o
}

// call sends a request of the model and returns the server's answer. An error is an answer that no server may give.
func (c *caller) call(ctx context.Context, g *group, q request) (answer, error) {
	method, path, body := g.spell(q)
	status, out, err := c.send(ctx, method, path, body)
	a := answer{}
	switch {
	case errors.Is(err, errUnsent):
		a.verdict = unsent
		return a, nil
	case err != nil || status == http.StatusServiceUnavailable:
		a.verdict = unknown
		return a, nil
	case status == http.StatusOK || status == http.StatusNoContent:
		a.verdict = done
		return a, g.read(q, out, &a)
	case status == http.StatusNotFound && q.kind == release:
		a.verdict = absent
		return a, nil
	case status == http.StatusConflict && strings.Contains(string(out), "exceed the capacity"):
		a.verdict = full
		return a, nil
	case status == http.StatusConflict && strings.Contains(string(out), "generation conflict"):
		a.verdict = stale
		return a, nil
	case status == http.StatusConflict && strings.Contains(string(out), "Another thread concurrently updated"):
		a.verdict = unknown // the answer says that nothing was done, but the checker verifies that too
		return a, nil
	}
	return a, fmt.Errorf("%s %s: %d %s", method, path, status, out)
}

// spell translates a request to HTTP.
func (g *group) spell(q request) (method, path string, body any) {
	switch q.kind {
	case claim:
		return "PUT", "/allocations/" + q.consumer, g.allocation(q.want, q.generation)
	case release:
		return "DELETE", "/allocations/" + q.consumer, nil
	case move:
		return "POST", "/allocations", object{
			q.consumer: g.allocation(amounts{}, q.generation), q.other: g.allocation(q.want, none)}
	case resize:
		return "PUT", "/resource_providers/" + g.providers[q.provider] + "/inventories/VCPU",
			object{"resource_provider_generation": q.generation, "total": q.total}
	case consumer:
		return "GET", "/allocations/" + q.consumer, nil
	case provider:
		return "GET", "/resource_providers/" + g.providers[q.provider] + "/allocations", nil
	}
	return "GET", "/resource_providers/" + g.providers[q.provider] + "/usages", nil
}

// read fills in the contents of a successful answer.
func (g *group) read(q request, body []byte, a *answer) error {
	var v struct {
		Allocations map[string]struct {
			Resources  map[string]int64
			Generation int64 `json:"consumer_generation"`
		}
		Consumer *int64 `json:"consumer_generation"`
		Provider int64  `json:"resource_provider_generation"`
		Usages   map[string]int64
	}
	if len(body) == 0 && !q.kind.reads() {
		return nil
	}
	if err := json.Unmarshal(body, &v); err != nil {
		return fmt.Errorf("%s: %w in %s", q.kind, err, body)
	}
	switch q.kind {
	case consumer:
		a.generation = none
		if v.Consumer != nil {
			a.generation = *v.Consumer
		}
		for p, id := range g.providers {
			a.has[p] = v.Allocations[id].Resources["VCPU"]
		}
	case provider:
		a.generation = v.Provider
		var b strings.Builder
		for _, id := range slices.Sorted(maps.Keys(v.Allocations)) {
			fmt.Fprintf(&b, "%s %d %d;", id, v.Allocations[id].Resources["VCPU"], v.Allocations[id].Generation)
		}
		a.holders = b.String()
	case usage:
		a.generation, a.used = v.Provider, v.Usages["VCPU"]
	case resize:
		a.generation = v.Provider
	}
	return nil
}
