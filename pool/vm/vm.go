// Package vm makes the resources of pools that consist of instances. It requests them as `schedule` does, so that
// a pool's instances show in `schedule list` under its project.
package vm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"croft"
	"croft/internal/delay"
	"croft/internal/hostkey"
	"croft/internal/sshgreeting"
	"croft/pool"
	"croft/schedule"
	"croft/schedule/images"
	"croft/schedule/sshkeys"
)

// Config configures Instances. All fields except Image and Project are required.
type Config struct {
	Scheduler *schedule.Scheduler
	Keys      schedule.Keys // stored SSH keys of projects

	// ResolveImage turns an image's name into the reference that hosts download.
	ResolveImage func(name string) (string, error)
	// Catalog comes before ResolveImage.
	Catalog images.Catalog

	Image   string        // for pools without an image
	Project croft.Project // for pools without a project; croft.DefaultProject by default
}

// Instances implements pool.Instances.
type Instances struct{ Config }

var _ pool.Instances = (*Instances)(nil)

// New returns the instances of a cloud.
func New(c Config) (*Instances, error) {
	if c.Scheduler == nil || c.Keys == nil || c.ResolveImage == nil {
		return nil, croft.Errorf(croft.Invalid, "vm: Scheduler, Keys and ResolveImage are required")
	}
	c.Project = cmp.Or(c.Project, croft.DefaultProject)
	return &Instances{c}, nil
}

// Tag is on every instance of a pool; its value is the name of the resource.
const Tag = "croft-pool-resource"

// Check implements pool.Instances.
func (v *Instances) Check(i pool.Instance) error {
	ctx, cancel := context.WithTimeout(context.Background(), checkTime)
	defer cancel()
	r, _, err := v.request(ctx, i)
	if err != nil && croft.KindOf(err) != croft.Conflict && croft.KindOf(err) != croft.Unavailable {
		return err
	}
	return schedule.CheckGuest(r.GuestSettings)
}

// checkTime is how long a check waits for the cloud's catalog of images. A start asks it again.
const checkTime = 5 * time.Second

// request makes the request that a pool's instances share, and the names of stored keys.
func (v *Instances) request(ctx context.Context, i pool.Instance) (r schedule.Request, names []string, err error) {
	r.Project, r.UserData, r.Restart = v.project(i), []byte(i.UserData), croft.Restart(i.Restart)
	r.Networks, r.Open = i.Networks, i.Open
	if r.Query, err = schedule.ParseQuery(i.Resources); err != nil {
		return r, nil, err
	}
	if len(r.UserData) > croft.MaxUserData {
		return r, nil,
			croft.Errorf(croft.Invalid, "user_data has more than 64 KiB, the most that an instance may carry")
	}
	if r.Keys, names, err = sshkeys.Read(i.Keys); err != nil {
		return r, nil, err
	}
	name := cmp.Or(i.Image, v.Image)
	if ref, has, err := v.Catalog.Look(ctx, r.Project, name); has {
		r.Image, r.Named = ref, name // the name is shown instead of the reference
		return r, names, err
	}
	if r.Image, err = v.ResolveImage(name); croft.KindOf(err) == croft.NotFound {
		err = fmt.Errorf("%w; pools know no images of single users: `croft image add --machine` on each machine of a "+
			"manager names one for them, and --project or --public one of the cloud's catalog", err)
	}
	return r, names, err
}

func (v *Instances) project(i pool.Instance) croft.Project {
	return cmp.Or(croft.Project(i.Project), v.Project)
}

// madeFor is the mark of a resource's instance, which clients cannot set.
func madeFor(r pool.Resource) string { return "pool resource " + r.ID.String() }

