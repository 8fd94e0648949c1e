package resalloc

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"croft"
	"croft/compute"
	"croft/internal/delay"
	"croft/pool"
	"croft/pool/api"
	"croft/pool/server"
	"croft/pool/shell"
)

// holdPatience is how long a server waits for a maintainer that has locked its state, and a maintainer waits for a
// server that starts or stops. A maintainer locks the state for one request.
const holdPatience = 15 * time.Second

// heldSoon retries f, which takes a lock, while another process holds the lock and may release it soon. Conflict: the
// other process did not release it.
func heldSoon(ctx context.Context, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, holdPatience)
	defer cancel()
	for {
		err := f()
		if !errors.Is(err, croft.Conflict) {
			return err
		}
		if delay.For(ctx, 20*time.Millisecond) != nil {
			return err
		}
	}
}

// openSoon calls compute.OpenStateDir for a server whose state a maintainer may have locked briefly.
func openSoon(ctx context.Context, dir string) (state *compute.StateDir, err error) {
	err = heldSoon(ctx, func() error {
		state, err = compute.OpenStateDir(dir)
		return err
	})
	return state, err
}

// maintainer calls the server of a server.yaml or, if the server is not running, uses its state.
type maintainer struct {
	serverYAML
	pools   string
	backend Backend
}

// ask calls do with a client, which is valid until do returns.
func (m maintainer) ask(ctx context.Context, do func(*api.Client) error) error {
	state, err := m.standing(ctx)
	if err != nil {
		return err
	}
	if state != nil {
		return m.askState(ctx, state, do)
	}
	c, err := api.New(api.Config{
		Endpoints: []string{m.endpoint()}, Token: os.Getenv("CROFT_POOL_TOKEN"), CA: m.CA, Patience: maintPatience,
	})
	if err != nil {
		return err
	}
	defer c.CloseIdle()
	return do(c)
}

// standing locks the state of a server that is not running; nil: a server is running, or the state is in a shared etcd.
// Conflict: a process has locked the state and does not answer. NotFound: there is no state yet.
func (m maintainer) standing(ctx context.Context) (state *compute.StateDir, err error) {
	if len(m.Etcd) > 0 {
		return nil, nil
	}
	dir, err := m.dataDir()
	if err != nil {
		return nil, err
	}
	err = heldSoon(ctx, func() error {
		dialer := net.Dialer{Timeout: maintPatience}
		if c, refused := dialer.DialContext(ctx, "tcp", net.JoinHostPort(m.Hostname,
			fmt.Sprint(m.Port))); refused == nil {
			return c.Close()
		}
		if !hasState(dir) {
			return croft.Errorf(croft.NotFound,
				"no server answers at %s, and none ever ran with this server.yaml: start resalloc-server", m.endpoint())
		}
		state, err = compute.OpenStateDir(dir)
		return err
	})
	if err != nil && !errors.Is(err, croft.NotFound) {
		err = fmt.Errorf("no server answers at %s, and its state cannot be opened: %w", m.endpoint(), err)
	}
	return state, err
}

// askState calls do with a client of a manager in this process, which starts no commands and uses the locked state. It
// unlocks the state at the end.
func (m maintainer) askState(ctx context.Context, state *compute.StateDir, do func(*api.Client) error) (err error) {
	defer func() { err = errors.Join(err, state.Close()) }()
	s, err := m.settings(m.pools)
	if err != nil {
		return err
	}
	store, end, err := m.backend.Open(ctx, s, state.Path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	hooks, err := shell.New(shell.Config{Dir: cmp.Or(s.Logs, filepath.Join(state.Path, "log")),
		Mark: string(store.Partition)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, hooks.Close()) }()
	manager, err := pool.New(pool.Config{
		Partition: store.Partition, Store: store.Store, Hooks: hooks, File: m.pools, Still: true,
		Me: pool.Server{Name: fmt.Sprintf("resalloc-maint/%d", os.Getpid()), Machine: "here",
			Directory: hooks.Directory()},
	})
	if err != nil {
		return err
	}
	front, err := server.New(server.Config{Manager: manager})
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- manager.Run(running) }()
	defer func() {
		stop()
		err = errors.Join(err, <-ended)
	}()
	c, err := api.New(api.Config{Transport: inProcess{front.Handler()}})
	if err != nil {
		return err
	}
	return do(c)
}

// hasState reports whether a server ever ran with its state in dir.
func hasState(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "etcd"))
	return err == nil
}

// inProcess is a transport to a handler in this process, which other processes cannot reach.
type inProcess struct{ http.Handler }

// RoundTrip implements http.RoundTripper.
func (h inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := &reply{header: http.Header{}, status: http.StatusOK}
	h.ServeHTTP(answer, r)
	return &http.Response{
		StatusCode: answer.status, Header: answer.header, Request: r,
		ContentLength: int64(answer.body.Len()), Body: io.NopCloser(&answer.body),
	}, nil
}

// reply is a response kept in memory.
type reply struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *reply) Header() http.Header            { return r.header }
func (r *reply) WriteHeader(status int)         { r.status = status }
func (r *reply) Write(text []byte) (int, error) { return r.body.Write(text) }

// maintPatience is how long resalloc-maint retries a server that does not answer.
const maintPatience = 2 * time.Second
