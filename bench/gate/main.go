// Command gate compares agents behind the gate with agents that use etcd and Placement directly, both over mutual TLS:
// the round trip of an order, and the cost of many agents in the control process. Control process and agents are
// separate processes; guests exist only in memory.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/shirou/gopsutil/v3/process"

	"croft"
	"croft/etcdstore"
	"croft/trust/pki"
)

// run is the configuration of a run.
type run struct {
	dir    string
	hosts  int
	orders int
	rate   float64
	idle   time.Duration
	strict bool
}

func main() {
	var r run
	var role string
	flag.StringVar(&role, "role", "", "control or agents: be that, for another process")
	flag.StringVar(&r.dir, "dir", "", "where the processes find each other; a new one by default")
	flag.IntVar(&r.hosts, "hosts", 100, "how many agents, each with connections of its own")
	flag.IntVar(&r.orders, "orders", 1000, "how many orders to measure")
	flag.Float64Var(&r.rate, "rate", 50, "orders a second")
	flag.DurationVar(&r.idle, "idle", 20*time.Second, "how long to look at agents that have nothing to do")
	flag.BoolVar(&r.strict, "strict", false, "agents behind the gate")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	switch role {
	case "control":
		err = r.control(ctx)
	case "agents":
		err = r.agents(ctx)
	default:
		err = r.measureBoth(ctx)
	}
	if err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "gate:", err)
		os.Exit(1)
	}
}

func (r run) measureBoth(ctx context.Context) error {
	for _, r.strict = range []bool{false, true} {
		if err := r.measure(ctx); err != nil {
			return err
		}
	}
	return nil
}

// files returns the file names of a certificate.
func (r run) files(a pki.Authority, id pki.Identity) pki.Files {
	return pki.Files{Dir: filepath.Join(r.dir, "tls", string(id.Kind)+id.ID), Authority: a}
}

// measure starts the processes, measures, and prints a line.
func (r run) measure(ctx context.Context) (err error) {
	if r.dir, err = os.MkdirTemp("", "croft-bench-gate-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.dir)) }()
	control, err := r.spawn("control")
	if err != nil {
		return err
	}
	defer control.end()
	before := control.memory()
	agents, err := r.spawn("agents")
	if err != nil {
		return err
	}
	defer agents.end()
	begun, cpu := time.Now(), control.cpu()
	select {
	case <-time.After(r.idle):
	case <-ctx.Done():
		return ctx.Err()
	}
	idle := (control.cpu() - cpu) / time.Since(begun).Seconds()
	there := control.memory()
	load, cpu := time.Now(), control.cpu()
	took, err := r.order(ctx)
	if err != nil {
		return err
	}
	busy := (control.cpu() - cpu) / time.Since(load).Seconds()
	slices.Sort(took)
	at := func(p float64) float64 { return took[min(int(p*float64(len(took))), len(took)-1)].Seconds() * 1000 }
	name := map[bool]string{false: "direct", true: "strict"}[r.strict]
	fmt.Printf("%s: %d agents; an order seen as running after p50 %.1f ms, p99 %.1f ms, at most %.1f ms; control %.0f MiB without agents, %.0f with (%.0f KiB each), %.0f at the end; %.3f processors idle, %.3f at %g orders a second\n",
		name, r.hosts, at(0.5), at(0.99), at(1), before, there, (there-before)*1024/float64(r.hosts), control.memory(),
		idle, busy, r.rate)
	return nil
}

// order writes orders and measures how long each takes until its agent reports the instance running.
func (r run) order(ctx context.Context) ([]time.Duration, error) {
	store, err := r.open(ctx, operator)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	hosts, err := store.Registry.Hosts(ctx)
	if err != nil {
		return nil, err
	}
	seen := make(chan croft.Observation, r.orders)
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // ends when watching does
		_ = store.Orders.WatchObserved(watching, func(o croft.Observation) {
			if o.State == croft.StateRunning {
				seen <- o
			}
		})
	}()
	issued := make(chan struct{})
	due := map[croft.InstanceID]time.Time{}
	var took []time.Duration
	tick := time.NewTicker(time.Duration(float64(time.Second) / r.rate))
	defer tick.Stop()
	next := tick.C
	for len(took) < r.orders {
		select {
		case <-next:
			for id := range hosts { // in random order
				inst, err := r.request(ctx, store, id, due)
				if err != nil {
					return nil, fmt.Errorf("order instance %s: %w", inst, err)
				}
				break
			}
			if len(due) == r.orders {
				next = nil
				close(issued)
			}
		case o := <-seen:
			took = append(took, time.Since(due[o.Instance]))
		case <-time.After(time.Minute):
			return nil, fmt.Errorf("%d of %d orders are carried out and no more come", len(took), len(due))
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return took, nil
}

// request writes a record and an order, and records the time.
func (r run) request(ctx context.Context, store *etcdstore.Store, host croft.HostID,
	due map[croft.InstanceID]time.Time) (croft.InstanceID, error) {
	id := croft.NewInstanceID()
	inst, err := store.Instances.Create(ctx, croft.Instance{ID: id, Project: croft.DefaultProject, Name: string(id),
		Created: time.Now().UTC(),
		Spec: croft.Spec{Image: "/simulated", Resources: croft.Resources{croft.VCPU: 1, croft.MemoryMB: 64,
			croft.DiskGB: 1}}})
	if err != nil {
		return id, err
	}
	due[id] = time.Now()
	_, err = store.Instances.Assign(ctx, inst, croft.Order{Partition: store.Partition(), Host: host, Instance: id,
		Generation: 1,
		Want:       croft.WantRunning,
		Project:    inst.Project, Name: inst.Name, Spec: inst.Spec, Issued: time.Now().UTC()})
	return id, err
}

// child is a process of this program in another role.
type child struct {
	cmd   *exec.Cmd
	usage *process.Process
}

// spawn starts a child and returns once it reports that it is ready.
func (r run) spawn(role string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.Command(self, "-role", role, "-dir", r.dir, "-hosts", fmt.Sprint(r.hosts),
		fmt.Sprintf("-strict=%v", r.strict))}
	c.cmd.Stderr = os.Stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := c.cmd.StdoutPipe()
	if err == nil {
		err = c.cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		c.end()
		return nil, fmt.Errorf("the process %q did not start", role)
	}
	c.usage, err = process.NewProcess(int32(c.cmd.Process.Pid))
	return c, err
}

func (c *child) end() {
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	late := time.AfterFunc(20*time.Second, func() { _ = c.cmd.Process.Kill() })
	defer late.Stop()
	_ = c.cmd.Wait()
}

// memory returns the resident memory of the process, in MiB.
func (c *child) memory() float64 {
	info, err := c.usage.MemoryInfo()
	if err != nil {
		return 0
	}
	return float64(info.RSS) / (1 << 20)
}

// cpu returns the processor time used by the process, in seconds.
func (c *child) cpu() float64 {
	t, err := c.usage.Times()
	if err != nil {
		return 0
	}
	return t.User + t.System
}
