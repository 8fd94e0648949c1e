package objectstest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"croft"
	"croft/tenant/access"
	"croft/tenant/objects"
)

// Fixture is an empty store, with functions that change the records around it.
type Fixture struct {
	Store objects.Store
	// Add creates an instance, image, host or group in a project, and returns its reference.
	Add func(t *testing.T, kind objects.Kind, project croft.Project) objects.Ref
	// Remove removes one of these as the cloud does. It is not called for images.
	Remove func(t *testing.T, ref objects.Ref)
	// Has reports whether the store has an object for the reference, even if its record is gone.
	Has func(t *testing.T, ref objects.Ref) bool
	// LoseAnswer makes the next write succeed but return Unavailable. Nil: the store has no connection.
	LoseAnswer func()
	// Twice performs the next write twice and returns the second result. Nil: the store has no connection.
	Twice func()
}

// Operator is a caller who may read everything.
var Operator = access.Caller{User: "operator", Roles: []access.Role{access.PartitionAdmin}}

// TestStore checks a store against the contract.
func TestStore(t *testing.T, start func(t *testing.T) Fixture) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Fixture)
	}{
		{"what is written is read, of every kind and type", testRoundTrip},
		{"what does not exist has no properties and gets none", testNothing},
		{"what is out of scope is not found and not listed", testScope},
		{"properties end with their thing", testEnd},
		{"a write for a thing that ended is a conflict", testEnded},
		{"of writes that build on the same only one is made", testConflict},
		{"a write under a definition that changed is a conflict", testDefinitionChanged},
		{"nothing is kept of an empty object", testEmpty},
		{"some objects are read by their references", testSome},
		{"definitions are set, replaced and removed by generation", testDefinitions},
		{"many writers lose nothing", testWriters},
		{"a change whose answer was lost can be repeated", testLost},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, start(t)) })
	}
}

func testSome(t *testing.T, f Fixture) {
	s := objects.New(f.Store)
	var refs []objects.Ref
	for range 3 {
		ref := f.Add(t, objects.Instance, "p")
		must(s.Change(t.Context(), Operator, access.Everything(), ref, objects.Change{AddTags: []string{"keep"}}))(t)
		refs = append(refs, ref)
	}
	without := f.Add(t, objects.Instance, "p")
	got := must(s.Some(t.Context(), Operator, objects.Instance, []objects.Ref{refs[2], without, refs[0]}))(t)
	var ids []string
	for _, o := range got {
		ids = append(ids, o.ID)
		if !slices.Equal(o.Tags, []string{"keep"}) {
			t.Errorf("got %+v", o)
		}
	}
	want := []string{refs[0].ID, refs[2].ID}
	slices.Sort(ids)
	slices.Sort(want)
	if !slices.Equal(ids, want) {
		t.Errorf("got %q, want %q", ids, want)
	}
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func wantKind(t *testing.T, err error, want croft.Kind) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("the error is %v, want one that is %s", err, want)
	}
}

func (f Fixture) change(t *testing.T, ref objects.Ref, c objects.Change) (objects.Object, error) {
	return objects.New(f.Store).Change(t.Context(), Operator, access.Everything(), ref, c)
}

func (f Fixture) read(t *testing.T, ref objects.Ref) objects.Object {
	t.Helper()
	return must(objects.New(f.Store).Object(t.Context(), Operator, access.Everything(), ref))(t)
}

func set(key, value string) objects.Change {
	return objects.Change{Set: map[string]objects.Value{key: objects.Text(value)}}
}

func testRoundTrip(t *testing.T, f Fixture) {
	half := must(objects.Number(0.5))(t)
	for _, kind := range objects.Kinds {
		ref := f.Add(t, kind, "lab")
		want := map[string]objects.Value{"text": objects.Text("1.10 <&> \n é"), "whole": objects.Integer(1<<62 + 1),
			"half": half, "truth": objects.Boolean(false), "none": objects.Text("")}
		wrote, err := f.change(t, ref, objects.Change{Set: want, AddTags: []string{"b", "a b", "b"}})
		if err != nil {
			t.Fatal(err)
		}
		got := f.read(t, ref)
		if !maps.Equal(got.Properties, want) || !slices.Equal(got.Tags, []string{"a b", "b"}) || got.Ref != ref {
			t.Errorf("%s: read %+v", ref, got)
		}
		if got.Generation == 0 || got.Generation != wrote.Generation {
			t.Errorf("%s: generation %d, want that of the write, %d", ref, got.Generation, wrote.Generation)
		}
		all, _, err := f.Store.List(t.Context(), access.Everything(), kind)
		if err != nil || len(all) != 1 || cmp.Diff(got, all[0], cmp.Comparer(func(a, b objects.Value) bool {
			return a == b
		})) != "" {
			t.Errorf("%s: listed %+v, %v", ref, all, err)
		}
	}
}

