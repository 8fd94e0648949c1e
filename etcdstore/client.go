package etcdstore

import (
	"cmp"
	"context"
	"crypto/tls"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"croft"
)

// connect makes the client: a client of the servers at the endpoints, or of the server in this process, which it calls
// without a connection. Apart from the disk, that halves the time of a transaction. A server that requires users needs
// a connection.
func (c *Config) connect(ctx context.Context, conns *connections) (*clientv3.Client, *tls.Config, error) {
	if c.Embedded != nil && c.User == "" {
		return c.Embedded.Client(), nil, nil
	}
	secure, err := c.isSecure()
	if err != nil {
		return nil, nil, err
	}
	if c.User != "" && c.Password == "" {
		return nil, nil, croft.Errorf(croft.Invalid, "etcd.user is %s and there is no password: set etcd.password_file",
			c.User)
	}
	var trust *tls.Config
	if secure {
		if trust, err = c.tlsConfig(); err != nil {
			return nil, nil, err
		}
	}
	etcd, err := c.dial(ctx, trust, conns)
	return etcd, trust, err
}

// loginTime is the minimum time allowed for a login: etcd computes a deliberately slow hash, which takes
// seconds on a busy machine.
const loginTime = 10 * time.Second

// dial makes the client. With a user it waits for the answer to the login; otherwise it does not wait.
func (c *Config) dial(ctx context.Context, trust *tls.Config, conns *connections) (*clientv3.Client, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	patience := c.DialTimeout
	if c.User != "" {
		patience = max(patience, loginTime)
	}
	etcd, err := clientv3.New(clientv3.Config{
		Endpoints:            c.Endpoints,
		TLS:                  trust,
		Username:             c.User,
		Password:             c.Password,
		DialTimeout:          patience,
		Logger:               zap.NewNop(),
		DialKeepAliveTime:    cmp.Or(c.keepalive, keepaliveTime),
		DialKeepAliveTimeout: keepaliveTimeout,
		// A server that was unreachable is found again soon, not only after the two minutes to which gRPC's backoff
		// would grow.
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(conns.dial), grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2,
				MaxDelay: 2 * time.Second},
			MinConnectTimeout: 3 * time.Second,
		})},
		MaxCallSendMsgSize: maxRequest,
	})
	if err == nil {
		return etcd, nil
	}
	if c.User == "" {
		return nil, croft.Errorf(croft.Invalid, "etcd at %s: %w", strings.Join(c.Endpoints, ", "), err)
	}
	s := conn{endpoints: strings.Join(c.Endpoints, ", "), user: c.User}
	err = s.wrap(err, "log in")
	if croft.KindOf(err) == croft.Unavailable {
		err = cmp.Or(c.refusal(ctx, trust), err)
	}
	return nil, err
}

// maxRequest is the client's limit on the size of a request in bytes; the servers have their own limits.
const maxRequest = 64 << 20
