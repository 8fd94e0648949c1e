package direct

import (
	"context"
	"os/user"

	"croft"
	"croft/control/cloud"
	"croft/etcdstore"
	"croft/tenant/access"
	"croft/tenant/objects"
)

// operator returns the caller for a connection to etcd: a process with etcd's credentials may do everything.
func operator(store *etcdstore.Store, s Settings) access.Caller {
	c := access.Caller{Partition: store.Partition(), Project: croft.Project(s.Project),
		Roles: []access.Role{access.PartitionAdmin}, Via: "etcd"}
	if u, err := user.Current(); err == nil { // for the log only
		c.User = u.Username
	}
	return c
}

// objectList implements cloud.Objects.
type objectList struct {
	service   *objects.Service
	instances *etcdstore.Instances
	hosts     cloud.Hosts
	caller    access.Caller
}

// Object implements cloud.Objects.
func (o objectList) Object(ctx context.Context, project croft.Project, kind objects.Kind, idOrName string) (
	objects.Object, error) {
	ref, err := o.find(ctx, project, kind, idOrName)
	if err != nil {
		return objects.Object{}, err
	}
	return o.service.Object(ctx, o.caller, access.Everything(), ref)
}

// find returns the reference of an object.
func (o objectList) find(ctx context.Context, project croft.Project, kind objects.Kind, idOrName string) (objects.Ref,
	error) {
	switch kind {
	case objects.Instance:
		st, err := o.instances.Find(ctx, project, idOrName)
		return objects.Ref{Kind: kind, Project: st.Instance.Project, ID: string(st.Instance.ID)}, err
	case objects.Host:
		h, err := cloud.HostCalled(ctx, o.hosts, idOrName)
		return objects.Ref{Kind: kind, ID: string(h.ID)}, err
	}
	return objects.Ref{Kind: kind, Project: project, ID: idOrName}, kind.Check()
}

// List implements cloud.Objects.
func (o objectList) List(ctx context.Context, project croft.Project, kind objects.Kind, f objects.Filter) (
	[]objects.Object, error) {
	return o.service.List(ctx, o.caller, scopeOf(project, kind), kind, f)
}

func scopeOf(project croft.Project, kind objects.Kind) access.Scope {
	if project == "" || !kind.InProject() {
		return access.Everything()
	}
	return access.Within(project)
}

// Change implements cloud.Objects.
func (o objectList) Change(ctx context.Context, project croft.Project, kind objects.Kind, idOrName string,
	c objects.Change) (objects.Object, error) {
	ref, err := o.find(ctx, project, kind, idOrName)
	if err != nil {
		return objects.Object{}, err
	}
	return o.service.Change(ctx, o.caller, access.Everything(), ref, c)
}

// definitions implements cloud.Definitions.
type definitions struct{ objectList }

// Effective implements cloud.Definitions.
func (d definitions) Effective(ctx context.Context, kind objects.Kind) (objects.Definition, error) {
	return d.service.Definition(ctx, kind)
}

// At implements cloud.Definitions.
func (d definitions) At(ctx context.Context, at objects.Place) (objects.Definition, error) {
	return d.service.DefinitionAt(ctx, at)
}

// Set implements cloud.Definitions.
func (d definitions) Set(ctx context.Context, one objects.Definition) (objects.Definition, error) {
	return d.service.SetDefinition(ctx, d.caller, one)
}

// Remove implements cloud.Definitions.
func (d definitions) Remove(ctx context.Context, at objects.Place) error {
	return d.service.RemoveDefinition(ctx, d.caller, at)
}

// Check implements cloud.Definitions.
func (d definitions) Check(ctx context.Context, project croft.Project, kind objects.Kind) ([]objects.Breach, error) {
	return d.service.Check(ctx, d.caller, scopeOf(project, kind), kind)
}
