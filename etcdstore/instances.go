package etcdstore

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore/properties"
	"croft/etcdstore/tenants"
	"croft/hosts"
	"croft/hosts/audit"
	"croft/schedule"
	"croft/tenant/objects"
)

// Instances stores the records of instances, and writes the orders of schedulers and operators together with them.
type Instances struct {
	conn       *conn
	projects   *tenants.Projects
	admissions *tenants.Admissions
}

var (
	_ schedule.Records = (*Instances)(nil)
	_ schedule.View    = (*Instances)(nil)
	_ schedule.Holds   = (*Instances)(nil)
	_ hosts.Instances  = (*Instances)(nil)
	_ audit.Instances  = (*Instances)(nil)
)

// Create implements schedule.Records.
func (s *Instances) Create(ctx context.Context, inst croft.Instance) (croft.Instance, error) {
	if err := s.conn.canStore(inst); err != nil {
		return inst, err
	}
	return s.admissions.Admit(ctx, inst)
}

// canStore refuses a new instance that older programs of this cloud could not read. Invalid.
func (s *conn) canStore(inst croft.Instance) error {
	if inst.Spec.Restart != "" && s.minor.Load() < restartMinor {
		return croft.Errorf(croft.Invalid,
			"this cloud's croft is too old for restart policies: leave out --restart, or upgrade the cloud")
	}
	byDistance := slices.ContainsFunc(inst.Spec.Near, func(n croft.Near) bool {
		return n.Far || n.Type != "" || n.Aggregate || n.Distance > croft.MaxDistance
	})
	if len(inst.Spec.In) > 0 || inst.Spec.HasPropertyFilters() || byDistance {
		if err := canBound(s); err != nil {
			return err
		}
	}
	if inst.Spec.Policy != nil {
		if err := canChoose(s); err != nil {
			return err
		}
	}
	if len(inst.Spec.Mounts) > 0 {
		if err := canVolume(s); err != nil {
			return err
		}
	}
	if inst.Spec.Restart.Elsewhere(true) && s.minor.Load() < deadMinor {
		return croft.Errorf(croft.Invalid, "this cloud's croft is too old for the restart policy %s: use another one, or "+
			"upgrade the cloud", inst.Spec.Restart)
	}
	if inst.Cluster != "" {
		if err := canCluster(s); err != nil {
			return err
		}
	}
	if s.minor.Load() < seatsMinor {
		if len(inst.Spec.Near) > 0 {
			return croft.Errorf(croft.Invalid,
				"this cloud's croft is too old for --near: leave it out, or upgrade the cloud")
		}
		for _, a := range inst.Spec.Affinities {
			if a.Rule.ByLocation() {
				return croft.Errorf(croft.Invalid,
					"this cloud's croft is too old for rules about locations, such as the rule of group %s: leave "+
						"them out, or upgrade the cloud", a.Group)
			}
		}
	}
	if err := errors.Join(s.canExpire(inst.Expires), s.canProtect(inst), s.canFixAddress(inst)); err != nil {
		return err
	}
	return inst.Project.Check() // the project becomes part of keys
}

// canBound refuses constraints on hosts that older programs of this cloud would ignore. Invalid.
func canBound(s *conn) error {
	if s.minor.Load() < boundsMinor {
		return croft.Errorf(croft.Invalid, "this cloud's croft is too old for aggregates, locations, properties and stated "+
			"distances to choose hosts by: leave them out, or upgrade the cloud")
	}
	return nil
}

// canChoose refuses policies that older programs of this cloud do not know. Invalid.
func canChoose(s *conn) error {
	if s.minor.Load() < policyMinor {
		return croft.Errorf(croft.Invalid, "this cloud's croft is too old for CRUSH policies: leave them out, or upgrade "+
			"the cloud")
	}
	return nil
}

// canCluster refuses clusters if older programs of this cloud would not count them, and would treat their members as
// ordinary instances. Invalid.
func canCluster(s *conn) error {
	if s.minor.Load() < clusterMinor {
		return croft.Errorf(croft.Invalid, "this cloud's croft is too old for clusters: upgrade the cloud")
	}
	return nil
}

// canKeepImages refuses images of the catalog if older programs of this cloud would not know what instances are made
// from. Invalid.
func canKeepImages(s *conn) error {
	if s.minor.Load() < imagesMinor {
		return croft.Errorf(croft.Invalid, "this cloud's croft is too old for a catalog of images: upgrade the cloud")
	}
	return nil
}

