package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"croft"
	"croft/cluster"
	"croft/cluster/clustertest"
	"croft/cluster/local"
	"croft/cluster/local/localtest"
	"croft/control/cloud/direct"
	"croft/etcdstore"
	"croft/placementclient"
	"croft/schedule"
)

// builder creates drivers for clusters of a cloud.
type builder struct {
	*cloud
	store   *etcdstore.Store
	claims  *placementclient.Client
	resolve func(image string) string // nil: names are references
}

func newBuilder(c *cloud) *builder {
	c.t.Helper()
	store, err := etcdstore.Open(c.t.Context(), etcdstore.Config{Endpoints: []string{"http://" + c.etcd}})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = store.Close() })
	claims, err := placementclient.New(placementclient.Config{Endpoint: "http://" + c.placement,
		Auth: placementclient.StaticToken("admin")})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(claims.Close)
	return &builder{cloud: c, store: store, claims: claims}
}

func (b *builder) link() localtest.Link {
	return localtest.NewLink(b.store.Instances, b.store.Registry)
}

// scheduler creates a scheduler that sees the cloud through a link.
func (b *builder) scheduler(l localtest.Link) *schedule.Scheduler {
	b.t.Helper()
	written := localtest.Writes{Records: b.store.Instances, Holds: b.store.Instances, Over: l}
	s, err := schedule.New(schedule.Config{Partition: b.store.Partition(), Records: written, Holds: written, View: l,
		Registry: l, Groups: b.store.Groups, Claims: b.claims})
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

// driver creates a driver that has no state in common with other drivers.
func (b *builder) driver(l localtest.Link) *local.Driver {
	b.t.Helper()
	settings := direct.Defaults()
	settings.Placement.Endpoint = "http://" + b.placement
	over, err := direct.Over(b.store, b.claims, settings, direct.Scheduling{})
	if err != nil {
		b.t.Fatal(err)
	}
	d, err := local.New(local.Config{Scheduler: b.scheduler(l), Keys: b.store.SSHKeys,
		ResolveImage: func(name string) (string, error) {
			if b.resolve != nil {
				name = b.resolve(name)
			}
			return name, nil
		},
		Pull: func(ctx context.Context, host croft.Host, name, ref string, progress func(croft.Progress)) error {
			_, err := over.Images.Pull(ctx, host, name, ref, progress)
			return err
		},
		Console: func(ctx context.Context, st croft.Status) (text string, err error) {
			err = over.Consoles.Log(ctx, st, false, func(r io.Reader) error {
				all, err := io.ReadAll(r)
				text = string(all)
				return err
			})
			return text, err
		}})
	if err != nil {
		b.t.Fatal(err)
	}
	return d
}

// mirror is a server of images. It serves the small guest at every path, except below absent. Below slow it sends
// only a part while it is frozen.
type mirror struct {
	*httptest.Server
	frozen atomic.Pointer[chan struct{}] // closed when it continues; nil: not frozen
}

// The directories of a mirror.
const (
	whole  = "/whole/"
	absent = "/absent/"
	slow   = "/slow/" // and a number, so that no host has it in its cache
)

func newMirror(t *testing.T) *mirror {
	m := &mirror{}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, absent) {
			http.NotFound(w, r)
			return
		}
		if until := m.frozen.Load(); until != nil && strings.HasPrefix(r.URL.Path, slow) && r.Method == http.MethodGet {
			w = &half{ResponseWriter: w, request: r, until: *until}
		}
		http.ServeFile(w, r, guestImage)
	}))
	t.Cleanup(func() {
		m.freeze(false)
		m.Close()
	})
	return m
}

func (m *mirror) freeze(frozen bool) {
	var next *chan struct{}
	if frozen {
		c := make(chan struct{})
		next = &c
	}
	if was := m.frozen.Swap(next); was != nil {
		close(*was)
	}
}

// half is an answer that stops after its first bytes.
type half struct {
	http.ResponseWriter
	request *http.Request
	until   chan struct{}
	sent    bool
}

func (h *half) Write(p []byte) (int, error) {
	if h.sent {
		select {
		case <-h.until:
		case <-h.request.Context().Done():
			return 0, h.request.Context().Err()
		}
	}
	h.sent = true
	n, err := h.ResponseWriter.Write(p)
	return n, errors.Join(err, http.NewResponseController(h.ResponseWriter).Flush())
}

