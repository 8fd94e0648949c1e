package etcdstore

import (
	"context"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/audit"
)

// Evidence implements audit.Records and audit.Shared: everything in one transaction.
func (s *Store) Evidence(ctx context.Context) (audit.Evidence, error) {
	prefixes := []string{s.keys.instances(), s.keys.allOrders(), s.keys.allObserved(), s.keys.hosts(),
		s.keys.allAlive(), s.keys.allDrained(), s.keys.allTwins(), s.keys.sessions(), s.keys.names(),
		s.keys.allUserData(), s.keys.groups().all()}
	var ops []clientv3.Op
	for _, prefix := range prefixes {
		options := []clientv3.OpOption{clientv3.WithPrefix()}
		if prefix == s.keys.allUserData() {
			options = append(options, clientv3.WithKeysOnly())
		}
		ops = append(ops, clientv3.OpGet(prefix, options...))
	}
	got, err := s.etcd.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		return audit.Evidence{}, s.wrap(err, "read the records")
	}
	j := s.newJoiner()
	for _, r := range got.Responses[:7] {
		j.addAll(r.GetResponseRange().Kvs)
	}
	b, err := j.evidence()
	b.Sessions = map[string]bool{}
	for _, kv := range got.Responses[7].GetResponseRange().Kvs {
		b.Sessions[last(kv.Key)] = true
	}
	for _, kv := range got.Responses[8].GetResponseRange().Kvs {
		b.Names = append(b.Names, s.keys.nameOf(kv))
	}
	for _, kv := range got.Responses[9].GetResponseRange().Kvs {
		b.UserData = append(b.UserData, audit.UserData{Instance: croft.InstanceID(last(kv.Key)),
			Revision: kv.ModRevision})
	}
	groups := got.Responses[10].GetResponseRange().Kvs
	for i, m := range membersOf(groups) {
		project, _, _ := strings.Cut(strings.TrimPrefix(string(groups[i].Key), s.keys.groups().all()), "/")
		b.Members = append(b.Members, audit.Member{Member: m, Project: croft.Project(project),
			Revision: groups[i].ModRevision})
	}
	return b, err
}

func (k keys) nameOf(kv *mvccpb.KeyValue) audit.Name {
	project, name, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), k.names()), "/")
	return audit.Name{Project: croft.Project(project), Name: name, Instance: croft.InstanceID(kv.Value),
		Revision: kv.ModRevision}
}

// HostEvidence implements compute.Records.
func (s *Store) HostEvidence(ctx context.Context, host croft.HostID, more ...croft.InstanceID) (audit.Evidence, error) {
	got, err := s.etcd.Txn(ctx).Then(
		clientv3.OpGet(s.keys.orders(host), clientv3.WithPrefix()),
		clientv3.OpGet(s.keys.observedOn(host), clientv3.WithPrefix()),
	).Commit()
	if err != nil {
		return audit.Evidence{}, s.wrap(err, "read the records of host %s", host)
	}
	j := s.newJoiner()
	ids := map[croft.InstanceID]bool{}
	for _, r := range got.Responses {
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
		records = append(records, s.keys.instance(id))
	}
	if err := j.addEach(ctx, records); err != nil {
		return audit.Evidence{}, err
	}
	for _, inst := range j.instances {
		if inst.Host != host && inst.Host != "" {
			hosts = append(hosts, s.keys.host(inst.Host))
		}
	}
	if err := j.addEach(ctx, append(hosts, s.keys.host(host))); err != nil {
		return audit.Evidence{}, err
	}
	b, err := j.evidence()
	b.Only = host
	return b, err
}

// addEach adds the values of keys to the joiner.
func (j *joiner) addEach(ctx context.Context, keys []string) error {
	for len(keys) > 0 {
		n := min(len(keys), maxTxnOps)
		var ops []clientv3.Op
		for _, key := range keys[:n] {
			ops = append(ops, clientv3.OpGet(key))
		}
		got, err := j.store.etcd.Txn(ctx).Then(ops...).Commit()
		if err != nil {
			return j.store.wrap(err, "read the records")
		}
		for _, r := range got.Responses {
			j.addAll(r.GetResponseRange().Kvs)
		}
		keys = keys[n:]
	}
	return nil
}

// evidence returns what was added, without the data of Placement and hosts.
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
