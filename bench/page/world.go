package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/shirou/gopsutil/v3/process"
	"golang.org/x/sync/errgroup"

	"croft"
	"croft/compute"
	"croft/etcdstore"
	"croft/internal/testing/freeport"
	"croft/placementclient"
	"croft/schedule"
	"croft/tenant"
	"croft/tenant/access"
	"croft/tenant/objects"
)

// world is a cloud whose hosts and instances are only records.
type world struct {
	settings
	dir       string
	words     io.Writer
	etcd      string
	placement string
	api       string // of the measured server
	children  []*exec.Cmd
	server    *process.Process
	store     *etcdstore.Store
	claims    *placementclient.Client
	alive     sync.WaitGroup
	dead      context.CancelFunc // ends the leases of the hosts
	hostIDs   []croft.HostID
	changing  croft.Observation // of the instance that changes
	name      string            // of that instance
}

// token is a token of the page's users.
type token struct {
	user, secret string
}

func newWorld(ctx context.Context, s settings, words io.Writer) (w *world, err error) {
	w = &world{settings: s, words: words, dead: func() {}}
	if w.program, err = filepath.Abs(s.program); err != nil {
		return w, err
	}
	if w.dir, err = os.MkdirTemp("", "croft-bench-page-"); err != nil {
		return w, fmt.Errorf("make a directory: %w", err)
	}
	if err := os.WriteFile(w.metricsToken(), []byte(metricsSecret), 0o600); err != nil {
		return w, fmt.Errorf("write a token: %w", err)
	}
	free, err := freeport.Addresses(3)
	if err != nil {
		return w, err
	}
	w.etcd, w.placement, w.api = "http://"+free[0], "http://"+free[1], "http://"+free[2]
	if _, err := w.spawn("placement", "serve", "placement", "--data-dir", filepath.Join(w.dir, "data"),
		"--listen", free[1], "--etcd-listen", free[0]); err != nil {
		return w, err
	}
	if err := awaitReady(ctx, w.placement); err != nil {
		return w, err
	}
	w.store, err = etcdstore.Open(ctx, etcdstore.Config{Endpoints: []string{w.etcd}, DialTimeout: time.Minute,
		Mint: true})
	if err != nil {
		return w, err
	}
	if w.claims, err = placementclient.New(placementclient.Config{Endpoint: w.placement}); err != nil {
		return w, err
	}
	began := time.Now()
	fmt.Fprintf(words, "storing %d hosts and %d instances\n", s.hosts, s.instances)
	if err := w.addHosts(ctx); err != nil {
		return w, err
	}
	if err := w.addInstances(ctx); err != nil {
		return w, err
	}
	fmt.Fprintf(words, "they are stored after %.0f s\n", time.Since(began).Seconds())
	server, err := w.spawn("control", "serve", "control", "--listen", free[2], "--etcd", w.etcd,
		"--placement", w.placement, "--state-dir", filepath.Join(w.dir, "state"))
	if err != nil {
		return w, err
	}
	if w.server, err = process.NewProcess(int32(server.Process.Pid)); err != nil {
		return w, fmt.Errorf("watch the server: %w", err)
	}
	return w, awaitReady(ctx, w.api)
}

// metricsToken returns the file with the token for metrics.
func (w *world) metricsToken() string { return filepath.Join(w.dir, "metrics.token") }

// metricsSecret is the token for metrics.
const metricsSecret = "benchmark"

