package etcdstore

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore/properties"
	"croft/schedule"
	"croft/tenant/objects"
)

// Groups reads the members of groups. Memberships are written with the orders of their instances.
type Groups struct{ conn *conn }

var _ schedule.Groups = (*Groups)(nil)

// Members implements schedule.Groups.
func (s *Groups) Members(ctx context.Context, project croft.Project, group string) ([]croft.GroupMember, []croft.Seat,
	error) {
	got, err := s.conn.etcd.Txn(ctx).Then(s.conn.keys.groups().getGroup(project, group)...).Commit()
	if err != nil {
		return nil, nil, s.conn.wrap(err, "read the members of group %s", group)
	}
	return membersOf(got.Responses[0].GetResponseRange().Kvs), seatsOf(got.Responses[1].GetResponseRange().Kvs), nil
}

// membersOf reads members from their keys, which end in group, rule, host and instance; the values are the instances'
// names.
func membersOf(kvs []*mvccpb.KeyValue) []croft.GroupMember {
	members := make([]croft.GroupMember, 0, len(kvs))
	for _, kv := range kvs {
		words := strings.Split(string(kv.Key), "/")
		words = words[len(words)-4:]
		members = append(members, croft.GroupMember{
			Affinity: croft.Affinity{Group: words[0], Rule: croft.AffinityRule(words[1])},
			Host:     croft.HostID(words[2]), Instance: croft.InstanceID(words[3]),
			Name: string(kv.Value),
		})
	}
	return members
}

// seatsOf reads seats from their keys, which end in group, clause, location and number; the values are the instances.
func seatsOf(kvs []*mvccpb.KeyValue) []croft.Seat {
	seats := make([]croft.Seat, 0, len(kvs))
	for _, kv := range kvs {
		words := strings.Split(string(kv.Key), "/")
		words = words[len(words)-4:]
		s := croft.Seat{Group: words[0], Clause: words[1], Location: strings.ReplaceAll(words[2], ".", "/"),
			Instance: croft.InstanceID(kv.Value)}
		if s.Counted() {
			s.Number, _ = strconv.Atoi(words[3])
		}
		seats = append(seats, s)
	}
	return seats
}

// admitted returns the comparisons that enforce croft.Affinity.Admit and AdmitSeats for an instance on its host:
// certain keys and ranges of keys must be empty. So concurrent joins conflict only if a rule excludes one of them, or
// if they choose the same number.
func (k groupKeys) admitted(inst croft.Instance) []clientv3.Cmp {
	var compares []clientv3.Cmp
	empty := func(from, to string) {
		compares = append(compares, absent(from).WithRange(to))
	}
	for _, a := range inst.Spec.Affinities {
		group, same, here := k.group(inst.Project, a.Group), k.rule(inst.Project, a),
			k.host(inst.Project, a, inst.Host)
		if a.Rule == croft.Together {
			same = here // no member with another rule, and no member on another host
		}
		empty(group, same)
		empty(clientv3.GetPrefixRangeEnd(same), clientv3.GetPrefixRangeEnd(group))
		if a.Rule == croft.Apart {
			empty(here, clientv3.GetPrefixRangeEnd(here))
		}
	}
	for _, seat := range inst.Seats {
		if seat.Counted() {
			compares = append(compares, absent(k.seat(inst.Project, seat)))
			continue
		}
		all, here := k.clause(inst.Project, seat), k.location(inst.Project, seat)
		empty(all, here)
		empty(clientv3.GetPrefixRangeEnd(here), clientv3.GetPrefixRangeEnd(all))
	}
	return compares
}

// memberKeys returns the keys that make an instance a member of its groups, on its host.
func (k groupKeys) memberKeys(inst croft.Instance) []string {
	var all []string
	for _, a := range inst.Spec.Affinities {
		if inst.Host != "" {
			all = append(all, k.member(inst.Project, croft.GroupMember{Affinity: a, Host: inst.Host,
				Instance: inst.ID}))
		}
	}
	return all
}

