package local

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"croft"
	"croft/cluster"
	"croft/internal/hostkey"
	"croft/schedule"
)

// atOnce is the maximum number of concurrent requests for members.
const atOnce = 16

// leftBehind is how long this process must see a claim in progress before it considers the claim abandoned by its
// maker, whatever the maker's clock says. Tests shorten it.
var leftBehind = 15 * time.Second

func remoteOf(b cluster.Build) cluster.Remote {
	return cluster.Remote{ID: string(b.Cluster), Name: b.Remote.Name, Asked: true}
}

// Launch implements cluster.Driver. Observe later orders the members that have to wait for the master's address.
func (d *Driver) Launch(ctx context.Context, _ cluster.SiteAccess, b cluster.Build) (cluster.Remote, error) {
	r, err := d.recipe(ctx, b)
	if err != nil {
		return cluster.Remote{}, err
	}
	if err := d.gather(ctx, r, withBuild); err != nil {
		return cluster.Remote{}, fmt.Errorf("build cluster %s: %w", b.Name, err)
	}
	return remoteOf(b), nil
}

// gather claims for all missing members, or for none, and orders the members that can be ordered.
func (d *Driver) gather(ctx context.Context, r *recipe, joined string) error {
	have, err := d.read(ctx, r.build)
	if err != nil {
		return err
	}
	var missing []member
	for _, m := range wanted(r.build) {
		st := have[m.id]
		switch {
		case st != nil && st.Instance.State == croft.StateLost: // the cluster rebuilds its members itself
			if err := d.destroy(ctx, r.build, []*croft.Status{st}); err != nil {
				return err
			}
			missing = append(missing, m)
		case st == nil, st.Instance.State == croft.StateScheduling:
			missing = append(missing, m)
		case st.Instance.State == croft.StateDestroying:
			kind := croft.Conflict
			if joined == withBuild {
				kind = croft.Unavailable // remains of an earlier build: once they are gone, this build continues
			}
			return croft.Errorf(kind, "%s is still being removed", m.name)
		}
	}
	if len(missing) > 0 {
		if err := d.hold(ctx, r, missing, joined); err != nil {
			return err
		}
		if have, err = d.read(ctx, r.build); err != nil {
			return err
		}
	}
	return d.order(ctx, r, have)
}

// hold claims for all of these members or for none.
func (d *Driver) hold(ctx context.Context, r *recipe, missing []member, joined string) (err error) {
	policy, err := d.policy(ctx, r.text)
	if err != nil {
		return err
	}
	errs := make([]error, len(missing))
	defer func() { err = forTenants(err) }()
	var work errgroup.Group
	work.SetLimit(atOnce)
	stop, cancel := context.WithCancel(ctx)
	defer cancel()
	for i, m := range missing {
		work.Go(func() error {
			if stop.Err() != nil && ctx.Err() == nil {
				return nil // the claim of another member was refused
			}
			q := r.request(m, joined)
			q.Policy = policy
			if errs[i] = d.claim(ctx, q); decided(errs[i]) {
				cancel()
			}
			return nil
		})
	}
	_ = work.Wait() // errs has the errors
	if err = worst(errs); err == nil || !decided(err) {
		return err
	}
	if undo := d.giveBack(ctx, r.build, missing); undo != nil {
		return croft.Errorf(croft.Unavailable, "%w; then releasing the claims failed: %w", err, undo)
	}
	return err
}

// forTenants words a lack of room without the names of hosts: the error is stored in the cluster, and only operators
// may see hosts.
func forTenants(err error) error {
	why, is := errors.AsType[*schedule.Explanation](err)
	if !is {
		return err
	}
	return croft.Errorf(croft.KindOf(err), "%s", why.ForTenants())
}

// decided reports whether an error persists until something else changes.
func decided(err error) bool {
	switch croft.KindOf(err) {
	case croft.NoCapacity, croft.OverQuota, croft.Invalid, croft.Conflict, croft.Denied, croft.NotFound:
		return true
	}
	return false
}

// worst returns a decided error if there is one, else any error.
func worst(errs []error) (found error) {
	for _, err := range errs {
		if err != nil && (found == nil || decided(err) && !decided(found)) {
			found = err
		}
	}
	return found
}

// claimed identifies a claim in progress.
type claimed struct {
	id      croft.InstanceID
	session string
	created int64 // creation revision of the record
}

