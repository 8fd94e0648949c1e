package cloudtest

import (
	"context"
	"slices"
	"testing"
	"time"

	"croft"
	"croft/client"
	"croft/control/api"
	"croft/schedule"
	"croft/tenant"
)

// Fixture is a cloud with one live host, which has room for Room instances of small.
type Fixture struct {
	Client  *client.Client
	Host    string // the host's name
	Silence func() // ends the host's agent, and returns when the cloud has noticed
	User    string // the caller's user name
}

// Room is the number of instances that fit on the host of a Fixture.
const Room = 3

// Pools is the file with the pools that a Fixture must have; it may have others too.
const Pools = `
everybodys:
  project: org
  shared: true
  cmd_new: echo secret-$RESALLOC_ID
  cmd_delete: "true"
  max: 3
  max_prealloc: 1
  tags: [shared]
`

// small is the query that fits Room times on the host.
const small = "VCPU:1,MEMORY_MB:256,DISK_GB:1"

// image is the image of the instances.
const image = "/images/tiny.qcow2"

// patience bounds all waiting.
const patience = 3 * time.Minute

// suite is one test of the contract with its own cloud.
type suite struct {
	*testing.T
	Fixture
	ctx context.Context
}

// check is a test of the contract.
type check struct {
	name string
	test func(*suite)
}

// must ends the test on an error.
func (s *suite) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// is fails the test if err is of a kind other than want.
func (s *suite) is(err error, want croft.Kind, what string) {
	s.Helper()
	if croft.KindOf(err) != want {
		s.Errorf("%s: got %v (%s), want %s", what, err, croft.KindOf(err), want)
	}
}

// isOneOf fails the test if err is of none of these kinds.
func (s *suite) isOneOf(err error, what string, kinds ...croft.Kind) {
	s.Helper()
	if !slices.Contains(kinds, croft.KindOf(err)) {
		s.Errorf("%s: got %v (%s), want one of %v", what, err, croft.KindOf(err), kinds)
	}
}

// wanted returns a request for a small instance in the default project.
func wanted(name string) api.NewInstance {
	return api.NewInstance{InstanceRequest: api.InstanceRequest{Name: name, Query: small, Image: image}}
}

// request requests a small instance in the default project.
func (s *suite) request(name string) (api.Instance, error) {
	return s.Client.CreateInstance(s.ctx, wanted(name))
}

// named names an instance of the default project, for a change.
func named(name string) api.InstanceChange {
	return api.InstanceChange{InstanceNamed: api.InstanceNamed{ID: name, Project: croft.DefaultProject}}
}

// find reads an instance of a project.
func (s *suite) find(project croft.Project, name string) (api.Instance, error) {
	return s.Client.GetInstance(s.ctx, api.InstanceShown{InstanceNamed: api.InstanceNamed{ID: name, Project: project}})
}

// list lists the instances of a project.
func (s *suite) list(project croft.Project) ([]api.Instance, error) {
	return s.Client.AllInstances(s.ctx, api.InstanceFilter{InProject: api.InProject{Project: project}})
}

// destroy destroys an instance of the default project.
func (s *suite) destroy(name string) (api.Instance, error) {
	return s.Client.DestroyInstance(s.ctx, api.InstanceRemoval{InstanceChange: named(name)})
}

// await waits until an instance reaches a goal.
func (s *suite) await(i api.Instance, goal schedule.Goal) error {
	return s.Client.AwaitInstance(s.ctx, i, goal, nil)
}

// running requests an instance and returns it once it runs.
func (s *suite) running(name string) api.Instance {
	s.Helper()
	made, err := s.request(name)
	s.must(err)
	s.must(s.await(made, schedule.Running))
	now, err := s.find(croft.DefaultProject, name)
	s.must(err)
	return now
}

// project creates a project; an empty parent means none.
func (s *suite) project(name, parent croft.Project) tenant.Tenant {
	s.Helper()
	made, err := s.Client.CreateProject(s.ctx, api.NewProject{Name: name, Parent: parent})
	s.must(err)
	return made
}