// seatKeys returns the keys of an instance's seats.
func (k groupKeys) seatKeys(inst croft.Instance) []string {
	var all []string
	for _, seat := range inst.Seats {
		seat.Instance = inst.ID
		all = append(all, k.seat(inst.Project, seat))
	}
	return all
}

// enter returns the operations that make an instance a member of its groups on its host.
func (k groupKeys) enter(inst croft.Instance) []clientv3.Op {
	var ops []clientv3.Op
	for _, key := range k.memberKeys(inst) {
		ops = append(ops, clientv3.OpPut(key, inst.Name))
	}
	return ops
}

// join returns the operations that make an instance a member of its groups on its host, with its seats.
func (k groupKeys) join(inst croft.Instance) []clientv3.Op {
	ops := k.enter(inst)
	for _, key := range k.seatKeys(inst) {
		ops = append(ops, clientv3.OpPut(key, string(inst.ID)))
	}
	return ops
}

// leave returns the operations that end the memberships of an instance.
func (k groupKeys) leave(inst croft.Instance) []clientv3.Op {
	var ops []clientv3.Op
	for _, key := range slices.Concat(k.memberKeys(inst), k.seatKeys(inst)) {
		ops = append(ops, clientv3.OpDelete(key))
	}
	return ops
}

// end returns the operations that remove the properties of those groups of which an instance is the last member.
func (k groupKeys) end(inst croft.Instance) []clientv3.Op {
	var ops []clientv3.Op
	for i, member := range k.memberKeys(inst) {
		ops = append(ops, k.endGroup(inst.Project, inst.Spec.Affinities[i].Group, member))
	}
	return ops
}

// endGroup removes the properties of a group if member is its only member. Comparisons inside a transaction see the
// state before it.
func (k groupKeys) endGroup(p croft.Project, group, member string) clientv3.Op {
	all := k.group(p, group)
	others := []clientv3.Cmp{absent(all).WithRange(member),
		absent(member + "\x00").WithRange(clientv3.GetPrefixRangeEnd(all))}
	ref := objects.Ref{Kind: objects.Group, Project: p, ID: group}
	return clientv3.OpTxn(others, []clientv3.Op{clientv3.OpDelete(properties.Keys(k.prefix).Object(ref))}, nil)
}

// get reads the members and seats of an instance's groups, two ranges for each group.
func (k groupKeys) get(inst croft.Instance) []clientv3.Op {
	var ops []clientv3.Op
	for _, a := range inst.Spec.Affinities {
		ops = append(ops, k.getGroup(inst.Project, a.Group)...)
	}
	return ops
}

// getGroup reads a group's members, and the seats taken in it.
func (k groupKeys) getGroup(project croft.Project, group string) []clientv3.Op {
	return []clientv3.Op{
		clientv3.OpGet(k.group(project, group), clientv3.WithPrefix()),
		clientv3.OpGet(k.seats(project, group), clientv3.WithPrefix()),
	}
}

// readmit checks an instance's groups, as read by get, and returns free numbers for its seats; nil: the groups admit it
// on its host. collided: the numbers of its own seats were taken.
func readmit(inst croft.Instance, read []*etcdserverpb.ResponseOp) (seats []croft.Seat, collided bool, err error) {
	var taken []croft.Seat
	for i, a := range inst.Spec.Affinities {
		if err := a.Admit(inst.Host, membersOf(read[2*i].GetResponseRange().Kvs)); err != nil {
			return nil, false, err
		}
		here := seatsOf(read[2*i+1].GetResponseRange().Kvs)
		if err := a.AdmitSeats(inst.Seats, here); err != nil {
			return nil, false, err
		}
		taken = append(taken, here...)
	}
	for _, seat := range taken {
		seat.Instance = ""
		collided = collided || seat.Counted() && slices.Contains(inst.Seats, seat)
	}
	return croft.Renumber(inst.Seats, taken), collided, nil
}
