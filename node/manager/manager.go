package manager

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"croft"
	"croft/compute/image"
	"croft/control/cloud/direct"
	"croft/etcdstore"
	"croft/internal/egress"
	"croft/internal/endpoint"
	"croft/node"
	"croft/node/settings"
	"croft/pool"
	"croft/pool/shell"
	"croft/pool/vm"
	"croft/schedule"
	"croft/tenant/objects"
)

// newRunner returns the runner of the pools' commands.
func newRunner(s *settings.Settings, store *etcdstore.Store, dir string) (*shell.Runner, error) {
	logs := s.Pool.Logs
	if logs == "" {
		logs = filepath.Join(dir, "log")
	}
	return shell.New(shell.Config{Dir: logs, Mark: string(store.Partition())})
}

// newManager connects the manager to its store, its commands and its cloud.
func (c Config) newManager(file string, reach settings.Reach, store *etcdstore.Store, registry schedule.Registry,
	hooks *shell.Runner, l net.Listener) (*pool.Manager, error) {
	me, err := self(&c.Settings, l)
	if err != nil {
		return nil, err
	}
	me.Directory = hooks.Directory()
	with := pool.Config{
		Partition: store.Partition(), Store: store.Pools, Quotas: store.Projects, Hooks: hooks, File: file, Me: me,
		Log: c.Log, History: c.Settings.Pool.History, Lenient: c.Lenient, Pace: c.Pace, Began: c.Began,
	}
	if len(reach.Etcd.Endpoints) > 0 { // otherwise there is no cloud
		claims, err := reach.Placement.Client()
		if err != nil {
			return nil, err
		}
		scheduler, err := schedule.New(schedule.Config{Partition: store.Partition(), Records: store.Instances,
			Holds: store.Instances, View: store.Instances, Registry: registry, Groups: store.Groups,
			Aggregates: store.Aggregates, Distances: store.Distances, Properties: objects.OfHosts{Store: store.Objects},
			Claims: claims, Crush: store.Policies})
		if err != nil {
			return nil, err
		}
		defaults := direct.Defaults()
		with.Instances, err = vm.New(vm.Config{
			Scheduler: scheduler, Keys: store.SSHKeys,
			ResolveImage: direct.Catalog{Resolve: image.Finder(image.MachineFiles())}.X86Reference,
			Catalog:      direct.CatalogReference(store), Image: defaults.Image,
			Project: croft.Project(defaults.Project),
		})
		if err != nil {
			return nil, err
		}
	}
	return pool.New(with)
}

// self describes this manager to the others.
func self(s *settings.Settings, l net.Listener) (pool.Server, error) {
	name, err := os.Hostname()
	if err != nil {
		return pool.Server{}, fmt.Errorf("find this machine's name: %w", err)
	}
	machine, err := node.Machine()
	if err != nil {
		return pool.Server{}, err
	}
	me := pool.Server{Name: fmt.Sprintf("%s/%d", name, os.Getpid()), Machine: machine, Address: s.Pool.Address}
	if me.Address == "" {
		scheme := "http://"
		if s.Pool.Cert != "" {
			scheme = "https://"
		}
		me.Address = endpoint.Outward(scheme + l.Addr().String())
	}
	return me, nil
}

// newPeers is the transport to the other managers.
func newPeers(s *settings.Settings) (http.RoundTripper, error) {
	t := egress.Internal()
	t.MaxIdleConnsPerHost = 256
	t.DialContext = (&net.Dialer{Timeout: 3 * time.Second}).DialContext
	if s.Pool.CA == "" {
		return t, nil
	}
	pem, err := os.ReadFile(s.Pool.CA)
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "pool.ca: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, croft.Errorf(croft.Invalid, "pool.ca: %s has no certificate of an authority", s.Pool.CA)
	}
	t.TLSClientConfig = &tls.Config{RootCAs: roots}
	return t, nil
}
