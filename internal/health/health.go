// Package health answers over HTTP whether a process lives and whether it can do its work, with the reasons if not.
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
)

// Patience is how long a look at one part may take before the part counts as silent.
const Patience = 3 * time.Second

// Checks are what has to be right for a process to be ready. The zero value is ready
// at once. Looks may be made while checks are added.
type Checks struct {
	// Cheap: looks cost nothing, so that each answer to /readyz is of its own moment.
	Cheap bool

	mu  sync.Mutex
	all []check

	looking chan struct{} // closed when the look that is under way ends; nil: none is
	seen    []Result
	at      time.Time // of seen; zero: nothing is known
}

// freshness is how old an answer to /readyz may be: looks cost the parts, and anybody
// may ask.
const freshness = 500 * time.Millisecond

// recent is Look, once for all who ask at about the same time.
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
			found := c.Look(context.WithoutCancel(ctx)) // whoever began it may leave
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
		return nil // who asked has gone
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen
}

type check struct {
	part string
	look func(context.Context) error
}

// Add has a part looked at. look returns what is wrong with it, in a sentence that says
// what to do; it may take its time, and may be called by several at once.
func (c *Checks) Add(part string, look func(context.Context) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all, c.at = append(c.all, check{part, look}), time.Time{}
}

// Result is what a look at a part came to.
type Result struct {
	Part   string `json:"part"`
	Ready  bool   `json:"ready"`
	Reason string `json:"reason,omitempty"` // why not
}

// Look looks at all parts at once, and returns findings in the order of Add.
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

// find looks at one part. A look that does not end in time goes on, and is not waited for.
func (c check) find(ctx context.Context) Result {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- c.look(ctx) }()
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		err = fmt.Errorf("no answer within %s", Patience)
	}
	if err != nil {
		return Result{Part: c.part, Reason: oneLine(err)}
	}
	return Result{Part: c.part, Ready: true}
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// Register serves GET /livez, which is 200 for as long as the process answers, and GET
// /readyz, which is 200 where nothing is wrong and else 503 with a line for each part
// that is not ready. Both tell all parts as JSON to who asks for ?verbose or accepts JSON.
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
		_ = json.NewEncoder(w).Encode(struct { // a client that went away is no concern of ours
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
