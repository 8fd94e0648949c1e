// Package crushmap builds a CRUSH map of a cloud's hosts, and chooses hosts in it by policies. It is pure. The same
// hosts, capacities, numbers and policy choose the same hosts for an instance on every machine. crushtool makes the
// same choice when given the map as text.
//
// Hosts are the devices; racks, rows, sites and the root are the buckets. Every host is below one bucket of each type:
// as in groups, a host whose location does not name a rack counts as a separate rack. Therefore naming the rack of one
// host moves only the instances of that host.
package crushmap

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"io"
	"slices"
	"strings"
	"sync"

	"croft"
	"croft/crush"
	"croft/schedule/topology"
)

// Root is the name of the bucket that holds all hosts.
const Root = "default"

// PerWeight is the number of VCPUs per weight of 1.0. The sum of the weights of all hosts must stay below 65536.
const PerWeight = 1024

// The types of buckets. Devices are hosts.
const (
	typeHost crush.Type = iota
	typeRack
	typeRow
	typeSite
	typeRoot
)

var levels = map[crush.Type]croft.Level{typeRack: croft.LevelRack, typeRow: croft.LevelRow, typeSite: croft.LevelSite}

// Source is the input for building a map.
type Source struct {
	Hosts map[croft.HostID]croft.Host
	// VCPUs by host: the total times the allocation ratio, including reserved VCPUs. An agent that stops reserves all
	// VCPUs of its host: the host then is out, but must keep its weight.
	VCPUs   map[croft.HostID]float64
	Numbers croft.CrushNumbers
}

// Map is a CRUSH map of hosts. It does not change, and may be used concurrently.
type Map struct {
	Hosts map[croft.HostID]croft.Host // read only

	text      crush.Map
	program   *crush.Program
	reweights crush.Reweights // of hosts, by their numbers
	devices   map[crush.ID]croft.HostID
	weights   map[crush.ID]crush.Weight // of devices
	buckets   map[string]crush.ID       // by name
	below     map[crush.ID][]crush.ID   // devices below a bucket, in order
	mappers   sync.Pool
	compiled  sync.Map // policies by text
}

// VCPUs returns the VCPUs of each host, read from the providers.
func VCPUs(providers []croft.Provider) map[croft.HostID]float64 {
	all := map[croft.HostID]float64{}
	for _, p := range providers {
		inv := p.Inventories[croft.VCPU]
		all[cmp.Or(p.Root, p.ID)] += float64(inv.Total) * inv.AllocationRatio
	}
	return all
}

// Unnumbered returns the hosts and the bucket names of locations that need a number and have none, sorted.
func Unnumbered(hosts map[croft.HostID]croft.Host, n croft.CrushNumbers) (ids []croft.HostID, locations []string) {
	seen := map[string]bool{}
	for id, h := range hosts {
		if _, numbered := n.Hosts[id]; !numbered {
			ids = append(ids, id)
		}
		path, _ := topology.Of(h)
		for _, level := range levels {
			at := path.At(level)
			if name := bucketOf(at); at.Level() != croft.LevelHost && !seen[name] {
				seen[name] = true
				if _, numbered := n.Locations[name]; !numbered {
					locations = append(locations, name)
				}
			}
		}
	}
	slices.Sort(ids)
	slices.Sort(locations)
	return ids, locations
}

// bucketOf returns the name of a location's bucket, in characters that crushtool accepts: site1.row2.rack7, and
// site1.rack_rack7 for site1/rack=rack7. Parts of locations have no underscore, so no two locations share a name.
func bucketOf(location topology.Path) string {
	name := strings.NewReplacer("/", ".", "=", "_").Replace(location.String())
	if name == Root {
		return "site_" + name
	}
	return name
}

// Input returns the input value of CRUSH for an instance: the first 31 bits of the SHA-256 of its UUID as lower-case
// text.
func Input(id croft.InstanceID) uint32 {
	sum := sha256.Sum256([]byte(strings.ToLower(string(id))))
	return binary.BigEndian.Uint32(sum[:4]) >> 1
}

