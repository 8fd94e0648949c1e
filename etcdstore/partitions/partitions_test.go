package partitions_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/control/federation"
	"croft/etcdstore"
	"croft/etcdstore/etcdserver"
	"croft/etcdstore/etcdtest"
	"croft/tenant"
	"croft/tenant/access"
	"croft/tenant/objects"
)

// installation is an installation with its own etcd.
type installation struct {
	*testing.T
	*federation.Service
	server *etcdserver.Server
	store  *etcdstore.Store
}

func install(t *testing.T) *installation {
	t.Helper()
	server := etcdtest.Server(t)
	store := etcdtest.Open(t, server)
	service := &federation.Service{Home: store.Partition(), Store: store.Partitions, Peers: store.Partitions,
		Apart: none{}}
	return &installation{t, service, server, store}
}

// none is a Placement without providers.
type none struct{}

func (none) Providers(context.Context) ([]croft.Provider, error) { return nil, nil }

func (i *installation) check(err error) {
	i.Helper()
	if err != nil {
		i.Fatal(err)
	}
}

// fill stores a host, a project, limits, properties and an instance, which are the same in every installation except
// for UUIDs.
func (i *installation) fill() {
	i.Helper()
	host := croft.Host{ID: croft.NewHostID(), Name: "site1.row1.rack1.host1", Token: "secret-of-the-host"}
	i.check(i.store.Registry.PutHost(i.Context(), host))
	i.check(i.store.Registry.Drain(i.Context(), host.ID))
	_, err := i.store.Aggregates.Create(i.Context(), croft.Aggregate{Name: "fast", Hosts: []croft.HostID{host.ID}})
	i.check(err)
	_, err = i.store.Distances.Set(i.Context(), "network", croft.Distance{A: "fast", B: "site1", Distance: 3}, nil)
	i.check(err)
	_, err = i.store.Projects.Create(i.Context(), tenant.Tenant{Name: "lab",
		Members: map[string]access.Role{"anna": access.Member}})
	i.check(err)
	_, err = i.store.Projects.SetDefaults(i.Context(), tenant.Defaults{Limits: tenant.Limits{croftVCPU: 20}})
	i.check(err)
	inst := etcdtest.NewInstance("web")
	inst.Project, inst.Spec.UserData, inst.Spec.HostKey = "lab", []byte("secret-user-data"), "secret-host-key"
	inst, err = i.store.Instances.Create(i.Context(), inst)
	i.check(err)
	_, err = i.store.Objects.PutDefinition(i.Context(), objects.Definition{Unknown: objects.Allow,
		Place: objects.Place{Level: objects.Global, Kind: objects.Instance}})
	i.check(err)
	ref := objects.Ref{Kind: objects.Instance, Project: "lab", ID: string(inst.ID)}
	was, err := i.store.Objects.Read(i.Context(), access.Everything(), ref)
	i.check(err)
	_, err = i.store.Objects.Write(i.Context(), was, objects.Object{Ref: ref, Tags: []string{"fast"}})
	i.check(err)
}

const croftVCPU = tenant.Measure(croft.VCPU)

func (i *installation) export(name string) string {
	i.Helper()
	var out bytes.Buffer
	_, err := i.Export(i.Context(), name, &out)
	i.check(err)
	return out.String()
}

// take imports an export.
func (i *installation) take(text, alias string) (federation.Partition, bool, error) {
	return i.Import(i.Context(), strings.NewReader(text), alias)
}

// shown returns the visible import of a partition.
func (i *installation) shown(alias string) (all []string) {
	i.Helper()
	for _, kind := range federation.Kinds {
		i.check(i.Rows(i.Context(), alias, kind, func(text json.RawMessage) error {
			all = append(all, string(kind)+" "+string(text))
			return nil
		}))
	}
	return all
}

// keys lists all keys of an installation with their values.
func (i *installation) keys() map[string]string {
	i.Helper()
	got, err := etcdtest.Client(i.T, i.server, etcdstore.Credentials{}).Get(i.Context(), "", clientv3.WithFromKey())
	i.check(err)
	all := map[string]string{}
	for _, stored := range got.Kvs {
		all[string(stored.Key)] = string(stored.Value)
	}
	return all
}

