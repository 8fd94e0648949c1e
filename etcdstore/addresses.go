package etcdstore

import (
	"context"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore/internal/kv"
	"croft/schedule"
)

// An instance with a chosen address has a key for the address on its host, and while it moves with its disk, also on
// the target. A key is written in the transaction that places the instance and requires that the key is absent, so that
// of several requests for one address of a host one is placed. Hosts may have networks of the same range, so the same
// address may be in use on several hosts.

func (k keys) allAddresses() string         { return k.prefix + "addresses/" }
func (k keys) addresses(addr string) string { return k.allAddresses() + addr + "/" }
func (k keys) address(addr string, h croft.HostID) string {
	return k.addresses(addr) + string(h)
}

// addressFree compares that no instance has the chosen address of inst on a host.
func (k keys) addressFree(inst croft.Instance, host croft.HostID) []clientv3.Cmp {
	if inst.Spec.FixedAddress == "" {
		return nil
	}
	return []clientv3.Cmp{absent(k.address(inst.Spec.FixedAddress, host))}
}

// takeAddress gives the chosen address of inst on a host to inst.
func (k keys) takeAddress(inst croft.Instance, host croft.HostID) []clientv3.Op {
	if inst.Spec.FixedAddress == "" {
		return nil
	}
	return []clientv3.Op{clientv3.OpPut(k.address(inst.Spec.FixedAddress, host), string(inst.ID))}
}

// dropAddress frees the chosen address of inst on hosts, unless another instance has it there.
func (k keys) dropAddress(inst croft.Instance, hosts ...croft.HostID) (ops []clientv3.Op) {
	for _, host := range hosts {
		if inst.Spec.FixedAddress == "" || host == "" {
			continue
		}
		key := k.address(inst.Spec.FixedAddress, host)
		ops = append(ops, clientv3.OpTxn(
			[]clientv3.Cmp{clientv3.Compare(clientv3.Value(key), "=", string(inst.ID))},
			[]clientv3.Op{clientv3.OpDelete(key)}, nil))
	}
	return ops
}

// readAddress reads what addressFree compares.
func (k keys) readAddress(inst croft.Instance, host croft.HostID) []clientv3.Op {
	if inst.Spec.FixedAddress == "" {
		return nil
	}
	return []clientv3.Op{clientv3.OpGet(k.address(inst.Spec.FixedAddress, host))}
}

// addressTaken returns the error if addressFree failed, according to the result of readAddress. NoCapacity.
func addressTaken(inst croft.Instance, host croft.HostID, read []*etcdserverpb.ResponseOp) error {
	if inst.Spec.FixedAddress == "" || kv.First(read[0]) == nil {
		return nil
	}
	return croft.Errorf(croft.NoCapacity, "host %s: %w: %s", host, schedule.ErrAddressTaken, inst.Spec.FixedAddress)
}

// AddressHolders implements schedule.Records and hosts.Instances.
func (s *Instances) AddressHolders(ctx context.Context, address string) (map[croft.HostID]croft.InstanceID, error) {
	got, err := s.conn.etcd.Get(ctx, s.conn.keys.addresses(address), clientv3.WithPrefix())
	if err != nil {
		return nil, s.conn.wrap(err, "read which instances have the address %s", address)
	}
	holders := map[croft.HostID]croft.InstanceID{}
	for _, kv := range got.Kvs {
		holders[croft.HostID(last(kv.Key))] = croft.InstanceID(kv.Value)
	}
	return holders, nil
}

// addressOf splits a key below allAddresses.
func (k keys) addressOf(key []byte) (addr string, host croft.HostID) {
	addr, at, _ := strings.Cut(strings.TrimPrefix(string(key), k.allAddresses()), "/")
	return addr, croft.HostID(at)
}

// canFixAddress refuses a chosen address if older programs of this cloud would ignore it, or leave it in use. Invalid.
func (s *conn) canFixAddress(inst croft.Instance) error {
	if inst.Spec.FixedAddress != "" && s.minor.Load() < addressMinor {
		return croft.Errorf(croft.Invalid,
			"this cloud's croft is too old for chosen addresses: leave out --address, or upgrade the cloud")
	}
	return nil
}
