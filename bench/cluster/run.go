package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"croft"
	"croft/bench/cluster/load"
	"croft/bench/cluster/plot"
	"croft/etcdstore"
	"croft/internal/testing/freeport"
	"croft/placementclient"
	"croft/schedule"
)

// report is the result of a benchmark.
type report struct {
	Hosts     int     `json:"hosts"`
	AskedRate float64 `json:"asked_per_second"` // 0: without a limit
	Start     float64 `json:"start_seconds"`    // until all hosts took orders
	measured
	Control *measured `json:"through_control,omitempty"` // in addition to the other way; nil: only one was measured
}

// measured is the result of the requests made in one way.
type measured struct {
	Way   string      `json:"way"`
	Load  load.Result `json:"load"`
	Parts []partUsage `json:"parts"`
	Etcd  etcdUsage   `json:"etcd"`
}

// partUsage is the usage of one process while requests were made.
type partUsage struct {
	Name   string  `json:"name"`
	Memory float64 `json:"memory_mib"` // maximum
	CPU    float64 `json:"cpu"`        // processors
}

// etcdUsage is the work of etcd while requests were made.
type etcdUsage struct {
	Writes   float64 `json:"writes_per_second"`
	PerVM    float64 `json:"writes_per_instance"`
	Fsyncs   float64 `json:"fsyncs_per_second"`
	FsyncMS  float64 `json:"fsync_mean_ms"`
	Watchers float64 `json:"watchers"`
	Size     float64 `json:"database_mib"`
}

// run starts everything, makes the requests and prints the result.
func (b *benchmark) run(ctx context.Context, stdout, words io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "croft-bench-")
	if err != nil {
		return fmt.Errorf("make a directory for the benchmark: %w", err)
	}
	f := &fleet{dir: dir}
	defer func() { err = errors.Join(err, f.end()) }()
	if f.guests, err = os.MkdirTemp(b.guests, "croft-bench-guests-"); err != nil {
		return fmt.Errorf("make a directory for the guests: %w", err)
	}
	fmt.Fprintf(words, "starting etcd, Placement and the agents of %d hosts\n", b.hosts)
	began := time.Now()
	if err := b.start(ctx, f); err != nil {
		return err
	}
	r := report{Hosts: b.hosts, AskedRate: b.rate, Start: time.Since(began).Seconds()}
	fmt.Fprintf(words, "they take orders after %.1f s; asking for instances for %v\n", r.Start, b.length)
	var course *course
	for n, way := range b.ways() {
		now := &r.measured
		if n > 0 {
			r.Control = &measured{}
			now = r.Control
		}
		now.Way = way
		if course, err = b.measure(ctx, f, words, now); err != nil {
			return err
		}
	}
	if err := r.print(stdout, b.output); err != nil || b.plot == "" {
		return err
	}
	if err := course.draw(b.plot, r); err != nil {
		return err
	}
	fmt.Fprintf(words, "the course is drawn in %s\n", b.plot)
	return nil
}

// start starts the processes and returns when all hosts take orders. The last process is a single agent, as on a real
// host.
func (b *benchmark) start(ctx context.Context, f *fleet) error {
	free, err := freeport.Addresses(3)
	if err != nil {
		return err
	}
	etcd, listen, api := free[0], free[1], free[2]
	f.etcd, f.placement = "http://"+etcd, "http://"+listen
	settings := filepath.Join(f.dir, "settings.yaml")
	if err := os.WriteFile(settings, []byte("sim: {boot: 0s}\n"), 0o644); err != nil {
		return fmt.Errorf("write the settings of the benchmark: %w", err)
	}
	program, err := filepath.Abs(b.croft)
	if err != nil {
		return err
	}
	args := []string{"placement", "--data-dir", filepath.Join(f.dir, "control"), "--listen", listen}
	if b.via != viaDirect {
		f.api = "http://" + api
		args = []string{"up", "--insecure", "--hypervisor", "none", "--state-dir", filepath.Join(f.dir, "control"),
			"--placement-listen", listen, "--cloud-api-listen", api, "--join-listen", ""}
	}
	control, err := spawn(f.dir, "control", false, program, append(args, "--settings", settings, "--etcd-listen", etcd,
		"--log-level", "warn")...)
	if err != nil {
		return err
	}
	f.children = append(f.children, control)
	if err := awaitURL(ctx, f.placement+"/readyz"); err != nil {
		return fmt.Errorf("start the control process: %w: %s", err, lastLine(control.log))
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the benchmark's own program: %w", err)
	}
	for n := range b.processes {
		first, end := b.hosts*n/b.processes, b.hosts*(n+1)/b.processes
		c, err := spawn(f.dir, "agents "+strconv.Itoa(n+1), true, self, runAgents, "--first", strconv.Itoa(first),
			"--hosts", strconv.Itoa(end-first),
			"--agents-per-connection", strconv.Itoa(b.shared), "--etcd", f.etcd, "--placement", f.placement, "--resync",
			b.resync.String(), "--dir", f.guests)
		if err != nil {
			return err
		}
		f.children = append(f.children, c)
	}
	alone, err := spawn(f.dir, "one agent alone", true, program, "compute", "--settings", settings, "--hypervisor",
		"sim", "--state-dir", filepath.Join(f.dir, "alone"),
		"--etcd", f.etcd, "--placement", f.placement, "--api-listen", "127.0.0.1:0", "--log-level", "warn")
	if err != nil {
		return err
	}
	f.children = append(f.children, alone)
	for _, c := range f.children[1:] {
		if err := c.awaitReady(ctx); err != nil {
			return err
		}
	}
	if b.via == viaDirect {
		return nil
	}
	return f.admitTenants(ctx)
}

