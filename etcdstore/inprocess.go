package etcdstore

import (
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"croft"
)

// connect makes the client: of the servers at the endpoints, or of the one in this
// process, which it calls without a connection. That halves what a transaction
// takes beside the time of the disk.
func (c *Config) connect() (*clientv3.Client, error) {
	if c.Embedded != nil {
		return v3client.New(c.Embedded.server.Server), nil
	}
	etcd, err := clientv3.New(clientv3.Config{
		Endpoints:            c.Endpoints,
		Logger:               zap.NewNop(),
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 5 * time.Second,
		// A server that was away is found again soon, not after the two minutes that
		// the pauses between attempts would grow to.
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
			MinConnectTimeout: 3 * time.Second,
		})},
		MaxCallSendMsgSize: maxRequest,
	})
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "etcd at %s: %w", strings.Join(c.Endpoints, ", "), err)
	}
	return etcd, nil
}

// maxRequest is how many bytes a request may have as far as we are concerned; the
// servers have limits of their own.
const maxRequest = 64 << 20
