package etcdstore

import (
	"context"
	"errors"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/compute"
	"croft/hosts/audit"
)

// Records reads all records together, and repairs differences between them.
type Records struct{ conn *conn }

var (
	_ audit.Records   = (*Records)(nil)
	_ compute.Records = (*Records)(nil)
)

// Instance implements compute.Records.
func (s *Records) Instance(ctx context.Context, id croft.InstanceID) (croft.Instance, error) {
	return (&Instances{conn: s.conn}).Instance(ctx, id)
}

// Evidence implements audit.Records. It reads everything in one transaction.
func (s *Records) Evidence(ctx context.Context) (audit.Evidence, error) {
	k := s.conn.keys
	prefixes := []string{k.instances(), k.allOrders(), k.allObserved(), k.hosts(), k.allAlive(), k.allDrained(),
		k.allDead(), k.allTwins(), k.sessions(), k.names(), k.allUserData(), k.groups().all(),
		k.groups().allSeats(), k.volumes().Records(), k.allAddresses()}
	var ops []clientv3.Op
	for _, prefix := range prefixes {
		options := []clientv3.OpOption{clientv3.WithPrefix()}
		if prefix == k.allUserData() {
			options = append(options, clientv3.WithKeysOnly())
		}
		ops = append(ops, clientv3.OpGet(prefix, options...))
	}
	got, err := s.conn.etcd.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		return audit.Evidence{}, s.conn.wrap(err, "read the records")
	}
	j := s.conn.newJoiner()
	for _, r := range got.Responses[:8] {
		j.addAll(r.GetResponseRange().Kvs)
	}
	b, err := j.evidence()
	b.Sessions = map[string]bool{}
	for _, kv := range got.Responses[8].GetResponseRange().Kvs {
		b.Sessions[last(kv.Key)] = true
	}
	for _, kv := range got.Responses[9].GetResponseRange().Kvs {
		b.Names = append(b.Names, k.nameOf(kv))
	}
	for _, kv := range got.Responses[10].GetResponseRange().Kvs {
		b.UserData = append(b.UserData, audit.UserData{Instance: croft.InstanceID(last(kv.Key)),
			Revision: kv.ModRevision})
	}
	groups := got.Responses[11].GetResponseRange().Kvs
	for i, m := range membersOf(groups) {
		project, _, _ := strings.Cut(strings.TrimPrefix(string(groups[i].Key), k.groups().all()), "/")
		b.Members = append(b.Members, audit.GroupMember{GroupMember: m, Project: croft.Project(project),
			Revision: groups[i].ModRevision})
	}
	seats := got.Responses[12].GetResponseRange().Kvs
	for i, seat := range seatsOf(seats) {
		project, _, _ := strings.Cut(strings.TrimPrefix(string(seats[i].Key), k.groups().allSeats()), "/")
		b.Seats = append(b.Seats, audit.TakenSeat{Seat: seat, Project: croft.Project(project),
			Revision: seats[i].ModRevision})
	}
	for _, kv := range got.Responses[14].GetResponseRange().Kvs {
		taken := audit.TakenAddress{Instance: croft.InstanceID(kv.Value), Revision: kv.ModRevision}
		taken.Address, taken.Host = k.addressOf(kv.Key)
		b.Addresses = append(b.Addresses, taken)
	}
	return b, errors.Join(err, s.addVolumes(&b, got.Responses[13].GetResponseRange().Kvs))
}

// addVolumes adds the records of volumes, as stored.
func (s *Records) addVolumes(b *audit.Evidence, stored []*mvccpb.KeyValue) error {
	b.Volumes = map[croft.VolumeID]croft.Volume{}
	for _, kv := range stored {
		var v croft.Volume
		if err := s.conn.decode(kv.Key, kv.Value, &v); err != nil {
			return err
		}
		v.Revision, v.CreateRevision = kv.ModRevision, kv.CreateRevision
		b.Volumes[v.ID] = v
	}
	return nil
}

func (k keys) nameOf(kv *mvccpb.KeyValue) audit.Name {
	project, name, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), k.names()), "/")
	return audit.Name{Project: croft.Project(project), Name: name, Instance: croft.InstanceID(kv.Value),
		Revision: kv.ModRevision}
}

