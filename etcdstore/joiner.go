package etcdstore

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"croft"
)

// joiner joins values that are read from several prefixes, in any order.
type joiner struct {
	conn      *conn
	instances []croft.Instance
	orders    map[string]croft.Order // by host/instance
	observed  map[string]croft.Observation
	hosts     map[croft.HostID]croft.Host
	alive     map[croft.HostID]bool
	lives     map[croft.HostID][]byte // the values of the alive keys
	drained   map[croft.HostID]bool
	deaths    map[croft.HostID]croft.Death
	seen      map[croft.HostID]time.Time
	twins     map[croft.HostID][]croft.Agent
	err       error // the first error
}

func (s *conn) newJoiner() *joiner {
	return &joiner{
		conn:     s,
		orders:   map[string]croft.Order{},
		observed: map[string]croft.Observation{},
		hosts:    map[croft.HostID]croft.Host{},
		alive:    map[croft.HostID]bool{},
		lives:    map[croft.HostID][]byte{},
		drained:  map[croft.HostID]bool{},
		deaths:   map[croft.HostID]croft.Death{},
		seen:     map[croft.HostID]time.Time{},
		twins:    map[croft.HostID][]croft.Agent{},
	}
}

func place(host croft.HostID, id croft.InstanceID) string { return string(host) + "/" + string(id) }

func (j *joiner) addAll(kvs []*mvccpb.KeyValue) {
	for _, kv := range kvs {
		if err := j.add(kv); err != nil && j.err == nil {
			j.err = err
		}
	}
}

func (j *joiner) add(kv *mvccpb.KeyValue) error {
	v, err := j.conn.decodeAny(kv)
	j.put(string(kv.Key), v)
	return err
}

// decodeAny decodes a value that a joiner joins, according to the prefix of its key.
func (s *conn) decodeAny(kv *mvccpb.KeyValue) (v any, err error) {
	key, k := string(kv.Key), s.keys
	switch {
	case strings.HasPrefix(key, k.instances()):
		v, err = s.decodeInstance(kv)
	case strings.HasPrefix(key, k.allOrders()):
		v, err = s.decodeOrder(kv)
	case strings.HasPrefix(key, k.allObserved()):
		var o croft.Observation
		err = s.decode(kv.Key, kv.Value, &o)
		v = o
	case strings.HasPrefix(key, k.hosts()):
		var h storedHost
		err = s.decode(kv.Key, kv.Value, &h)
		h.Host.Token = h.Token
		v = h.Host
	case strings.HasPrefix(key, k.allDead()):
		v, err = s.decodeDeath(kv)
	case strings.HasPrefix(key, k.allSeen()):
		v, err = time.Parse(time.RFC3339, string(kv.Value))
	case strings.HasPrefix(key, k.allTwins()):
		var twin croft.Agent
		err = s.decode(kv.Key, kv.Value, &twin)
		v = twin
	default:
		v = string(kv.Value) // mostly only the presence of the key matters
	}
	return v, err
}

// put stores a decoded value.
func (j *joiner) put(key string, v any) {
	host := croft.HostID(last([]byte(key)))
	switch v := v.(type) {
	case croft.Instance:
		j.instances = append(j.instances, v)
	case croft.Order:
		j.orders[place(v.Host, v.Instance)] = v
	case croft.Observation:
		j.observed[place(v.Host, v.Instance)] = v
	case croft.Host:
		j.hosts[v.ID] = v
	case croft.Agent:
		j.twins[v.Host] = append(j.twins[v.Host], v)
	case croft.Death:
		j.deaths[host] = v
	case time.Time:
		j.seen[host] = v
	case string:
		if strings.HasPrefix(key, j.conn.keys.allAlive()) {
			j.alive[host], j.lives[host] = true, []byte(v)
		} else if strings.HasPrefix(key, j.conn.keys.allDrained()) {
			j.drained[host] = true
		}
	}
}

// join returns the instances by time of creation, each with its order, observation and host.
func (j *joiner) join() ([]croft.Status, error) {
	for id := range maps.Keys(j.hosts) {
		h := j.hosts[id]
		h.Alive, h.Drained, h.Seen = j.alive[id], j.drained[id], j.seen[id]
		h.Traces, h.Vacates = knows(j.lives[id], tracesMinor), knows(j.lives[id], vacatesMinor)
		h.Volumes, h.Carries = knows(j.lives[id], volumesMinor), knows(j.lives[id], movesMinor)
		h.Resizes, h.Images = knows(j.lives[id], resizeMinor), knows(j.lives[id], imagesMinor)
		if death, is := j.deaths[id]; is {
			h.Death = &death
		}
		for _, twin := range j.twins[id] {
			h.Problems = append(h.Problems,
				fmt.Sprintf(
					"a second agent has the host's UUID, %s at %s, and does nothing: remove host-id from the state directory that was copied", twin.Name, twin.API))
		}
		j.hosts[id] = h
	}
	all := make([]croft.Status, 0, len(j.instances))
	for _, inst := range j.instances {
		st := croft.Status{Instance: inst}
		at := place(inst.Host, inst.ID)
		if o, ok := j.orders[at]; ok {
			st.Order = &o
		}
		if o, ok := j.observed[at]; ok {
			st.Observation = &o
		}
		if h, ok := j.hosts[inst.Host]; ok {
			st.Host = &h
		}
		all = append(all, st)
	}
	slices.SortFunc(all, byCreation)
	return all, j.err
}

func byCreation(a, b croft.Status) int {
	return cmp.Or(a.Instance.Created.Compare(b.Instance.Created), cmp.Compare(a.Instance.ID, b.Instance.ID))
}
