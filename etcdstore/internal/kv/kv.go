// Package kv is the part of a store's connection to etcd that the packages below etcdstore share: the client,
// comparisons, reads in pages, and the wrapping of errors.
package kv

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/internal/wording"
)

// Conn is a connection to one partition.
type Conn struct {
	Etcd   *clientv3.Client
	Prefix string // of all keys of the partition
	// Wrap adds the attempted action to an error, and gives it its kind.
	Wrap func(err error, format string, args ...any) error
	// MayGrow returns why no new records may be stored now; nil: they may. NoCapacity.
	MayGrow func(ctx context.Context) error
	// Decode reads a stored value. Invalid: it is damaged, or a newer version wrote it.
	Decode func(key, value []byte, into any) error
	// Newer reports whether programs of a newer version may have written records.
	Newer func() bool
	// KeepUnknown makes later writes of a key keep the fields of its value that the type of as lacks. as is a pointer,
	// and is written to.
	KeepUnknown func(key, value []byte, as any)
	// Follow calls seen for every key below a prefix and then for every change, until ctx ends; it calls listed before
	// each list of all keys.
	Follow func(ctx context.Context, prefix string, listed func(), seen func(kv *mvccpb.KeyValue, present bool)) error
	// FollowWhole calls listed with all keys below a prefix, again after a gap, and seen for every change.
	FollowWhole func(ctx context.Context, prefix string, listed func([]*mvccpb.KeyValue),
		seen func(kv *mvccpb.KeyValue, present bool)) error
}

// Partition returns the partition of the connection.
func (c *Conn) Partition() croft.PartitionID {
	return croft.PartitionID(Last([]byte(strings.TrimSuffix(c.Prefix, "/"))))
}

// clockTolerance is the maximum difference between the clocks of machines at which they count as equal, so that records
// may be removed because of their age. It allows for the age of the compared times.
const clockTolerance = 10 * time.Minute

// CheckClock compares a time of this machine with the times that the agents of living hosts last reported, which are up
// to two minutes old. Unavailable: it differs from one of them, so nothing may be removed because of its age.
func (c *Conn) CheckClock(ctx context.Context, now time.Time) error {
	_, err := c.CompareClocks(ctx, now)
	return err
}

// CompareClocks is like CheckClock, and also returns the largest difference to the clock of a living host, as
// croft.Host.ClockDifference computes it.
func (c *Conn) CompareClocks(ctx context.Context, now time.Time) (largest time.Duration, differ error) {
	alive, seen := c.Prefix+"alive/", c.Prefix+"seen/"
	got, err := c.Etcd.Txn(ctx).Then(clientv3.OpGet(alive, clientv3.WithPrefix(), clientv3.WithKeysOnly()),
		clientv3.OpGet(seen, clientv3.WithPrefix())).Commit()
	if err != nil {
		return 0, c.Wrap(err, "compare the clocks of hosts")
	}
	living := map[string]bool{}
	for _, stored := range got.Responses[0].GetResponseRange().Kvs {
		living[Last(stored.Key)] = true
	}
	for _, stored := range got.Responses[1].GetResponseRange().Kvs {
		at, err := time.Parse(time.RFC3339, string(stored.Value))
		host := Last(stored.Key)
		if err != nil || !living[host] {
			continue
		}
		if d := (croft.Host{Alive: true, Seen: at}).ClockDifference(now); d.Abs() > largest.Abs() {
			largest = d
		}
		if now.Sub(at).Abs() > clockTolerance {
			differ = croft.Errorf(croft.Unavailable, "nothing is removed because of its age: the clocks of this "+
				"machine and of host %s differ by %s; set both, for example with chrony", host,
				wording.Duration(now.Sub(at).Abs().Round(time.Second)))
		}
	}
	return largest, differ
}

// StandDown revokes a lease, so that the next round starts with a new one. If etcd does not answer, the lease expires.
func (c *Conn) StandDown(ctx context.Context, id clientv3.LeaseID) {
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	_, _ = c.Etcd.Revoke(end, id)
}

// Last returns the ID at the end of a key, after the last slash.
func Last(key []byte) string {
	s := string(key)
	return s[strings.LastIndexByte(s, '/')+1:]
}

// Encode returns a value in its stored form.
func Encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("etcdstore: encode %T: %v", v, err)) // our own plain structs: cannot happen
	}
	return string(b)
}

// Created compares that a key was created at a revision, whatever its value is now; 0: that it does not exist. Removing
// a key and writing it again changes this revision, so this compares identity.
func Created(key string, revision int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(key), "=", revision)
}

// Exists compares that a key exists, which does not compare its identity: if the key names an object that was read
// before, use Created or SameSince. A comment at each use says why existence is enough; a test checks that.
func Exists(key string) clientv3.Cmp { return clientv3.Compare(clientv3.CreateRevision(key), ">", 0) }

// SameSince compares that a key was not removed after a revision at which it was read or written, whatever its value is
// now.
func SameSince(key string, revision int64) []clientv3.Cmp {
	return []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), ">", 0),
		clientv3.Compare(clientv3.CreateRevision(key), "<", revision+1)}
}

// Absent compares that a key does not exist.
func Absent(key string) clientv3.Cmp { return clientv3.Compare(clientv3.CreateRevision(key), "=", 0) }

