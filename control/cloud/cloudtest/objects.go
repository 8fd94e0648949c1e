package cloudtest

import (
	"errors"
	"slices"

	"croft"
	"croft/schedule"
	"croft/tenant/objects"
)

func property(key, value string) objects.Change {
	return objects.Change{Set: map[string]objects.Value{key: objects.Text(value)}}
}

func (s *suite) objects() {
	inst, err := s.request("web")
	s.must(err)
	o := s.Cloud.Objects
	for _, c := range []struct {
		kind objects.Kind
		name string
	}{{objects.Instance, "web"}, {objects.Host, s.Host}, {objects.Image, "debian-12"}} {
		got, err := o.Object(s.ctx, inst.Project, c.kind, c.name)
		if err != nil || !got.Empty() || got.Generation != 0 {
			s.Errorf("%s: nothing is noted, got %+v, %v", c.name, got, err)
		}
		change := property("owner", "jo")
		change.AddTags = []string{"keep"}
		first, err := o.Change(s.ctx, inst.Project, c.kind, c.name, change)
		s.must(err)
		got, err = o.Object(s.ctx, inst.Project, c.kind, c.name)
		if err != nil || got.Properties["owner"] != objects.Text("jo") || !slices.Equal(got.Tags, []string{"keep"}) ||
			got.Generation != first.Generation {
			s.Errorf("%s: got %+v, %v", c.name, got, err)
		}
		filter, err := objects.ParseFilter([]string{"owner=j* tag:keep"})
		s.must(err)
		all, err := o.List(s.ctx, inst.Project, c.kind, filter)
		if err != nil || len(all) != 1 || all[0].Ref != got.Ref {
			s.Errorf("%s: listed %+v, %v", c.name, all, err)
		}
		old := int64(1)
		change.Generation = &old
		_, err = o.Change(s.ctx, inst.Project, c.kind, c.name, change)
		s.is(err, croft.Conflict, "a change of an older generation")
	}
	if all, err := o.List(s.ctx, "other", objects.Instance, nil); err != nil || len(all) != 0 {
		s.Errorf("another project has %+v, %v", all, err)
	}
	_, err = o.Object(s.ctx, inst.Project, objects.Instance, "nobody")
	s.is(err, croft.NotFound, "properties of an unknown instance")
	_, err = o.Change(s.ctx, inst.Project, objects.Host, "nobody", property("k", "v"))
	s.is(err, croft.NotFound, "a property of an unknown host")
	_, err = o.Change(s.ctx, inst.Project, objects.Group, "nobody", property("k", "v"))
	s.is(err, croft.NotFound, "a property of a group without members")
	_, err = o.Object(s.ctx, inst.Project, "thing", "web")
	s.is(err, croft.Invalid, "an unknown kind")
	_, err = s.Cloud.Changes.Destroy(s.ctx, inst.Project, "web", false)
	s.must(err)
	s.must(s.Cloud.Instances.Wait(s.ctx, inst, schedule.Gone, nil))
	if all, err := o.List(s.ctx, "", objects.Instance, nil); err != nil || len(all) != 0 {
		s.Errorf("the instance is gone, listed %+v, %v", all, err)
	}
}

func (s *suite) definitions() {
	inst, err := s.request("web")
	s.must(err)
	d := s.Cloud.Definitions
	now, err := d.Effective(s.ctx, objects.Instance)
	if err != nil || now.Generation != 0 {
		s.Errorf("none is set, got %+v, %v", now, err)
	}
	at := objects.Place{Level: objects.Partition, Kind: objects.Instance}
	_, err = d.At(s.ctx, at)
	s.is(err, croft.NotFound, "a definition that is not set")
	_, err = s.Cloud.Objects.Change(s.ctx, inst.Project, objects.Instance, "web", property("tier", "tin"))
	s.must(err)
	want := objects.Definition{Place: at, Unknown: objects.Allow, Properties: map[string]objects.Property{
		"tier": {Enum: []objects.Value{objects.Text("gold")}}}}
	set, err := d.Set(s.ctx, want)
	s.must(err)
	_, err = d.Set(s.ctx, want)
	s.is(err, croft.Conflict, "setting over a definition that was not read")
	if got, err := d.At(s.ctx, at); err != nil || got.Generation != set.Generation || len(got.Properties) != 1 {
		s.Errorf("set, got %+v, %v", got, err)
	}
	breaches, err := d.Check(s.ctx, inst.Project, objects.Instance)
	if err != nil || len(breaches) != 1 || breaches[0].ID != string(inst.ID) {
		s.Errorf("breaches %+v, %v", breaches, err)
	}
	_, err = s.Cloud.Objects.Change(s.ctx, inst.Project, objects.Instance, "web", property("note", "x"))
	s.is(err, croft.Invalid, "a change of what violates its definition")
	if broken, is := errors.AsType[*objects.ViolationsError](err); !is || len(broken.Violations) != 1 {
		s.Errorf("the error does not list the violations: %v", err)
	}
	s.must(d.Remove(s.ctx, at))
	s.is(d.Remove(s.ctx, at), croft.NotFound, "a removal for the second time")
	_, err = s.Cloud.Objects.Change(s.ctx, inst.Project, objects.Instance, "web", property("note", "x"))
	s.must(err)
}