// HostEvidence implements compute.Records.
func (s *Records) HostEvidence(ctx context.Context, host croft.HostID, more ...croft.InstanceID) (audit.Evidence,
	error) {
	k := s.conn.keys
	got, err := s.conn.etcd.Txn(ctx).Then(
		clientv3.OpGet(k.orders(host), clientv3.WithPrefix()),
		clientv3.OpGet(k.observedOn(host), clientv3.WithPrefix()),
		clientv3.OpGet(k.volumes().On(host), clientv3.WithPrefix()),
	).Commit()
	if err != nil {
		return audit.Evidence{}, s.conn.wrap(err, "read the records of host %s", host)
	}
	j := s.conn.newJoiner()
	ids := map[croft.InstanceID]bool{}
	for _, r := range got.Responses[:2] {
		for _, kv := range r.GetResponseRange().Kvs {
			ids[croft.InstanceID(last(kv.Key))] = true
		}
		j.addAll(r.GetResponseRange().Kvs)
	}
	for _, id := range more {
		ids[id] = true
	}
	var records, hosts []string
	for id := range ids {
		records = append(records, k.instance(id))
	}
	if err := j.addEach(ctx, records); err != nil {
		return audit.Evidence{}, err
	}
	for _, inst := range j.instances {
		if inst.Host != host && inst.Host != "" {
			hosts = append(hosts, k.host(inst.Host))
		}
	}
	if err := j.addEach(ctx, append(hosts, k.host(host), k.dead(host))); err != nil {
		return audit.Evidence{}, err
	}
	b, err := j.evidence()
	b.Only = host
	return b, errors.Join(err, s.addVolumes(&b, got.Responses[2].GetResponseRange().Kvs))
}

// addEach adds the values of keys to the joiner.
func (j *joiner) addEach(ctx context.Context, keys []string) error {
	for len(keys) > 0 {
		n := min(len(keys), DefaultTxnOps)
		var ops []clientv3.Op
		for _, key := range keys[:n] {
			ops = append(ops, clientv3.OpGet(key))
		}
		got, err := j.conn.etcd.Txn(ctx).Then(ops...).Commit()
		if err != nil {
			return j.conn.wrap(err, "read the records")
		}
		for _, r := range got.Responses {
			j.addAll(r.GetResponseRange().Kvs)
		}
		keys = keys[n:]
	}
	return nil
}

// evidence returns the added values, without the data of Placement and hosts.
func (j *joiner) evidence() (audit.Evidence, error) {
	if _, err := j.join(); err != nil {
		return audit.Evidence{}, err
	}
	b := audit.Evidence{
		Hosts: j.hosts, Instances: map[croft.InstanceID]croft.Instance{},
		Claims: map[croft.HostID]map[croft.InstanceID]croft.Resources{}, Contents: map[croft.HostID]audit.Contents{},
	}
	for _, inst := range j.instances {
		b.Instances[inst.ID] = inst
	}
	for _, o := range j.orders {
		b.Orders = append(b.Orders, o)
	}
	for _, o := range j.observed {
		b.Observations = append(b.Observations, o)
	}
	return b, nil
}

// dropOrder removes an order that has no instance, and its observation.
func (s *Records) dropOrder(ctx context.Context, o croft.Order) error {
	k := s.conn.keys
	_, err := s.conn.etcd.Txn(ctx).
		If(unchanged(k.order(o.Host, o.Instance), o.Revision), absent(k.instance(o.Instance))).
		Then(clientv3.OpDelete(k.order(o.Host, o.Instance)),
			clientv3.OpDelete(k.observed(o.Host, o.Instance))).
		Commit()
	return s.conn.wrapped(err, "remove an order")
}