func TestTwoInstallationsShowEachOtherWhatTheyHave(t *testing.T) {
	t.Parallel()
	a, b := install(t), install(t)
	a.fill()
	b.fill()
	before := a.keys()
	p, changed, err := a.take(b.export("east"), "")
	a.check(err)
	if !changed || p.Alias != "east" || p.ID != b.Home || p.Imported.Rows[federation.KindInstance] != 1 {
		t.Errorf("imported %+v", p)
	}
	all, err := a.List(t.Context())
	a.check(err)
	if len(all) != 2 || !all[0].Home || all[0].ID != a.Home || all[1].ID != b.Home || all[1].Imported.Revision == 0 {
		t.Errorf("partitions %+v", all)
	}
	shown := a.shown("east")
	for _, want := range []string{`host {`, `"name":"site1.row1.rack1.host1","drained":true`,
		`aggregate {"name":"fast"`, `distance {"type":"network","a":"fast","b":"site1","distance":3}`,
		`quota {"limits":{"VCPU":20}`,
		`project {"id":"`, `"name":"lab"`, `"anna":"member"`, `definition {"level":"global"`, `"tags":["fast"]`, `"name":"web"`} {
		if !strings.Contains(strings.Join(shown, "\n"), want) {
			t.Errorf("%s is not shown: %s", want, shown)
		}
	}
	for key, value := range a.keys() {
		theirs := strings.HasPrefix(key, "/croft/"+string(b.Home)+"/imported/") ||
			key == "/croft/partitions/"+string(b.Home)
		if was, had := before[key]; !had && !theirs || had && was != value {
			t.Errorf("the import wrote %s", key)
		}
		if theirs && (strings.Contains(value, "secret") || strings.Contains(key, "/tokens/")) {
			t.Errorf("a secret was exchanged: %s %s", key, value)
		}
	}
	accounts, err := a.store.Projects.Accounts(t.Context(), "lab")
	a.check(err)
	if n := accounts[0].Used[tenant.CountInstances]; n != 1 {
		t.Errorf("project lab has %d instances here, want its own 1", n)
	}
	hosts, err := a.store.Registry.Hosts(t.Context())
	a.check(err)
	instances, err := a.store.Instances.List(t.Context(), "")
	a.check(err)
	if len(hosts) != 1 || len(instances) != 1 {
		t.Errorf("there are %d hosts and %d instances here, want 1 each", len(hosts), len(instances))
	}
	if again := b.export("east"); strings.Contains(again, string(a.Home)) {
		t.Error("what was imported is exported")
	}
}

func TestImportingAgainAndOlderOnes(t *testing.T) {
	t.Parallel()
	a, b, c := install(t), install(t), install(t)
	b.fill()
	c.fill()
	older := b.export("east")
	_, _, err := a.take(older, "")
	a.check(err)
	was := a.keys()
	if _, changed, err := a.take(older, ""); changed || err != nil {
		t.Errorf("the same again: changed %t, %v", changed, err)
	}
	if now := a.keys(); len(now) != len(was) {
		t.Errorf("the same again leaves %d keys, there were %d", len(now), len(was))
	}
	_, err = b.store.Projects.Create(t.Context(), tenant.Tenant{Name: "newer"})
	b.check(err)
	if _, changed, err := a.take(b.export(""), ""); !changed || err != nil {
		t.Errorf("a newer one: changed %t, %v", changed, err)
	}
	newer := a.shown("east")
	if now := a.keys(); len(now) != len(was)+1 {
		t.Errorf("after a newer one there are %d keys, want one more than %d", len(now), len(was))
	}
	if _, _, err := a.take(older, ""); !errors.Is(err, croft.Conflict) {
		t.Errorf("an older one: %v", err)
	}
	if got := a.shown("east"); !slices.Equal(got, newer) || !strings.Contains(strings.Join(got, ""), `"newer"`) {
		t.Errorf("after an older one is shown %s", got)
	}
	p, _, err := a.take(c.export("east"), "")
	if err != nil || p.Alias != "east-2" {
		t.Errorf("another partition of the name east: %+v, %v", p, err)
	}
	if _, _, err := a.take(c.export(""), "east"); !errors.Is(err, croft.Conflict) {
		t.Errorf("under the alias of another: %v", err)
	}
	_, _, err = a.take(a.export(""), "")
	if !errors.Is(err, croft.Invalid) || !strings.Contains(err.Error(), "itself") {
		t.Errorf("of home: %v", err)
	}
	if _, err := a.Remove(t.Context(), federation.HomeAlias); !errors.Is(err, croft.Invalid) {
		t.Errorf("remove home: %v", err)
	}
	for _, alias := range []string{"east", string(c.Home)} {
		if _, err := a.Remove(t.Context(), alias); err != nil {
			t.Errorf("remove %s: %v", alias, err)
		}
	}
	if left := a.keys(); len(left) != 1 {
		t.Errorf("after both were removed there are %v, want home alone", left)
	}
	if err := a.Rows(t.Context(), "east", federation.KindHost, nil); !errors.Is(err, croft.NotFound) {
		t.Errorf("read what was removed: %v", err)
	}
}

