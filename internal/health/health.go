// Package health answers over HTTP whether a process is alive and whether it can do its work, with the reasons if not.
// It answers in time even if a part that it checks hangs.
package health

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"croft/internal/wording"
)

// Patience is how long the check of one part may take; after that the part is reported as silent.
const Patience = 3 * time.Second

// Checks are the conditions for a process to be ready. The zero value is ready. Look may run while checks are added.
type Checks struct {
	// Cheap says that checks cost nothing, so that every answer to /readyz is current.
	Cheap bool

	mu  sync.Mutex
	all []check

	looking chan struct{} // closed when the look in progress ends; nil: none
	seen    []Result
	at      time.Time // of seen; zero: no result yet
}

// freshness is the maximum age of a cached answer to /readyz, because checks use resources of the parts, and requests
// need no authorization.
const freshness = 500 * time.Millisecond

// recent returns the result of Look, which concurrent callers share.
func (c *Checks) recent(ctx context.Context) []Result {
	if c.Cheap {
		return c.Look(ctx)
	}
	c.mu.Lock()
	if time.Since(c.at) < freshness {
		defer c.mu.Unlock()
		return c.seen
	}
	looking := c.looking
	if looking == nil {
		looking = make(chan struct{})
		c.looking = looking
		go func() {
			found := c.Look(context.WithoutCancel(ctx)) // the caller that started it may disconnect
			c.mu.Lock()
			defer c.mu.Unlock()
			c.seen, c.at, c.looking = found, time.Now(), nil
			close(looking)
		}()
	}
	c.mu.Unlock()
	select {
	case <-looking:
	case <-ctx.Done():
		return nil // the caller has disconnected
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen
}

type check struct {
	part string
	look func(context.Context) error
}

// Add adds a part to the checks. look returns the problem of the part, as a sentence with advice; it may be slow, and
// may be called concurrently.
func (c *Checks) Add(part string, look func(context.Context) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all, c.at = append(c.all, check{part, look}), time.Time{}
}

// Result is the result of checking a part.
type Result struct {
	Part   string `json:"part"`
	Ready  bool   `json:"ready"`
	Reason string `json:"reason,omitempty"` // why it is not ready
}

// Look checks all parts concurrently and returns results in the order of Add.
func (c *Checks) Look(ctx context.Context) []Result {
	c.mu.Lock()
	all := slices.Clone(c.all)
	c.mu.Unlock()
	findings := make([]Result, len(all))
	var looks sync.WaitGroup
	for i, one := range all {
		looks.Go(func() { findings[i] = one.find(ctx) })
	}
	looks.Wait()
	return findings
}

// find checks one part. A check that does not end in time continues, and is not waited for.
func (c check) find(ctx context.Context) Result {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- c.look(ctx) }()
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		err = fmt.Errorf("no answer within %s", wording.Duration(Patience))
	}
	if err != nil {
		return Result{Part: c.part, Reason: oneLine(err)}
	}
	return Result{Part: c.part, Ready: true}
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// Register serves GET /livez, which returns 200 as long as the process answers, and GET /readyz, which returns 200 if
// all parts are ready, else 503 with a line for each part that is not ready. Both list all parts as JSON for ?verbose,
// and for clients that accept JSON.
func (c *Checks) Register(mux *http.ServeMux) {
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, r *http.Request) {
		write(w, r, []Result{{Part: "process", Ready: true}})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { write(w, r, c.recent(r.Context())) })
}

func write(w http.ResponseWriter, r *http.Request, findings []Result) {
	unready := slices.DeleteFunc(slices.Clone(findings), func(f Result) bool { return f.Ready })
	status := http.StatusOK
	if len(unready) > 0 {
		status = http.StatusServiceUnavailable
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if wantsJSON(r) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(struct { // ignore clients that disconnected
			Ready bool     `json:"ready"`
			Parts []Result `json:"parts"`
		}{len(unready) == 0, findings})
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	if len(unready) == 0 {
		fmt.Fprintln(w, "ok")
	}
	for _, f := range unready {
		fmt.Fprintf(w, "%s: %s\n", f.Part, f.Reason)
	}
}

func wantsJSON(r *http.Request) bool {
	return r.URL.Query().Has("verbose") || strings.Contains(r.Header.Get("Accept"), "application/json")
}