// spawn starts a command of croft in an environment without settings.
func (w *world) spawn(name string, args ...string) (*exec.Cmd, error) {
	log, err := os.Create(filepath.Join(w.dir, name+".log"))
	if err != nil {
		return nil, fmt.Errorf("make a log: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(w.program, append(args, "--log-level", "warn")...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = w.dir, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Env = []string{"HOME=" + w.dir, "CROFT_METRICS_TOKEN_FILE=" + w.metricsToken()}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "CROFT_") && !strings.HasPrefix(v, "HOME=") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	w.children = append(w.children, cmd)
	return cmd, nil
}

// awaitReady returns once a server is ready.
func awaitReady(ctx context.Context, at string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, at+"/readyz", nil)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(r)
		if err == nil {
			_ = answer.Body.Close() // nothing was written
			if answer.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return croft.Errorf(croft.Unavailable, "%s does not become ready", at)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// atOnce is the number of concurrent writes while the world is filled.
const atOnce = 24

// again repeats a write that etcd did not answer in time, or whose host is not alive yet.
func again(ctx context.Context, do func() error) error {
	for {
		err := do()
		if croft.KindOf(err) != croft.Unavailable || ctx.Err() != nil {
			return err
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// addHosts stores the hosts, and keeps them alive.
func (w *world) addHosts(ctx context.Context) error {
	keeping, dead := context.WithCancel(context.WithoutCancel(ctx))
	w.dead = dead
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(atOnce)
	for n := range w.hosts {
		host := croft.Host{ID: croft.NewHostID(), Name: fmt.Sprintf("host%05d", n), Version: "benchmark",
			VirtType: "kvm", Boot: fmt.Sprintf("boot-%d", n), API: "http://127.0.0.1:1",
			Location: fmt.Sprintf("site%d/row%d/rack%d", n/1000+1, n%1000/100+1, n%100/10+1)}
		w.hostIDs = append(w.hostIDs, host.ID)
		facts := compute.Facts{Name: host.Name, CPUs: 64, MemoryMiB: 256 << 10, DiskGiB: 4 << 10}
		work.Go(func() error {
			p := compute.Offer{VCPURatio: 1, MemoryRatio: 1, DiskRatio: 1}.Provider(host, w.store.Partition(), facts)
			if err := again(ctx, func() error { return w.claims.EnsureProvider(ctx, p) }); err != nil {
				return err
			}
			if err := again(ctx, func() error { return w.store.Registry.PutHost(ctx, host) }); err != nil {
				return err
			}
			w.alive.Go(func() { _ = w.store.Registry.StayAlive(keeping, host.ID) }) // ends with its context
			return nil
		})
	}
	return work.Wait()
}

// project returns the name of a project.
func project(n int) croft.Project { return croft.Project(fmt.Sprintf("project%02d", n)) }

// addInstances stores the instances as they are when they run, with claims; each tenth has properties.
func (w *world) addInstances(ctx context.Context) error {
	for n := range w.projects {
		p := tenant.Tenant{Name: project(n), Limits: tenant.NoLimits(), Created: time.Now().UTC()}
		if err := again(ctx, func() error { _, err := w.store.Projects.Create(ctx, p); return err }); err != nil {
			return err
		}
	}
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(atOnce)
	for n := range w.instances {
		work.Go(func() error { return w.addInstance(ctx, n) })
	}
	return work.Wait()
}

func (w *world) addInstance(ctx context.Context, n int) error {
	inst := croft.Instance{ID: croft.NewInstanceID(), Project: project(n % w.projects), Name: fmt.Sprintf("vm%05d", n),
		Created: time.Now().UTC(),
		Spec: croft.Spec{Image: "https://images.example/debian-12.qcow2", Resources: croft.Resources{croft.VCPU: 1,
			croft.MemoryMB: 2048, croft.DiskGB: 20}}}
	host := w.hostIDs[n%len(w.hostIDs)]
	if err := again(ctx, func() error {
		made, err := w.store.Instances.Create(ctx, inst)
		for err != nil && croft.KindOf(err) == croft.Conflict { // its MAC address is taken
			inst.ID = croft.NewInstanceID()
			made, err = w.store.Instances.Create(ctx, inst)
		}
		if err == nil {
			inst = made
			return nil
		}
		inst.ID, inst.Name = croft.NewInstanceID(), inst.Name+"-again" // the first one may exist
		return err
	}); err != nil {
		return err
	}
	owner := croft.Owner{Partition: w.store.Partition(), Project: inst.Project}
	chosen := croft.Candidate{Allocations: map[croft.HostID]croft.Resources{host: inst.Spec.Resources}}
	if err := again(ctx, func() error { return w.claims.Claim(ctx, inst.ID, owner, chosen) }); err != nil {
		return err
	}
	order := schedule.NewOrder(w.store.Partition(), inst, host, croft.WantRunning)
	if err := again(ctx, func() (err error) {
		inst, err = w.store.Instances.Assign(ctx, inst, order)
		return err
	}); err != nil {
		return err
	}
	o := croft.Observation{Host: host, Instance: inst.ID, Generation: inst.Generation, OrderCreated: inst.Revision,
		State: croft.StateRunning, MAC: "52:54:00:00:00:01", Updated: time.Now().UTC(),
		Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)})}}
	for _, name := range []croft.EventName{croft.EventClaimed, croft.EventImage, croft.EventDefined, croft.EventRunning,
		croft.EventAddress} {
		o.Events = append(o.Events, croft.Event{Name: name, At: time.Now().UTC()})
	}
	if n%199 == 7 {
		o.State, o.Error = croft.StateFailed, "the image cannot be fetched"
	}
	if n == 0 {
		w.changing, w.name = o, inst.Name
	}
	if err := again(ctx, func() error { return w.store.Orders.Observe(ctx, o) }); err != nil || n%10 != 0 {
		return err
	}
	operator := access.Caller{User: "bench", Roles: []access.Role{access.PartitionAdmin}}
	ref := objects.Ref{Kind: objects.Instance, Project: inst.Project, ID: string(inst.ID)}
	return again(ctx, func() error {
		_, err := objects.New(w.store.Objects).Change(ctx, operator, access.Everything(), ref,
			objects.Change{AddTags: []string{"keep"}})
		return err
	})
}

// newToken returns a token of a user with a role; an operator has no project.
func (w *world) newToken(ctx context.Context, user string, p croft.Project, role access.Role) (token, error) {
	t, secret, err := access.NewToken(access.Token{User: user, Project: p, Roles: []access.Role{role},
		Created: time.Now(), Expires: time.Now().Add(24 * time.Hour)})
	if err != nil {
		return token{}, err
	}
	return token{user, secret.Text()}, w.store.AccessTokens.Create(ctx, t)
}

// close ends everything, and removes the data.
func (w *world) close() error {
	w.dead()
	var errs []error
	for n := len(w.children) - 1; n >= 0; n-- {
		cmd := w.children[n]
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		late := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait() // how it ended does not matter any more
		late.Stop()
	}
	w.alive.Wait()
	if w.store != nil {
		errs = append(errs, w.store.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(w.dir))...)
}