// An import that fails at any line, or at any write, changes nothing visible and leaves no rows.
func TestAnImportThatFailsShowsNothing(t *testing.T) {
	t.Parallel()
	a, b := install(t), install(t)
	b.fill()
	_, _, err := a.take(b.export("east"), "")
	a.check(err)
	was, shown := a.keys(), a.shown("east")
	_, err = b.store.Projects.Create(t.Context(), tenant.Tenant{Name: "newer"})
	b.check(err)
	whole := b.export("east")
	lines := strings.SplitAfter(whole, "\n")
	for n := range lines[:len(lines)-1] {
		if _, _, err := a.take(strings.Join(lines[:n], ""), ""); !errors.Is(err, croft.Invalid) {
			t.Errorf("cut off after line %d: %v", n, err)
		}
	}
	for n := range 3 {
		left := n
		failing := &federation.Service{Home: a.Home, Store: failing{a.store.Partitions, &left}}
		_, _, err := failing.Import(t.Context(), strings.NewReader(whole), "")
		if n == 2 { // there are two writes
			a.check(err)
			return
		}
		if !errors.Is(err, errWrite) {
			t.Errorf("with a write that fails: %v", err)
		}
		if now := a.keys(); len(now) != len(was) {
			t.Fatalf("there are %d keys, and were %d: %v", len(now), len(was), now)
		}
		if now := a.shown("east"); !slices.Equal(now, shown) {
			t.Fatalf("shown is %s", now)
		}
	}
}

var errWrite = errors.New("it was not written")

// failing fails the n-th write of a draft after its creation.
type failing struct {
	federation.Store
	n *int
}

func (f failing) Begin(ctx context.Context, id croft.PartitionID) (federation.Draft, error) {
	d, err := f.Store.Begin(ctx, id)
	return failingDraft{d, f.n}, err
}

type failingDraft struct {
	federation.Draft
	n *int
}

func (f failingDraft) fails() error {
	*f.n--
	if *f.n == -1 {
		return errWrite
	}
	return nil
}

func (f failingDraft) Add(ctx context.Context, rows ...federation.Row) error {
	return errors.Join(f.Draft.Add(ctx, rows...), f.fails()) // its outcome is unknown
}

func (f failingDraft) Show(ctx context.Context, settle func([]federation.Partition, *federation.Partition) (
	federation.Partition, error)) (federation.Partition, error) {
	if err := f.fails(); err != nil {
		return federation.Partition{}, err
	}
	return f.Draft.Show(ctx, settle)
}

// The answer to the transaction that makes an import visible is lost: discarding the import afterwards removes nothing.
func TestAnImportThatIsShownIsNotDiscarded(t *testing.T) {
	t.Parallel()
	a, b := install(t), install(t)
	b.fill()
	d, err := a.store.Partitions.Begin(t.Context(), b.Home)
	a.check(err)
	a.check(d.Add(t.Context(), federation.Row{Kind: federation.KindHost, Row: json.RawMessage(`{"name":"x"}`)}))
	settle := func([]federation.Partition, *federation.Partition) (federation.Partition, error) {
		return federation.Partition{ID: b.Home, Alias: "east", Imported: &federation.Imported{Revision: 1}}, nil
	}
	_, err = d.Show(t.Context(), settle)
	a.check(err)
	a.check(d.Discard(t.Context()))
	if got := a.shown("east"); len(got) != 1 {
		t.Errorf("shown: %s", got)
	}
	// If it is discarded first, it never becomes visible.
	late, err := a.store.Partitions.Begin(t.Context(), b.Home)
	a.check(err)
	a.check(late.Discard(t.Context()))
	if err := late.Add(t.Context(), federation.Row{Kind: federation.KindHost, Row: json.RawMessage(`{}`)}); !errors.Is(err,
		croft.Conflict) {
		t.Errorf("add to what was discarded: %v", err)
	}
	if _, err := late.Show(t.Context(), settle); !errors.Is(err, croft.Conflict) {
		t.Errorf("show what was discarded: %v", err)
	}
}

