package etcdstore_test

import (
	"bytes"
	"slices"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore"
	"croft/etcdstore/etcdtest"
	"croft/hosts/audit"
)

// bare is the raw content of a fixture's etcd, by keys without the partition.
type bare struct {
	*clientv3.Client
	prefix string
}

func (f *fixture) raw(t *testing.T) bare {
	t.Helper()
	return bare{etcdtest.Client(t, f.server, etcdstore.Credentials{}), "/croft/" + string(f.Partition()) + "/"}
}

// put writes a key and returns its revision.
func (b bare) put(t *testing.T, key, value string) int64 {
	t.Helper()
	return etcdtest.Must(b.Put(t.Context(), b.prefix+key, value))(t).Header.Revision
}

func (b bare) remove(t *testing.T, key string) {
	t.Helper()
	etcdtest.Must(b.Delete(t.Context(), b.prefix+key))(t)
}

func (b bare) has(t *testing.T, key string) bool {
	t.Helper()
	return etcdtest.Must(b.Get(t.Context(), b.prefix+key))(t).Count > 0
}

func (b bare) get(t *testing.T, key string) []byte {
	t.Helper()
	got := etcdtest.Must(b.Get(t.Context(), b.prefix+key))(t)
	if len(got.Kvs) == 0 {
		t.Fatalf("there is no key %s", key)
	}
	return got.Kvs[0].Value
}

func (b bare) keys(t *testing.T, under string) (keys []string) {
	t.Helper()
	for _, kv := range etcdtest.Must(b.Get(t.Context(), b.prefix+under, clientv3.WithPrefix(),
		clientv3.WithKeysOnly()))(t).Kvs {
		keys = append(keys, string(kv.Key))
	}
	return keys
}

// written returns the size of all revisions stored by etcd since its start.
func (b bare) written(t *testing.T) int64 {
	t.Helper()
	return etcdtest.Must(b.Status(t.Context(), b.Endpoints()[0]))(t).DbSizeInUse
}

// TestUserDataIsStoredOnce follows the size of all revisions through the lifecycles of instances with user-data
// of the maximum size.
func TestUserDataIsStoredOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	raw := f.raw(t)
	data := bytes.Repeat([]byte{'#'}, croft.MaxUserData)
	before := raw.written(t)
	const lifecycles = 20
	for range lifecycles {
		inst := etcdtest.NewInstance("big")
		inst.Spec.UserData = data
		inst = etcdtest.Must(f.Instances.Create(t.Context(), inst))(t)
		f.inst = inst
		inst = etcdtest.Must(f.Instances.Assign(t.Context(), inst, f.order(1, croft.WantRunning)))(t)
		if o := etcdtest.Must(f.Orders.Order(t.Context(), f.host, inst.ID))(t); !bytes.Equal(o.Spec.UserData, data) {
			t.Fatalf("the agent reads %d bytes of user-data, want %d", len(o.Spec.UserData), len(data))
		}
		st := etcdtest.Must(f.Instances.Find(t.Context(), inst.Project, inst.Name))(t)
		if !bytes.Equal(st.Instance.Spec.UserData, data) || !bytes.Equal(st.Order.Spec.UserData, data) {
			t.Fatal("who looks at the instance does not see its user-data")
		}
		inst = etcdtest.Must(f.Instances.Reorder(t.Context(), st.Instance, f.order(2, croft.WantStopped)))(t)
		inst = etcdtest.Must(f.Instances.Reorder(t.Context(), inst, f.order(3, croft.WantRunning)))(t)
		if o := etcdtest.Must(f.Orders.Order(t.Context(), f.host, inst.ID))(t); !bytes.Equal(o.Spec.UserData, data) {
			t.Fatalf("after another order the agent reads %d bytes of user-data, want %d", len(o.Spec.UserData),
				len(data))
		}
		inst = etcdtest.Must(f.Instances.Reorder(t.Context(), inst, f.order(4, croft.WantGone)))(t)
		tombstone := etcdtest.Must(f.Orders.Order(t.Context(), f.host, inst.ID))(t)
		if tombstone.Spec.Image != "" || len(tombstone.Spec.UserData) > 0 {
			t.Fatalf("a tombstone has the spec %+v, want none", tombstone.Spec)
		}
		if err := f.Orders.Forget(t.Context(), tombstone); err != nil {
			t.Fatal(err)
		}
	}
	// leases and other small records add to the size
	if each := (raw.written(t) - before) / lifecycles; each > 96<<10 {
		t.Errorf("a lifecycle with 64 KiB of user-data writes %d bytes, want at most 96 KiB", each)
	}
	if keys := raw.keys(t, "userdata/"); len(keys) > 1 { // the fixture's
		t.Errorf("user-data is left of instances that are gone: %s", keys)
	}
}