// New builds the map of the hosts that have numbers and leaves out the others. It returns an error if the VCPUs of the
// hosts exceed the capacity of a map.
func New(s Source) (*Map, error) {
	m := &Map{Hosts: s.Hosts, devices: map[crush.ID]croft.HostID{}, weights: map[crush.ID]crush.Weight{},
		buckets: map[string]crush.ID{}, below: map[crush.ID][]crush.ID{}}
	m.build(s)
	var err error
	if m.program, err = crush.Compile(&m.text); err != nil {
		return nil, croft.Errorf(croft.Invalid, "make a CRUSH map of the hosts: %w", err)
	}
	m.mappers.New = func() any { return m.program.NewMapper() }
	return m, nil
}

// The IDs of buckets. Each location has IDs for its own bucket, and for the buckets of the rows or sites that it stands
// for if these are not named. Each host has IDs for its own rack, row and site.
const (
	rootID    crush.ID = -1
	perNumber crush.ID = 8
	ofHost    crush.ID = 4
)

func bucketID(number int32, as crush.ID) crush.ID { return -2 - (crush.ID(number)*perNumber + as) }

func (m *Map) build(s Source) {
	m.text = crush.Map{Tunables: crush.Jewel, Types: []crush.TypeName{{Type: typeHost, Name: string(croft.LevelHost)},
		{Type: typeRack, Name: string(croft.LevelRack)}, {Type: typeRow, Name: string(croft.LevelRow)},
		{Type: typeSite, Name: string(croft.LevelSite)}, {Type: typeRoot, Name: "root"}}}
	t := &tree{m: m, s: s, at: map[crush.ID]int{}, names: map[string]bool{}}
	t.bucket(rootID, Root, typeRoot)
	for _, id := range sortedHosts(s) {
		t.host(s.Hosts[id])
	}
	// The weight of a parent is the sum of its items' weights, so lower types come first.
	order := make([]int, len(m.text.Buckets))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		x, y := &m.text.Buckets[a], &m.text.Buckets[b]
		return cmp.Or(cmp.Compare(x.Type, y.Type), cmp.Compare(y.ID, x.ID))
	})
	for _, i := range order {
		b := &m.text.Buckets[i]
		slices.SortFunc(b.Items, func(x, y crush.Item) int { return cmp.Compare(abs(x.ID), abs(y.ID)) })
		for j, it := range b.Items {
			if it.ID < 0 {
				child := m.text.Buckets[t.at[it.ID]]
				b.Items[j].Weight = child.Weight()
				m.below[b.ID] = append(m.below[b.ID], m.below[it.ID]...)
			} else {
				m.below[b.ID] = append(m.below[b.ID], it.ID)
			}
		}
	}
	slices.SortFunc(m.text.Buckets, func(x, y crush.Bucket) int {
		return cmp.Or(cmp.Compare(x.Type, y.Type), cmp.Compare(y.ID, x.ID))
	})
}

func abs(id crush.ID) crush.ID { return max(id, -id) }

// sortedHosts returns the hosts with numbers, by number.
func sortedHosts(s Source) (ids []croft.HostID) {
	for id := range s.Hosts {
		if n, numbered := s.Numbers.Hosts[id]; numbered && n >= 0 && n < croft.MaxCrushNumber {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b croft.HostID) int {
		return cmp.Or(cmp.Compare(s.Numbers.Hosts[a], s.Numbers.Hosts[b]), cmp.Compare(a, b))
	})
	return ids
}

// tree builds a map.
type tree struct {
	m     *Map
	s     Source
	at    map[crush.ID]int // indexes of buckets
	names map[string]bool  // names in use
}

