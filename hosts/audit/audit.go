package audit

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"croft"
	"croft/internal/delay"
)

// Config configures an Auditor.
type Config struct {
	Records   Records // required, like the following five
	Instances Instances
	Registry  Registry
	Claims    Claims
	Agents    Agents
	Fleet     Fleet

	Volumes Volumes // nil: differences of volumes are not mended
	Resizes Resizes // nil: requests to resize are not ended

	Pause      time.Duration // between the two looks; 2 s by default
	AskTimeout time.Duration // timeout of a request to an agent; 10 s by default
}

// Auditor compares all records. It is stateless.
type Auditor struct{ Config }

// New checks the config. It starts nothing.
func New(c Config) (*Auditor, error) {
	if c.Records == nil || c.Instances == nil || c.Registry == nil || c.Claims == nil || c.Agents == nil ||
		c.Fleet == nil {
		return nil, croft.Errorf(croft.Invalid, "audit: all interfaces are required")
	}
	c.Pause = cmp.Or(c.Pause, 2*time.Second)
	c.AskTimeout = cmp.Or(c.AskTimeout, 10*time.Second)
	return &Auditor{c}, nil
}

// asks is how many agents are asked concurrently.
const asks = 32

// Report is the result of an audit.
type Report struct {
	Differences []Difference `json:"differences"` // by host
	// Hosts whose guests and disks could not be compared.
	Unchecked []Unchecked `json:"unchecked,omitempty"`
}

// Unchecked is a host whose guests and disks could not be compared.
type Unchecked struct {
	Host croft.HostID `json:"host" format:"uuid"` // its UUID
	Name string       `json:"name"`               // its name
	Why  string       `json:"why"`                // why it was not checked
}

// Audit compares records, orders, observations, claims, guests and disks of all hosts. A healthy system has
// no differences. Changes in progress are not reported: a difference is valid only if a second look, a moment
// later, finds it too.
func (a *Auditor) Audit(ctx context.Context) (Report, error) {
	first, err := a.look(ctx)
	if err != nil || len(first.Differences) == 0 {
		return first, err
	}
	if delay.For(ctx, a.Pause) != nil {
		return first, ctx.Err()
	}
	second, err := a.look(ctx)
	second.Differences = append([]Difference{}, Confirm(first.Differences, second.Differences)...)
	return second, err
}

// look reads everything once and compares it.
func (a *Auditor) look(ctx context.Context) (Report, error) {
	e, err := a.Records.Evidence(ctx)
	if err != nil {
		return Report{}, err
	}
	report := Report{}
	var mu sync.Mutex
	err = a.each(e.Hosts, func(h croft.Host) error {
		claims, err := a.Claims.Claims(ctx, h.ID)
		if err != nil && !errors.Is(err, croft.NotFound) {
			return err
		}
		contents, why := a.ask(ctx, h)
		mu.Lock()
		defer mu.Unlock()
		e.Claims[h.ID] = claims
		if why == "" {
			e.Contents[h.ID] = contents
		} else {
			report.Unchecked = append(report.Unchecked, Unchecked{h.ID, h.Name, why})
		}
		return nil
	})
	if err == nil {
		e.Elsewhere, err = a.claimsElsewhere(ctx, e.Hosts)
	}
	if err == nil {
		err = e.addStored(ctx, a.Claims)
	}
	if err != nil {
		return report, err
	}
	slices.SortFunc(report.Unchecked, func(a, b Unchecked) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Host, b.Host))
	})
	report.Differences = append([]Difference{}, Compare(e)...)
	return report, nil
}

// claimsElsewhere returns the claims of instances on providers other than hosts.
func (a *Auditor) claimsElsewhere(ctx context.Context,
	hosts map[croft.HostID]croft.Host) (map[croft.InstanceID]croft.Resources, error) {
	providers, err := a.Claims.Providers(ctx)
	if err != nil {
		return nil, err
	}
	all := map[croft.InstanceID]croft.Resources{}
	for _, p := range providers {
		if _, isHost := hosts[p.ID]; isHost || len(p.Used) == 0 {
			continue
		}
		claims, err := a.Claims.Claims(ctx, p.ID)
		if err != nil && !errors.Is(err, croft.NotFound) {
			return nil, err
		}
		for id, amounts := range claims {
			if all[id] == nil {
				all[id] = croft.Resources{}
			}
			for class, amount := range amounts {
				all[id][class] += amount
			}
		}
	}
	return all, nil
}

// each runs do for every host, several concurrently, and returns the error of one of them.
func (a *Auditor) each(hosts map[croft.HostID]croft.Host, do func(croft.Host) error) error {
	var work sync.WaitGroup
	slots := make(chan struct{}, asks)
	errs := make(chan error, len(hosts))
	for _, h := range hosts {
		slots <- struct{}{}
		work.Go(func() {
			defer func() { <-slots }()
			if err := do(h); err != nil {
				errs <- err
			}
		})
	}
	work.Wait()
	close(errs)
	return <-errs // nil: no errors
}

// ask returns the contents of a host from its agent, or why they are unknown.
func (a *Auditor) ask(ctx context.Context, h croft.Host) (contents Contents, why string) {
	if !h.Alive {
		return contents, "it is silent"
	}
	ctx, cancel := context.WithTimeout(ctx, a.AskTimeout)
	defer cancel()
	contents, err := a.Agents.Contents(ctx, h)
	if err != nil {
		return contents, err.Error()
	}
	return contents, ""
}
