package etcdstore

import (
	"context"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/schedule"
)

// Groups reads who belongs to which group. Memberships are written with the orders of their instances.
type Groups struct{ conn *conn }

var _ schedule.Groups = (*Groups)(nil)

// Members implements schedule.Groups.
func (s *Groups) Members(ctx context.Context, project croft.Project, group string) ([]croft.Member, error) {
	got, err := s.conn.etcd.Get(ctx, s.conn.keys.groups().group(project, group), clientv3.WithPrefix())
	if err != nil {
		return nil, s.conn.wrap(err, "read the members of group %s", group)
	}
	return membersOf(got.Kvs), nil
}

// membersOf reads members from their keys, which end in group, rule, host and instance; the values are the
// instances' names.
func membersOf(kvs []*mvccpb.KeyValue) []croft.Member {
	members := make([]croft.Member, 0, len(kvs))
	for _, kv := range kvs {
		words := strings.Split(string(kv.Key), "/")
		words = words[len(words)-4:]
		members = append(members, croft.Member{
			Affinity: croft.Affinity{Group: words[0], Rule: croft.AffinityRule(words[1])},
			Host:     croft.HostID(words[2]), Instance: croft.InstanceID(words[3]),
			Name: string(kv.Value),
		})
	}
	return members
}

// admitted returns the comparisons that enforce croft.Affinity.Admit for an instance on its host: ranges of the
// all' keys must be empty. So concurrent joins conflict only where a rule excludes one of them.
func (k groupKeys) admitted(inst croft.Instance) []clientv3.Cmp {
	var compares []clientv3.Cmp
	empty := func(from, to string) {
		compares = append(compares, absent(from).WithRange(to))
	}
	for _, a := range inst.Spec.Affinities {
		group, same, here := k.group(inst.Project, a.Group), k.rule(inst.Project, a),
			k.host(inst.Project, a, inst.Host)
		if a.Rule == croft.Together {
			same = here // no member with another rule, and none on another host
		}
		empty(group, same)
		empty(clientv3.GetPrefixRangeEnd(same), clientv3.GetPrefixRangeEnd(group))
		if a.Rule == croft.Apart {
			empty(here, clientv3.GetPrefixRangeEnd(here))
		}
	}
	return compares
}

// memberKeys returns the keys that make an instance a member of its groups, on its host.
func (k groupKeys) memberKeys(inst croft.Instance) []string {
	var all []string
	for _, a := range inst.Spec.Affinities {
		if inst.Host != "" {
			all = append(all, k.member(inst.Project, croft.Member{Affinity: a, Host: inst.Host,
				Instance: inst.ID}))
		}
	}
	return all
}

// join makes an instance a member of its groups on its host.
func (k groupKeys) join(inst croft.Instance) []clientv3.Op {
	var ops []clientv3.Op
	for _, key := range k.memberKeys(inst) {
		ops = append(ops, clientv3.OpPut(key, inst.Name))
	}
	return ops
}

// leave ends the memberships of an instance.
func (k groupKeys) leave(inst croft.Instance) []clientv3.Op {
	var ops []clientv3.Op
	for _, key := range k.memberKeys(inst) {
		ops = append(ops, clientv3.OpDelete(key))
	}
	return ops
}

// get reads the members of an instance's groups, one range for each.
func (k groupKeys) get(inst croft.Instance) []clientv3.Op {
	var ops []clientv3.Op
	for _, a := range inst.Spec.Affinities {
		ops = append(ops, clientv3.OpGet(k.group(inst.Project, a.Group), clientv3.WithPrefix()))
	}
	return ops
}