// runView runs a view of the hosts until end is called.
func runView(ctx context.Context, view *etcdstore.HostsView) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var run sync.WaitGroup
	run.Go(func() { _ = view.Run(ctx) }) // fails only when its context ends
	return func() { cancel(); run.Wait() }
}

// isTerminal reports whether w is a device that shows characters.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// course is a run second by second.
type course struct {
	run    *load.Run
	memory map[string]*plot.Line
}

// wanted is the resources of each instance.
const wanted = "VCPU:1,MEMORY_MB:512,DISK_GB:4"

// measure makes the requests.
func (b *benchmark) measure(ctx context.Context, f *fleet, words io.Writer, r *measured) (*course, error) {
	store, err := etcdstore.Open(ctx, etcdstore.Config{Endpoints: []string{f.etcd}})
	if err != nil {
		return nil, err
	}
	defer store.Close() // the process ends next anyway
	claims, err := placementclient.New(placementclient.Config{Endpoint: f.placement})
	if err != nil {
		return nil, err
	}
	view := store.NewHostsView()
	scheduler, err := schedule.New(schedule.Config{Partition: store.Partition(), Records: store.Instances,
		Holds: store.Instances, View: store.Instances, Registry: view, Groups: store.Groups, Claims: claims})
	if err != nil {
		return nil, err
	}
	query, err := schedule.ParseQuery(wanted)
	if err != nil {
		return nil, err
	}
	ask := func(ctx context.Context, id croft.InstanceID) error {
		_, err := scheduler.Request(ctx, schedule.Request{ID: id, Query: query, Image: "simulated"})
		return err
	}
	if r.Way == viaControl {
		client := f.client(b.atOnce)
		defer client.close()
		ask = client.ask
	}
	c := &course{memory: map[string]*plot.Line{}}
	second := 0
	c.run = load.New(load.Config{
		Rate: b.rate, AtOnce: b.atOnce, For: b.length, Grace: time.Minute,
		Ask: ask,
		Tick: func(asked, ran int) {
			second++
			c.sample(f, float64(second))
			if isTerminal(words) {
				fmt.Fprintf(words, "\r%4d s  %d asked for, %d run ", second, asked, ran)
			}
		},
	})
	defer runView(ctx, view)()
	return c, c.follow(ctx, f, store, words, r)
}

// follow makes the requests and watches the agents' observations.
func (c *course) follow(ctx context.Context, f *fleet, store *etcdstore.Store, words io.Writer, r *measured) error {
	watching, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel()
	watch.Go(func() {
		_ = store.Orders.WatchObserved(watching, func(o croft.Observation) { // fails only when its context ends
			if o.State == croft.StateRunning {
				c.run.Running(o.Instance)
			}
		})
	})
	before, err := scrape(ctx, f.etcd+"/metrics")
	if err != nil {
		return fmt.Errorf("read etcd's metrics: %w", err)
	}
	var cpu []float64
	for _, p := range f.children {
		cpu = append(cpu, p.cpu())
	}
	own := ownCPU()
	began := time.Now()
	if err := c.run.Do(ctx); err != nil {
		return err
	}
	took := time.Since(began).Seconds()
	own = ownCPU() - own
	if isTerminal(words) {
		fmt.Fprintln(words)
	}
	c.sample(f, took)
	r.Load = c.run.Result()
	for i, p := range f.children {
		r.Parts = append(r.Parts, partUsage{p.name, p.peak, (p.cpu() - cpu[i]) / took})
	}
	r.Parts = append(r.Parts, partUsage{Name: callers, CPU: own / took})
	after, err := scrape(ctx, f.etcd+"/metrics")
	if err != nil {
		return fmt.Errorf("read etcd's metrics: %w", err)
	}
	r.Etcd = loadOf(before, after, took, r.Load.Ran)
	return nil
}

func loadOf(before, after map[string]float64, took float64, ran int) etcdUsage {
	grown := func(name string) float64 { return after[name] - before[name] }
	const applied, fsync = "etcd_server_proposals_applied_total", "etcd_disk_wal_fsync_duration_seconds"
	u := etcdUsage{
		Writes: grown(applied) / took, Fsyncs: grown(fsync+"_count") / took,
		Watchers: after["etcd_debugging_mvcc_watcher_total"],
		Size:     after["etcd_mvcc_db_total_size_in_bytes"] / (1 << 20),
	}
	if ran > 0 {
		u.PerVM = grown(applied) / float64(ran)
	}
	if n := grown(fsync + "_count"); n > 0 {
		u.FsyncMS = grown(fsync+"_sum") / n * 1000
	}
	return u
}

func (c *course) sample(f *fleet, at float64) {
	for _, p := range f.children {
		line := c.memory[p.name]
		if line == nil {
			line = &plot.Line{Name: p.name}
			c.memory[p.name] = line
		}
		line.X, line.Y = append(line.X, at), append(line.Y, p.memory())
	}
}

// callers is the name of this process, which makes the requests, in the report.
const callers = "callers"

// ownCPU returns the processor time used by this process, in seconds.
func ownCPU() float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}
