package etcdstore

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"croft"
)

// Mirror is a copy of all hosts and instances, kept up to date by watches, for callers that often read all of them. It
// omits long data that only guests need: user-data, keys, and the specs of orders.
type Mirror struct {
	conn     *conn
	prefixes []string // the watched prefixes

	mu     sync.Mutex
	values map[string]map[string]any // decoded values, by prefix and key
	listed map[string]bool           // prefixes that have been read
	broken map[string]error          // errors of values that cannot be decoded, by key
}

// NewMirror returns a mirror that is empty until it runs.
func (s *conn) NewMirror() *Mirror {
	k := s.keys
	return s.mirrorOf(k.instances(), k.allOrders(), k.allObserved(), k.hosts(), k.allAlive(), k.allDrained(),
		k.allSeen())
}

func (s *conn) mirrorOf(prefixes ...string) *Mirror {
	return &Mirror{
		conn: s, prefixes: prefixes,
		values: map[string]map[string]any{}, listed: map[string]bool{}, broken: map[string]error{},
	}
}

// Run keeps the copy up to date until ctx ends. changed may be nil. It is called after each change and carries
// no data; calls may overlap.
func (m *Mirror) Run(ctx context.Context, changed func()) error {
	if changed == nil {
		changed = func() {}
	}
	var work sync.WaitGroup
	for _, prefix := range m.prefixes {
		work.Go(func() {
			// It returns only when ctx ends.
			_ = m.conn.follow(ctx, prefix, func() { m.begin(prefix); changed() },
				func(kv *mvccpb.KeyValue, present bool) {
					m.note(prefix, kv, present)
					changed()
				})
		})
	}
	work.Wait()
	return ctx.Err()
}

// begin clears the values of a prefix, because keys may have been deleted while there was no watch.
func (m *Mirror) begin(prefix string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.values[prefix], m.listed[prefix] = map[string]any{}, true
	maps.DeleteFunc(m.broken, func(key string, _ error) bool { return strings.HasPrefix(key, prefix) })
}

func (m *Mirror) note(prefix string, kv *mvccpb.KeyValue, present bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := string(kv.Key)
	delete(m.values[prefix], key)
	delete(m.broken, key)
	if !present {
		return
	}
	if value, err := m.conn.slim(prefix, kv); err != nil {
		m.broken[key] = err
	} else {
		m.values[prefix][key] = value
	}
}

// slim decodes a value without the data that the mirror omits.
func (s *conn) slim(prefix string, kv *mvccpb.KeyValue) (any, error) {
	switch prefix {
	case s.keys.instances():
		inst, err := s.decodeInstance(kv)
		inst.Spec.UserData, inst.Spec.Keys, inst.Spec.HostKey = nil, nil, ""
		inst.Spec.ClusterKey, inst.Spec.Peers = "", nil
		return inst, err
	case s.keys.allOrders():
		o, err := s.decodeOrder(kv)
		o.Spec = croft.Spec{}
		return o, err
	case s.keys.allObserved():
		var o croft.Observation
		return o, s.decode(kv.Key, kv.Value, &o)
	case s.keys.hosts():
		var h storedHost
		err := s.decode(kv.Key, kv.Value, &h)
		h.Host.Token = h.Token
		return h.Host, err
	case s.keys.allSeen():
		return time.Parse(time.RFC3339, string(kv.Value))
	}
	return string(kv.Value), nil // mostly only the presence of the key matters
}

// Ready reports whether every prefix has been read once.
func (m *Mirror) Ready() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.listed) == len(m.prefixes)
}

// Look returns hosts, unordered, and instances by time of creation. The error is about a value that is missing because
// it cannot be decoded. Each prefix has its own watch, so related values may be briefly inconsistent.
func (m *Mirror) Look() ([]croft.Host, []croft.Status, error) {
	j := m.joined()
	all, err := j.join()
	return slices.Collect(maps.Values(j.hosts)), all, err
}

func (m *Mirror) joined() *joiner {
	m.mu.Lock()
	defer m.mu.Unlock()
	k, j := m.conn.keys, m.conn.newJoiner()
	for _, err := range m.broken {
		j.err = err // any of them
	}
	for _, v := range m.values[k.instances()] {
		j.instances = append(j.instances, v.(croft.Instance))
	}
	for _, v := range m.values[k.allOrders()] {
		o := v.(croft.Order)
		j.orders[place(o.Host, o.Instance)] = o
	}
	for _, v := range m.values[k.allObserved()] {
		o := v.(croft.Observation)
		j.observed[place(o.Host, o.Instance)] = o
	}
	for _, v := range m.values[k.hosts()] {
		j.hosts[v.(croft.Host).ID] = v.(croft.Host)
	}
	for key, v := range m.values[k.allSeen()] {
		j.seen[croft.HostID(last([]byte(key)))] = v.(time.Time)
	}
	for key, v := range m.values[k.allAlive()] {
		id := croft.HostID(last([]byte(key)))
		j.alive[id], j.lives[id] = true, []byte(v.(string))
	}
	for key := range m.values[k.allDrained()] {
		j.drained[croft.HostID(last([]byte(key)))] = true
	}
	return j
}
