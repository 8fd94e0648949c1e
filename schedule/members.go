package schedule

import (
	"context"
	"slices"

	"croft"
)

// ForCluster returns a scheduler that may change the instances of a cluster. It shares everything else with s.
func (s *Scheduler) ForCluster(cluster croft.ClusterID) *Scheduler {
	owner := *s
	owner.cluster = cluster
	return &owner
}

// changeOwn is like change, for changes that only the owner of an instance may make. Conflict: the instance is part of
// another cluster.
func (s *Scheduler) changeOwn(ctx context.Context, project croft.Project, idOrName, verb string,
	do func(croft.Status) (again bool, err error)) error {
	return s.change(ctx, project, idOrName, verb, func(st croft.Status) (again bool, err error) {
		if err := s.owns(st.Instance, verb); err != nil {
			return false, err
		}
		return do(st)
	})
}

// owns refuses to change an instance of another cluster, because that cluster would then treat the instance as lost.
// Conflict.
func (s *Scheduler) owns(inst croft.Instance, verb string) error {
	if inst.Cluster == s.cluster {
		return nil
	}
	return CheckFree(inst, verb == "destroy")
}

// CheckFree refuses to change, or with remove to remove, an instance that is part of a cluster. Conflict.
func CheckFree(inst croft.Instance, remove bool) error {
	switch {
	case inst.Cluster == "":
		return nil
	case remove:
		return croft.Errorf(croft.Conflict, "instance %s is part of cluster %s: use `croft cluster shrink` or `croft cluster "+
			"delete`, or --force", inst.Name, inst.Cluster)
	}
	return croft.Errorf(croft.Conflict, "instance %s is part of cluster %s, which decides about it: use `croft cluster`",
		inst.Name, inst.Cluster)
}

// Introduce gives an instance the list of its peers. It does nothing if the instance has this list. Conflict: the
// instance is not ordered, or is being destroyed.
func (s *Scheduler) Introduce(ctx context.Context, project croft.Project, id croft.InstanceID,
	peers []croft.Peer) error {
	return s.changeOwn(ctx, project, string(id), "introduce", func(st croft.Status) (again bool, err error) {
		inst := st.Instance
		if inst.State != croft.StateScheduled || st.Order == nil {
			return false, croft.Errorf(croft.Conflict, "it is %s", inst.State)
		}
		if slices.Equal(inst.Spec.Peers, peers) {
			return false, nil
		}
		inst.Spec.Peers = peers
		_, err = s.writeOrder(ctx, st.Host, s.Records.Reorder, inst, NewOrder(s.Partition, inst, inst.Host,
			st.Order.Want))
		return true, err
	})
}