// madeOf reports whether a manager of pools made an instance for the resource. Such an instance has the resource's
// mark; if a program that does not know marks has rewritten the record, it is recognized by the record's revision.
// Managers up to schema 1.7 stored neither for instances whose IDs they derived: those are recognized by the project,
// the tag and the time of the resource's start, which do not match an instance that was created later under that ID.
func (v *Instances) madeOf(r pool.Resource, i pool.Instance, inst croft.Instance) bool {
	switch {
	case inst.ID != r.Instance:
		return false
	case inst.MadeFor != "":
		return inst.MadeFor == madeFor(r)
	case r.InstanceRevision != 0:
		return inst.CreateRevision == r.InstanceRevision
	}
	return r.Instance == pool.DerivedInstance(v.Scheduler.Partition, r.ID) && inst.Project == v.project(i) &&
		inst.Spec.Tags[Tag] == r.Name && !inst.Created.Before(r.Created) &&
		(r.CameUp.IsZero() || !inst.Created.After(r.CameUp))
}

// find returns the resource's instance. NotFound: it has no instance. taken: an instance that was not made for the
// resource has its ID.
func (v *Instances) find(ctx context.Context, r pool.Resource, i pool.Instance) (st croft.Status, taken bool,
	err error) {
	st, err = v.Scheduler.View.FindByID(ctx, r.Instance)
	if err == nil && !v.madeOf(r, i, st.Instance) {
		return croft.Status{}, true, croft.Errorf(croft.NotFound,
			"instance %s was not made for resource %s, although it has the ID of its instance", r.Instance, r.Name)
	}
	return st, false, err
}

// Start implements pool.Instances.
func (v *Instances) Start(ctx context.Context, r pool.Resource, i pool.Instance, farther func()) (pool.Started, error) {
	inst, err := v.order(ctx, r, i)
	if err != nil {
		return pool.Started{}, err
	}
	farther()
	goal := schedule.Running
	if i.Ready == pool.ReadyCloudInit {
		goal = schedule.Ready
	}
	f := &progress{farther: farther, step: -1}
	if err := v.Scheduler.Wait(ctx, inst, f.until(goal), f.see); err != nil {
		return pool.Started{}, f.explain(ctx, inst, err)
	}
	last := f.last
	if !v.madeOf(r, i, last.Instance) {
		return pool.Started{}, croft.Errorf(croft.NotFound, "instance %s was destroyed and replaced by another one with "+
			"its ID while it started", r.Instance)
	}
	at := schedule.Address(&last)
	started := pool.Started{Address: at, Revision: last.Instance.CreateRevision}
	if i.Ready == pool.ReadySSH {
		if err := answersSSH(ctx, at); err != nil {
			return started, fmt.Errorf("instance %s runs at %s, and its SSH server does not answer: %w", inst.Name, at,
				err)
		}
	}
	facts := Facts{Instance: inst.ID, Name: inst.Name, Project: inst.Project, Host: last.Instance.Host, Address: at}
	if last.Instance.Spec.HostKey != "" {
		if facts.HostKey, err = hostkey.Public(last.Instance.Spec.HostKey); err != nil {
			return started, err
		}
	}
	started.Facts, err = json.Marshal(facts)
	return started, err
}

// Facts is the JSON document about an instance for the owner of its ticket.
type Facts struct {
	Instance croft.InstanceID `json:"instance"`
	Name     string           `json:"name"`
	Project  croft.Project    `json:"project"`
	Host     croft.HostID     `json:"host"`
	Address  string           `json:"address"`
	HostKey  string           `json:"host_key,omitempty"` // public key of its SSH server
}

// orderRetry is the pause before retrying a cloud that was unavailable.
const orderRetry = time.Second

// order requests the instance until the cloud answers or ctx ends.
func (v *Instances) order(ctx context.Context, r pool.Resource, i pool.Instance) (croft.Instance, error) {
	for again := false; ; again = true {
		inst, err := v.orderOnce(ctx, r, i, again)
		if !errors.Is(err, croft.Unavailable) {
			return inst, err
		}
		if delay.For(ctx, orderRetry) != nil {
			return inst, err
		}
	}
}

