package etcdtest

import (
	"context"
	"errors"
	"io"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/lease"
)

// expire revokes expired leases until done is closed.
func (m *Memory) expire() {
	for {
		select {
		case expired := <-m.lessor.ExpiredLeasesC():
			for _, l := range expired {
				_ = m.revoke(l.ID) // not found: it was revoked meanwhile
			}
		case <-m.done:
			return
		}
	}
}

func (m *Memory) revoke(id lease.LeaseID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return wire(m.lessor.Revoke(id))
}

// LeaseGrant implements pb.LeaseServer.
func (m *Memory) LeaseGrant(_ context.Context, r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	if r.ID == 0 {
		r.ID = m.lastID.Add(1)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	l, err := m.lessor.Grant(lease.LeaseID(r.ID), r.TTL)
	if err != nil {
		return nil, wire(err)
	}
	return &pb.LeaseGrantResponse{Header: m.header(), ID: int64(l.ID), TTL: l.TTL()}, nil
}

// LeaseRevoke implements pb.LeaseServer.
func (m *Memory) LeaseRevoke(_ context.Context, r *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	if err := m.revoke(lease.LeaseID(r.ID)); err != nil {
		return nil, err
	}
	return &pb.LeaseRevokeResponse{Header: m.header()}, nil
}

// LeaseKeepAlive implements pb.LeaseServer.
func (m *Memory) LeaseKeepAlive(stream pb.Lease_LeaseKeepAliveServer) error {
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		header := m.header() // before the renewal, so that a later removal has a later revision
		ttl, err := m.lessor.Renew(lease.LeaseID(r.ID))
		if err != nil && !errors.Is(err, lease.ErrLeaseNotFound) {
			return err
		}
		if err != nil {
			ttl = 0
		}
		if err := stream.Send(&pb.LeaseKeepAliveResponse{Header: header, ID: r.ID, TTL: ttl}); err != nil {
			return err
		}
	}
}

// LeaseTimeToLive implements pb.LeaseServer.
func (m *Memory) LeaseTimeToLive(_ context.Context, r *pb.LeaseTimeToLiveRequest) (*pb.LeaseTimeToLiveResponse,
	error) {
	answer := &pb.LeaseTimeToLiveResponse{Header: m.header(), ID: r.ID, TTL: -1}
	if l := m.lessor.Lookup(lease.LeaseID(r.ID)); l != nil {
		answer.TTL, answer.GrantedTTL = int64(l.Remaining().Seconds()), l.TTL()
		if r.Keys {
			for _, key := range slices.Sorted(slices.Values(l.Keys())) {
				answer.Keys = append(answer.Keys, []byte(key))
			}
		}
	}
	return answer, nil
}

// LeaseLeases implements pb.LeaseServer.
func (m *Memory) LeaseLeases(context.Context, *pb.LeaseLeasesRequest) (*pb.LeaseLeasesResponse, error) {
	answer := &pb.LeaseLeasesResponse{Header: m.header()}
	for _, l := range m.lessor.Leases() {
		answer.Leases = append(answer.Leases, &pb.LeaseStatus{ID: int64(l.ID)})
	}
	return answer, nil
}
