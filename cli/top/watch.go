package top

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"croft"
	"croft/cli/args"
	"croft/client"
	"croft/compute"
	"croft/control/api"
	"croft/hosts"
	"croft/internal/delay"
)

// View is the cloud at one moment, as croft top shows it.
type View struct {
	At        time.Time  `json:"at"`
	Hosts     []host     `json:"hosts"`
	Instances []instance `json:"instances"`
	Others    int        `json:"other_projects_instances"` // number of instances in projects that are not shown
	Trouble   string     `json:"trouble,omitempty"`        // error of a read, whose data is therefore old or missing
}

// host is a host and the total use of its guests. Nil pointers mean unknown values.
type host struct {
	ID        croft.HostID    `json:"id"`
	Name      string          `json:"name"`
	State     string          `json:"state"`
	Instances int             `json:"instances"`
	CPU       *float64        `json:"cpu,omitempty"` // CPUs in use: 1 is one whole CPU
	Offered   croft.Resources `json:"offered,omitempty"`
	Claimed   croft.Resources `json:"claimed,omitempty"`
	Problems  []string        `json:"problems,omitempty"`
}

// instance is an instance and its use of resources.
type instance struct {
	ID        croft.InstanceID `json:"id"`
	Project   croft.Project    `json:"project"`
	Name      string           `json:"name"`
	State     string           `json:"state"`
	Host      string           `json:"host,omitempty"`
	Address   string           `json:"address,omitempty"`
	CPU       *float64         `json:"cpu,omitempty"`
	Memory    *uint64          `json:"memory_bytes,omitempty"` // that it uses on its host
	Resources croft.Resources  `json:"resources"`
	Created   time.Time        `json:"created"`

	hostID croft.HostID
	ofAll  bool // whether instances of all projects are shown
}

// watch collects the data of croft top: hosts and instances again after changes, and the use of guests from the agents
// of the visible hosts.
type watch struct {
	cloud   *client.Client
	project croft.Project // project whose instances are shown; empty: all
	mirror  *mirror
	changed chan struct{} // receives when there may be new data to show
	refused chan error    // receives the permanent error that ended the mirror

	mu     sync.Mutex
	used   map[croft.InstanceID]sample
	looked []croft.HostID // hosts whose guests are visible
}

// sample is a guest's use at the last reading, and its load since the previous one.
type sample struct {
	at     time.Time
	cpu    time.Duration
	memory uint64
	rate   *float64
}

func newWatch(c *args.Client) *watch {
	return &watch{
		cloud: c.Client, project: c.Project, mirror: &mirror{Client: c}, changed: make(chan struct{}, 1),
		refused: make(chan error, 1), used: map[croft.InstanceID]sample{},
	}
}

func (w *watch) wake() {
	select {
	case w.changed <- struct{}{}:
	default: // already signalled
	}
}

// topUsages is the interval for reading the use of guests from agents.
const topUsages = 2 * time.Second

// run collects until ctx ends.
func (w *watch) run(ctx context.Context) {
	var work sync.WaitGroup
	work.Go(func() {
		if err := w.mirror.Run(ctx, w.wake); ctx.Err() == nil {
			w.refused <- err
		}
	})
	work.Go(func() {
		for ctx.Err() == nil {
			began := time.Now()
			w.readUsages(ctx)
			w.wake()
			_ = delay.For(ctx, max(topUsages, time.Since(began))) // ctx is checked next
		}
	})
	work.Wait()
}

// usageReaders is the number of agents that are read concurrently, and usageTimeout the time limit for each.
const (
	usageReaders = 16
	usageTimeout = 2 * time.Second
)

// readUsages reads the use of guests from the agents of visible hosts. It leaves out an agent that does not answer: its
// host is silent, or cannot be reached from here.
func (w *watch) readUsages(ctx context.Context) {
	hosts, _, _ := w.mirror.Look()
	w.mu.Lock()
	looked := slices.Clone(w.looked)
	w.mu.Unlock()
	var work errgroup.Group
	work.SetLimit(usageReaders)
	for _, h := range hosts {
		if h.Alive && slices.Contains(looked, h.ID) {
			work.Go(func() error { w.readHost(ctx, h); return nil })
		}
	}
	_ = work.Wait() // they return no errors
}

