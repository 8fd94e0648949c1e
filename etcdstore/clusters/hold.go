package clusters

import (
	"context"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/cluster"
	"croft/etcdstore/internal/kv"
)

// A hold is a key under the lease of the process. If the answer to a hold or to its release was lost, the key may
// remain although no caller in this process holds the cluster; the next Hold of this process takes the key over. Other
// processes wait until this process ends.

// Hold implements cluster.Records.
func (s *Records) Hold(ctx context.Context, id croft.ClusterID) (*cluster.Holder, error) {
	if !s.begin(id) {
		return nil, held(id)
	}
	defer s.end(id)
	lease, err := s.session.Lease(ctx)
	if err != nil {
		return nil, err
	}
	k := s.keys()
	key := k.holder(id)
	// Existence is enough: a holder reads the record of the cluster after it got the hold.
	done, err := s.conn.Etcd.Txn(ctx).If(kv.Absent(key), kv.Exists(k.record(id))).
		Then(clientv3.OpPut(key, "", clientv3.WithLease(lease))).
		Else(clientv3.OpGet(key), clientv3.OpGet(k.record(id), clientv3.WithCountOnly())).Commit()
	if err != nil {
		s.session.Lost(err, lease)
		return nil, s.conn.Wrap(err, "hold cluster %s", id)
	}
	created := done.Header.Revision
	if !done.Succeeded {
		there := kv.First(done.Responses[0])
		switch {
		case done.Responses[1].GetResponseRange().Count == 0:
			return nil, missing(id)
		case there == nil: // it was released just now
			return nil, held(id)
		case !s.left(id, there, lease):
			return nil, held(id)
		}
		created = there.CreateRevision
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[id] = created
	return &cluster.Holder{Cluster: id, Key: key, Created: created, Lease: int64(lease)}, nil
}

func held(id croft.ClusterID) error {
	return croft.Errorf(croft.Conflict, "cluster %s is held by another process", id)
}

// begin records that a Hold is in progress. False: another one already is.
func (s *Records) begin(id croft.ClusterID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taking[id] {
		return false
	}
	s.taking[id] = true
	return true
}

func (s *Records) end(id croft.ClusterID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.taking, id)
}

// left reports whether a key belongs to this process, but is not known as a hold here.
func (s *Records) left(id croft.ClusterID, there *mvccpb.KeyValue, lease clientv3.LeaseID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return there.Lease == int64(lease) && s.held[id] != there.CreateRevision
}

// Release implements cluster.Records.
func (s *Records) Release(ctx context.Context, h *cluster.Holder) error {
	s.mu.Lock()
	if s.held[h.Cluster] == h.Created {
		delete(s.held, h.Cluster)
	}
	s.mu.Unlock()
	_, err := s.conn.Etcd.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(h.Key), "=", h.Created)).
		Then(clientv3.OpDelete(h.Key)).Commit()
	if err != nil {
		return s.conn.Wrap(err, "release cluster %s", h.Cluster)
	}
	return nil
}