// orderOnce requests the instance unless it exists. With again, it first undoes an earlier attempt that the cloud did
// not answer. Conflict: an instance that was not made for the resource has the ID.
func (v *Instances) orderOnce(ctx context.Context, r pool.Resource, i pool.Instance, again bool) (croft.Instance,
	error) {
	st, taken, err := v.find(ctx, r, i)
	if err == nil && again && st.Instance.State == croft.StateScheduling {
		_, err := v.Scheduler.DestroyThis(ctx, st.Instance)
		return st.Instance, cmp.Or(err,
			croft.Errorf(croft.Unavailable, "instance %s: an attempt that was not answered is undone", r.Name))
	}
	if taken {
		return croft.Instance{}, croft.Errorf(croft.Conflict, "request instance %s: %v", r.Name, err)
	}
	if !errors.Is(err, croft.NotFound) {
		return st.Instance, err
	}
	q, names, err := v.request(ctx, i)
	if err != nil {
		return croft.Instance{}, err
	}
	stored, err := schedule.FindKeys(ctx, v.Keys.ListKeys, q.Project, names)
	if err != nil {
		return croft.Instance{}, err
	}
	q.ID, q.Name, q.Keys, q.MadeFor = r.Instance, hostName(r.Name), slices.Concat(q.Keys, stored), madeFor(r)
	q.Tags = map[string]string{Tag: r.Name}
	d, err := v.Scheduler.Request(ctx, q)
	return d.Instance, err
}

// hostName derives a host name from a resource's name.
func hostName(name string) string {
	plain := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
			return c
		}
		return '-'
	}, strings.ToLower(name))
	if len(plain) > 63 {
		plain = plain[len(plain)-63:] // the number is at the end
	}
	return strings.Trim(plain, "-")
}

// Probe implements pool.Instances. An unreachable host is no failure, because it may return.
func (v *Instances) Probe(ctx context.Context, r pool.Resource, i pool.Instance) error {
	st, _, err := v.find(ctx, r, i)
	switch {
	case errors.Is(err, croft.NotFound):
		return fmt.Errorf("%w: %w", pool.ErrLost, lost(nil))
	case err != nil:
		return nil
	}
	if err := lost(&st); err != nil {
		return fmt.Errorf("%w: %w", pool.ErrLost, err)
	}
	if word := schedule.Describe(&st); word != string(croft.StateRunning) {
		return fmt.Errorf("it is %s", word)
	}
	return nil
}

// Destroy implements pool.Instances. An instance that was not made for the resource is left alone.
func (v *Instances) Destroy(ctx context.Context, r pool.Resource, i pool.Instance) error {
	st, _, err := v.find(ctx, r, i)
	if err == nil {
		var d schedule.Destroyed
		if d, err = v.Scheduler.DestroyThis(ctx, st.Instance); err == nil && !d.Gone {
			return v.Scheduler.Wait(ctx, d.Instance, schedule.Gone, nil)
		}
	}
	if errors.Is(err, croft.NotFound) {
		return nil
	}
	return err
}

// Watch implements pool.Instances. Changes in quick succession are read together.
func (v *Instances) Watch(ctx context.Context, changed func(asOf time.Time,
	lost func(pool.Resource, pool.Instance) error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wake, ended := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		ended <- v.Scheduler.View.WatchInstances(ctx, func() {
			select {
			case wake <- struct{}{}:
			default:
			}
		})
	}()
	for {
		select {
		case err := <-ended:
			return err
		case <-wake:
		}
		asOf := time.Now()
		if lostOf, err := v.look(ctx); err == nil {
			changed(asOf, lostOf)
		}
		select {
		case <-ctx.Done():
		case <-time.After(watchPause):
		}
	}
}

// watchPause is how long changes of instances are collected before they are read.
const watchPause = 200 * time.Millisecond

// look reads all instances, and returns a function that reports why the instance of a resource is lost.
func (v *Instances) look(ctx context.Context) (func(pool.Resource, pool.Instance) error, error) {
	list, err := v.Scheduler.View.List(ctx, "")
	if err != nil {
		return nil, err
	}
	all := make(map[croft.InstanceID]*croft.Status, len(list))
	for i := range list {
		all[list[i].Instance.ID] = &list[i]
	}
	return func(r pool.Resource, i pool.Instance) error {
		st := all[r.Instance]
		if st != nil && !v.madeOf(r, i, st.Instance) {
			st = nil
		}
		return lost(st)
	}, nil
}

