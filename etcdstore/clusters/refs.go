package clusters

import (
	"cmp"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/cluster"
	"croft/etcdstore/internal/kv"
)

// ref is a record that the record of a living cluster names. It cannot be removed while it is named.
type ref struct{ kind, what, name string }

// refsOf lists the records that a cluster's record names.
func refsOf(c cluster.Cluster) []ref {
	if c.State == cluster.Deleted {
		return nil
	}
	all := []ref{{"sites", "site", c.Site}, {"credentials", "credential", string(c.Credential)},
		{"implementations", "implementation", string(c.Implementation)}}
	return slices.DeleteFunc(all, func(r ref) bool { return r.name == "" })
}

// without returns the refs in all that are not in others.
func without(all, others []ref) []ref {
	return slices.DeleteFunc(slices.Clone(all), func(r ref) bool { return slices.Contains(others, r) })
}

func (k Keys) named(r ref) string { return k.prefix() + r.kind + "/" + r.name }

// present returns the conditions that the named records exist.
func (k Keys) present(refs []ref) (all []clientv3.Cmp) {
	for _, r := range refs {
		// Existence is enough: credentials and implementations have random UUIDs, and a site stays while it has
		// implementations.
		all = append(all, kv.Exists(k.named(r)))
	}
	return all
}

// look returns the reads from which gone finds out which keys are missing.
func (k Keys) look(refs []ref) (all []clientv3.Op) {
	for _, r := range refs {
		all = append(all, clientv3.OpGet(k.named(r), clientv3.WithCountOnly()))
	}
	return all
}

func gone(refs []ref, answers []*etcdserverpb.ResponseOp) error {
	for i, r := range refs {
		if answers[i].GetResponseRange().Count == 0 {
			return croft.Errorf(croft.Conflict, "there is no %s %.80s any more", r.what, r.name)
		}
	}
	return nil
}

func (k Keys) use(refs []ref, id croft.ClusterID) (all []clientv3.Op) {
	for _, r := range refs {
		all = append(all, clientv3.OpPut(k.used(r.kind, r.name)+string(id), ""))
	}
	return all
}

func (k Keys) unuse(refs []ref, id croft.ClusterID) (all []clientv3.Op) {
	for _, r := range refs {
		all = append(all, clientv3.OpDelete(k.used(r.kind, r.name)+string(id)))
	}
	return all
}

func sortClusters(all []cluster.Cluster) {
	slices.SortFunc(all, func(a, b cluster.Cluster) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Project, b.Project), a.Created.Compare(b.Created),
			cmp.Compare(a.ID, b.ID))
	})
}