// Drop implements audit.Records and compute.Records. Each removal compares its precondition; if that no longer holds,
// nothing needs to be done.
func (s *Records) Drop(ctx context.Context, d audit.Difference) error {
	k := s.conn.keys
	switch d.Kind {
	case audit.LostName:
		name := k.name(d.Project, d.Name)
		_, err := s.conn.etcd.Txn(ctx).If(unchanged(name, d.Revision)).Then(clientv3.OpDelete(name)).Commit()
		return s.conn.wrapped(err, "remove a name")
	case audit.LostOrder:
		return s.dropOrder(ctx, croft.Order{Host: d.Host, Instance: d.Instance, Revision: d.Revision})
	case audit.LostMember:
		if d.Affinity == nil {
			return croft.Errorf(croft.Invalid, "a membership of no group")
		}
		member := croft.GroupMember{Affinity: *d.Affinity, Host: d.Host, Instance: d.Instance}
		key := k.groups().member(d.Project, member)
		_, err := s.conn.etcd.Txn(ctx).If(unchanged(key, d.Revision)).Then(clientv3.OpDelete(key),
			k.groups().endGroup(d.Project, d.Affinity.Group, key)).Commit()
		return s.conn.wrapped(err, "remove a membership")
	case audit.LostSeat:
		key := k.groups().seat(d.Project, d.Seat)
		_, err := s.conn.etcd.Txn(ctx).If(unchanged(key, d.Revision)).Then(clientv3.OpDelete(key)).Commit()
		return s.conn.wrapped(err, "remove a seat")
	case audit.LostAddress:
		key := k.address(d.Address, d.Host)
		_, err := s.conn.etcd.Txn(ctx).If(unchanged(key, d.Revision)).Then(clientv3.OpDelete(key)).Commit()
		return s.conn.wrapped(err, "free an address")
	case audit.LostUserData:
		key := k.userData(d.Instance)
		_, err := s.conn.etcd.Txn(ctx).If(unchanged(key, d.Revision),
			absent(k.instance(d.Instance))).Then(clientv3.OpDelete(key)).Commit()
		return s.conn.wrapped(err, "remove an instance's user-data")
	case audit.LostObservation:
		_, err := s.conn.etcd.Txn(ctx).If(absent(k.order(d.Host, d.Instance))).
			Then(clientv3.OpDelete(k.observed(d.Host, d.Instance))).Commit()
		return s.conn.wrapped(err, "remove an observation")
	}
	return croft.Errorf(croft.Invalid, "%s is not mended by removing anything", d.Kind)
}

// PutName implements audit.Records. Conflict: another instance has the name, or the record has changed: the UUID may
// now belong to an instance of another project.
func (s *Records) PutName(ctx context.Context, inst croft.Instance) error {
	name := s.conn.keys.name(inst.Project, inst.Name)
	done, err := s.conn.etcd.Txn(ctx).If(absent(name), unchanged(s.conn.keys.instance(inst.ID), inst.Revision)).
		Then(clientv3.OpPut(name, string(inst.ID))).
		Else(clientv3.OpGet(name, clientv3.WithCountOnly())).Commit()
	switch {
	case err != nil:
		return s.conn.wrap(err, "write a name")
	case done.Succeeded:
		return nil
	case done.Responses[0].GetResponseRange().Count == 0:
		return croft.Errorf(croft.Conflict, "instance %s was changed by another request", inst.ID)
	}
	return croft.Errorf(croft.Conflict, "the name %s is taken by another instance", inst.Name)
}

// PutAddress implements audit.Records.
func (s *Records) PutAddress(ctx context.Context, inst croft.Instance) error {
	k := s.conn.keys
	done, err := s.conn.etcd.Txn(ctx).
		If(append(k.addressFree(inst, inst.Host), unchanged(k.instance(inst.ID), inst.Revision))...).
		Then(k.takeAddress(inst, inst.Host)...).
		Else(k.readAddress(inst, inst.Host)...).Commit()
	switch {
	case err != nil:
		return s.conn.wrap(err, "keep the address of an instance")
	case done.Succeeded:
		return nil
	}
	if err := addressTaken(inst, inst.Host, done.Responses); err != nil {
		return croft.Errorf(croft.Conflict, "the address %s is kept for another instance", inst.Spec.FixedAddress)
	}
	return croft.Errorf(croft.Conflict, "instance %s was changed by another request", inst.ID)
}

// PutMember implements audit.Records.
func (s *Records) PutMember(ctx context.Context, inst croft.Instance) error {
	done, err := s.conn.etcd.Txn(ctx).If(unchanged(s.conn.keys.instance(inst.ID), inst.Revision)).
		Then(s.conn.keys.groups().enter(inst)...).Commit()
	if err == nil && !done.Succeeded {
		return croft.Errorf(croft.Conflict, "instance %s was changed by another request", inst.ID)
	}
	return s.conn.wrapped(err, "write a membership")
}