func testNothing(t *testing.T, f Fixture) {
	for _, ref := range []objects.Ref{
		{Kind: objects.Instance, Project: "lab", ID: string(croft.NewInstanceID())},
		{Kind: objects.Host, ID: string(croft.NewHostID())},
		{Kind: objects.Group, Project: "lab", ID: "nobody"},
	} {
		_, err := f.Store.Read(t.Context(), access.Everything(), ref)
		wantKind(t, err, croft.NotFound)
		_, err = f.change(t, ref, set("k", "v"))
		wantKind(t, err, croft.NotFound)
		if f.Has(t, ref) {
			t.Errorf("something is stored about %s", ref)
		}
	}
	inst := f.Add(t, objects.Instance, "lab")
	other := inst
	other.Project = "office"
	_, err := f.Store.Read(t.Context(), access.Everything(), other)
	wantKind(t, err, croft.NotFound)
}

func testScope(t *testing.T, f Fixture) {
	host := f.Add(t, objects.Host, "")
	must(f.change(t, host, set("k", "v")))(t)
	_, err := f.Store.Read(t.Context(), access.Within("lab"), host)
	wantKind(t, err, croft.NotFound)
	if all, _, err := f.Store.List(t.Context(), access.Within("lab"), objects.Host); len(all) != 0 || err != nil {
		t.Errorf("listed %v, %v", all, err)
	}
	for _, kind := range []objects.Kind{objects.Instance, objects.Image, objects.Group} {
		mine, other := f.Add(t, kind, "lab"), f.Add(t, kind, "lab-2")
		must(f.change(t, mine, set("k", "v")))(t)
		must(f.change(t, other, set("k", "v")))(t)
		_, err := f.Store.Read(t.Context(), access.Within("lab"), other)
		wantKind(t, err, croft.NotFound)
		_, err = f.Store.Read(t.Context(), access.Scope{}, mine)
		wantKind(t, err, croft.NotFound)
		for _, c := range []struct {
			scope access.Scope
			want  int
		}{{access.Scope{}, 0}, {access.Within("lab"), 1}, {access.Within("lab", "lab-2"), 2},
			{access.Everything(), 2}} {
			all, _, err := f.Store.List(t.Context(), c.scope, kind)
			if len(all) != c.want || err != nil {
				t.Errorf("%s: listed %v, %v, want %d", kind, all, err, c.want)
			}
			if c.want == 1 && all[0].Ref != mine {
				t.Errorf("listed %s, want %s", all[0], mine)
			}
		}
	}
}

func testEnd(t *testing.T, f Fixture) {
	for _, kind := range []objects.Kind{objects.Instance, objects.Host, objects.Group} {
		ref, stays := f.Add(t, kind, "lab"), f.Add(t, kind, "lab")
		must(f.change(t, ref, objects.Change{AddTags: []string{"t"}}))(t)
		must(f.change(t, stays, objects.Change{AddTags: []string{"t"}}))(t)
		f.Remove(t, ref)
		if f.Has(t, ref) {
			t.Errorf("something is stored about %s, which ended", ref)
		}
		if !f.Has(t, stays) {
			t.Errorf("what was stored about %s is gone", stays)
		}
		_, err := f.Store.Read(t.Context(), access.Everything(), ref)
		wantKind(t, err, croft.NotFound)
	}
}

func testEnded(t *testing.T, f Fixture) {
	for _, kind := range []objects.Kind{objects.Instance, objects.Host, objects.Group} {
		ref := f.Add(t, kind, "lab")
		before := must(f.Store.Read(t.Context(), access.Everything(), ref))(t)
		f.Remove(t, ref)
		_, err := f.Store.Write(t.Context(), before, objects.Object{Ref: ref, Tags: []string{"t"}})
		wantKind(t, err, croft.Conflict)
		if f.Has(t, ref) {
			t.Errorf("something is stored about %s, which ended", ref)
		}
	}
}

func testConflict(t *testing.T, f Fixture) {
	ref := f.Add(t, objects.Instance, "lab")
	first := must(f.Store.Read(t.Context(), access.Everything(), ref))(t)
	next := objects.Object{Ref: ref, Tags: []string{"a"}}
	must(f.Store.Write(t.Context(), first, next))(t)
	_, err := f.Store.Write(t.Context(), first, objects.Object{Ref: ref, Tags: []string{"b"}})
	wantKind(t, err, croft.Conflict)
	second := must(f.Store.Read(t.Context(), access.Everything(), ref))(t)
	must(f.Store.Write(t.Context(), second, objects.Object{Ref: ref}))(t)
	_, err = f.Store.Write(t.Context(), second, next)
	wantKind(t, err, croft.Conflict)
	if got := f.read(t, ref); !got.Empty() {
		t.Errorf("read %+v", got)
	}
}

func testDefinitionChanged(t *testing.T, f Fixture) {
	ref := f.Add(t, objects.Instance, "lab")
	for _, place := range objects.Places(objects.Instance) {
		before := must(f.Store.Read(t.Context(), access.Everything(), ref))(t)
		must(f.Store.PutDefinition(t.Context(), objects.Definition{Place: place, Unknown: objects.Allow}))(t)
		_, err := f.Store.Write(t.Context(), before, objects.Object{Ref: ref, Tags: []string{"t"}})
		wantKind(t, err, croft.Conflict)
	}
	before := must(f.Store.Read(t.Context(), access.Everything(), ref))(t)
	if len(before.Definitions) != 4 {
		t.Errorf("read the definitions %+v, want all four", before.Definitions)
	}
	must(f.Store.PutDefinition(t.Context(), objects.Definition{Place: objects.Place{Level: objects.Partition,
		Kind: objects.Host}, Unknown: objects.Allow}))(t)
	must(f.Store.Write(t.Context(), before, objects.Object{Ref: ref, Tags: []string{"t"}}))(t)
}

