package requests_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"slices"
	"testing"
	"time"

	"croft"
	"croft/cluster"
	"croft/cluster/clustertest"
	"croft/cluster/outbound"
	"croft/cluster/requests"
	"croft/cluster/sim"
	"croft/etcdstore/etcdtest"
)

func TestMain(m *testing.M) { etcdtest.Main(m) }

const partition croft.PartitionID = "6a0f0c1e-5f2e-4a52-8d5e-1b2c3d4e5f60"

// vault seals a value by reversing its bytes and appending the about text.
type vault struct{}

func (vault) Seal(s cluster.Secret, about string) (cluster.Sealed, error) {
	turned := []byte(s.Reveal())
	for i := range turned {
		turned[i] ^= 0x5a
	}
	return json.Marshal(map[string]any{"about": about, "value": turned})
}

func (vault) Open(v cluster.Sealed, about string) (cluster.Secret, error) {
	var sealed struct {
		About string
		Value []byte
	}
	if err := json.Unmarshal(v, &sealed); err != nil || sealed.About != about {
		return cluster.Secret{}, croft.Errorf(croft.Invalid, "the value was moved")
	}
	for i := range sealed.Value {
		sealed.Value[i] ^= 0x5a
	}
	return cluster.NewSecret(string(sealed.Value)), nil
}

// stores combines the stores, in memory or in etcd.
type stores struct {
	cluster.Records
	cluster.ApplianceStore
	cluster.Accounts
}

// bench is a service with two sites, east and west, that build slurm, which needs at least one slave and has an agent.
type bench struct {
	*requests.Service
	*testing.T
	store    *clustertest.Store // nil: the stores are not in memory
	stores   stores
	sites    *sim.Site
	logs     *bytes.Buffer
	log      *slog.Logger
	made     map[string]cluster.ImplementationID // by site
	dial     func(ctx context.Context, network, address string) (net.Conn, error)
	outbound outbound.Rule
}

const template = `
parameters:
  cluster_size: {type: number}
  flavor_name: {type: string, default: small}
  db_password: {type: string, default: none}
  pin: {type: string, default: none, hidden: true}
`

func newBench(t *testing.T) *bench {
	store := clustertest.NewStore()
	b := newBenchOn(t, stores{store, store, store})
	b.store = store
	return b
}

func newBenchOn(t *testing.T, all stores) *bench {
	b := &bench{T: t, stores: all, sites: sim.New(), logs: &bytes.Buffer{}, made: map[string]cluster.ImplementationID{}}
	b.log = slog.New(slog.NewTextHandler(b.logs, nil))
	ctx := t.Context()
	for _, name := range []string{"east", "west"} {
		_, err := all.PutSite(ctx, cluster.Site{Name: name, Type: cluster.Sim, Enabled: true})
		b.fatal(err)
	}
	b.appliance(cluster.Appliance{Name: "slurm", Public: true, MinSlaves: 1, Agent: &cluster.Agent{}})
	for _, name := range []string{"east", "west"} {
		i, err := all.AddImplementation(ctx, cluster.Implementation{ID: cluster.NewImplementationID(),
			Appliance: "slurm",
			Site:      name, Template: template, Enabled: true})
		b.fatal(err)
		b.made[name] = i.ID
	}
	b.Service = b.another()
	return b
}

// another returns a further server with the same stores and sites.
func (b *bench) another() *requests.Service { return b.withDriver(b.sites) }

func (b *bench) withDriver(d cluster.Driver) *requests.Service {
	s, err := requests.New(requests.Config{Backends: cluster.Backends{Partition: partition,
		Records: b.stores, Catalogue: b.stores, Accounts: b.stores,
		Drivers: map[cluster.SiteType]cluster.Driver{cluster.Sim: d}, Vault: vault{},
		Log: b.log}, Dial: b.dial, Outbound: b.outbound})
	b.fatal(err)
	return s
}

func (b *bench) fatal(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bench) appliance(a cluster.Appliance) {
	b.Helper()
	_, err := b.stores.PutAppliance(b.Context(), a)
	b.fatal(err)
}

// ask returns a request of ada for slurm with two slaves.
func ask(name string) cluster.Request {
	return cluster.Request{Project: "physics", User: "ada",
		Spec: cluster.Spec{Name: name, Appliance: "slurm", Slaves: 2}}
}

func (b *bench) create(r cluster.Request) cluster.Cluster {
	b.Helper()
	made, err := b.Create(b.Context(), r)
	b.fatal(err)
	return made.Cluster
}

// manage writes a record as a manager would: the cluster is in a state at site east, with all wanted members.
func (b *bench) manage(id croft.ClusterID, state cluster.State, changes ...func(*cluster.Cluster)) cluster.Cluster {
	b.Helper()
	c, err := b.stores.Get(b.Context(), id)
	b.fatal(err)
	c.State = state
	if state != cluster.Scheduling {
		c.Site, c.Implementation, c.MasterIP = "east", b.made["east"], "192.0.2.1"
		c.Remote = cluster.Remote{Name: "croft-" + string(id), Asked: true}
	}
	if state == cluster.Ready || state == cluster.Degraded {
		c.Members, c.Sizing = members(c), cluster.Sizing{Told: c.Indexes, Taken: true, Good: c.Indexes}
	}
	if state == cluster.Deleted {
		c.Ended = time.Now()
	}
	for _, change := range changes {
		change(&c)
	}
	c, err = b.stores.Update(b.Context(), c, nil)
	b.fatal(err)
	return c
}

func members(c cluster.Cluster) []cluster.Member {
	all := []cluster.Member{{ID: cluster.IDOf(c.ID, cluster.Master, 0), Name: "m", Role: cluster.Master,
		State: cluster.MemberReady}}
	for _, i := range c.Indexes {
		all = append(all, cluster.Member{ID: cluster.IDOf(c.ID, cluster.Slave, i), Name: "s" + string(rune('0'+i)),
			Role: cluster.Slave, Index: i, State: cluster.MemberReady})
	}
	return all
}

// all lists the stored clusters that are not deleted.
func (b *bench) all() []cluster.Cluster {
	b.Helper()
	all, err := b.stores.Records.List(b.Context(), "")
	b.fatal(err)
	return slices.DeleteFunc(all, func(c cluster.Cluster) bool { return c.State == cluster.Deleted })
}

func (b *bench) kind(err error, want croft.Kind, text string) {
	b.Helper()
	if croft.KindOf(err) != want || !bytes.Contains([]byte(err.Error()), []byte(text)) {
		b.Errorf("got %v, want %s with %q", err, want, text)
	}
}