// A process that dies during an import leaves rows that are never visible, and that the next import removes.
func TestWhatADeadImportLeftIsRemoved(t *testing.T) {
	t.Parallel()
	a, b := install(t), install(t)
	b.fill()
	d, err := a.store.Partitions.Begin(t.Context(), b.Home)
	a.check(err)
	a.check(d.Add(t.Context(), federation.Row{Kind: federation.KindHost, Row: json.RawMessage(`{"name":"x"}`)}))
	all, err := a.List(t.Context())
	if len(all) != 1 || err != nil {
		t.Errorf("a part of an import is shown: %+v, %v", all, err)
	}
	p, _, err := a.take(b.export("east"), "")
	a.check(err)
	rows := 0
	for _, n := range p.Imported.Rows {
		rows += n
	}
	if left := a.keys(); len(left) != 1+2+rows {
		t.Errorf("%d keys are left, want home, registry, head and %d rows: %v", len(left), rows, left)
	}
	if err := d.Add(t.Context(), federation.Row{Kind: federation.KindHost, Row: json.RawMessage(`{}`)}); !errors.Is(err,
		croft.Conflict) {
		t.Errorf("it was not dead, and goes on: %v", err)
	}
}

// Many concurrent imports, of two partitions with the same name, some of older exports: at every moment the visible
// import is one whole export, in the end it is the newest one, under two aliases, and no other rows are left.
func TestImportsAtOnce(t *testing.T) {
	t.Parallel()
	a, b, c := install(t), install(t), install(t)
	var files []string
	for n := range 4 {
		for _, from := range []*installation{b, c} {
			_, err := from.store.Projects.Create(t.Context(), tenant.Tenant{Name: croft.Project(fmt.Sprintf("p%d", n))})
			from.check(err)
			files = append(files, from.export("east"))
		}
	}
	var work sync.WaitGroup
	for range 3 {
		for _, f := range files {
			work.Go(func() {
				store := etcdtest.Open(t, a.server)
				s := federation.Service{Home: a.Home, Store: store.Partitions}
				for {
					_, _, err := s.Import(t.Context(), strings.NewReader(f), "")
					if err != nil && !errors.Is(err, croft.Conflict) {
						t.Error(err)
						return
					}
					if err == nil || strings.Contains(err.Error(), "was imported already") {
						return
					}
				}
			})
		}
	}
	ended := make(chan struct{})
	go func() { work.Wait(); close(ended) }()
	for done := false; !done; {
		select {
		case <-ended:
			done = true
		default:
		}
		all, err := a.List(t.Context())
		a.check(err)
		for _, p := range all[1:] {
			n := 0
			err := a.Rows(t.Context(), string(p.ID), federation.KindProject, func(json.RawMessage) error {
				n++
				return nil
			})
			if err == nil && (n < 1 || n > 4) {
				t.Errorf("%d projects are shown of %s", n, p.Alias)
			}
		}
	}
	all, err := a.List(t.Context())
	a.check(err)
	if len(all) != 3 || all[1].Alias != "east" || all[2].Alias != "east-2" {
		t.Fatalf("in the end: %+v", all)
	}
	for _, p := range all[1:] {
		if n := p.Imported.Rows[federation.KindProject]; n != 4 {
			t.Errorf("%d projects of %s are shown in the end, want 4", n, p.Alias)
		}
	}
	if left := a.keys(); len(left) != 1+2*(2+4) {
		t.Errorf("%d keys are left, want home, and registry, head and four projects of each: %v", len(left), left)
	}
}