func testEmpty(t *testing.T, f Fixture) {
	for _, kind := range objects.Kinds {
		ref := f.Add(t, kind, "lab")
		must(f.change(t, ref, set("k", "v")))(t)
		if !f.Has(t, ref) {
			t.Errorf("nothing is stored about %s", ref)
		}
		must(f.change(t, ref, objects.Change{Remove: []string{"k"}}))(t)
		if got := f.read(t, ref); f.Has(t, ref) || got.Generation != 0 {
			t.Errorf("%s is stored, as %+v", ref, got)
		}
	}
}

func testDefinitions(t *testing.T, f Fixture) {
	at := objects.Place{Level: objects.Global, Kind: objects.Any}
	_, err := f.Store.Definition(t.Context(), at)
	wantKind(t, err, croft.NotFound)
	four := 4.0
	d := objects.Definition{Place: at, Unknown: objects.Refuse, Properties: map[string]objects.Property{
		"cores": {Types: []string{"integer"}, Maximum: &four, Enum: []objects.Value{objects.Integer(2)}, Required: true,
			Permissions: []objects.Permission{{Role: access.Member, Value: objects.ReadWrite}, {Project: "lab"}}},
	}}
	first := must(f.Store.PutDefinition(t.Context(), d))(t)
	got := must(f.Store.Definition(t.Context(), at))(t)
	same := cmp.Comparer(func(a, b objects.Value) bool { return a == b })
	if diff := cmp.Diff(first, got, same); diff != "" || first.Generation == 0 {
		t.Errorf("read (-wrote +got):\n%s", diff)
	}
	_, err = f.Store.PutDefinition(t.Context(), d)
	wantKind(t, err, croft.Conflict)
	first.Unknown = objects.Allow
	second := must(f.Store.PutDefinition(t.Context(), first))(t)
	wantKind(t, f.Store.RemoveDefinition(t.Context(), first), croft.Conflict)
	if err := f.Store.RemoveDefinition(t.Context(), second); err != nil {
		t.Error(err)
	}
	wantKind(t, f.Store.RemoveDefinition(t.Context(), second), croft.Conflict)
	_, err = f.Store.PutDefinition(t.Context(), second)
	wantKind(t, err, croft.Conflict)
}

func testWriters(t *testing.T, f Fixture) {
	ref := f.Add(t, objects.Instance, "lab")
	const writers = 12
	var work sync.WaitGroup
	for i := range writers {
		work.Go(func() {
			key := fmt.Sprintf("key%d", i)
			if _, err := f.change(t, ref, set(key, "first")); err != nil {
				t.Error(err)
			}
			if _, err := f.change(t, ref, objects.Change{Set: map[string]objects.Value{key: objects.Integer(int64(i))},
				AddTags: []string{key}}); err != nil {
				t.Error(err)
			}
		})
	}
	work.Wait()
	got := f.read(t, ref)
	if len(got.Properties) != writers || len(got.Tags) != writers {
		t.Fatalf("read %+v", got)
	}
	for i := range writers {
		if v := got.Properties[fmt.Sprintf("key%d", i)]; v != objects.Integer(int64(i)) {
			t.Errorf("key%d is %s", i, v)
		}
	}
}

// armed is a store that calls before ahead of its next write.
type armed struct {
	objects.Store
	before func()
}

func (a *armed) Write(ctx context.Context, s objects.Snapshot, next objects.Object) (objects.Object, error) {
	before := a.before
	a.before = func() {}
	before()
	return a.Store.Write(ctx, s, next)
}

func testLost(t *testing.T, f Fixture) {
	if f.LoseAnswer == nil {
		t.Skip("no answer of this store can be lost")
	}
	ref := f.Add(t, objects.Instance, "lab")
	change := objects.Change{AddTags: []string{"t"}, Set: set("k", "v").Set}
	service := objects.New(&armed{f.Store, f.LoseAnswer})
	_, err := service.Change(t.Context(), Operator, access.Everything(), ref, change)
	wantKind(t, err, croft.Unavailable)
	again := must(service.Change(t.Context(), Operator, access.Everything(), ref, change))(t)
	if stored := f.read(t, ref); stored.Generation != again.Generation || len(stored.Properties) != 1 {
		t.Errorf("stored %+v, answered %+v", stored, again)
	}
	service = objects.New(&armed{f.Store, f.Twice})
	got := must(service.Change(t.Context(), Operator, access.Everything(), ref,
		objects.Change{Remove: []string{"k"}}))(t)
	if stored := f.read(t, ref); len(stored.Properties) != 0 || len(got.Properties) != 0 || len(stored.Tags) != 1 {
		t.Errorf("stored %+v, answered %+v", stored, got)
	}
}
