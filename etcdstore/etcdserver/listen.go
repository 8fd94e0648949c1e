package etcdserver

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/soheilhy/cmux"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/etcdhttp"
	"go.etcd.io/etcd/server/v3/etcdserver/api/rafthttp"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3election"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.uber.org/zap"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"croft"
	"croft/internal/connlimit"
)

// Limits on the resources that one connection may use.
const (
	// greetTime bounds the TLS handshake and the first header of a client or member.
	greetTime = 10 * time.Second
	// drainTime is how long a peer may take to read data that is sent at once, 32 KiB or a TLS record, or to answer a
	// ping.
	drainTime = 20 * time.Second
	// pingEvery is how long a client may be silent before it is pinged.
	pingEvery = time.Minute
	// closeTime is how long requests in flight have to end when the server is closed.
	closeTime = time.Second
)

// bounds limits the resources of connections, each and in total.
type bounds struct {
	clients, peers connlimit.Limits
	greet, drain   time.Duration
}

// or sets defaults. secured: clients must present certificates.
func (b bounds) or(secured bool) bounds {
	if b.clients.Total == 0 {
		b.clients = connlimit.OfEtcd()
		if !secured {
			// no client can prove its identity, and all clients may be on one machine
			b.clients.PerSource = b.clients.Total
		}
	}
	if b.peers.Total == 0 {
		b.peers = connlimit.OfProcess()
	}
	// Connections of voters are never closed to make room for others.
	b.peers.UnprovenOnly = true
	b.greet, b.drain = cmp.Or(b.greet, greetTime), cmp.Or(b.drain, drainTime)
	return b
}

// service accepts the connections of clients and of other members. etcd's own listeners limit neither the
// number of connections without a certificate nor how long a client may take to read an answer.
type service struct {
	config  Config
	bounds  bounds
	server  *etcdserver.EtcdServer
	clients *connlimit.Listener
	peers   *connlimit.Listener // nil: no other members are possible
	tls     *tls.Config         // nil: plain text
	peerTLS *tls.Config

	failed chan error // receives the error of a listener that ended before it was closed
	work   sync.WaitGroup
	end    []func(context.Context) // functions that shut down the servers for clients
}

// listen opens the listeners. Conflict: an address is in use.
func listen(c Config, cfg *embed.Config) (_ *service, err error) {
	s := &service{config: c, failed: make(chan error, 4)}
	if !cfg.ClientTLSInfo.Empty() {
		if s.tls, err = cfg.ClientTLSInfo.ServerConfig(); err != nil {
			return nil, fmt.Errorf("embedded etcd: %w", err)
		}
	}
	s.bounds = c.bounds.or(c.ClientCA != "")
	if s.clients, err = s.listener("etcd.listen", cfg.ListenClientUrls[0].Host, s.bounds.clients,
		s.bounds.drain); err != nil || c.Peer == "" {
		return s, err
	}
	peer := cfg.ListenPeerUrls[0]
	if peer.Scheme == "https" {
		s.peerTLS, err = cfg.PeerTLSInfo.ServerConfig()
	}
	if err == nil {
		s.peers, err = s.listener("etcd.peer_listen", peer.Host, s.bounds.peers, rafthttp.ConnWriteTimeout)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *service) listener(setting, address string, limits connlimit.Limits, drain time.Duration) (*connlimit.Listener,
	error) {
	l, err := transport.NewListener(address, "http", nil)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil,
			croft.Errorf(croft.Conflict,
				"embedded etcd: %s is in use; stop the program that listens there, or set %s to another "+
					"address", address, setting)
	}
	if err != nil {
		return nil, fmt.Errorf("embedded etcd: listen for %s: %w", setting, err)
	}
	tell := rate.Sometimes{Interval: time.Minute}
	limits.Dropped = func() {
		tell.Do(func() {
			s.config.log().Warn(
				"connections are closed in favour of new ones: there are more than this listener may have", "address",
				address,
				"most", limits.Total, "most_of_one_source", limits.PerSource)
		})
	}
	limits.WriteTime = drain
	return connlimit.New(l, limits), nil
}

// endpoint returns the URL at which clients on this machine reach the server.
func (s *service) endpoint() string {
	scheme := "http://"
	if s.tls != nil {
		scheme = "https://"
	}
	return scheme + s.clients.Addr().String()
}

// hide makes etcd itself listen on sockets that no client uses, since it requires listeners. unlink removes the
// sockets; dir must be closed after the server.
func hide(cfg *embed.Config) (unlink func(), dir *os.File, err error) {
	// The path of a socket is limited in length, but the path of the directory is not.
	if dir, err = os.Open(cfg.Dir); err != nil {
		return nil, nil, fmt.Errorf("open the directory of the embedded etcd: %w", err)
	}
	at := func(name string) string { return filepath.Join(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()), name) }
	client, peer := at("client.sock"), at("peer.sock")
	cfg.ListenClientUrls, cfg.ListenPeerUrls = []url.URL{{Scheme: "unix", Host: client}},
		[]url.URL{{Scheme: "unix", Host: peer}}
	return func() { _, _ = os.Remove(client), os.Remove(peer) }, dir, nil
}

