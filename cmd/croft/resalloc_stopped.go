package main

import (
	"bytes"
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
	"croft/cloud/direct"
	"croft/compute"
	"croft/pool"
	poolclient "croft/pool/api"
	poolserver "croft/pool/server"
)

// holdPatience is how long a server waits for a maintainer who has its state, and a
// maintainer for a server that starts or stops. A maintainer has it for one question.
const holdPatience = 15 * time.Second

// heldSoon has f take what another process holds, and tries again while that may give
// it back soon. Conflict: it did not.
func heldSoon(ctx context.Context, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, holdPatience)
	defer cancel()
	for {
		err := f()
		if !errors.Is(err, croft.Conflict) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// openStateSoon is compute.OpenStateDir for a server whose maintainers open its state
// while it stands.
func openStateSoon(ctx context.Context, dir string) (state *compute.StateDir, err error) {
	err = heldSoon(ctx, func() error {
		state, err = compute.OpenStateDir(dir)
		return err
	})
	return state, err
}

// maintainer asks the server of a server.yaml, or while none runs, its state.
type maintainer struct {
	serverYAML
	pools string
}

// ask has do ask. What do returns nothing more may be asked after.
func (m maintainer) ask(ctx context.Context, do func(*poolclient.Client) error) error {
	state, err := m.standing(ctx)
	if err != nil {
		return err
	}
	if state != nil {
		return m.askState(ctx, state, do)
	}
	s := direct.Defaults().Pool
	s.Endpoints, s.Token, s.CA = []string{m.endpoint()}, os.Getenv("CROFT_POOL_TOKEN"), m.CA
	c, err := s.ClientFor(maintPatience)
	if err != nil {
		return err
	}
	defer c.CloseIdle()
	return do(c)
}

// standing locks the state of a server that does not run; nil where one runs, or the
// state is in an etcd that others use too. Conflict: something has the state, and does
// not answer. NotFound: there is none yet.
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
		if c, refused := dialer.DialContext(ctx, "tcp", net.JoinHostPort(m.Hostname, fmt.Sprint(m.Port))); refused == nil {
			return c.Close()
		}
		if !hasEtcd(dir) {
			return croft.Errorf(croft.NotFound, "no server answers at %s, and none ever ran with this server.yaml: start resalloc-server", m.endpoint())
		}
		state, err = compute.OpenStateDir(dir)
		return err
	})
	if err != nil && !errors.Is(err, croft.NotFound) {
		err = fmt.Errorf("no server answers at %s, and its state cannot be opened: %w", m.endpoint(), err)
	}
	return state, err
}

// askState has do ask a manager that runs nothing, in this process, about the state
// that is locked. All of it ends, also the lock.
func (m maintainer) askState(ctx context.Context, state *compute.StateDir, do func(*poolclient.Client) error) (err error) {
	p := newParts()
	defer func() { err = errors.Join(err, p.end(), state.Close()) }()
	s, err := m.settings(m.pools)
	if err != nil {
		return err
	}
	s.StateDir = filepath.Dir(state.Path)
	store, _, end, err := openPoolStore(ctx, &s, p, state.Path)
	if err != nil {
		return err
	}
	defer end()
	defer func() { err = errors.Join(err, p.end(), store.Close()) }()
	hooks, err := poolHooks(&s, store, state.Path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.end(), hooks.Close()) }()
	manager, err := pool.New(pool.Config{
		Partition: store.Partition(), Store: store, Hooks: hooks, File: m.pools, Still: true,
		Me: pool.Server{Name: fmt.Sprintf("resalloc-maint/%d", os.Getpid()), Machine: "here", Place: hooks.Place()},
	})
	if err != nil {
		return err
	}
	server, err := poolserver.New(poolserver.Config{Manager: manager})
	if err != nil {
		return err
	}
	p.start(ctx, "the manager of the pools", manager.Run)
	c, err := poolclient.New(poolclient.Config{Transport: inProcess{server.Handler()}})
	if err != nil {
		return err
	}
	return do(c)
}

// inProcess has a handler of this process answer, so that nobody else can ask it.
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

// reply is an answer that is kept whole.
type reply struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *reply) Header() http.Header            { return r.header }
func (r *reply) WriteHeader(status int)         { r.status = status }
func (r *reply) Write(text []byte) (int, error) { return r.body.Write(text) }
