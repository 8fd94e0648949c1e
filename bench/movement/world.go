package main

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/google/uuid"

	"croft"
	"croft/schedule"
	"croft/schedule/crushmap"
)

// world is a set of hosts with a capacity for instances of one VCPU each.
type world struct {
	crushmap.Source
	names  []croft.HostID // in the order of their numbers
	ids    []croft.InstanceID
	room   int // capacity of a host
	used   map[croft.HostID]int
	at     map[croft.InstanceID]croft.HostID
	seed   uint64
	random *rand.Rand
	racks  bool
	gone   croft.Host // the forgotten host
}

func newWorld(seed uint64, hosts, instances int, room float64, racks bool) *world {
	w := &world{Source: crushmap.Source{Hosts: map[croft.HostID]croft.Host{}, VCPUs: map[croft.HostID]float64{},
		Numbers: croft.CrushNumbers{Hosts: map[croft.HostID]int32{}, Locations: map[string]int32{}}},
		racks: racks, used: map[croft.HostID]int{}, at: map[croft.InstanceID]croft.HostID{}, seed: seed,
		random: rand.New(rand.NewPCG(seed, 0)), room: int(room*float64(instances)/float64(hosts)) + 1}
	for range hosts {
		w.add()
	}
	for n := range instances {
		w.ids = append(w.ids, croft.InstanceID(w.name("instance", n)))
	}
	return w
}

// name returns a UUID that depends only on the seed, kind and n.
func (w *world) name(kind string, n int) string {
	return uuid.NewSHA1(uuid.Nil, []byte(fmt.Sprint(kind, w.seed, " ", n))).String()
}

// add adds a host to the last rack, or to a new one if that has 10.
func (w *world) add() {
	n := len(w.names)
	id := croft.HostID(w.name("host", n))
	w.names = append(w.names, id)
	h := croft.Host{ID: id, Name: "host" + strconv.Itoa(n), Alive: true}
	if w.racks {
		h.Location = "rack=r" + strconv.Itoa(n/10)
	}
	w.Hosts[id] = h
	w.VCPUs[id] = float64(w.room)
	_, locations := crushmap.Unnumbered(w.Hosts, w.Numbers)
	w.Numbers.Hosts[id] = int32(n)
	for _, name := range locations {
		w.Numbers.Locations[name] = int32(len(w.Numbers.Locations))
	}
}

// in returns the number of hosts that take instances.
func (w *world) in() (n int) {
	for _, h := range w.Hosts {
		if h.Alive {
			n++
		}
	}
	return n
}

// place places all instances again, from scratch.
func (w *world) place(policy string) error {
	clear(w.at)
	clear(w.used)
	return w.mend(policy)
}

// mend places the instances that have no host.
func (w *world) mend(policy string) error {
	choose := w.spread
	if policy != "" {
		m, err := crushmap.New(w.Source)
		if err != nil {
			return err
		}
		p, err := m.Compile(croft.CrushPolicy{Name: "measured", Text: policy})
		if err != nil {
			return err
		}
		choose = func(id croft.InstanceID) (host croft.HostID) {
			p.Order(id, func(c crushmap.Choice) bool {
				if !c.Out && w.used[c.Host] < w.room {
					host = c.Host
				}
				return host != ""
			})
			return host
		}
	}
	for _, id := range w.ids {
		if w.at[id] != "" {
			continue
		}
		host := choose(id)
		if host == "" {
			return croft.Errorf(croft.NoCapacity, "no host has room for an instance; give more --room")
		}
		w.at[id] = host
		w.used[host]++
	}
	return nil
}

// spread chooses as the policy spread does, among random hosts with room, as many as that policy reads.
func (w *world) spread(croft.InstanceID) croft.HostID {
	var all []croft.Candidate
	for _, i := range w.random.Perm(len(w.names)) {
		id := w.names[i]
		if !w.Hosts[id].Alive || w.used[id] >= w.room {
			continue
		}
		all = append(all, croft.Candidate{Allocations: map[croft.HostID]croft.Resources{id: {croft.VCPU: 1}},
			Summaries: map[croft.HostID]croft.Summary{id: {Capacity: croft.Resources{croft.VCPU: int64(w.room)},
				Used: croft.Resources{croft.VCPU: int64(w.used[id])}}}})
		if len(all) == schedule.Spread.Sample {
			break
		}
	}
	if len(all) == 0 {
		return ""
	}
	for id := range schedule.Spread.Order(all)[0].Allocations {
		return id
	}
	return ""
}

// save returns the hosts of all instances.
func (w *world) save() map[croft.InstanceID]croft.HostID { return maps.Clone(w.at) }

// moved counts the instances whose host has changed.
func (w *world) moved(before map[croft.InstanceID]croft.HostID) (n int) {
	for id, host := range w.at {
		if before[id] != host {
			n++
		}
	}
	return n
}

// busiest returns the host with the most instances, the first of equals.
func (w *world) busiest() croft.HostID {
	return slices.MaxFunc(w.names, func(a, b croft.HostID) int { return w.used[a] - w.used[b] })
}

// on returns the instances on a host.
func (w *world) on(host croft.HostID) (all []croft.InstanceID) {
	for id, at := range w.at {
		if at == host {
			all = append(all, id)
		}
	}
	return all
}

// out makes a host silent, and removes its instances from it.
func (w *world) out(host croft.HostID) {
	for _, id := range w.on(host) {
		delete(w.at, id)
	}
	w.used[host] = 0
	h := w.Hosts[host]
	h.Alive = false
	w.Hosts[host] = h
}

// forget removes a host from the map; its number is not reused.
func (w *world) forget(host croft.HostID) {
	w.out(host)
	w.gone = w.Hosts[host]
	delete(w.Hosts, host)
}

// restore brings a host back, and moves every instance back to its former host.
func (w *world) restore(before map[croft.InstanceID]croft.HostID, host croft.HostID) {
	h, there := w.Hosts[host]
	if !there {
		h = w.gone
	}
	h.Alive = true
	w.Hosts[host] = h
	w.at = maps.Clone(before)
	clear(w.used)
	for _, at := range w.at {
		w.used[at]++
	}
}
