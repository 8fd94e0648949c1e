package etcdserver

import (
	"context"
	"io"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"google.golang.org/grpc"
)

// newClient returns a client that calls the server without a connection. etcd's own watch stream of such a client holds
// one message in each direction. One goroutine of the client both sends requests and receives answers, so when many
// watches end at once, the client and the server wait for each other to receive, forever. watchStream replaces that
// stream.
func newClient(server *etcdserver.EtcdServer) *clientv3.Client {
	etcd := v3client.New(server)
	etcd.Watcher = clientv3.NewWatchFromWatchClient(WatchClient(v3rpc.NewWatchServer(server)), etcd)
	return etcd
}

// WatchClient returns a client of a watch server in this process.
func WatchClient(server pb.WatchServer) pb.WatchClient { return watchClient{server} }

// watchClient calls a watch server in this process.
type watchClient struct{ server pb.WatchServer }

// Watch implements pb.WatchClient.
func (c watchClient) Watch(ctx context.Context, _ ...grpc.CallOption) (pb.Watch_WatchClient, error) {
	ctx, cancel := context.WithCancel(ctx)
	s := &watchStream{ctx: ctx, wake: make(chan struct{}, 1), answers: make(chan *pb.WatchResponse),
		ended: make(chan struct{})}
	go func() {
		defer cancel()
		if s.err = c.server.Watch(watchServerEnd{watchStream: s}); s.err == nil {
			s.err = io.EOF
		}
		close(s.ended)
	}()
	return watchClientEnd{watchStream: s}, nil
}

// watchStream is a stream of watch requests and their answers. The client's Send never blocks, so the client always
// returns to receiving answers, and the two ends cannot wait for each other. The queue of requests stays short: it
// contains at most a creation and a cancellation per watch of the client.
type watchStream struct {
	ctx     context.Context // ends with the client's context and with the server's handler
	answers chan *pb.WatchResponse
	ended   chan struct{} // closed when the server's handler has returned err
	err     error

	mu       sync.Mutex
	requests []*pb.WatchRequest
	closed   bool          // the client sends no further requests
	wake     chan struct{} // contains an element after a change of requests or closed
}

// Context implements grpc.ClientStream and grpc.ServerStream.
func (s *watchStream) Context() context.Context { return s.ctx }

// change changes the queue and wakes the server's end.
func (s *watchStream) change(do func()) {
	s.mu.Lock()
	do()
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// watchClientEnd is the client's end of a watchStream.
type watchClientEnd struct {
	grpc.ClientStream // nil: etcd's client calls no other method
	*watchStream
}

// Context implements grpc.ClientStream.
func (c watchClientEnd) Context() context.Context { return c.watchStream.Context() }

// CloseSend implements grpc.ClientStream.
func (c watchClientEnd) CloseSend() error {
	c.change(func() { c.closed = true })
	return nil
}

// Send implements pb.Watch_WatchClient. It never blocks.
func (c watchClientEnd) Send(request *pb.WatchRequest) error {
	if c.ctx.Err() != nil {
		return io.EOF // like gRPC; Recv returns the reason
	}
	c.change(func() { c.requests = append(c.requests, request) })
	return nil
}

// Recv implements pb.Watch_WatchClient.
func (c watchClientEnd) Recv() (*pb.WatchResponse, error) {
	select {
	case answer := <-c.answers:
		return answer, nil
	case <-c.ended:
		return nil, c.err
	case <-c.ctx.Done():
	}
	select {
	case <-c.ended:
		return nil, c.err
	default:
		return nil, c.ctx.Err()
	}
}

// watchServerEnd is the server's end of a watchStream.
type watchServerEnd struct {
	grpc.ServerStream // nil: etcd's server calls no other method
	*watchStream
}

// Context implements grpc.ServerStream.
func (s watchServerEnd) Context() context.Context { return s.watchStream.Context() }

// Send implements pb.Watch_WatchServer.
func (s watchServerEnd) Send(answer *pb.WatchResponse) error {
	select {
	case s.answers <- answer:
		return nil
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}

// Recv implements pb.Watch_WatchServer.
func (s watchServerEnd) Recv() (*pb.WatchRequest, error) {
	for {
		if request, closed := s.next(); request != nil {
			return request, nil
		} else if closed {
			return nil, io.EOF
		}
		select {
		case <-s.wake:
		case <-s.ctx.Done():
			return nil, s.ctx.Err()
		}
	}
}

// next takes the oldest request; nil: there is no request.
func (s *watchStream) next() (request *pb.WatchRequest, closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.requests) > 0 {
		request, s.requests[0] = s.requests[0], nil
		s.requests = s.requests[1:]
	}
	return request, s.closed
}
