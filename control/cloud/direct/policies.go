package direct

import (
	"context"
	"strings"
	"time"

	"croft"
	"croft/control/api"
	"croft/etcdstore"
	"croft/schedule"
)

// policies implements cloud.Policies.
type policies struct {
	store     *etcdstore.Store
	scheduler *schedule.Scheduler
}

// List implements cloud.Policies.
func (p policies) List(ctx context.Context) ([]croft.CrushPolicy, error) {
	return p.store.Policies.List(ctx)
}

// Find implements cloud.Policies.
func (p policies) Find(ctx context.Context, name string) (croft.CrushPolicy, error) {
	return p.store.Policies.Find(ctx, name)
}

// Check implements cloud.Policies.
func (p policies) Check(ctx context.Context, wanted croft.CrushPolicy) ([]string, error) {
	if err := wanted.Check(); err != nil {
		return nil, err
	}
	m, err := p.scheduler.CrushMap(ctx, time.Now())
	if err != nil {
		return nil, err
	}
	compiled, err := m.Compile(wanted)
	if err != nil {
		return nil, err
	}
	return append([]string{}, compiled.Hints(wanted)...), nil
}

// Set implements cloud.Policies.
func (p policies) Set(ctx context.Context, wanted croft.CrushPolicy, generation *int64) (croft.CrushPolicy, error) {
	if _, err := p.Check(ctx, wanted); err != nil {
		return wanted, err
	}
	return p.store.Policies.Set(ctx, wanted, generation)
}

// Remove implements cloud.Policies.
func (p policies) Remove(ctx context.Context, name string, generation *int64) error {
	return p.store.Policies.Remove(ctx, name, generation)
}

// Standing implements cloud.Policies.
func (p policies) Standing(ctx context.Context, project croft.Project, idOrName string) (*schedule.Standing, error) {
	return p.scheduler.Standing(ctx, project, idOrName)
}

// Map implements cloud.Policies.
func (p policies) Map(ctx context.Context) (api.CrushMap, error) {
	all, err := p.List(ctx)
	if err != nil {
		return api.CrushMap{}, err
	}
	m, err := p.scheduler.CrushMap(ctx, time.Now())
	if err != nil {
		return api.CrushMap{}, err
	}
	var text strings.Builder
	err = m.WriteText(&text, all...)
	return api.CrushMap{Text: text.String(), Out: append([]int32{}, m.Out()...)}, err
}
