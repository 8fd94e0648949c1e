package etcdstore

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

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
		k.allDead(), k.allSeen())
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
	if value, err := m.conn.decodeAny(kv); err != nil {
		m.broken[key] = err
	} else {
		m.values[prefix][key] = slim(value)
	}
}

// slim returns a decoded value without the data that the mirror omits.
func slim(v any) any {
	switch v := v.(type) {
	case croft.Instance:
		v.Spec.UserData, v.Spec.Keys, v.Spec.HostKey, v.Spec.ClusterKey, v.Spec.Peers = nil, nil, "", "", nil
		return v
	case croft.Order:
		v.Spec = croft.Spec{}
		return v
	}
	return v
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
	j := m.conn.newJoiner()
	for _, err := range m.broken {
		j.err = err // any of them
	}
	for _, values := range m.values {
		for key, v := range values {
			j.put(key, v)
		}
	}
	return j
}
