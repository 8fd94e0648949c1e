package partitions_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"croft"
	"croft/control/federation"
	"croft/etcdstore/etcdtest"
	"croft/tenant"
)

// elsewhere is a Placement with its own store.
type elsewhere struct{ err error }

func (e elsewhere) Providers(context.Context) ([]croft.Provider, error) {
	root := croft.NewHostID()
	return []croft.Provider{{ID: root, Root: root, Name: "there"}, {ID: croft.NewHostID(), Root: root, Name: "disk"}},
		e.err
}

// stale is a store whose etcd has a provider, as after Placement was moved to its own store.
type stale struct{ federation.Store }

func (s stale) Snapshot(ctx context.Context, begin func(int64) error, each func(federation.Row) error) error {
	err := s.Store.Snapshot(ctx, begin, each)
	return errors.Join(err, each(federation.Row{Kind: federation.KindProvider,
		Row: json.RawMessage(`{"id":"` + string(croft.NewHostID()) + `","name":"former"}`)}))
}

func TestProvidersAreThoseOfThePlacementInUse(t *testing.T) {
	t.Parallel()
	a, b := install(t), install(t)
	b.Apart = elsewhere{}
	embedded := *b.Service
	embedded.Store = stale{b.store.Partitions}
	foreign := embedded
	foreign.Foreign = true
	for name, c := range map[string]struct {
		service *federation.Service
		want    []string
	}{
		"in etcd":                     {&embedded, []string{"former"}},
		"in none, so it is asked":     {b.Service, []string{"there", "disk"}},
		"elsewhere, and etcd had one": {&foreign, []string{"there", "disk"}},
	} {
		_, err := b.store.Projects.Create(t.Context(), tenant.Tenant{Name: croft.Project("p" + fmt.Sprint(len(name)))})
		b.check(err) // otherwise it would be the same revision
		var file bytes.Buffer
		_, err = c.service.Export(t.Context(), "east", &file)
		a.check(err)
		_, _, err = a.take(file.String(), "")
		a.check(err)
		var got []string
		a.check(a.Rows(t.Context(), "east", federation.KindProvider, func(text json.RawMessage) error {
			var p federation.Provider
			err := json.Unmarshal(text, &p)
			got = append(got, p.Name)
			if (p.Root == "") == (p.Name == "disk") {
				t.Errorf("%s: the root of %s is %q", name, p.Name, p.Root)
			}
			return err
		}))
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
	b.Apart = elsewhere{croft.Errorf(croft.Unavailable, "away")}
	var file bytes.Buffer
	if _, err := b.Export(t.Context(), "", &file); !errors.Is(err, croft.Unavailable) || file.Len() > 0 {
		t.Errorf("while it is away: %v, and %q is written", err, file.String())
	}
}

// While instances are created and removed, an export has the project of every instance, and for every project as many
// instances as its name says.
func TestAnExportIsOfOneMoment(t *testing.T) {
	t.Parallel()
	a, b := install(t), install(t)
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	work.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			project := croft.Project(fmt.Sprintf("p%d", n))
			_, err := b.store.Projects.Create(ctx, tenant.Tenant{Name: project})
			inst := etcdtest.NewInstance("web")
			inst.Project = project
			if err == nil {
				inst, err = b.store.Instances.Create(ctx, inst)
			}
			if err == nil && n%2 == 0 {
				err = errors.Join(b.store.Instances.Discard(ctx, inst), b.store.Projects.Remove(ctx, project))
			}
			if err != nil && ctx.Err() == nil {
				t.Error(err)
				return
			}
		}
	})
	for range 20 {
		_, _, err := a.take(b.export("east"), "")
		a.check(err)
		projects, instances := 0, 0
		for _, row := range a.shown("east") {
			if strings.HasPrefix(row, "project") {
				projects++
			}
			if strings.HasPrefix(row, "instance") {
				instances++
			}
		}
		// a project is made before its instance and removed after it
		if projects < instances || projects > instances+1 {
			t.Errorf("%d projects and %d instances of one moment", projects, instances)
		}
	}
	cancel()
	work.Wait()
}

// forgetful is a store whose history is compacted during the first snapshot.
type forgetful struct {
	federation.Store
	forget func()
	begun  int
}

func (f *forgetful) Snapshot(ctx context.Context, begin func(int64) error, each func(federation.Row) error) error {
	f.begun++
	first := f.begun == 1
	return f.Store.Snapshot(ctx, begin, func(r federation.Row) error {
		if first && r.Kind == federation.KindHost {
			f.forget()
		}
		return each(r)
	})
}

func TestAnExportBeginsAgainWhereItsMomentIsForgotten(t *testing.T) {
	t.Parallel()
	a, b := install(t), install(t)
	b.fill()
	store := &forgetful{Store: b.store.Partitions}
	store.forget = func() {
		_, err := b.store.Projects.Create(t.Context(), tenant.Tenant{Name: "later"})
		b.check(err)
		etcdtest.Compact(t, b.server)
	}
	b.Store = store
	p, _, err := a.take(b.export("east"), "")
	a.check(err)
	if store.begun != 2 || p.Imported.Rows[federation.KindProject] != 2 {
		t.Errorf("it was begun %d times, and has %v", store.begun, p.Imported.Rows)
	}
}
