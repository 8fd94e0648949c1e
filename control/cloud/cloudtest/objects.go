package cloudtest

import (
	"errors"
	"slices"

	"croft"
	"croft/client"
	"croft/control/api"
	"croft/schedule"
	"croft/tenant/objects"
)

func property(key, value string) api.ObjectChange {
	return api.ObjectChange{Set: map[string]objects.Value{key: objects.Text(value)}}
}

// object reads the properties and tags of an object.
func (s *suite) object(project croft.Project, kind objects.Kind, name string) (objects.Object, error) {
	return s.Client.GetObject(s.ctx, client.ObjectOf(project, kind, name))
}

// change changes the properties and tags of an object.
func (s *suite) change(project croft.Project, kind objects.Kind, name string, c api.ObjectChange) (objects.Object,
	error) {
	c.ObjectNamed = client.ObjectOf(project, kind, name)
	return s.Client.ChangeObject(s.ctx, c)
}

func (s *suite) objects() {
	inst, err := s.request("web")
	s.must(err)
	for _, c := range []struct {
		kind objects.Kind
		name string
	}{{objects.Instance, "web"}, {objects.Host, s.Host}, {objects.Image, "debian-12"}} {
		got, err := s.object(inst.Project, c.kind, c.name)
		if err != nil || !got.Empty() || got.Generation != 0 {
			s.Errorf("%s: nothing is noted, got %+v, %v", c.name, got, err)
		}
		change := property("owner", "jo")
		change.AddTags = []string{"keep"}
		first, err := s.change(inst.Project, c.kind, c.name, change)
		s.must(err)
		got, err = s.object(inst.Project, c.kind, c.name)
		if err != nil || got.Properties["owner"] != objects.Text("jo") || !slices.Equal(got.Tags, []string{"keep"}) ||
			got.Generation != first.Generation {
			s.Errorf("%s: got %+v, %v", c.name, got, err)
		}
		filter, err := objects.ParseFilter([]string{"owner=j* tag:keep"})
		s.must(err)
		all, err := s.Client.AllObjects(s.ctx, inst.Project, c.kind, filter)
		if err != nil || len(all) != 1 || all[0].Ref != got.Ref {
			s.Errorf("%s: listed %+v, %v", c.name, all, err)
		}
		old := int64(1)
		change.Base = api.MatchOf(old)
		_, err = s.change(inst.Project, c.kind, c.name, change)
		s.is(err, croft.Conflict, "a change of an older generation")
	}
	if all, err := s.Client.AllObjects(s.ctx, "other", objects.Instance, nil); err != nil || len(all) != 0 {
		s.Errorf("another project has %+v, %v", all, err)
	}
	_, err = s.object(inst.Project, objects.Instance, "nobody")
	s.is(err, croft.NotFound, "properties of an unknown instance")
	_, err = s.change(inst.Project, objects.Host, "nobody", property("k", "v"))
	s.is(err, croft.NotFound, "a property of an unknown host")
	_, err = s.change(inst.Project, objects.Group, "nobody", property("k", "v"))
	s.is(err, croft.NotFound, "a property of a group without members")
	_, err = s.object(inst.Project, "thing", "web")
	s.isOneOf(err, "an unknown kind", croft.Invalid, croft.NotFound)
	_, err = s.destroy("web")
	s.must(err)
	s.must(s.await(inst, schedule.Gone))
	if all, err := s.Client.AllObjects(s.ctx, "", objects.Instance, nil); err != nil || len(all) != 0 {
		s.Errorf("the instance is gone, listed %+v, %v", all, err)
	}
}

func (s *suite) definitions() {
	inst, err := s.request("web")
	s.must(err)
	d, at := s.Client, api.DefinitionNamed{Kind: objects.Instance}
	now, err := d.GetDefinition(s.ctx, api.DefinitionChosen{DefinitionNamed: at, Effective: true})
	if err != nil || now.Generation != 0 {
		s.Errorf("none is set, got %+v, %v", now, err)
	}
	at.Level = objects.Partition
	_, err = d.GetDefinition(s.ctx, api.DefinitionChosen{DefinitionNamed: at})
	s.is(err, croft.NotFound, "a definition that is not set")
	_, err = s.change(inst.Project, objects.Instance, "web", property("tier", "tin"))
	s.must(err)
	want := api.NewDefinition{DefinitionNamed: at, Base: api.MatchOf(0), Unknown: objects.Allow,
		Properties: map[string]objects.Property{"tier": {Enum: []objects.Value{objects.Text("gold")}}}}
	set, err := d.SetDefinition(s.ctx, want)
	s.must(err)
	_, err = d.SetDefinition(s.ctx, want)
	s.is(err, croft.Conflict, "setting over a definition that was not read")
	if got, err := d.GetDefinition(s.ctx, api.DefinitionChosen{DefinitionNamed: at}); err != nil ||
		got.Generation != set.Generation || len(got.Properties) != 1 {
		s.Errorf("set, got %+v, %v", got, err)
	}
	list, err := d.CheckDefinition(s.ctx, api.KindInProject{InProject: api.InProject{Project: inst.Project},
		Kind: objects.Instance})
	if err != nil || len(list.Breaches) != 1 || list.Breaches[0].ID != string(inst.ID) {
		s.Errorf("breaches %+v, %v", list, err)
	}
	_, err = s.change(inst.Project, objects.Instance, "web", property("note", "x"))
	s.is(err, croft.Invalid, "a change of what violates its definition")
	if p, is := errors.AsType[*api.Problem](err); !is || p.Code != api.SchemaViolation || len(p.Errors) != 1 {
		s.Errorf("the error does not list the violations: %v", err)
	}
	s.must(d.RemoveDefinition(s.ctx, at))
	s.is(d.RemoveDefinition(s.ctx, at), croft.NotFound, "a removal for the second time")
	_, err = s.change(inst.Project, objects.Instance, "web", property("note", "x"))
	s.must(err)
}