func (w *watch) readHost(ctx context.Context, h hosts.Host) {
	ctx, cancel := context.WithTimeout(ctx, usageTimeout)
	defer cancel()
	list, err := w.cloud.ListUsages(ctx, api.HostNamed{ID: string(h.ID)})
	if err != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, u := range list.Usages {
		w.used[u.Instance] = w.used[u.Instance].next(time.Now(), u)
	}
}

// next returns the reading that follows this one. A load needs two readings.
func (r sample) next(at time.Time, u compute.Usage) sample {
	now := sample{at: at, cpu: u.CPU, memory: u.MemoryBytes}
	if u.Busy { // its memory is unknown
		now.memory = r.memory
	}
	if !r.at.IsZero() && u.CPU >= r.cpu && at.After(r.at) {
		rate := float64(u.CPU-r.cpu) / float64(at.Sub(r.at))
		now.rate = &rate
	}
	return now
}

// fresh is how long a reading is valid.
const fresh = 15 * time.Second

// look returns the current data of the cloud.
func (w *watch) look(now time.Time) View {
	hosts, instances, err := w.mirror.Look()
	w.mu.Lock()
	defer w.mu.Unlock()
	v := View{At: now, Hosts: []host{}, Instances: []instance{}}
	if err != nil {
		v.Trouble = err.Error()
	}
	at := map[croft.HostID]int{}
	for _, h := range hosts {
		at[h.ID] = len(v.Hosts)
		v.Hosts = append(v.Hosts, host{ID: h.ID, Name: h.Name, State: h.State(), Problems: h.Problems,
			Offered: h.Offered, Claimed: h.Claimed})
	}
	for _, i := range instances {
		one := w.instance(i, now)
		if n, known := at[i.HostID]; known {
			h := &v.Hosts[n]
			h.Instances++
			if one.CPU != nil {
				sum := *one.CPU
				if h.CPU != nil {
					sum += *h.CPU
				}
				h.CPU = &sum
			}
		}
		if w.project == "" || w.project == i.Project {
			v.Instances = append(v.Instances, one)
		} else {
			v.Others++
		}
	}
	return v
}

func (w *watch) instance(i api.Instance, now time.Time) instance {
	one := instance{ID: i.ID, Project: i.Project, Name: i.Name, State: i.State, Host: i.Host, Address: i.Address,
		Resources: i.Resources, Created: i.Created, hostID: i.HostID, ofAll: w.project == ""}
	if r, known := w.used[i.ID]; known && now.Sub(r.at) < fresh {
		one.CPU, one.Memory = r.rate, &r.memory
	}
	return one
}

// watch selects the hosts whose guests' use is read.
func (w *watch) watch(hosts []croft.HostID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looked = hosts
}

// complete returns the cloud once everything was read, for printing once: the load of guests needs two readings.
func (w *watch) complete(ctx context.Context) View {
	ctx, cancel := context.WithTimeout(ctx, args.AnswerTimeout)
	defer cancel()
	var all []croft.HostID
	for _, h := range w.look(time.Now()).Hosts {
		all = append(all, h.ID)
	}
	w.watch(all)
	w.readUsages(ctx)
	select {
	case <-ctx.Done():
	case <-time.After(time.Second / 2):
	}
	w.readUsages(ctx)
	v := w.look(time.Now())
	slices.SortFunc(v.Hosts, func(a, b host) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	return v
}

// share returns a text like "3/8", or a dash if it is not known.
func (h host) share(class croft.ResourceClass) string {
	if h.Offered == nil {
		return "-"
	}
	return fmt.Sprintf("%d/%d", h.Claimed[class], h.Offered[class])
}