// bucket adds a bucket unless it exists, and reports whether it added one.
func (t *tree) bucket(id crush.ID, name string, kind crush.Type) bool {
	if _, there := t.at[id]; there {
		return false
	}
	t.at[id] = len(t.m.text.Buckets)
	t.m.text.Buckets = append(t.m.text.Buckets, crush.Bucket{ID: id, Name: name, Type: kind})
	t.m.buckets[name], t.names[name] = id, true
	return true
}

func (t *tree) add(to crush.ID, item crush.Item) {
	b := &t.m.text.Buckets[t.at[to]]
	b.Items = append(b.Items, item)
}

// host adds a host and the buckets of its locations.
func (t *tree) host(h croft.Host) {
	number := t.s.Numbers.Hosts[h.ID]
	device := crush.ID(number)
	if _, taken := t.m.devices[device]; taken {
		return // two hosts never have the same number
	}
	path, _ := topology.Of(h) // without a valid location, the path is only the host
	parent := rootID
	for _, kind := range []crush.Type{typeSite, typeRow, typeRack} {
		id, name, numbered := t.locate(path.At(levels[kind]), kind, number)
		if !numbered {
			return // the location has just changed; the next map gives it a number
		}
		if t.bucket(id, name, kind) {
			t.add(parent, crush.Item{ID: id})
		}
		parent = id
	}
	weight := crush.WeightOf(min(t.s.VCPUs[h.ID]/PerWeight, float64(crush.MaxWeight/crush.One)))
	t.add(parent, crush.Item{ID: device, Weight: weight})
	t.m.devices[device], t.m.weights[device] = h.ID, weight
	t.m.text.Devices = append(t.m.text.Devices, crush.Device{ID: device, Name: t.name(h)})
	for len(t.m.reweights) <= int(device) {
		t.m.reweights = append(t.m.reweights, 0)
	}
	if h.Alive && !h.Drained {
		t.m.reweights[device] = crush.One
	}
}

// locate returns the bucket of the given type for a location of a host.
func (t *tree) locate(at topology.Path, kind crush.Type, host int32) (id crush.ID, name string, numbered bool) {
	name = bucketOf(at)
	switch level := at.Level(); {
	case level == croft.LevelHost:
		return bucketID(host, ofHost+crush.ID(kind)), name + ".as_" + string(levels[kind]), true
	case level != levels[kind]:
		n, numbered := t.s.Numbers.Locations[name]
		return bucketID(n, crush.ID(kind)-1), name + ".as_" + string(levels[kind]), numbered
	}
	n, numbered := t.s.Numbers.Locations[name]
	return bucketID(n, 0), name, numbered
}

// name returns the name of a host's device: the host's name if crushtool accepts it and it is unique in the map.
func (t *tree) name(h croft.Host) string {
	name := h.Name
	bad := func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.')
	}
	if name == "" || t.names[name] || strings.ContainsFunc(name, bad) || t.isLocation(name) {
		name = "host_" + string(h.ID)
	}
	t.names[name] = true
	return name
}

// isLocation reports whether a location has the name, including locations that the build adds later.
func (t *tree) isLocation(name string) bool {
	_, is := t.s.Numbers.Locations[name]
	return is || name == Root
}

// WriteText writes the map in the text form of crushtool, with the policies as rules, in the given order. It leaves out
// policies that do not fit the map.
func (m *Map) WriteText(w io.Writer, policies ...croft.CrushPolicy) error {
	text := m.text
	for i, stored := range policies {
		p, err := m.Compile(stored)
		if err != nil {
			continue
		}
		text.Rules = append(text.Rules, crush.Rule{ID: i, Name: stored.Name, Min: 1, Max: 10,
			Steps: p.compiled.Steps()})
	}
	return text.WriteText(w)
}

// Out returns the sorted numbers of the hosts that accept no instances. crushtool accepts each as --weight N 0.
func (m *Map) Out() (all []int32) {
	for _, d := range m.text.Devices {
		if m.reweights[d.ID] == 0 {
			all = append(all, int32(d.ID))
		}
	}
	return all
}
