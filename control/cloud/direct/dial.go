package direct

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"croft"
	"croft/client"
	"croft/cluster/seal"
	"croft/control"
	"croft/control/actions"
	"croft/etcdstore"
	"croft/internal/build"
	"croft/internal/span"
	"croft/schedule"
	"croft/tenant/access"
	"croft/tenant/objects"
)

// Dial connects to the cloud that the settings name, and serves its API in this process: a command uses the same
// operations, authorization and action log as over the network. The caller is the operator who runs the process. It
// sends nothing to Placement yet. NotFound: etcd has no cloud. Unavailable: etcd does not answer.
func Dial(ctx context.Context, s Settings) (_ *client.Client, err error) {
	claims, err := s.Placement.Client()
	if err != nil {
		return nil, err
	}
	store, err := s.Etcd.Open(ctx, false)
	if err != nil {
		claims.Close()
		return nil, err
	}
	end := func() error { claims.Close(); return store.Close() }
	in, err := serveInside(ctx, s, store, claims, end)
	if err != nil {
		return nil, errors.Join(err, end())
	}
	return in, nil
}

// inside is a server of the API for the commands of one process.
type inside struct {
	listener *pipes
	server   *http.Server
	control  *control.Server
	recorder *actions.Recorder
	spans    span.Carrier
	ctx      context.Context // of all work; ended by stop
	stop     context.CancelFunc
	work     sync.WaitGroup
	logged   error // the error of the action log; read after work
}

// serveInside serves the API of a cloud in this process. Closing the returned client ends it, and then calls end.
func serveInside(ctx context.Context, s Settings, store *etcdstore.Store, claims Claims, end func() error) (
	*client.Client, error) {
	under, err := Over(store, claims, s, Scheduling{Clusters: &Clusters{Vault: seal.LoadLater(s.Etcd.SealKeys...)}})
	if err != nil {
		return nil, err
	}
	manager, err := s.Pool.Client() // no request is sent yet, and there may be no manager
	if err != nil {
		return nil, err
	}
	in := &inside{listener: newPipes(), recorder: actions.NewRecorder(store.Actions, nil)}
	in.recorder.Brief()
	in.ctx, in.stop = context.WithCancel(context.WithoutCancel(ctx)) // a canceled command still writes its log
	in.control, err = control.New(control.Config{Cloud: under, Objects: objects.New(store.Objects),
		Callers: access.First(here{store.Partition()}), Images: Catalog{}, Actions: in.recorder, Pools: manager,
		Version: build.Version})
	if err != nil {
		in.stop()
		return nil, err
	}
	in.server = &http.Server{
		Handler: in.spans.Server(in.following(in.control.Handler())),
		BaseContext: func(net.Listener) context.Context {
			return in.ctx
		},
	}
	in.work.Go(func() { _ = in.server.Serve(in.listener) }) // ends with Close
	in.work.Go(func() { in.logged = in.recorder.Run(in.ctx) })
	transport := in.spans.Client(&http.Transport{MaxIdleConnsPerHost: 64,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return in.listener.dial(ctx) }})
	prepare := func(ctx context.Context) func() { return prepare(ctx, under.Scheduler, store) }
	return client.Inside(client.Within{Transport: transport, Prepare: prepare, Snapshot: store.Snapshot,
		End: func() error { return errors.Join(in.close(), end()) }}), nil
}

// prepare makes a scheduler watch hosts until end is called, so that requests do not read them. It must not overlap
// with other calls.
func prepare(ctx context.Context, s *schedule.Scheduler, store *etcdstore.Store) (end func()) {
	view := store.NewHostsView()
	s.Registry = view
	ctx, cancel := context.WithCancel(ctx)
	var run sync.WaitGroup
	run.Go(func() { _ = view.Run(ctx) }) // returns only when its context ends
	return func() { cancel(); run.Wait() }
}

// following makes the server follow the changes of the cloud from the first request for them, because few commands ask.
func (in *inside) following(next http.Handler) http.Handler {
	var once sync.Once
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/events" {
			once.Do(func() { in.work.Go(func() { _ = in.control.Run(in.ctx) }) }) // the stream reports that it ended
		}
		next.ServeHTTP(w, r)
	})
}

// ending limits how long close waits for requests that still run.
const ending = 15 * time.Second

// close ends the server, once the action log is written.
func (in *inside) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), ending)
	defer cancel()
	err := in.server.Shutdown(ctx) // a request whose client is gone takes back what it began
	if err != nil {
		err = in.server.Close()
	}
	in.stop()
	in.work.Wait()
	in.control.Close()
	return errors.Join(err, in.listener.Close(), in.logged)
}

// here authenticates the operator who runs this process: etcd has accepted the operator's certificate.
type here struct{ partition croft.PartitionID }

// Authenticate implements access.Authenticator.
func (h here) Authenticate(context.Context, *http.Request) (access.Caller, bool, error) {
	return access.Caller{Partition: h.partition, User: LocalUser(), Roles: []access.Role{access.PartitionAdmin},
		Via: "etcd"}, true, nil
}

// pipes is a listener for connections within the process.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

// dial connects to the listener. Unavailable: it is closed.
func (p *pipes) dial(ctx context.Context) (net.Conn, error) {
	near, far := net.Pipe()
	var err error
	select {
	case p.conns <- named{far}:
		return near, nil
	case <-p.done:
		err = croft.Errorf(croft.Unavailable, "the connection to the cloud is closed")
	case <-ctx.Done():
		err = ctx.Err()
	}
	return nil, errors.Join(err, near.Close(), far.Close())
}

// Accept implements net.Listener.
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *pipes) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

// Addr implements net.Listener.
func (p *pipes) Addr() net.Addr { return machine{} }

// named is a connection from this machine, which the action log names.
type named struct{ net.Conn }

// RemoteAddr implements net.Conn.
func (named) RemoteAddr() net.Addr { return machine{} }

// machine is the address of this machine: its name.
type machine struct{}

// Network implements net.Addr.
func (machine) Network() string { return "pipe" }

// String implements net.Addr.
func (machine) String() string {
	name, _ := os.Hostname() // without it, entries of the action log only lack the machine
	return net.JoinHostPort(name, "0")
}
