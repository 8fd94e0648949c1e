// Package etcdserver runs an etcd server in this process: a single server, or one of several members. It limits
// what connections may cost, compacts the history by size, and becomes read-only before the disk is full.
package etcdserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"croft"
	"croft/internal/delay"
)

// Server is an etcd server inside this process.
type Server struct {
	etcd    *embed.Etcd
	service *service
	dir     *os.File      // holds the sockets of etcd's own listeners
	full    chan struct{} // closed when the disk is full and the other members continue without this one
	stop    context.CancelFunc
	work    sync.WaitGroup // of the compactor and the space keeper
	space   *spaceKeeper   // nil: the disk space is not checked
}

// Start starts the server and returns when it is ready; a member of several waits for a majority. Conflict: a
// port or the directory is in use. Unavailable: the disk is too full, or the files are damaged.
func Start(ctx context.Context, c Config) (*Server, error) {
	if c.Dir == "" {
		return nil, croft.Errorf(croft.Invalid, "embedded etcd: a directory is required")
	}
	c.Listen = cmp.Or(c.Listen, "127.0.0.1:2379")
	if err := c.checkTrust(); err != nil {
		return nil, err
	}
	if _, err := c.etcd(); err != nil { // before anything is created
		return nil, err
	}
	if err := checkDir(c.Dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of the embedded etcd: %w", err)
	}
	if err := errors.Join(checkUnused(c.Dir), ctx.Err()); err != nil {
		return nil, err
	}
	if err := examine(c.Dir, c.name()); err != nil {
		return nil, err
	}
	if !c.Unsynced {
		if err := checkSpace(c.Dir); err != nil {
			return nil, err
		}
	}
	s, err := start(ctx, c)
	for range joinTries {
		// A member that it contacts may not know yet that it was added.
		if err == nil || c.Cluster == "" || !strings.Contains(err.Error(), "member count is unequal") ||
			delay.For(ctx, joinRetry) != nil {
			break
		}
		s, err = start(ctx, c)
	}
	if err != nil {
		return nil, err
	}
	s.keep(c)
	if c.Peer == "" {
		return s, nil
	}
	if err := s.publishPeer(ctx, s.etcd.Config().AdvertisePeerUrls[0].String()); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// joinTries is the maximum number of retries when a new member joins, and joinRetry the pause before each.
const (
	joinTries = 20
	joinRetry = 500 * time.Millisecond
)

// start runs the server until it is ready.
func start(ctx context.Context, c Config) (_ *Server, err error) {
	cfg, err := c.etcd()
	if err != nil {
		return nil, err
	}
	s := &Server{full: make(chan struct{})}
	if s.service, err = listen(c, cfg); err != nil {
		return nil, err
	}
	defer func() {
		if err == nil {
			return
		}
		if s.etcd != nil {
			// must precede Close, which waits for handlers that start only when the server is ready
			s.etcd.Server.HardStop()
		}
		s.closeServer()
	}()
	var unlink func()
	if unlink, s.dir, err = hide(cfg); err != nil {
		return nil, err
	}
	if s.etcd, err = startEtcd(cfg); err != nil {
		return nil, err
	}
	unlink()
	s.service.servePeers(s.etcd.Server)
	select {
	case <-s.etcd.Server.ReadyNotify():
	case err = <-s.etcd.Err():
	case <-s.etcd.Server.StopNotify():
		err = errors.New("it stopped while starting")
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("start the embedded etcd in %s: %w", cfg.Dir, err)
	}
	s.service.serveClients(cfg.GRPCAdditionalServerOptions)
	return s, nil
}

// keep starts the compactor and the space keeper, which run until the server is closed.
func (s *Server) keep(c Config) {
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	compactor := newCompactor(s.etcd.Server, c)
	// read now, because the goroutine may run only after the first writes
	compactor.base = s.etcd.Server.Backend().SizeInUse()
	s.work.Go(func() { compactor.run(ctx) })
	if !c.Unsynced {
		s.space = &spaceKeeper{etcd: s.etcd.Server, client: s.Client(), peers: s.service.peers, dir: c.Dir,
			log: c.log()}
		s.work.Go(func() {
			defer s.space.client.Close()
			if s.space.run(ctx) {
				close(s.full)
			}
		})
	}
}

// Client returns a client that calls the server without a connection. It must be closed before the server.
func (s *Server) Client() *clientv3.Client { return newClient(s.etcd.Server) }

// Endpoint returns the URL at which clients reach the server.
func (s *Server) Endpoint() string { return s.service.endpoint() }

// Wait returns nil when ctx ends, or the error that ended the server. NotFound: the other members removed it. ErrFull:
// its disk is full, and the others continue.
func (s *Server) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-s.etcd.Err():
		return err
	case <-s.full:
		return ErrFull
	case err := <-s.service.failed:
		return fmt.Errorf("embedded etcd: %w", err)
	case <-s.etcd.Server.StopNotify():
		return ErrRemoved
	}
}

// ErrRemoved is the error of a server that the others removed, or that could not continue.
var ErrRemoved = croft.Errorf(croft.NotFound, "the other members of etcd removed this one, or it had a fatal error")

// Close stops the server and returns when it has stopped.
func (s *Server) Close() {
	s.stop()
	s.work.Wait()
	s.closeServer()
}

func (s *Server) closeServer() {
	s.service.closeClients()
	if s.etcd != nil {
		s.etcd.Close()
	}
	s.service.close()
	if s.dir != nil {
		_ = s.dir.Close()
	}
}

// publishPeer updates the address at which other members reach the server.
func (s *Server) publishPeer(ctx context.Context, peer string) error {
	id := uint64(s.etcd.Server.MemberID())
	etcd := s.Client()
	defer etcd.Close()
	list, err := etcd.MemberList(ctx)
	if err != nil {
		return fmt.Errorf("list etcd's members: %w", err)
	}
	for _, m := range list.Members {
		if m.ID == id && !slices.Equal(m.PeerURLs, []string{peer}) {
			if _, err := etcd.MemberUpdate(ctx, id, []string{peer}); err != nil {
				return fmt.Errorf("tell etcd's members of the address %s: %w", peer, err)
			}
		}
	}
	return nil
}

// promoteRetry is the pause before a learner tries again to become a voter.
const promoteRetry = 100 * time.Millisecond

// Promote makes the server a voter as soon as it has caught up with the others, and returns when it is a voter.
func (s *Server) Promote(ctx context.Context) error {
	server := s.etcd.Server
	for server.IsLearner() {
		ask, cancel := context.WithTimeout(ctx, askTime)
		_, err := server.PromoteMember(ask, uint64(server.MemberID()))
		cancel()
		select {
		case <-ctx.Done():
			return fmt.Errorf("become a full member of etcd: %w", cmp.Or(err, ctx.Err()))
		case <-server.StopNotify():
			return ErrRemoved
		case <-time.After(promoteRetry): // until the server itself knows of the promotion
		}
	}
	return nil
}

// Metrics returns the server's own metrics: etcd_, and grpc_ for its connections. etcd keeps one set for all servers of
// a process.
func (s *Server) Metrics() prometheus.Gatherer {
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		all, err := prometheus.DefaultGatherer.Gather()
		return slices.DeleteFunc(all, func(f *dto.MetricFamily) bool {
			return !strings.HasPrefix(f.GetName(), "etcd_") && !strings.HasPrefix(f.GetName(), "grpc_")
		}), err
	})
}