// lost returns why a running instance is lost; nil: it is not lost, or this is unknown. st is nil for an instance
// without a record. A guest that stopped and was restarted by its agent is lost as well: it runs, but without its
// user's state. The events of such a boot include no definition of a domain.
func lost(st *croft.Status) error {
	switch {
	case st == nil:
		return errors.New("it is gone")
	case st.Instance.State == croft.StateDestroying:
		return errors.New("somebody destroyed it")
	case st.Instance.State == croft.StateLost:
		return errors.New("it was lost with its host")
	case st.Observation == nil || schedule.Describe(st) == schedule.Unknown:
		return nil
	}
	switch st.Observation.State {
	case croft.StateStopped:
		if st.Observation.Ended != "" {
			return fmt.Errorf("it went off: %s", st.Observation.Ended)
		}
		return errors.New("it went off")
	case croft.StateFailed:
		return errors.New(cmp.Or(st.Observation.Error, "its host gives no reason"))
	}
	has := func(name croft.EventName) bool {
		return slices.ContainsFunc(st.Observation.Events, func(e croft.Event) bool { return e.Name == name })
	}
	if has(croft.EventRunning) && !has(croft.EventDefined) {
		return errors.New("it went off and was started again")
	}
	return nil
}

// progress follows the start of an instance.
type progress struct {
	farther func()
	step    int          // index of the latest of steps that it has reached
	bytes   int64        // of its image, downloaded so far
	last    croft.Status // newest status
	failure error        // reported by its host, which retries
}

// steps are the states of a starting instance, in order. A guest that restarts repeatedly makes no progress.
var steps = []croft.State{
	croft.StatePending, croft.StateFetching, croft.StateDefining, croft.StateBooting, croft.StateRunning,
}

// see records the state of an instance, and calls farther if it made progress.
func (f *progress) see(st croft.Status) {
	f.last = st
	if st.Observation == nil {
		return
	}
	step, bytes := slices.Index(steps, st.Observation.State), int64(0)
	if st.Observation.Progress != nil {
		bytes = st.Observation.Progress.Done
	}
	if step > f.step || step == f.step && bytes > f.bytes {
		f.step, f.bytes = step, bytes
		f.farther()
	}
}

// until wraps goal, and ignores failures that the host's agent retries: failures of kind Unavailable, such as a late
// answer of libvirt on a busy host.
func (f *progress) until(goal schedule.Goal) schedule.Goal {
	return func(st *croft.Status) (bool, error) {
		reached, err := goal(st)
		if _, failed := errors.AsType[*schedule.Failure](err); failed && croft.KindOf(err) == croft.Unavailable {
			f.failure = err
			return false, nil
		}
		return reached, err
	}
}

// explain adds to the error of a wait how far the instance got and what its host reported.
func (f *progress) explain(ctx context.Context, inst croft.Instance, err error) error {
	switch {
	case ctx.Err() == nil:
		return err
	case f.failure != nil:
		return croft.Errorf(croft.Unavailable, "instance %s is %s; what its host tried again and again: %w",
			inst.Name, schedule.Describe(&f.last), f.failure)
	}
	return croft.Errorf(croft.Unavailable, "instance %s is %s", inst.Name,
		cmp.Or(schedule.Describe(&f.last), "ordered"))
}

// sshRetry is the pause between attempts to reach an SSH server.
const sshRetry = 250 * time.Millisecond

// answersSSH waits for the greeting of an SSH server, until ctx ends; then it returns the last error.
func answersSSH(ctx context.Context, address string) error {
	for {
		err := greets(ctx, net.JoinHostPort(address, "22"))
		if err == nil || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(sshRetry):
		}
	}
}

// greets reads the greeting of an SSH server once.
func greets(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return sshgreeting.Read(ctx, address)
}
