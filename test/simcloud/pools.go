package simcloud

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"time"

	"croft/pool"
	"croft/pool/api"
	"croft/pool/server"
	"croft/pool/shell"
)

// Pools is a manager of pools, with its HTTP server. Its state is in the cloud's etcd.
type Pools struct {
	Address string
	Manager *pool.Manager
	Stop    func()
}

// ServePools runs a manager for the pools in this text of a pools file, until Stop or Close. Every request has the
// rights of an admin.
func (c *Cloud) ServePools(ctx context.Context, name, file string) (*Pools, error) {
	dir := filepath.Join(c.Dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "pools.yaml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		return nil, err
	}
	hooks, err := shell.New(shell.Config{Dir: filepath.Join(dir, "log"), Mark: name})
	if err != nil {
		return nil, err
	}
	served := httptest.NewUnstartedServer(nil)
	address := "http://" + served.Listener.Addr().String()
	m, err := pool.New(pool.Config{Partition: c.Store.Partition(), Store: c.Store.Pools, Quotas: c.Store.Projects,
		Hooks: hooks, File: path, Me: pool.Server{Name: name, Machine: name, Address: address}})
	if err != nil {
		return nil, errors.Join(err, hooks.Close())
	}
	peers := &http.Transport{}
	front, err := server.New(server.Config{Manager: m, Local: true, Peers: peers})
	if err != nil {
		return nil, errors.Join(err, hooks.Close())
	}
	served.Config.Handler = front.Handler()
	served.Start()
	end := c.Run(ctx, m.Run)
	p := &Pools{Address: address, Manager: m, Stop: func() {
		served.CloseClientConnections()
		served.Close()
		peers.CloseIdleConnections()
		end()
		_ = hooks.Close() // not needed any more
	}}
	c.end = append(c.end, p.Stop)
	return p, nil
}

// Client returns a client of the manager, which waits long for it: the machine may be busy.
func (p *Pools) Client() (*api.Client, error) {
	return api.New(api.Config{Endpoints: []string{p.Address}, Transport: &http.Transport{}, Patience: 2 * time.Minute})
}