// TestUserDataOfEveryEndIsRemoved tests the ends of instances that need no host.
func TestUserDataOfEveryEndIsRemoved(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	raw := f.raw(t)
	discarded := etcdtest.Must(f.Instances.Create(t.Context(), etcdtest.NewInstance("discarded")))(t)
	if err := f.Instances.Discard(t.Context(), discarded); err != nil {
		t.Fatal(err)
	}
	inst := etcdtest.Must(f.Instances.Assign(t.Context(), f.inst, f.order(1, croft.WantRunning)))(t)
	if err := f.Instances.Bury(t.Context(), inst, f.order(2, croft.WantGone)); err != nil {
		t.Fatal(err)
	}
	if keys := raw.keys(t, "userdata/"); len(keys) > 0 {
		t.Errorf("user-data is left of instances that are gone: %s", keys)
	}
}

// TestAgentsOfTheVersionBeforeGetTheirUserDataInOrders: the host's agent reports schema 1.1, which has no key for
// user-data.
func TestAgentsOfTheVersionBeforeGetTheirUserDataInOrders(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	raw := f.raw(t)
	data := f.inst.Spec.UserData
	raw.put(t, "alive/"+string(f.host), "2026-01-02T03:04:05Z 1.1")
	inst := etcdtest.Must(f.Instances.Assign(t.Context(), f.inst, f.order(1, croft.WantRunning)))(t)
	for _, key := range []string{"orders/" + string(f.host) + "/" + string(inst.ID), "instances/" + string(inst.ID)} {
		if !bytes.Contains(raw.get(t, key), []byte(`"user_data":"`)) {
			t.Errorf("%s has no user-data, which a program of the version before looks for there", key)
		}
	}
	if keys := raw.keys(t, "userdata/"); len(keys) > 0 {
		t.Errorf("there is a key of user-data that nobody of the version before would remove: %s", keys)
	}
	raw.put(t, "alive/"+string(f.host), "2026-01-02T03:04:05Z 1.2") // the agent is upgraded
	if o := etcdtest.Must(f.Orders.Order(t.Context(), f.host, inst.ID))(t); !bytes.Equal(o.Spec.UserData, data) {
		t.Errorf("after the upgrade the agent reads %q, want %q", o.Spec.UserData, data)
	}
	all := etcdtest.Must(f.Instances.List(t.Context(), ""))(t)
	inst = etcdtest.Must(f.Instances.Reorder(t.Context(), all[0].Instance, f.order(2, croft.WantRunning)))(t)
	if o := etcdtest.Must(f.Orders.Order(t.Context(), f.host, inst.ID))(t); !bytes.Equal(o.Spec.UserData, data) {
		t.Errorf("after another order the agent reads %q, want %q", o.Spec.UserData, data)
	}
	if keys := raw.keys(t, "userdata/"); len(keys) != 1 {
		t.Errorf("user-data was not moved to its own key: %s", keys)
	}
}

// TestUserDataMovesWithItsInstance reads the instance from a list, like a move: without its user-data.
func TestUserDataMovesWithItsInstance(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"1.1", "1.2"} {
		t.Run("to a host of "+version, func(t *testing.T) {
			f := newFixture(t)
			raw := f.raw(t)
			data := f.inst.Spec.UserData
			to := croft.NewHostID()
			if err := f.Registry.PutHost(t.Context(), croft.Host{ID: to, Name: "h2"}); err != nil {
				t.Fatal(err)
			}
			raw.put(t, "alive/"+string(to), "2026-01-02T03:04:05Z "+version)
			etcdtest.Must(f.Instances.Assign(t.Context(), f.inst, f.order(1, croft.WantRunning)))(t)
			f.inst = etcdtest.Must(f.Instances.List(t.Context(), ""))(t)[0].Instance
			order := f.order(3, croft.WantRunning)
			order.Host, order.MovedFrom = to, f.host
			etcdtest.Must(f.Instances.Relocate(t.Context(), f.inst, f.order(2, croft.WantGone), order))(t)
			if o := etcdtest.Must(f.Orders.Order(t.Context(), to, f.inst.ID))(t); !bytes.Equal(o.Spec.UserData, data) {
				t.Errorf("the new host's agent reads %q, want %q", o.Spec.UserData, data)
			}
			inOrder := bytes.Contains(raw.get(t, "orders/"+string(to)+"/"+string(f.inst.ID)), []byte(`"user_data":"`))
			if inOrder != (version == "1.1") {
				t.Errorf("the order has user-data: %v", inOrder)
			}
		})
	}
}

func TestLostUserDataIsFoundAndRemoved(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	raw := f.raw(t)
	lost := croft.NewInstanceID()
	raw.put(t, "userdata/"+string(lost), "left")
	b := etcdtest.Must(f.Records.Evidence(t.Context()))(t)
	found := audit.Compare(b)
	i := slices.IndexFunc(found, func(d audit.Difference) bool {
		return d.Kind == audit.LostUserData && d.Instance == lost
	})
	if i < 0 {
		t.Fatalf("nobody finds user-data without an instance: %+v", found)
	}
	if err := f.Records.Drop(t.Context(), found[i]); err != nil {
		t.Fatal(err)
	}
	if keys := raw.keys(t, "userdata/"); len(keys) != 1 {
		t.Errorf("there are the keys %s, want only that of the instance on record", keys)
	}
}
