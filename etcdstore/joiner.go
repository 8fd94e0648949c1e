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

// add stores a value according to the prefix of its key.
func (j *joiner) add(kv *mvccpb.KeyValue) error {
	key, k := string(kv.Key), j.conn.keys
	switch {
	case strings.HasPrefix(key, k.instances()):
		inst, err := j.conn.decodeInstance(kv)
		j.instances = append(j.instances, inst)
		return err
	case strings.HasPrefix(key, k.allOrders()):
		o, err := j.conn.decodeOrder(kv)
		j.orders[place(o.Host, o.Instance)] = o
		return err
	case strings.HasPrefix(key, k.allObserved()):
		var o croft.Observation
		err := j.conn.decode(kv.Key, kv.Value, &o)
		j.observed[place(o.Host, o.Instance)] = o
		return err
	case strings.HasPrefix(key, k.hosts()):
		var h storedHost
		err := j.conn.decode(kv.Key, kv.Value, &h)
		h.Host.Token = h.Token
		j.hosts[h.ID] = h.Host
		return err
	case strings.HasPrefix(key, k.allAlive()):
		id := croft.HostID(last(kv.Key))
		j.alive[id], j.lives[id] = true, kv.Value
	case strings.HasPrefix(key, k.allDrained()):
		j.drained[croft.HostID(last(kv.Key))] = true
	case strings.HasPrefix(key, k.allSeen()):
		at, err := time.Parse(time.RFC3339, string(kv.Value))
		j.seen[croft.HostID(last(kv.Key))] = at
		return err
	case strings.HasPrefix(key, k.allTwins()):
		var twin croft.Agent
		err := j.conn.decode(kv.Key, kv.Value, &twin)
		j.twins[twin.Host] = append(j.twins[twin.Host], twin)
		return err
	}
	return nil
}

// join returns the instances by time of creation, each with its order, observation and host.
func (j *joiner) join() ([]croft.Status, error) {
	for id := range maps.Keys(j.hosts) {
		h := j.hosts[id]
		h.Alive, h.Drained, h.Seen = j.alive[id], j.drained[id], j.seen[id]
		h.Traces, h.Vacates = knows(j.lives[id], tracesMinor), knows(j.lives[id], vacatesMinor)
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
