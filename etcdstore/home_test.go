package etcdstore_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"croft"
	"croft/etcdstore"
	"croft/etcdstore/etcdserver"
	"croft/etcdstore/etcdtest"
)

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// putHome writes the home key like an older or a newer croft.
func putHome(t *testing.T, server *etcdserver.Server, p croft.PartitionID, schema string) {
	t.Helper()
	if err := etcdtest.PutHome(t.Context(), server.Endpoint(), p, schema); err != nil {
		t.Fatal(err)
	}
}

// traced orders a new instance with a trace and returns the trace that a reader finds.
func (f *fixture) traced(t *testing.T, by *etcdstore.Store) string {
	t.Helper()
	o := f.order(1, croft.WantRunning)
	o.Trace = parent
	if _, err := by.Instances.Assign(t.Context(), f.inst, o); err != nil {
		t.Fatal(err)
	}
	return etcdtest.Must(by.Orders.Order(t.Context(), f.host, f.inst.ID))(t).Trace
}

func TestAnOrderNamesItsTrace(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if got := f.traced(t, f.Store); got != parent {
		t.Errorf("the order names %q, want %q", got, parent)
	}
}

func TestProgramsOfAnOlderMinorVersionAreToldNothingThatTheyDoNotKnow(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	putHome(t, f.server, f.Partition(), "1.0")
	// like `schedule`
	command, err := etcdstore.Open(t.Context(), etcdstore.Config{Endpoints: []string{f.server.Endpoint()}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = command.Close() }()
	if got := f.traced(t, command); got != "" {
		t.Errorf("the order names the trace %q, which agents of 1.0 refuse", got)
	}
}

func TestALongRunningPartRaisesTheMinorVersion(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	putHome(t, f.server, f.Partition(), "1.0")
	raised := etcdtest.Open(t, f.server) // like an agent
	if raised.Partition() != f.Partition() {
		t.Fatalf("the partition is %s, was %s", raised.Partition(), f.Partition())
	}
	if got := f.traced(t, raised); got != parent {
		t.Errorf("the order names %q, want %q", got, parent)
	}
}

func TestWhatANewerMinorVersionAddsIsIgnored(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	strange := func(id string) error {
		return etcdtest.Put(t.Context(), f.server.Endpoint(), f.Partition(), "instances/"+id,
			`{"id":"`+id+`","of_tomorrow":1}`)
	}
	id := croft.NewInstanceID()
	if err := strange(string(id)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Instances.Instance(t.Context(), id); err == nil || !strings.Contains(err.Error(), "of_tomorrow") {
		t.Errorf("a field that nobody knows: got %v", err)
	}
	putHome(t, f.server, f.Partition(), "1.99") // while the store is open
	if _, err := f.Instances.Instance(t.Context(), id); err != nil {
		t.Errorf("a field of a newer minor version: %v", err)
	}
}

// An agent of 1.0 that started before the schema was raised would refuse an order with a trace. Its alive key contains
// only the time since which it is alive.
func TestAHostSaysWhetherItsAgentKnowsTraces(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	knows := func() bool {
		t.Helper()
		hosts := etcdtest.Must(f.Registry.Hosts(t.Context(), f.host))(t)
		if !hosts[f.host].Alive {
			t.Fatal("the host is not alive")
		}
		return hosts[f.host].Traces
	}
	if !knows() {
		t.Error("an agent of ours does not know traces")
	}
	for value, want := range map[string]bool{"2026-01-02T03:04:05Z": false, "2026-01-02T03:04:05Z 1.0": false,
		"2026-01-02T03:04:05Z 1.7": true, "": false, "x y z": false} {
		if err := etcdtest.Put(t.Context(), f.server.Endpoint(), f.Partition(), "alive/"+string(f.host),
			value); err != nil {
			t.Fatal(err)
		}
		if got := knows(); got != want {
			t.Errorf("one that says %q knows traces: %v, want %v", value, got, want)
		}
	}
}

func TestAnotherMajorVersionIsRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, schema := range []string{"2.0", "0.9", "1", "one.two", ""} {
		putHome(t, f.server, f.Partition(), schema)
		store, err := etcdstore.Open(t.Context(), etcdstore.Config{Endpoints: []string{f.server.Endpoint()},
			Mint: true})
		if !errors.Is(err, croft.Invalid) || !strings.Contains(err.Error(), "use a program of that version") {
			t.Errorf("schema %q: got %v", schema, err)
		}
		if store != nil {
			t.Error("there is a store")
		}
	}
}

func TestAHomeIsMintedOverNoOther(t *testing.T) {
	t.Parallel()
	store := etcdtest.Start(t)
	before := store.Partition()
	if err := store.MintAgain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := store.Partition(); got != before {
		t.Errorf("the partition is %s, was %s", got, before)
	}
}

func TestTheSchemaIsRaisedAsItWasReadOnly(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	etcd := etcdtest.Client(t, f.server, etcdstore.Credentials{})
	putHome(t, f.server, f.Partition(), "1.0")
	read := etcdtest.Must(etcd.Get(t.Context(), "/croft/home"))(t).Kvs[0].ModRevision
	putHome(t, f.server, f.Partition(), "1.99") // by another program, in between
	if err := f.RaiseFrom(t.Context(), read); err != nil {
		t.Fatal(err)
	}
	if got := etcdtest.Must(etcd.Get(t.Context(), "/croft/home"))(t).Kvs[0].Value; !strings.Contains(string(got),
		`"1.99"`) {
		t.Errorf("the home is %s, want the newer schema", got)
	}
}

func TestAnEtcdThatIsFullBeforeItHoldsACloudIsToldAsFull(t *testing.T) {
	t.Parallel()
	server := etcdtest.ServerWith(t, etcdserver.Config{MaxBytes: 2 << 20})
	etcdtest.Fill(t, server)
	_, err := etcdstore.Open(t.Context(), etcdstore.Config{Endpoints: []string{server.Endpoint()},
		DialTimeout: 20 * time.Second, Mint: true})
	etcdtest.WantKind(t, err, croft.Unavailable)
	etcdtest.WantSays(t, err.Error(), "out of space")
}

func TestRulesAboutLocationsWaitForACloudThatKnowsThem(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	putHome(t, f.server, f.Partition(), "1.2")
	command, err := etcdstore.Open(t.Context(), etcdstore.Config{Endpoints: []string{f.server.Endpoint()}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = command.Close() }()
	inst := etcdtest.NewInstance("apart")
	inst.Spec.Affinities = []croft.Affinity{{Group: "g", Rule: croft.Apart}, {Group: "h", Rule: "same-site"}}
	_, err = command.Instances.Create(t.Context(), inst)
	etcdtest.WantKind(t, err, croft.Invalid)
	etcdtest.WantSays(t, err.Error(), "too old for rules about locations, such as the rule of group h")
	inst.Spec.Affinities = inst.Spec.Affinities[:1]
	inst.Spec.Near = []croft.Near{{To: "s1", Location: "s1", Soft: true}}
	_, err = command.Instances.Create(t.Context(), inst)
	etcdtest.WantKind(t, err, croft.Invalid)
	etcdtest.WantSays(t, err.Error(), "too old for --near")
	inst.Spec.Near, inst.Expires = nil, time.Now().Add(time.Hour)
	_, err = command.Instances.Create(t.Context(), inst)
	etcdtest.WantKind(t, err, croft.Invalid)
	etcdtest.WantSays(t, err.Error(), "too old for instances that expire")
	expiring := f.inst
	expiring.Expires = inst.Expires
	_, err = command.Instances.Amend(t.Context(), f.inst, expiring)
	etcdtest.WantKind(t, err, croft.Invalid)
	inst.Expires = time.Time{}
	if _, err := command.Instances.Create(t.Context(), inst); err != nil {
		t.Errorf("a rule about hosts: %v", err)
	}
}
