package direct

import (
	"context"
	"strings"
	"time"

	"croft"
	"croft/cloud"
	"croft/control/actions"
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
func (p policies) Map(ctx context.Context) (cloud.CrushMap, error) {
	all, err := p.List(ctx)
	if err != nil {
		return cloud.CrushMap{}, err
	}
	m, err := p.scheduler.CrushMap(ctx, time.Now())
	if err != nil {
		return cloud.CrushMap{}, err
	}
	var text strings.Builder
	err = m.WriteText(&text, all...)
	return cloud.CrushMap{Text: text.String(), Out: append([]int32{}, m.Out()...)}, err
}

// recordedPolicies records changes of policies.
type recordedPolicies struct {
	cloud.Policies
	journal *journal
}

func (p recordedPolicies) tell(ctx context.Context, began time.Time, operation, name string, err error) {
	p.journal.tell(ctx, began, operation, "", actions.PolicyNamed(name), err)
}

// Set implements cloud.Policies.
func (p recordedPolicies) Set(ctx context.Context, wanted croft.CrushPolicy, generation *int64) (croft.CrushPolicy,
	error) {
	began := time.Now()
	set, err := p.Policies.Set(ctx, wanted, generation)
	p.tell(ctx, began, "setPolicy", wanted.Name, err)
	return set, err
}

// Remove implements cloud.Policies.
func (p recordedPolicies) Remove(ctx context.Context, name string, generation *int64) error {
	began := time.Now()
	err := p.Policies.Remove(ctx, name, generation)
	p.tell(ctx, began, "removePolicy", name, err)
	return err
}
