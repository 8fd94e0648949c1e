package main

import (
	"bufio"
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
	"croft/cloud/direct"
	"croft/image"
	"croft/pool"
	"croft/schedule"
	"croft/schedule/sshkeys"
)

// poolInstances makes resources of pools of instances. It asks for them as `schedule`
// does, so that a pool's instances show in `schedule list` under its project.
type poolInstances struct {
	*schedule.Scheduler
	keys     schedule.Keys
	defaults direct.Settings // image and project of pools that name none
}

var _ pool.Instances = (*poolInstances)(nil)

func newPoolInstances(s *schedule.Scheduler, keys schedule.Keys, defaults direct.Settings) *poolInstances {
	return &poolInstances{s, keys, defaults}
}

// poolTag is the tag of an instance that says which resource it is.
const poolTag = "croft-pool-resource"

// Check implements pool.Instances.
func (p *poolInstances) Check(i pool.Instance) error {
	r, _, err := p.request(i)
	if err != nil {
		return err
	}
	return schedule.CheckGuest(croft.Spec{UserData: r.UserData, Restart: r.Restart})
}

// request is what a pool's instances have in common, and the names of stored keys.
func (p *poolInstances) request(i pool.Instance) (r schedule.Request, names []string, err error) {
	r = schedule.Request{Project: p.project(i), UserData: []byte(i.UserData), Networks: i.Networks, Restart: croft.Restart(i.Restart)}
	if r.Query, err = schedule.ParseQuery(i.Resources); err != nil {
		return r, nil, err
	}
	if len(r.UserData) > croft.MaxUserData {
		return r, nil, croft.Errorf(croft.Invalid, "user_data has more than 64 KiB, the most that an instance may carry")
	}
	if r.Keys, names, err = sshkeys.Read(i.Keys); err != nil {
		return r, nil, err
	}
	r.Image, err = image.ReferenceFor(cmp.Or(i.Image, p.defaults.Image))
	return r, names, err
}

func (p *poolInstances) project(i pool.Instance) croft.Project {
	return croft.Project(cmp.Or(i.Project, p.defaults.Project, string(croft.DefaultProject)))
}

// Start implements pool.Instances.
func (p *poolInstances) Start(ctx context.Context, id croft.InstanceID, name string, i pool.Instance, farther func()) (string, json.RawMessage, error) {
	inst, err := p.order(ctx, id, name, i)
	if err != nil {
		return "", nil, err
	}
	farther()
	goal := schedule.Running
	if i.Ready == pool.ReadyCloudInit {
		goal = schedule.Ready
	}
	f := &following{farther: farther, step: -1}
	if err := p.Wait(ctx, inst, f.until(goal), f.see); err != nil {
		return "", nil, f.explain(ctx, inst, err)
	}
	last := f.last
	at := address(last)
	if i.Ready == pool.ReadySSH {
		if err := answersSSH(ctx, at); err != nil {
			return at, nil, fmt.Errorf("instance %s runs at %s, and its SSH server does not answer: %w", inst.Name, at, err)
		}
	}
	facts, err := json.Marshal(instanceFacts{Instance: inst.ID, Name: inst.Name, Project: inst.Project, Host: last.Instance.Host, Address: at})
	return at, facts, err
}

// following is what is seen of an instance that starts.
type following struct {
	farther func()
	step    int   // the farthest of steps that it came to
	bytes   int64 // and how many bytes of its image are there
	last    croft.Status
	failure error // what its host says, which tries again
}

// steps are the states of an instance that starts, in their order. A guest that is started
// over and over does not get any farther.
var steps = []croft.State{croft.StatePending, croft.StateFetching, croft.StateDefining, croft.StateBooting, croft.StateRunning}

