package etcdstore

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore/internal/kv"
	"croft/etcdstore/internal/shelf"
	"croft/trust"
)

// Trust stores the authority that the cloud's hosts trust, and which hosts may join and have joined.
type Trust struct{ conn *conn }

var _ trust.Registry = (*Trust)(nil)
var _ trust.RotationStore = (*Trust)(nil)
var _ trust.Servers = (*Trust)(nil)

// PutAuthority implements trust.Publisher.
func (s *Trust) PutAuthority(ctx context.Context, trusted []byte) error {
	_, err := s.conn.etcd.Put(ctx, s.conn.keys.trust().authority(), string(trusted))
	return s.conn.wrapped(err, "write whom to trust")
}

// Authority returns the authority of hosts to trust, in PEM. NotFound: the cloud has none.
func (s *Trust) Authority(ctx context.Context) ([]byte, error) {
	stored, err := s.conn.shared().Get(ctx, s.conn.keys.trust().authority(), "read whom to trust")
	switch {
	case err != nil:
		return nil, err
	case stored == nil:
		return nil, croft.Errorf(croft.NotFound, "this cloud does not have its own authority for host certificates")
	}
	return stored.Value, nil
}

// storedJoinServer is the record of a JoinServer. It is stored under two keys, since the previous version knows only
// the former key.
type storedJoinServer struct {
	trust.JoinServer

	// Former says that the record was also written under the former key. If that key is gone, a program of the previous
	// version has removed the server.
	Former bool `json:"former,omitempty"`
}

// PutJoinServer stores the addresses of a host's join server and of its gate; without addresses it removes the record.
func (s *Trust) PutJoinServer(ctx context.Context, host croft.HostID, j trust.JoinServer) error {
	key, former := s.conn.keys.trust().join(host), s.conn.keys.trust().formerJoin(host)
	if len(j.Addresses)+len(j.Agents) == 0 {
		_, err := s.conn.etcd.Txn(ctx).Then(clientv3.OpDelete(key), clientv3.OpDelete(former)).Commit()
		return s.conn.wrapped(err, "remove where hosts join")
	}
	_, err := s.conn.etcd.Txn(ctx).Then(
		clientv3.OpPut(key, encode(storedJoinServer{j, true})), clientv3.OpPut(former, encode(j)),
	).Commit()
	return s.conn.wrapped(err, "write where hosts join")
}

// JoinServers implements trust.Servers. The newer one of a host's two records is valid, because each version writes the
// keys that it knows.
func (s *Trust) JoinServers(ctx context.Context) ([]trust.JoinServer, error) {
	got, err := s.conn.etcd.Txn(ctx).Then(
		clientv3.OpGet(s.conn.keys.trust().joins(), clientv3.WithPrefix()),
		clientv3.OpGet(s.conn.keys.trust().formerJoins(), clientv3.WithPrefix()),
	).Commit()
	if err != nil {
		return nil, s.conn.wrap(err, "read where hosts join")
	}
	former := map[string]*mvccpb.KeyValue{} // by host
	for _, stored := range got.Responses[1].GetResponseRange().Kvs {
		former[last(stored.Key)] = stored
	}
	var newest []*mvccpb.KeyValue
	for _, stored := range got.Responses[0].GetResponseRange().Kvs {
		other, has := former[last(stored.Key)]
		delete(former, last(stored.Key))
		if has && other.ModRevision > stored.ModRevision {
			stored = other
		}
		var j storedJoinServer
		if err := s.conn.decode(stored.Key, stored.Value, &j); err != nil {
			return nil, err
		}
		if has || !j.Former {
			newest = append(newest, stored)
		}
	}
	newest = append(newest, slices.Collect(maps.Values(former))...)
	slices.SortFunc(newest, func(a, b *mvccpb.KeyValue) int { return cmp.Compare(last(a.Key), last(b.Key)) })
	var all []trust.JoinServer
	for _, stored := range newest {
		var j storedJoinServer
		if err := s.conn.decode(stored.Key, stored.Value, &j); err != nil {
			return nil, err
		}
		all = append(all, j.JoinServer)
	}
	return all, nil
}

// RecordJoin implements trust.Registry.
func (s *Trust) RecordJoin(ctx context.Context, host croft.HostID, known bool,
	certificates map[string]trust.Stamp) error {
	var compares []clientv3.Cmp
	if !known {
		compares = append(compares, absent(s.conn.keys.host(host)))
	}
	value := encode(trust.Joined{Since: time.Now().UTC().Truncate(time.Second), Certificates: certificates})
	done, err := s.conn.etcd.Txn(ctx).If(compares...).
		Then(clientv3.OpPut(s.conn.keys.trust().joined(host), value)).Commit()
	if err == nil && !done.Succeeded {
		return croft.Errorf(croft.Conflict, "there is a host %s already", host)
	}
	return s.conn.wrapped(err, "admit a host")
}

// Renewed implements trust.Registry. A host may renew its certificates of both authorities concurrently.
func (s *Trust) Renewed(ctx context.Context, host croft.HostID, authority string, stamp trust.Stamp) error {
	joined := shelf.Shelf[trust.Joined]{Conn: s.conn.shared(), Noun: "the certificates of host",
		Prefix: s.conn.keys.trust().allJoined()}
	_, err := joined.Change(ctx, string(host), nil, func(j trust.Joined, there bool) (trust.Joined, error) {
		if !there {
			return j, errForgotten(host)
		}
		if j.Certificates == nil {
			j.Certificates = map[string]trust.Stamp{}
		}
		j.Certificates[authority] = stamp
		return j, nil
	})
	return err
}

func errForgotten(host croft.HostID) error {
	return croft.Errorf(croft.NotFound,
		"host %s is not of this cloud: it was forgotten, and may come back with a token (croft token create)", host)
}

// Joined implements trust.Hosts.
func (s *Trust) Joined(ctx context.Context, host croft.HostID) (trust.Joined, error) {
	return kv.Find[trust.Joined](ctx, s.conn.shared(), s.conn.keys.trust().joined(host), errForgotten(host),
		"read when a host joined")
}

// AllJoined implements trust.RotationStore.
func (s *Trust) AllJoined(ctx context.Context) (map[croft.HostID]trust.Joined, error) {
	got, err := s.conn.etcd.Get(ctx, s.conn.keys.trust().allJoined(), clientv3.WithPrefix())
	if err != nil {
		return nil, s.conn.wrap(err, "read when hosts joined")
	}
	all := map[croft.HostID]trust.Joined{}
	for _, stored := range got.Kvs {
		var j trust.Joined
		if err := s.conn.decode(stored.Key, stored.Value, &j); err != nil {
			return nil, err
		}
		all[croft.HostID(last(stored.Key))] = j
	}
	return all, nil
}