// smallMembers is the text of an appliance of small guests, which report when cloud-init has finished.
const smallMembers = `
ready: phone-home
master: {resources: "VCPU:1,MEMORY_MB:128,DISK_GB:1", image: tiny.qcow2}
slave:
  resources: VCPU:1,MEMORY_MB:128,DISK_GB:1
  image: tiny.qcow2
  user_data: "#!/bin/sh\necho the master is at ${master_ip}"
`

// here is the access to our own hosts.
var here = cluster.SiteAccess{Site: cluster.Site{Name: cluster.LocalSite, Type: cluster.Local, Enabled: true}}

// TestClustersOfRealGuests runs the contract tests of drivers with real guests on this host. Faults: the server of
// images stalls or lacks an image, files cannot be removed, etcd does not answer, and all memory is claimed.
func TestClustersOfRealGuests(t *testing.T) {
	t.Parallel()
	c := sharedCloud(t)
	clustertest.RunDriver(t, func(t *testing.T) clustertest.Harness {
		if testing.Short() && !slices.Contains(quick, strings.TrimPrefix(t.Name(), "TestClustersOfRealGuests/")) {
			t.Skip("make test-guests has all of it")
		}
		c.t = t
		c.gone()
		b, m := newBuilder(c), newMirror(t)
		link, from, freezes := b.link(), new(atomic.Pointer[string]), 0
		serve := func(dir string) { from.Store(&dir) }
		serve(whole)
		b.resolve = func(name string) string { return m.URL + *from.Load() + name }
		h := clustertest.Harness{
			Driver:         func(*testing.T) cluster.Driver { return b.driver(link) },
			At:             here,
			Partition:      b.store.Partition(),
			Implementation: cluster.Implementation{ID: cluster.NewImplementationID(), Template: smallMembers},
			Bad:            cluster.Implementation{Template: "master: {}\nslaves: {}\n"},
			Image:          cluster.SiteImage{Name: "tiny", URL: "tiny.qcow2"},
			Freeze: func(frozen bool) {
				m.freeze(frozen)
				if freezes++; frozen {
					serve(slow + strconv.Itoa(freezes) + "-")
				} else {
					serve(whole)
				}
			},
			Fail: func(failing bool) {
				if failing {
					serve(absent)
				} else {
					serve(whole)
				}
			},
			Fill: func(full bool) { localtest.Fill(t, b.scheduler(b.link()), full) },
			Cut:  link.Away.Store,
			Hang: link.Hangs.Store,
			Lose: func(build cluster.Build, lost cluster.Member) {
				localtest.Lose(t, b.scheduler(b.link()), build.Project, lost.RemoteID)
			},
			Occupy: func(build cluster.Build) func() bool {
				q, err := schedule.ParseQuery(strings.TrimPrefix(small, "resources="))
				if err != nil {
					t.Fatal(err)
				}
				return localtest.Occupy(t, b.scheduler(b.link()), schedule.Request{Project: build.Project,
					Name: build.Name + "-master", Query: q, Image: guestImage})
			},
		}
		if os.Getuid() == 0 {
			h.Stick = c.stick
		}
		return h
	})
	c.t = t
	c.gone()
	c.nothingLeft()
}

// quick are the tests of the contract that do not wait for make test-guests.
var quick = []string{
	"a_cluster_shrinks_by_a_slave_that_is_named",
	"growth_that_fails_says_so,_and_can_be_taken_back",
	"a_cluster_is_removed_while_it_is_being_built",
}

// stick prevents the removal of the files of all instances, as a mount below them does, or permits it again.
func (c *cloud) stick(stuck bool) {
	c.t.Helper()
	dirs, err := filepath.Glob(filepath.Join(c.dir, "instances", "*"))
	if err != nil {
		c.t.Fatal(err)
	}
	for _, dir := range dirs {
		at := filepath.Join(dir, "stuck")
		if !stuck {
			if err := unix.Unmount(at, 0); err == nil {
				_ = os.Remove(at)
			}
			continue
		}
		if err = os.Mkdir(at, 0o755); err == nil {
			err = unix.Mount("none", at, "tmpfs", 0, "size=64k")
		}
		if err != nil {
			c.t.Fatalf("mount something in %s: %v", dir, err)
		}
	}
}

// gone waits until no record of an instance is left; the end of a test has removed them.
func (c *cloud) gone() {
	c.t.Helper()
	eventually(c.t, "no instance is left", func(context.Context) error {
		for key := range c.store() {
			if strings.Contains(key, "/instances/") || strings.Contains(key, "/orders/") {
				return fmt.Errorf("key %s is left", key)
			}
		}
		return nil
	})
}
