package etcdstore_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/cluster/clustertest"
	"croft/control/federation"
	"croft/etcdstore"
	"croft/etcdstore/etcdtest"
	"croft/placement/ledger"
	"croft/pool"
	"croft/tenant"
	"croft/tenant/access"
	"croft/tenant/objects"
)

// tomorrow is a field that a newer program writes into every record, and into every spec.
const (
	tomorrow = `"of_tomorrow":{"list":[1,"2"]}`
	later    = `"later":12345678901234567890`
)

// whole are the kinds of records that one program writes as a whole, without reading them: its next write replaces the
// fields that a newer program wrote there.
var whole = []string{"observed/", "orders/", "hosts/", "agents/", "twins/", "members/", "joins/", "control/",
	"quota/unsettled/", "pools/leader", "pools/standby/"}

// newerKV reports records that lose the fields of a newer program.
type newerKV struct {
	clientv3.KV
	t      *testing.T
	prefix string

	mu    sync.Mutex
	known map[string]bool // the keys of records with the fields of a newer program
	seen  map[string]bool // the kinds of which a record was changed
}

func (k *newerKV) Put(ctx context.Context, key, value string, options ...clientv3.OpOption) (*clientv3.PutResponse,
	error) {
	done, err := k.Do(ctx, clientv3.OpPut(key, value, options...))
	return done.Put(), err
}

func (k *newerKV) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	return k.KV.Do(ctx, k.newer(nil, []clientv3.Op{op})[0])
}

func (k *newerKV) Txn(ctx context.Context) clientv3.Txn { return &newerTxn{Txn: k.KV.Txn(ctx), kv: k} }

type newerTxn struct {
	clientv3.Txn
	kv       *newerKV
	compares []clientv3.Cmp
}

func (t *newerTxn) If(compares ...clientv3.Cmp) clientv3.Txn {
	t.compares, t.Txn = compares, t.Txn.If(compares...)
	return t
}

func (t *newerTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	t.Txn = t.Txn.Then(t.kv.newer(t.compares, ops)...)
	return t
}

func (t *newerTxn) Else(ops ...clientv3.Op) clientv3.Txn { t.Txn = t.Txn.Else(ops...); return t }

// newer expects the fields of a newer program in records that are changed.
func (k *newerKV) newer(compares []clientv3.Cmp, ops []clientv3.Op) []clientv3.Op {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, op := range ops {
		key, value := strings.TrimPrefix(string(op.KeyBytes()), k.prefix), string(op.ValueBytes())
		if !op.IsPut() || len(value) == 0 || !k.known[key] || created(compares, string(op.KeyBytes())) ||
			slices.ContainsFunc(whole, func(kind string) bool { return strings.HasPrefix(key, kind) }) {
			continue
		}
		parts := strings.Split(key, "/")
		if k.seen[parts[0]] = true; parts[0] == "placement" {
			k.seen[parts[0]+"/"+parts[1]] = true
		}
		if !strings.Contains(value, tomorrow) {
			k.t.Errorf("%s loses an unknown field: %s", key, value)
		}
		if (strings.HasPrefix(key, "instances/") || strings.HasPrefix(key, "placement/provider/")) &&
			!strings.Contains(value, later) {
			k.t.Errorf("the spec or inventory of %s loses an unknown field: %s", key, value)
		}
	}
	return ops
}

func created(compares []clientv3.Cmp, key string) bool {
	return slices.ContainsFunc(compares, func(c clientv3.Cmp) bool {
		about := c.GetCompare()
		return string(about.GetKey()) == key && len(about.GetRangeEnd()) == 0 &&
			(about.GetTarget() == etcdserverpb.Compare_CREATE && about.GetCreateRevision() == 0 &&
				about.GetResult() == etcdserverpb.Compare_EQUAL ||
				about.GetTarget() == etcdserverpb.Compare_MOD && about.GetModRevision() == 0)
	})
}