// see notes what an instance is, and tells where that is farther than before.
func (f *following) see(st croft.Status) {
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

// until is goal, without the failures that the host's agent tries again: what was
// unavailable to it on a busy host, such as an answer of libvirt within its time.
func (f *following) until(goal schedule.Goal) schedule.Goal {
	return func(st *croft.Status) (bool, error) {
		reached, err := goal(st)
		if _, failed := errors.AsType[*schedule.Failure](err); failed && croft.KindOf(err) == croft.Unavailable {
			f.failure = err
			return false, nil
		}
		return reached, err
	}
}

// explain says of an instance that was given up where it stood, and what its host said.
func (f *following) explain(ctx context.Context, inst croft.Instance, err error) error {
	switch {
	case ctx.Err() == nil:
		return err
	case f.failure != nil:
		return croft.Errorf(croft.Unavailable, "instance %s is %s; what its host tried again and again: %w", inst.Name, schedule.Describe(&f.last), f.failure)
	}
	return croft.Errorf(croft.Unavailable, "instance %s is %s", inst.Name, cmp.Or(schedule.Describe(&f.last), "ordered"))
}

// instanceFacts are what the owner of a ticket gets as JSON.
type instanceFacts struct {
	Instance croft.InstanceID `json:"instance"`
	Name     string           `json:"name"`
	Project  croft.Project    `json:"project"`
	Host     croft.HostID     `json:"host"`
	Address  string           `json:"address"`
}

// orderRetry is how long is waited before a cloud that was unavailable is asked again.
const orderRetry = time.Second

// order asks for the instance until the cloud answers, or ctx ends.
func (p *poolInstances) order(ctx context.Context, id croft.InstanceID, name string, i pool.Instance) (croft.Instance, error) {
	for again := false; ; again = true {
		inst, err := p.orderOnce(ctx, id, name, i, again)
		if !errors.Is(err, croft.Unavailable) {
			return inst, err
		}
		select {
		case <-ctx.Done():
			return inst, err
		case <-time.After(orderRetry):
		}
	}
}

// orderOnce asks for the instance, unless that was done before. Again: what an attempt
// left that the cloud did not answer is undone first.
func (p *poolInstances) orderOnce(ctx context.Context, id croft.InstanceID, name string, i pool.Instance, again bool) (croft.Instance, error) {
	st, err := p.View.Find(ctx, p.project(i), string(id))
	if err == nil && again && st.Instance.State == croft.StateScheduling {
		_, err := p.Scheduler.Destroy(ctx, p.project(i), string(id), false)
		return st.Instance, cmp.Or(err, croft.Errorf(croft.Unavailable, "instance %s: an attempt that was not answered is undone", name))
	}
	if !errors.Is(err, croft.NotFound) {
		return st.Instance, err
	}
	r, names, err := p.request(i)
	if err != nil {
		return croft.Instance{}, err
	}
	stored, err := schedule.FindKeys(ctx, p.keys, r.Project, names)
	if err != nil {
		return croft.Instance{}, err
	}
	r.ID, r.Name, r.Keys, r.Tags = id, hostName(name), slices.Concat(r.Keys, stored), map[string]string{poolTag: name}
	d, err := p.Request(ctx, r)
	return d.Instance, err
}

// hostName makes a host name of a resource's name.
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

// sshRetry is how long is waited before an SSH server is asked again.
const sshRetry = 250 * time.Millisecond

// answersSSH returns nil once an SSH server says that it is one, or why it did not
// until ctx ended.
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

func greets(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	_ = conn.SetReadDeadline(deadline) // a connection that is open takes it
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && !strings.HasPrefix(line, "SSH-") {
		err = fmt.Errorf("%.40q is no greeting of an SSH server", line)
	}
	return err
}

// Probe implements pool.Instances. That a host is silent may pass.
func (p *poolInstances) Probe(ctx context.Context, id croft.InstanceID) error {
	st, err := p.View.Find(ctx, "", string(id))
	switch {
	case errors.Is(err, croft.NotFound):
		return fmt.Errorf("%w: %w", pool.ErrLost, lostInstance(nil))
	case err != nil:
		return nil
	}
	if lost := lostInstance(&st); lost != nil {
		return fmt.Errorf("%w: %w", pool.ErrLost, lost)
	}
	if word := schedule.Describe(&st); word != string(croft.StateRunning) {
		return fmt.Errorf("it is %s", word)
	}
	return nil
}

// lostInstance says how an instance that ran was lost; nil where it was not, or nobody
// can tell. An agent starts a guest again that went off: it runs then, and is not what
// somebody had. Its boot has no definition of a domain among its events.
func lostInstance(st *croft.Status) error {
	switch {
	case st == nil:
		return errors.New("it is gone")
	case st.Instance.State == croft.StateDestroying:
		return errors.New("somebody destroyed it")
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

// Destroy implements pool.Instances.
func (p *poolInstances) Destroy(ctx context.Context, id croft.InstanceID, i pool.Instance) error {
	d, err := p.Scheduler.Destroy(ctx, p.project(i), string(id), false)
	switch {
	case errors.Is(err, croft.NotFound):
		return nil
	case err != nil || d.Gone:
		return err
	}
	return p.Wait(ctx, d.Instance, schedule.Gone, nil)
}

// Watch implements pool.Instances. Changes that come close together are looked at once.
func (p *poolInstances) Watch(ctx context.Context, changed func(asOf time.Time, lost func(croft.InstanceID) error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wake, ended := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		ended <- p.View.WatchInstances(ctx, func() {
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
		if lost, err := p.look(ctx); err == nil {
			changed(asOf, lost)
		}
		select {
		case <-ctx.Done():
		case <-time.After(watchPause):
		}
	}
}

// watchPause is how long changes of instances are collected.
const watchPause = 200 * time.Millisecond

// look reads all instances at once.
func (p *poolInstances) look(ctx context.Context) (func(croft.InstanceID) error, error) {
	list, err := p.View.List(ctx, "")
	if err != nil {
		return nil, err
	}
	all := make(map[croft.InstanceID]*croft.Status, len(list))
	for i := range list {
		all[list[i].Instance.ID] = &list[i]
	}
	return func(id croft.InstanceID) error { return lostInstance(all[id]) }, nil
}