// canVolume refuses volumes if older programs of this cloud would take their claims for leaked ones. Invalid.
func canVolume(s *conn) error {
	if s.minor.Load() < volumesMinor {
		return croft.Errorf(croft.Invalid, "this cloud's croft is too old for volumes: upgrade the cloud")
	}
	return nil
}

// recordsOf returns the functions with which admissions write records.
func recordsOf(s *conn) tenants.Records {
	k := s.keys
	return tenants.Records{
		Session: s.sessionKey,
		Lost: func(err error, session string, lease clientv3.LeaseID) {
			s.forgetLost(err, lease)
			s.retireSession(session)
		},
		Keys: func(inst croft.Instance) (record, name string) {
			return k.instance(inst.ID), k.name(inst.Project, inst.Name)
		},
		MACs: func(inst croft.Instance) ([]clientv3.Cmp, []clientv3.Op) {
			return k.macsFree(inst), k.readMACs(inst)
		},
		SessionKey: k.session,
		Write: func(inst croft.Instance) []clientv3.Op {
			return append(k.putMACs(inst), clientv3.OpPut(k.instance(inst.ID), encode(withoutUserData(inst))),
				userData{s}.putUserData(inst), clientv3.OpPut(k.name(inst.Project, inst.Name), string(inst.ID)))
		},
	}
}

// Instance implements hosts.Instances. It returns the record without user-data, which only the reader of the order
// gets.
func (s *Instances) Instance(ctx context.Context, id croft.InstanceID) (croft.Instance, error) {
	got, err := s.conn.etcd.Get(ctx, s.conn.keys.instance(id))
	if err != nil {
		return croft.Instance{}, s.conn.wrap(err, "read the record of instance %s", id)
	}
	if len(got.Kvs) == 0 {
		return croft.Instance{}, croft.Errorf(croft.NotFound, "no instance %s", id)
	}
	return s.conn.decodeInstance(got.Kvs[0])
}

func (s *conn) decodeInstance(kv *mvccpb.KeyValue) (croft.Instance, error) {
	var inst croft.Instance
	err := s.decode(kv.Key, kv.Value, &inst)
	inst.Revision, inst.CreateRevision = kv.ModRevision, kv.CreateRevision
	return inst, err
}

// Fence implements schedule.Records, audit.Instances and hosts.Instances: it rewrites an unchanged record without
// changing it. Any write of unknown outcome that compares the previous revision has then either been done, as the
// result shows, or never will be.
func (s *Instances) Fence(ctx context.Context, inst croft.Instance) (croft.Instance, error) {
	if inst.Revision == 0 {
		return inst, croft.Errorf(croft.Conflict, "instance %q was never written", inst.ID)
	}
	record := s.conn.keys.instance(inst.ID)
	done, err := s.conn.etcd.Txn(ctx).
		If(unchanged(record, inst.Revision)).
		Then(clientv3.OpPut(record, "", clientv3.WithIgnoreValue()), clientv3.OpGet(record)).
		Else(clientv3.OpGet(record)).Commit()
	if err != nil {
		s.conn.retireSession(inst.Session)
		return inst, s.conn.wrap(err, "settle the record of instance %s", inst.ID)
	}
	now := done.Responses[len(done.Responses)-1].GetResponseRange().Kvs
	if len(now) == 0 {
		return inst, croft.Errorf(croft.NotFound, "no instance %s", inst.ID)
	}
	settled, err := s.conn.decodeInstance(now[0])
	settled.Spec.UserData = inst.Spec.UserData // user-data is stored separately, and never changes
	settled.Volumes = inst.Volumes             // not stored
	return settled, err
}

// Amend implements schedule.Records.
func (s *Instances) Amend(ctx context.Context, inst, next croft.Instance) (croft.Instance, error) {
	amended := inst
	amended.Expires, amended.Protected, amended.Ejected = next.Expires, next.Protected, next.Ejected
	if err := errors.Join(s.conn.canExpire(amended.Expires), s.conn.canProtect(amended)); err != nil {
		return inst, err
	}
	return s.rewrite(ctx, inst, amended)
}

// rewrite changes the record inst to next. Conflict: the record changed.
func (s *Instances) rewrite(ctx context.Context, inst, next croft.Instance) (croft.Instance, error) {
	if inst.Revision == 0 {
		return inst, croft.Errorf(croft.Conflict, "instance %q was never written", inst.ID)
	}
	record, stored := s.conn.keys.instance(inst.ID), next
	if inst.State == croft.StateLost { // its user-data is stored separately
		stored = withoutUserData(next)
	}
	done, err := s.conn.etcd.Txn(ctx).If(unchanged(record, inst.Revision)).
		Then(clientv3.OpPut(record, encode(stored))).Commit()
	if err != nil {
		return inst, s.conn.wrap(err, "write the record of instance %s", inst.ID)
	}
	if !done.Succeeded {
		return inst, croft.Errorf(croft.Conflict, "instance %s was changed by another request", inst.ID)
	}
	next.Revision = done.Header.Revision
	return next, nil
}

