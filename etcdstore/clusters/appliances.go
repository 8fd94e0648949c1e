package clusters

import (
	"cmp"
	"context"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/cluster"
	"croft/etcdstore/internal/kv"
	"croft/etcdstore/internal/shelf"
	"croft/etcdstore/tenants"
	"croft/tenant"
)

func (s *ApplianceStore) appliances() shelf.Shelf[cluster.Appliance] {
	return shelf.Shelf[cluster.Appliance]{Conn: s.conn, Noun: "appliance", Prefix: s.keys().appliances(),
		Stamp:  func(v *cluster.Appliance, generation, _ int64) { v.Generation = generation },
		Charge: chargeOfRecords, Projects: s.projects}
}

// chargeOfAppliance returns the charge for one record of an appliance.
func chargeOfAppliance(a cluster.Appliance) tenants.Charge {
	a.Generation = 0
	return tenants.Charge{Project: a.Project, Amounts: tenants.SizeOf(tenant.CountAppliances, a)}
}

// chargeOfRecords returns the charge for all records of an appliance: a public one of a project has a second record
// under the name that other projects use.
func chargeOfRecords(a cluster.Appliance) tenants.Charge {
	charge := chargeOfAppliance(a)
	if project, _ := cluster.SplitAppliance(a.Name); project != "" && a.Public {
		charge.Amounts = charge.Amounts.Plus(charge.Amounts)
	}
	return charge
}

// Appliances implements cluster.ApplianceStore.
func (s *ApplianceStore) Appliances(ctx context.Context, project croft.Project) (all []cluster.Appliance, err error) {
	k, seen := s.keys(), map[string]bool{}
	all = []cluster.Appliance{}
	add := func(stored *mvccpb.KeyValue) error {
		a, err := s.appliances().Read(stored)
		if !seen[a.Name] {
			all, seen[a.Name] = append(all, a), true
		}
		return err
	}
	const what = "read the appliances"
	if project == "" {
		return all, s.conn.ReadRange(ctx, what, k.appliances(), 0, add)
	}
	if err = s.conn.ReadRange(ctx, what, k.appliancesOf(project), 0, add); err == nil {
		err = s.conn.ReadBetween(ctx, what, k.sharedFrom(), k.sharedEnd(), 0, add)
	}
	return all, err
}

// Appliance implements cluster.ApplianceStore.
func (s *ApplianceStore) Appliance(ctx context.Context, unique string) (cluster.Appliance, error) {
	project, name := cluster.SplitAppliance(unique)
	if project == "" {
		return s.appliances().Find(ctx, name)
	}
	k := s.keys()
	got, err := s.conn.Etcd.Txn(ctx).Then(clientv3.OpGet(k.appliance(unique)), clientv3.OpGet(k.appliance(name))).
		Commit()
	if err != nil {
		return cluster.Appliance{}, s.conn.Wrap(err, "read appliance %s", name)
	}
	if own := kv.First(got.Responses[0]); own != nil {
		return s.appliances().Read(own)
	}
	if shared := kv.First(got.Responses[1]); shared != nil {
		a, err := s.appliances().Read(shared)
		if err != nil || a.Public || a.Project == "" || a.Project == project {
			return a, err
		}
	}
	return cluster.Appliance{}, s.appliances().NotFound(ctx, name)
}

// PutAppliance implements cluster.ApplianceStore.
func (s *ApplianceStore) PutAppliance(ctx context.Context, a cluster.Appliance) (cluster.Appliance, error) {
	project, _ := cluster.SplitAppliance(a.Name)
	if err := cmp.Or(s.may(), cluster.CheckAppliance(a.Name)); err != nil {
		return a, err
	}
	var own []clientv3.Op
	if a.Project != "" {
		if err := a.Project.Check(); err != nil {
			return a, err
		}
		own = append(own, clientv3.OpPut(s.keys().ownAppliance(a), ""))
	}
	if project != "" && project != a.Project {
		return a, croft.Errorf(croft.Invalid, "appliance %s cannot belong to project %s: its name has another project",
			a.Name, a.Project)
	}
	appliances := s.appliances()
	appliances.Guard = func(ctx context.Context, _ cluster.Appliance, a *cluster.Appliance) (g shelf.Guard, err error) {
		if project != "" {
			g, err = s.share(ctx, *a)
		}
		g.Then = append(g.Then, own...)
		return g, err
	}
	return appliances.Change(ctx, a.Name, &a.Generation, func(before cluster.Appliance, there bool) (cluster.Appliance,
		error) {
		if there && before.Project != a.Project {
			return a, croft.Errorf(croft.Invalid, "the project of appliance %s cannot change", a.Name)
		}
		return a, nil
	})
}

// share returns the operations that maintain the record of a project's appliance under the name that other projects
// use; that record exists while the appliance is public. The conditions hold while the record is unchanged since it was
// read. Conflict: the name is taken.
func (s *ApplianceStore) share(ctx context.Context, a cluster.Appliance) (g shelf.Guard, err error) {
	_, name := cluster.SplitAppliance(a.Name)
	key := s.keys().appliance(name)
	shared, err := s.appliances().Find(ctx, name)
	there := err == nil
	if err != nil && croft.KindOf(err) != croft.NotFound {
		return g, err
	}
	isNew, ours := a.Generation == 0, there && shared.Name == a.Name
	switch {
	case isNew && there && shared.Public && !ours:
		return g, croft.Errorf(croft.Conflict, "there is an appliance %s already, which every project may use: "+
			"choose another name", name)
	case isNew && there && shared.Project == a.Project && !ours:
		return g, croft.Errorf(croft.Conflict, "there is an appliance %s already", name)
	case a.Public && there && !ours:
		return g, croft.Errorf(croft.Conflict, "appliance %s of project %s cannot be made public: the operators or "+
			"an earlier version of croft have an appliance of that name", name, a.Project)
	}
	if isNew || a.Public || ours {
		g.If = append(g.If, kv.Unchanged(key, shared.Generation))
	}
	switch {
	case a.Public:
		g.Then = append(g.Then, clientv3.OpPut(key, s.appliances().Text(a)))
	case ours:
		g.Then = append(g.Then, clientv3.OpDelete(key))
	}
	return g, nil
}

// RemoveAppliance implements cluster.ApplianceStore.
func (s *ApplianceStore) RemoveAppliance(ctx context.Context, unique string) error {
	k := s.keys()
	return s.appliances().Remove(ctx, unique, nil, func(a cluster.Appliance, revision int64) (g shelf.Guard,
		err error) {
		all, err := s.Implementations(ctx, unique)
		if n := len(all); err == nil && n > 0 {
			err = croft.Errorf(croft.Conflict, "appliance %s has %d implementations: remove those first",
				cluster.ApplianceName(unique), n)
		}
		if err != nil {
			return g, err
		}
		g.If = []clientv3.Cmp{kv.NoneSince(k.implementations(), revision)}
		g.Then, err = s.revisionsOf(ctx, unique, revision)
		if a.Project != "" {
			g.Then = append(g.Then, clientv3.OpDelete(k.ownAppliance(a)))
		}
		if project, name := cluster.SplitAppliance(unique); project != "" && a.Public {
			g.Then = append(g.Then, clientv3.OpDelete(k.appliance(name)))
		}
		return g, err
	})
}