// AbsentBelow compares that no key exists below a prefix.
func AbsentBelow(prefix string) clientv3.Cmp {
	return Absent(prefix).WithRange(clientv3.GetPrefixRangeEnd(prefix))
}

// NoneSince compares that no key below a prefix was created after a revision.
func NoneSince(prefix string, revision int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(prefix), "<", revision+1).
		WithRange(clientv3.GetPrefixRangeEnd(prefix))
}

// Unchanged compares that a key was last written at a revision; 0: that it does not exist.
func Unchanged(key string, revision int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(key), "=", revision)
}

// First returns the first key of an answer; nil: it has none.
func First(r *etcdserverpb.ResponseOp) *mvccpb.KeyValue {
	if kvs := r.GetResponseRange().Kvs; len(kvs) > 0 {
		return kvs[0]
	}
	return nil
}

// PageSize is how many keys one request reads, because answers of etcd are limited in size.
const PageSize = 2000

// ReadRange calls each with everything below a prefix, at a revision; 0: the current one.
func (c *Conn) ReadRange(ctx context.Context, what, prefix string, revision int64,
	each func(*mvccpb.KeyValue) error, more ...clientv3.OpOption) error {
	return c.ReadBetween(ctx, what, prefix, clientv3.GetPrefixRangeEnd(prefix), revision, each, more...)
}

// ReadBetween is like ReadRange, for every key from one up to another, which is excluded.
func (c *Conn) ReadBetween(ctx context.Context, what, from, end string, revision int64,
	each func(*mvccpb.KeyValue) error, more ...clientv3.OpOption) error {
	for {
		got, err := c.Etcd.Get(ctx, from, append(more, clientv3.WithRange(end), clientv3.WithLimit(PageSize),
			clientv3.WithRev(revision))...)
		if err != nil {
			return c.Wrap(err, "%s", what)
		}
		revision = cmp.Or(revision, got.Header.Revision)
		for _, kv := range got.Kvs {
			if err := each(kv); err != nil {
				return err
			}
		}
		if !got.More {
			return nil
		}
		from = string(got.Kvs[len(got.Kvs)-1].Key) + "\x00"
	}
}

// Txn is a transaction.
type Txn struct {
	If         []clientv3.Cmp
	Then, Else []clientv3.Op
}

// Commit commits a transaction, and returns its revision and the answers to Then. 0: a condition in If is not met, and
// the answers are to Else. The attempted action is for errors.
func (c *Conn) Commit(ctx context.Context, t Txn, what string, args ...any) (revision int64,
	answers []*etcdserverpb.ResponseOp, err error) {
	done, err := c.Etcd.Txn(ctx).If(t.If...).Then(t.Then...).Else(t.Else...).Commit()
	if err != nil {
		return 0, nil, c.Wrap(err, what, args...)
	}
	if !done.Succeeded {
		return 0, done.Responses, nil
	}
	return done.Header.Revision, done.Responses, nil
}

// MayBeWritten reports whether a write that failed with err may have been done, or may still be done: etcd did not
// answer, or nobody waited for its answer, as after the end of a context.
func MayBeWritten(err error) bool {
	kind := croft.KindOf(err)
	return kind == croft.Unavailable || kind == ""
}

// Get reads a key; nil: it does not exist. The attempted action is for errors.
func (c *Conn) Get(ctx context.Context, key, what string, args ...any) (*mvccpb.KeyValue, error) {
	got, err := c.Etcd.Get(ctx, key)
	if err != nil {
		return nil, c.Wrap(err, what, args...)
	}
	for _, stored := range got.Kvs {
		return stored, nil
	}
	return nil, nil
}

// Find reads a value; absent is the error if the key does not exist. The attempted action is for errors.
func Find[T any](ctx context.Context, c *Conn, key string, absent error, what string, args ...any) (v T, err error) {
	stored, err := c.Get(ctx, key, what, args...)
	switch {
	case err != nil:
		return v, err
	case stored == nil:
		return v, absent
	}
	return v, c.Decode(stored.Key, stored.Value, &v)
}

// maxGets is how many operations etcd permits in one transaction by default.
const maxGets = 128

// GetMany does many reads, and returns the results in the order of ops. Each of ops must name the revision, so that
// together they are the state of one moment.
func (c *Conn) GetMany(ctx context.Context, what string, ops []clientv3.Op) (all [][]*mvccpb.KeyValue, err error) {
	for some := range slices.Chunk(ops, maxGets) {
		got, err := c.Etcd.Txn(ctx).Then(some...).Commit()
		if err != nil {
			return nil, c.Wrap(err, "%s", what)
		}
		for _, r := range got.Responses {
			all = append(all, r.GetResponseRange().Kvs)
		}
	}
	return all, nil
}

// ReadAll reads everything below a prefix at one revision; 0: the current one.
func ReadAll[T any](ctx context.Context, c *Conn, what, prefix string, revision int64) (all []T, err error) {
	err = c.ReadRange(ctx, what, prefix, revision, func(kv *mvccpb.KeyValue) error {
		var v T
		err := c.Decode(kv.Key, kv.Value, &v)
		all = append(all, v)
		return err
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}
