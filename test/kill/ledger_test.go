package kill

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"croft"
)

// A ledger records every write to etcd, in order: evidence for failures, and the source from which clients choose
// instances.
type ledger struct {
	etcd *clientv3.Client

	mu      sync.Mutex
	history map[string][]string       // by instance UUID: writes to keys that end in it
	records map[string]croft.Instance // current ones
	last    map[string]croft.Instance // last versions of the removed ones
	gone    map[string]time.Time      // when their removal was seen
	volumes map[string]string         // UUIDs of the volumes that have a record, or had one, by name
	tokens  map[string]string         // of the APIs of agents, by host
	losses  map[string]int            // how often an instance was lost with its host
	gaps    int
	work    sync.WaitGroup
	end     context.CancelFunc
}

func (w *world) newLedger() *ledger {
	etcd, err := clientv3.New(clientv3.Config{
		Endpoints: w.etcd, DialTimeout: 5 * time.Second, DialKeepAliveTime: 3 * time.Second,
		DialKeepAliveTimeout: 3 * time.Second,
		Logger:               zap.NewNop(),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	l := &ledger{
		etcd: etcd, history: map[string][]string{}, records: map[string]croft.Instance{},
		last: map[string]croft.Instance{},
		gone: map[string]time.Time{}, losses: map[string]int{}, volumes: map[string]string{},
		tokens: map[string]string{},
	}
	ctx, cancel := context.WithCancel(context.Background())
	l.end = cancel
	l.work.Go(func() { l.follow(ctx) })
	w.t.Cleanup(l.close)
	return l
}

func (l *ledger) close() {
	l.end()
	_ = l.etcd.Close() // it returns the end of the watch
	l.work.Wait()
}

// follow reads all revisions from the first on.
func (l *ledger) follow(ctx context.Context) {
	for next := int64(1); ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
		watching, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
		for answer := range l.etcd.Watch(watching, "/croft/", clientv3.WithPrefix(), clientv3.WithRev(next)) {
			if answer.CompactRevision > next {
				l.mu.Lock()
				l.gaps++
				l.mu.Unlock()
				next = answer.CompactRevision
			}
			for _, event := range answer.Events {
				l.note(event)
				next = event.Kv.ModRevision + 1
			}
		}
		cancel()
	}
}

func (l *ledger) note(event *clientv3.Event) {
	kind, key := cut(string(event.Kv.Key))
	id := key[strings.LastIndexByte(key, '/')+1:]
	if kind == "names" && event.Type == clientv3.EventTypePut {
		id = string(event.Kv.Value)
	}
	if kind == "placement" && !strings.HasPrefix(key, "consumer") && !strings.HasPrefix(key, "allocation") {
		return
	}
	if _, err := croft.ParseInstanceID(id); err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	what := "gone"
	if event.Type == clientv3.EventTypePut {
		what = summary(kind, event.Kv.Value)
	}
	l.history[id] = append(l.history[id], fmt.Sprintf("rev %d seen %s %s/%s: %s", event.Kv.ModRevision,
		time.Now().Format("15:04:05.000"), kind, key, what))
	if strings.HasPrefix(key, "records/") && kind == "volumes" && event.Type == clientv3.EventTypePut {
		var v croft.Volume
		if json.Unmarshal(event.Kv.Value, &v) == nil && v.Snapshot == nil {
			l.volumes[v.Name] = string(v.ID)
		}
	}
	if kind == "hosts" {
		var h struct{ Token string }
		if json.Unmarshal(event.Kv.Value, &h) == nil {
			l.tokens[id] = h.Token
		}
	}
	if kind != "instances" {
		return
	}
	if event.Type == clientv3.EventTypeDelete {
		delete(l.records, id)
		l.gone[id] = time.Now()
		return
	}
	var inst croft.Instance
	if json.Unmarshal(event.Kv.Value, &inst) == nil {
		if inst.State == croft.StateLost && l.records[id].State != croft.StateLost {
			l.losses[id]++
		}
		l.records[id], l.last[id] = inst, inst
		delete(l.gone, id)
	}
}

// cut splits /croft/PARTITION/KIND/REST.
func cut(key string) (kind, rest string) {
	parts := strings.SplitN(key, "/", 5)
	if len(parts) < 5 {
		return parts[len(parts)-1], ""
	}
	return parts[3], parts[4]
}

// summary returns the relevant part of a value.
func summary(kind string, value []byte) string {
	short := func(id croft.HostID) string { return string(id)[:min(8, len(id))] }
	switch kind {
	case "instances":
		var v croft.Instance
		if json.Unmarshal(value, &v) == nil {
			return fmt.Sprintf("%s %s host=%s gen=%d session=%s moving=%s from=%s", v.Name, v.State, short(v.Host),
				v.Generation,
				v.Session, short(v.Moving), short(v.MovedFrom))
		}
	case "orders":
		var v croft.Order
		if json.Unmarshal(value, &v) == nil {
			return fmt.Sprintf("%s gen=%d from=%s", v.Want, v.Generation, short(v.MovedFrom))
		}
	case "observed":
		var v croft.Observation
		if json.Unmarshal(value, &v) == nil {
			return fmt.Sprintf("%s gen=%d %s", v.State, v.Generation, v.Error)
		}
	}
	return string(value[:min(300, len(value))])
}

// of returns the history of an instance.
func (l *ledger) of(id string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.history[id])
}

// pick returns the records for which a condition holds.
func (l *ledger) pick(fits func(croft.Instance) bool) []croft.Instance {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []croft.Instance
	for _, inst := range l.records {
		if fits(inst) {
			all = append(all, inst)
		}
	}
	slices.SortFunc(all, func(a, b croft.Instance) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return all
}

// record returns the current record of an instance; false: it has none.
func (l *ledger) record(id string) (croft.Instance, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	inst, exists := l.records[id]
	return inst, exists
}

// volumeID returns the UUID of a volume; empty: it never had a record.
func (l *ledger) volumeID(name string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.volumes[name]
}

// token returns the token of the API of a host's agent.
func (l *ledger) token(host string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tokens[host]
}

// lost returns how often an instance was lost with its host.
func (l *ledger) lost(id string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.losses[id]
}

// endOf returns the last version of a removed record, and when its removal was seen.
func (l *ledger) endOf(id string) (last croft.Instance, when time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last[id], l.gone[id]
}
