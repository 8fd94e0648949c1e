package remote

import (
	"context"
	"io"

	"croft"
	"croft/audit"
	"croft/cloud"
	"croft/compute"
	"croft/hosts"
	"croft/objects"
)

// errOperators is the answer of everything that is not part of the API.
var errOperators = croft.Errorf(croft.Denied, "this is for operators on a host of the cloud: the API does not have it; "+
	"run it there, without CROFT_URL")

// operators implements what only operators on a host of the cloud can do.
type operators struct{}

func (operators) Drain(context.Context, string) (hosts.Host, error) {
	return hosts.Host{}, errOperators
}
func (operators) Enable(context.Context, string) (hosts.Host, error) {
	return hosts.Host{}, errOperators
}
func (operators) Accept(context.Context, string) (hosts.Host, error) {
	return hosts.Host{}, errOperators
}
func (operators) Forget(context.Context, string, bool) (hosts.Host, error) {
	return hosts.Host{}, errOperators
}
func (operators) MoveAll(context.Context, hosts.Host) ([]hosts.Moved, error) {
	return nil, errOperators
}
func (operators) RemoveMember(context.Context, hosts.Host) error { return errOperators }

func (operators) Pull(context.Context, croft.Host, string, string, func(croft.Progress)) (*compute.Pulled, error) {
	return nil, errOperators
}

func (operators) Object(context.Context, croft.Project, objects.Kind, string) (objects.Object, error) {
	return objects.Object{}, errOperators
}
func (operators) List(context.Context, croft.Project, objects.Kind, objects.Filter) ([]objects.Object, error) {
	return nil, errOperators
}
func (operators) Change(context.Context, croft.Project, objects.Kind, string, objects.Change) (objects.Object,
	error) {
	return objects.Object{}, errOperators
}
func (operators) Effective(context.Context, objects.Kind) (objects.Definition, error) {
	return objects.Definition{}, errOperators
}
func (operators) At(context.Context, objects.Place) (objects.Definition, error) {
	return objects.Definition{}, errOperators
}
func (operators) Set(context.Context, objects.Definition) (objects.Definition, error) {
	return objects.Definition{}, errOperators
}
func (operators) Remove(context.Context, objects.Place) error { return errOperators }
func (operators) Check(context.Context, croft.Project, objects.Kind) ([]objects.Breach, error) {
	return nil, errOperators
}

func (operators) Audit(context.Context) (audit.Report, error)  { return audit.Report{}, errOperators }
func (operators) Mend(context.Context, audit.Difference) error { return errOperators }

func (operators) Mirror() cloud.Mirror                                { return noMirror{} }
func (operators) Usable(context.Context) error                        { return errOperators }
func (operators) Providers(context.Context) ([]croft.Provider, error) { return nil, errOperators }
func (operators) Usages(context.Context, croft.Host) ([]compute.Usage, error) {
	return nil, errOperators
}

func (operators) Snapshot(context.Context, io.Writer) (int64, error) { return 0, errOperators }

// noMirror implements cloud.Mirror.
type noMirror struct{}

func (noMirror) Run(context.Context, func()) error           { return errOperators }
func (noMirror) Ready() bool                                 { return false }
func (noMirror) Look() ([]croft.Host, []croft.Status, error) { return nil, nil, errOperators }

// tokens implements cloud.Tokens.
type tokens struct{}

func (tokens) Invite(context.Context, cloud.Invitation) (cloud.Token, error) {
	return cloud.Token{}, errOperators
}
func (tokens) List(context.Context) ([]cloud.Token, error) { return nil, errOperators }
func (tokens) Revoke(context.Context, string) (cloud.Token, error) {
	return cloud.Token{}, errOperators
}