// claim holds the resources of a member. An existing hold is no error. Unavailable: another launch of the cluster is
// making the claim. Conflict: the name or the ID belongs to another object.
func (d *Driver) claim(ctx context.Context, q schedule.Request) error {
	_, err := d.Scheduler.ForCluster(q.Cluster).Request(ctx, q)
	if croft.KindOf(err) != croft.Conflict {
		return err
	}
	st, found := d.Scheduler.View.FindByID(ctx, q.ID)
	switch {
	case croft.KindOf(found) == croft.NotFound:
		if other, named := d.Scheduler.View.Find(ctx, q.Project, q.Name); named == nil && other.Instance.ID != q.ID {
			return croft.Errorf(croft.Conflict, "the name %s belongs to another instance of project %s", q.Name,
				q.Project)
		}
		return croft.Errorf(croft.Unavailable, "%w", err)
	case found != nil:
		return found
	case st.Instance.Cluster != q.Cluster || st.Instance.Project != q.Project:
		return croft.Errorf(croft.Conflict, "the ID %s belongs to an instance of something else", q.ID)
	case st.Instance.State == croft.StateHeld || st.Instance.State == croft.StateScheduled:
		return nil
	case st.Instance.State == croft.StateScheduling && d.claims.Longer(claimed{q.ID, st.Instance.Session,
		st.Instance.CreateRevision}, leftBehind):
		err := d.Scheduler.ForCluster(q.Cluster).GiveUp(ctx, st.Instance)
		if err == nil || croft.KindOf(err) == croft.NotFound {
			err = errors.New("a claim that was left behind is given back")
		}
		return croft.Errorf(croft.Unavailable, "%s: %w", q.Name, err)
	}
	return croft.Errorf(croft.Unavailable, "%s is being claimed for by another launch", q.Name)
}

// giveBack releases the holds of members.
func (d *Driver) giveBack(ctx context.Context, b cluster.Build, all []member) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), afterwards)
	defer cancel()
	return each(all, func(m member) error {
		_, err := d.Scheduler.ForCluster(b.Cluster).ReleaseHold(ctx, b.Project, string(m.id))
		switch croft.KindOf(err) {
		case croft.NotFound, croft.Conflict: // it was never held, or another process is responsible for it
			return nil
		}
		return err
	})
}

// each calls do for all elements, several at a time, and returns one of the errors.
func each[T any](all []T, do func(T) error) error {
	var work errgroup.Group
	work.SetLimit(atOnce)
	for _, one := range all {
		work.Go(func() error { return do(one) })
	}
	return work.Wait()
}

// order orders members with held claims: first the master, whose record has the host key that all members share; then
// the slaves, once the master's address is known if their text uses it. Unavailable: a member that may be ordered could
// not be.
func (d *Driver) order(ctx context.Context, r *recipe, have roll) error {
	master := have.master(r.build)
	if master == nil {
		return croft.Errorf(croft.Unavailable, "its master is not claimed for")
	}
	if master.Instance.State == croft.StateHeld {
		key, err := hostkey.New()
		if err != nil {
			return fmt.Errorf("make a key for cluster %s: %w", r.build.Name, err)
		}
		inst, err := d.use(ctx, r, wanted(r.build)[0], key, "")
		if err != nil {
			return err
		}
		master.Instance = inst
	}
	if master.Instance.State != croft.StateScheduled {
		return nil
	}
	ip := address(master)
	if uses(r.Slave.UserData, nameMasterIP) && ip == "" {
		return nil
	}
	var held []member
	for _, m := range wanted(r.build)[1:] {
		if st := have[m.id]; st != nil && st.Instance.State == croft.StateHeld {
			held = append(held, m)
		}
	}
	var mu sync.Mutex
	return each(held, func(m member) error {
		inst, err := d.use(ctx, r, m, master.Instance.Spec.ClusterKey, ip)
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			have[m.id].Instance = inst
		}
		return err
	})
}

// use orders one member. Unavailable: another process did, or the host does not accept orders now.
func (d *Driver) use(ctx context.Context, r *recipe, m member, key, ip string) (croft.Instance, error) {
	u, err := r.use(m, key, ip)
	if err != nil {
		return croft.Instance{}, err
	}
	inst, err := d.Scheduler.ForCluster(r.build.Cluster).Use(ctx, r.build.Project, string(m.id), u)
	if kind := croft.KindOf(err); kind == croft.Conflict || kind == croft.NotFound {
		err = croft.Errorf(croft.Unavailable, "%w", err)
	}
	return inst, err
}