// canExpire refuses an expiry if no caretaker would act on it. Invalid.
func (s *conn) canExpire(at time.Time) error {
	if !at.IsZero() && s.minor.Load() < expiryMinor {
		return croft.Errorf(croft.Invalid,
			"this cloud's croft is too old for instances that expire: leave out --expires, or upgrade the cloud")
	}
	return nil
}

// canProtect refuses to protect an instance that programs which do not know the protection could destroy. Invalid.
func (s *conn) canProtect(inst croft.Instance) error {
	if inst.Protected && s.minor.Load() < protectMinor {
		return croft.Errorf(croft.Invalid, "this cloud's croft is too old to protect instances: upgrade the cloud")
	}
	return nil
}

// Retire implements schedule.Records and resize.Records.
func (s *Instances) Retire(session string) { s.conn.retireSession(session) }

// Discard implements audit.Instances and schedule.Records.
func (s *Instances) Discard(ctx context.Context, inst croft.Instance) error {
	if inst.State != croft.StateScheduling {
		return croft.Errorf(croft.Conflict, "instance %s is %s, not scheduling", inst.ID, inst.State)
	}
	done, err := s.conn.etcd.Txn(ctx).
		If(unchanged(s.conn.keys.instance(inst.ID), inst.Revision)).
		Then(s.conn.discard(inst)...).Commit()
	if err != nil {
		s.conn.retireSession(inst.Session)
		return s.conn.wrap(err, "discard the record of instance %s", inst.ID)
	}
	if !done.Succeeded {
		return croft.Errorf(croft.Conflict, "instance %s changed while it was being discarded", inst.ID)
	}
	return nil
}

// removeRecord returns the operations that remove everything of an instance except its order and observation. They also
// remove the properties of groups that end with it, and reduce the usage of its project.
func (k keys) removeRecord(inst croft.Instance) []clientv3.Op {
	target := croft.HostID("")
	if inst.Copying {
		target = inst.Moving
	}
	return append(slices.Concat(k.groups().leave(inst), k.groups().end(inst), k.dropMACs(inst),
		k.dropAddress(inst, inst.Host, target), k.volumes().DetachAll(inst.ID)),
		clientv3.OpDelete(properties.Keys(k.prefix).Object(objects.Ref{Kind: objects.Instance, Project: inst.Project,
			ID: string(inst.ID)})),
		clientv3.OpDelete(k.instance(inst.ID)),
		clientv3.OpDelete(k.userData(inst.ID)),
		clientv3.OpDelete(k.name(inst.Project, inst.Name)),
		k.tenants().Repay(inst),
	)
}

// A MAC is derived from a UUID, which clients may choose: two instances with one MAC could take each other's addresses.
// So each instance has a key below each of its MACs, and a new instance requires that no other key exists there.
// Programs of schema 1.7 leave the keys of instances that they remove; such a key only prevents an instance with
// another UUID and the same MAC.

// macsFree compares that no other instance has a MAC of this instance.
func (k keys) macsFree(inst croft.Instance) []clientv3.Cmp {
	var compares []clientv3.Cmp
	for _, mac := range tenants.MACs(inst) {
		all := k.macs(mac)
		own := all + string(inst.ID)
		compares = append(compares, absent(all).WithRange(own),
			absent(own+"\x00").WithRange(clientv3.GetPrefixRangeEnd(all)))
	}
	return compares
}

// readMACs reads which instances have the MACs of an instance.
func (k keys) readMACs(inst croft.Instance) []clientv3.Op {
	var ops []clientv3.Op
	for _, mac := range tenants.MACs(inst) {
		ops = append(ops, clientv3.OpGet(k.macs(mac), clientv3.WithPrefix(), clientv3.WithKeysOnly()))
	}
	return ops
}

func (k keys) putMACs(inst croft.Instance) []clientv3.Op {
	var ops []clientv3.Op
	for _, mac := range tenants.MACs(inst) {
		ops = append(ops, clientv3.OpPut(k.macs(mac)+string(inst.ID), ""))
	}
	return ops
}

func (k keys) dropMACs(inst croft.Instance) []clientv3.Op {
	var ops []clientv3.Op
	for _, mac := range tenants.MACs(inst) {
		ops = append(ops, clientv3.OpDelete(k.macs(mac)+string(inst.ID)))
	}
	return ops
}