// rewritten adds the fields of a newer program to every record, and returns their keys.
func rewritten(t *testing.T, endpoint, prefix string) map[string]bool {
	t.Helper()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	all, err := etcd.Get(t.Context(), prefix, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, kv := range all.Kvs {
		value := string(kv.Value)
		if !strings.HasPrefix(value, "{") || kv.Lease != 0 {
			continue
		}
		rest := strings.TrimPrefix(value, "{")
		if rest != "}" {
			rest = "," + rest
		}
		value = "{" + tomorrow + rest
		for _, inside := range []string{`"spec":{`, `"VCPU":{`} {
			value = strings.Replace(value, inside, inside+later+",", 1)
		}
		if _, err := etcd.Put(t.Context(), string(kv.Key), value); err != nil {
			t.Fatal(err)
		}
		known[strings.TrimPrefix(string(kv.Key), prefix)] = true
	}
	return known
}

// A program that reads, changes and writes a record keeps the fields that a newer program has added.
func TestFieldsOfNewerProgramsAreKept(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := t.Context()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	inst, err := f.Instances.Assign(ctx, f.inst, f.order(1, croft.WantRunning))
	must(inst, err)
	must(f.Projects.Create(ctx, tenant.Tenant{Name: "shop"}))
	must(f.Projects.SetDefaults(ctx, tenant.Defaults{Limits: tenant.Limits{"instances": 9}}))
	must(f.Aggregates.Create(ctx, croft.Aggregate{Name: "ssd"}))
	must(f.Policies.Set(ctx, croft.CrushPolicy{Name: "even", Text: "use\n"}, nil))
	must(f.Sizes.Create(ctx, croft.Size{Name: "small", Resources: croft.BuiltInSize().Resources}))
	must(f.Distances.Set(ctx, "network", croft.Distance{A: "h1", B: "s1", Distance: 3}, nil))
	_, _ = clustertest.Furnish(t, f.Clusters)
	peer := croft.PartitionID("7c4f1b52-0d0f-4f43-9c3d-3a3c2f0b8a11")
	// others writes the records of pools, properties and peers, which each call changes.
	others := func(s *etcdstore.Store, n int) {
		t.Helper()
		must(nil, s.Pools.Lead(ctx, pool.Server{Name: "one"}, func(ctx context.Context, term pool.Term) error {
			if _, err := term.Load(ctx); err != nil {
				return err
			}
			return term.Commit(ctx, pool.Batch{Head: &pool.Head{Ticket: 1, Resource: 1},
				Pools:     []pool.Record{{Settings: pool.Settings{Name: "ci"}, Position: n}},
				Resources: []pool.Resource{{ID: 1, Pool: "ci", Failures: n}},
				Tickets:   []pool.Ticket{{ID: 1, State: pool.TicketOpen, Sandbox: fmt.Sprint(n)}}})
		}))
		ref := objects.Ref{Kind: objects.Image, Project: "shop", ID: "tiny"}
		was, err := s.Objects.Read(ctx, access.Everything(), ref)
		must(was, err)
		must(s.Objects.Write(ctx, was, objects.Object{Ref: ref, Tags: []string{fmt.Sprint("t", n)}}))
		place := objects.Place{Level: objects.Global, Kind: objects.Instance}
		definition, err := s.Objects.Definition(ctx, place)
		if croft.KindOf(err) != croft.NotFound {
			must(definition, err)
		}
		definition.Place, definition.Unknown = place, objects.Allow
		must(s.Objects.PutDefinition(ctx, definition))
		must(s.Partitions.PutPeer(ctx, peer, func([]federation.Partition) (federation.Partition, error) {
			return federation.Partition{ID: peer, Alias: "west", Peer: &federation.Peer{Endpoint: fmt.Sprint("https://",
				n)}}, nil
		}))
		must(nil, s.Partitions.PutMapping(ctx, federation.Mapping{Peer: peer, Project: "shop", Theirs: "shop",
			Role: access.Reader}))
	}
	others(f.Store, 1)
	provider, consumer := croft.NewHostID(), string(croft.NewInstanceID())
	// claims changes a consumer's allocations from a provider, and traits and inventories of the provider.
	claims := func(l *ledger.Ledger, generation *int64, n int64) {
		t.Helper()
		must(nil, l.Change(ctx, func(tx *ledger.Tx) error {
			return tx.Claim(ledger.ClaimRules{Generations: true}, ledger.ClaimRequest{Consumer: consumer, Project: "p",
				User: "u", Generation: generation, Demands: []ledger.Demand{{Provider: string(provider),
					NamedAmount: ledger.NamedAmount{Class: "VCPU", N: n}}}})
		}))
		must(nil, l.Change(ctx, func(tx *ledger.Tx) error {
			_, err := tx.SetAggregates(string(provider), nil, []string{string(croft.NewHostID())})
			return err
		}))
	}
	l, _ := placer(t, f.Store)
	offer(t, l, provider, 40)
	claims(l, nil, 1)
	prefix := "/croft/" + string(f.Partition()) + "/"
	k := &newerKV{t: t, prefix: prefix, known: rewritten(t, f.server.Endpoint(), prefix), seen: map[string]bool{}}
	putHome(t, f.server, f.Partition(), "1.99")
	s, err := etcdstore.Open(ctx, etcdstore.Config{Endpoints: []string{f.server.Endpoint()}}.Under(
		func(kv clientv3.KV) clientv3.KV { k.KV = kv; return k }))
	must(s, err)
	defer s.Close()

	find := func() croft.Instance {
		t.Helper()
		st, err := s.Instances.Find(ctx, croft.DefaultProject, "web")
		must(st, err)
		return st.Instance
	}
	next := func(n int64, want croft.Want) croft.Order {
		o := f.order(n, want)
		o.Instance = inst.ID
		return o
	}
	expiring := find()
	expiring.Expires = time.Now().Add(time.Hour)
	must(s.Instances.Amend(ctx, find(), expiring))
	must(s.Instances.Reorder(ctx, find(), next(2, croft.WantStopped)))
	must(s.Instances.SetMoving(ctx, find(), croft.NewHostID()))
	must(s.Instances.SetMoving(ctx, find(), ""))
	must(s.Instances.Fence(ctx, find()))
	must(s.Instances.Lose(ctx, find(), croft.Loss{Reason: "it burnt down"}, next(3, croft.WantGone)))
	again, err := s.Instances.Recreate(ctx, find())
	must(again, err)
	must(nil, s.Instances.Discard(ctx, find()))
	must(s.Instances.Create(ctx, etcdtest.NewInstance("second"))) // the counters of its project
	must(nil, s.Registry.Accept(ctx, f.host))
	all, err := s.Projects.List(ctx, access.Everything())
	must(all, err)
	for _, p := range all {
		if p.Name == "shop" {
			p.Note = "changed"
			must(s.Projects.Change(ctx, p))
		}
	}
	defaults, err := s.Projects.Defaults(ctx)
	must(defaults, err)
	must(s.Projects.SetDefaults(ctx, defaults))
	note := "changed"
	must(s.Aggregates.Change(ctx, "ssd", croft.AggregateChange{Note: &note}))
	must(s.Policies.Set(ctx, croft.CrushPolicy{Name: "even", Text: "use\n\n"}, nil))
	must(s.Sizes.Change(ctx, "small", croft.SizeChange{Default: new(true)}))
	must(s.Distances.Set(ctx, "network", croft.Distance{A: "h1", B: "s1", Distance: 4}, nil))
	others(s, 2)
	l, _ = placer(t, s)
	first := int64(1)
	claims(l, &first, 2)
	sites, err := s.Clusters.Sites(ctx)
	must(sites, err)
	for _, site := range sites {
		must(s.Clusters.PutSite(ctx, site))
	}
	for _, kind := range []string{"instances", "projects", "quota", "aggregates", "policies", "clusters", "pools",
		"objects", "definitions", "peers", "placement/provider", "placement/consumer"} {
		if !k.seen[kind] {
			t.Errorf("nothing below %s/ was changed", kind)
		}
	}
}

// The part of a value that its type does not know is added to its replacement, except where the containing part was
// removed.
func TestSurplusIsAddedWhereItBelongs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, stored, next, want string }{
		{"a field", `{"a":1,"new":2}`, `{"a":3}`, `{"a":3,"new":2}`},
		{"a field of an object", `{"in":{"a":1,"new":{"x":[1]}}}`, `{"in":{"a":2}}`, `{"in":{"a":2,"new":{"x":[1]}}}`},
		{"an object that is removed", `{"a":1,"tags":{"k":"v"}}`, `{"a":1}`, `{"a":1}`},
		{"elements of a list, in another order", `{"list":[{"a":1,"new":1},{"a":2,"new":2}]}`,
			`{"list":[{"a":2},{"a":3},{"a":1}]}`, `{"list":[{"a":2,"new":2},{"a":3},{"a":1,"new":1}]}`},
		{"a number beyond what a float has", `{"a":1,"new":12345678901234567890}`, `{"a":1}`,
			`{"a":1,"new":12345678901234567890}`},
		{"what is no record", `{"a":1,"new":2}`, `text`, `text`},
		{"nothing", `{"a":1}`, `{"a":2}`, `{"a":2}`},
	} {
		if got := etcdstore.WithSurplus(c.stored, c.next); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}
