package policies

import (
	"context"
	"slices"
	"strconv"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore/internal/kv"
)

// given counts the numbers that have been assigned.
type given struct {
	Hosts     int32 `json:"hosts"`
	Locations int32 `json:"locations"`
}

// Numbers returns the numbers of all hosts and locations that have one.
func (s *Policies) Numbers(ctx context.Context) (croft.CrushNumbers, error) {
	n := croft.CrushNumbers{Hosts: map[croft.HostID]int32{}, Locations: map[string]int32{}}
	k := s.keys()
	read := func(prefix string, keep func(name string, number int32)) error {
		return s.conn.ReadRange(ctx, "read the numbers of hosts", prefix, 0, func(entry *mvccpb.KeyValue) error {
			var number int32
			err := s.conn.Decode(entry.Key, entry.Value, &number)
			keep(kv.Last(entry.Key), number)
			return err
		})
	}
	err := read(k.hosts(), func(name string, number int32) { n.Hosts[croft.HostID(name)] = number })
	if err != nil {
		return n, err
	}
	return n, read(k.locations(), func(name string, number int32) { n.Locations[name] = number })
}

// mostNumbered is how many numbers one transaction assigns; it needs two comparisons and two reads for each.
const mostNumbered = 30

// Number assigns numbers to the hosts and locations that have none. Hosts that do not exist are skipped. NoCapacity:
// all numbers are in use.
func (s *Policies) Number(ctx context.Context, hosts []croft.HostID, locations []string) error {
	if err := s.may(); err != nil {
		return err
	}
	for some := range slices.Chunk(hosts, mostNumbered) {
		if err := s.number(ctx, some, nil); err != nil {
			return err
		}
	}
	for some := range slices.Chunk(locations, mostNumbered) {
		if err := s.number(ctx, nil, some); err != nil {
			return err
		}
	}
	return nil
}

// number assigns numbers in one transaction. It compares the count of assigned numbers, so that concurrent calls
// conflict.
func (s *Policies) number(ctx context.Context, hosts []croft.HostID, locations []string) error {
	k := s.keys()
	for {
		reads := []clientv3.Op{clientv3.OpGet(k.last())}
		for _, h := range hosts {
			reads = append(reads, clientv3.OpGet(k.Host(h)), clientv3.OpGet(s.hosts+string(h), clientv3.WithKeysOnly()))
		}
		for _, l := range locations {
			reads = append(reads, clientv3.OpGet(k.location(l)))
		}
		got, err := s.conn.Etcd.Txn(ctx).Then(reads...).Commit()
		if err != nil {
			return s.conn.Wrap(err, "read the numbers of hosts")
		}
		var so given
		revision := int64(0)
		if entry := kv.First(got.Responses[0]); entry != nil {
			if err := s.conn.Decode(entry.Key, entry.Value, &so); err != nil {
				return err
			}
			revision = entry.ModRevision
		}
		compares, puts := []clientv3.Cmp{kv.Unchanged(k.last(), revision)}, []clientv3.Op(nil)
		put := func(key string, last *int32) {
			compares = append(compares, kv.Absent(key))
			puts = append(puts, clientv3.OpPut(key, strconv.Itoa(int(*last))))
			*last++
		}
		for i, h := range hosts {
			if kv.First(got.Responses[1+2*i]) == nil && kv.First(got.Responses[2+2*i]) != nil {
				put(k.Host(h), &so.Hosts)
				// Existence is enough: a host that returns with its UUID is the same machine.
				compares = append(compares, kv.Exists(s.hosts+string(h)))
			}
		}
		for i, l := range locations {
			if kv.First(got.Responses[1+2*len(hosts)+i]) == nil {
				put(k.location(l), &so.Locations)
			}
		}
		switch {
		case len(puts) == 0:
			return nil
		case max(so.Hosts, so.Locations) > croft.MaxCrushNumber:
			return croft.Errorf(croft.NoCapacity, "number the hosts for CRUSH: all %d numbers were given, forgotten hosts "+
				"and former locations included", croft.MaxCrushNumber)
		}
		done, err := s.conn.Etcd.Txn(ctx).If(compares...).
			Then(append(puts, clientv3.OpPut(k.last(), kv.Encode(so)))...).Commit()
		if err != nil {
			return s.conn.Wrap(err, "number the hosts")
		}
		if done.Succeeded {
			return nil
		}
	}
}