// servePeers starts to serve other members.
func (s *service) servePeers(server *etcdserver.EtcdServer) {
	s.server = server
	if s.peers == nil {
		return
	}
	http1 := &http.Protocols{}
	http1.SetHTTP1(true)
	web := s.newServer(etcdhttp.NewPeerHandler(zap.NewNop(), server))
	web.Protocols, web.ReadTimeout, web.TLSConfig = http1, 5*time.Minute, s.peerTLS
	s.serveWeb(web, s.peers)
}

// serveClients starts to serve clients: gRPC, and version, health and metrics over HTTP.
func (s *service) serveClients(options []grpc.ServerOption) {
	mux := http.NewServeMux()
	etcdhttp.HandleVersion(mux, s.server)
	etcdhttp.HandleMetrics(mux)
	etcdhttp.HandleHealth(zap.NewNop(), mux, s.server)
	calls := v3rpc.Server(s.server, s.tls, nil, append(options,
		grpc.ConnectionTimeout(s.bounds.greet),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: embed.DefaultGRPCKeepAliveMinTime}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingEvery, Timeout: s.bounds.drain}))...)
	inside := newClient(s.server)
	v3electionpb.RegisterElectionServer(calls, v3election.NewElectionServer(inside))
	v3lockpb.RegisterLockServer(calls, v3lock.NewLockServer(inside))
	web := s.newServer(s.named(mux))
	s.end = append(s.end, func(ctx context.Context) { shutdown(ctx, web) })
	if s.tls != nil {
		// With TLS, gRPC and HTTP share a port and are distinguished by their requests.
		web.Handler, web.TLSConfig = apart(calls, web.Handler), s.tls
		s.end = append(s.end, func(context.Context) { calls.Stop() })
		s.serveWeb(web, s.clients)
		return
	}
	s.end = append(s.end, func(ctx context.Context) { stop(ctx, calls) })
	both := cmux.New(s.clients)
	both.SetReadTimeout(s.bounds.greet)
	one, two := both.Match(cmux.HTTP1()), both.Match(cmux.HTTP2())
	s.serve(func() error { return web.Serve(one) })
	s.serve(func() error { return calls.Serve(two) })
	s.serve(both.Serve)
}

func (s *service) newServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           proven(h),
		ReadHeaderTimeout: s.bounds.greet, // including the handshake
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: math.MaxInt32, // like etcd's own limit; the client has presented a certificate
			SendPingTimeout:      pingEvery, PingTimeout: s.bounds.drain, WriteByteTimeout: s.bounds.drain,
		},
		ConnContext: connlimit.Context,
		ErrorLog:    log.New(io.Discard, "", 0),
	}
}

func (s *service) serveWeb(web *http.Server, l net.Listener) {
	s.serve(func() error {
		if web.TLSConfig != nil {
			return web.ServeTLS(l, "", "")
		}
		return web.Serve(l)
	})
}

// serve runs the server of a listener until the listener is closed.
func (s *service) serve(run func() error) {
	s.work.Go(func() {
		err := run()
		ended := err == nil
		for _, end := range []error{http.ErrServerClosed, net.ErrClosed, cmux.ErrListenerClosed, cmux.ErrServerClosed} {
			ended = ended || errors.Is(err, end)
		}
		if !ended {
			select {
			case s.failed <- err:
			default:
			}
		}
	})
}

// closeClients ends the requests of clients.
func (s *service) closeClients() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	_ = s.clients.Close()
	for _, end := range s.end {
		end(ctx)
	}
	s.clients.End()
}

// close closes the remaining connections and returns when none is left.
func (s *service) close() {
	s.clients.End()
	if s.peers != nil {
		s.peers.End()
	}
	s.work.Wait()
}

// shutdown closes a server when it is idle, or when ctx ends.
func shutdown(ctx context.Context, web *http.Server) {
	if web.Shutdown(ctx) != nil {
		_ = web.Close()
	}
}

// stop does the same as shutdown, for gRPC.
func stop(ctx context.Context, calls *grpc.Server) {
	done := make(chan struct{})
	go func() {
		calls.GracefulStop()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		calls.Stop()
		<-done
	}
}

// apart passes gRPC requests to calls and all others to h.
func apart(calls *grpc.Server, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 && strings.Contains(r.Header.Get("Content-Type"), "application/grpc") {
			calls.ServeHTTP(w, r)
		} else {
			h.ServeHTTP(w, r)
		}
	})
}

// proven marks connections that presented a certificate, so that they are closed last.
func proven(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
			connlimit.Prove(r.Context())
		}
		h.ServeHTTP(w, r)
	})
}

// named refuses plain HTTP requests for a name other than the server's, as a protection against DNS rebinding: a web
// page can make its own name resolve to this server.
func (s *service) named(h http.Handler) http.Handler {
	names := s.config.names()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		host = strings.Trim(host, "[]")
		if r.TLS == nil && names != nil && !names[host] {
			http.Error(w, fmt.Sprintf("this etcd is not called %.253q: use its address or localhost", r.Host),
				http.StatusMisdirectedRequest)
			return
		}
		h.ServeHTTP(w, r)
	})
}
