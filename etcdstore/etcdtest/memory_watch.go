package etcdtest

import (
	"errors"
	"io"
	"sync"
	_ "unsafe" // for go:linkname

	"go.etcd.io/etcd/api/v3/mvccpb"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
)

// valCtxCh is the channel, never closed, that the client's watch streams wait for instead of their callers' contexts.
// It is made outside synctest bubbles, so time would stand still in a bubble while a watch is open. Without it, the
// streams wait only for their own ends.
//
//go:linkname valCtxCh go.etcd.io/etcd/client/v3.valCtxCh
var valCtxCh chan struct{}

func init() { valCtxCh = nil }

// watchStream serves the watches of one stream. The server's own type can be made only for a whole server.
type watchStream struct {
	*Memory
	pb.Watch_WatchServer
	changes mvcc.WatchStream
	control chan *pb.WatchResponse // creations and cancellations
	done    chan struct{}          // closed at the end of the stream

	mu     sync.Mutex
	prevKV map[mvcc.WatchID]bool
}

// Watch implements pb.WatchServer.
func (m *Memory) Watch(stream pb.Watch_WatchServer) error {
	s := &watchStream{Memory: m, Watch_WatchServer: stream, changes: m.kv.NewWatchStream(),
		control: make(chan *pb.WatchResponse, 16), done: make(chan struct{}), prevKV: map[mvcc.WatchID]bool{}}
	var work sync.WaitGroup
	work.Go(s.send)
	err := s.receive()
	close(s.done)
	work.Wait()
	s.changes.Close()
	return err
}

// receive carries out requests until the stream ends.
func (s *watchStream) receive() error {
	for {
		r, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch {
		case r.GetCreateRequest() != nil:
			s.create(r.GetCreateRequest())
		case r.GetCancelRequest() != nil:
			id := r.GetCancelRequest().WatchId
			if s.changes.Cancel(mvcc.WatchID(id)) == nil {
				s.answer(&pb.WatchResponse{Header: s.header(), WatchId: id, Canceled: true})
			}
		case r.GetProgressRequest() != nil:
			s.changes.RequestProgressAll()
		}
	}
}

func (s *watchStream) create(r *pb.WatchCreateRequest) {
	if len(r.Key) == 0 {
		r.Key = []byte{0} // the smallest key
	}
	switch string(r.RangeEnd) {
	case "":
		r.RangeEnd = nil // a single key
	case "\x00":
		r.RangeEnd = []byte{} // all keys from Key
	}
	s.mu.Lock() // before the first event of this watch is sent
	id, err := s.changes.Watch(s.Context(), mvcc.WatchID(r.WatchId), r.Key, r.RangeEnd, r.StartRevision,
		v3rpc.FiltersFromRequest(r)...)
	s.prevKV[id] = r.PrevKv
	s.mu.Unlock()
	answer := &pb.WatchResponse{Header: s.header(), WatchId: int64(id), Created: true}
	if err != nil {
		answer.WatchId, answer.Canceled, answer.CancelReason = clientv3.InvalidWatchID, true, err.Error()
	}
	s.answer(answer)
}

func (s *watchStream) answer(r *pb.WatchResponse) {
	select {
	case s.control <- r:
	case <-s.Context().Done():
	}
}

// send sends answers and changes until the stream ends. Changes of a watch wait until the client knows the watch.
func (s *watchStream) send() {
	known, early := map[int64]bool{}, map[int64][]*pb.WatchResponse{}
	for {
		select {
		case r := <-s.control:
			if s.Send(r) != nil {
				return
			}
			known[r.WatchId] = r.Created
			for _, waiting := range early[r.WatchId] {
				_ = s.Send(waiting) // an error ends the context of the stream
			}
			delete(early, r.WatchId)
		case c := <-s.changes.Chan():
			r := s.response(c)
			if r.WatchId != clientv3.InvalidWatchID && !known[r.WatchId] { // a progress of all watches has no ID
				early[r.WatchId] = append(early[r.WatchId], r)
			} else if s.Send(r) != nil {
				return
			}
		case <-s.done:
			return
		}
	}
}

func (s *watchStream) response(c mvcc.WatchResponse) *pb.WatchResponse {
	header := s.header()
	header.Revision = c.Revision
	s.mu.Lock()
	prevKV := s.prevKV[c.WatchID]
	s.mu.Unlock()
	for _, e := range c.Events {
		if !prevKV || e.Type == mvccpb.Event_PUT && e.Kv.CreateRevision == e.Kv.ModRevision {
			continue
		}
		before, err := s.kv.Range(s.Context(), e.Kv.Key, nil, mvcc.RangeOptions{Rev: e.Kv.ModRevision - 1})
		if err == nil && len(before.KVs) > 0 {
			e.PrevKv = before.KVs[0]
		}
	}
	return &pb.WatchResponse{Header: header, WatchId: int64(c.WatchID), Events: c.Events,
		CompactRevision: c.CompactRevision, Canceled: c.CompactRevision != 0}
}
