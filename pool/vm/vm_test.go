package vm_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"croft"
	"croft/compute/image"
	"croft/pool"
	"croft/pool/vm"
	"croft/schedule"
	"croft/schedule/scheduletest"
)

// noKeys are the stored keys of projects without any.
type noKeys struct{ schedule.Keys }

var settings = pool.Instance{Resources: "VCPU:1,MEMORY_MB:32,DISK_GB:1", Image: "tiny", Project: "shop"}

// made returns the instances of a cloud with one host, and the cloud's store.
func made(t *testing.T) (*vm.Instances, *scheduletest.Memory) {
	t.Helper()
	store := scheduletest.NewMemory()
	host := croft.Host{ID: croft.NewHostID(), Name: "alpha"}
	if err := store.PutHost(t.Context(), host); err != nil {
		t.Fatal(err)
	}
	store.SetAlive(host.ID, +1)
	inv := croft.Inventory{Total: 100, MinUnit: 1, MaxUnit: 100, StepSize: 1, AllocationRatio: 1}
	placement := scheduletest.NewPlacement(croft.Provider{ID: host.ID, Name: host.Name,
		Inventories: map[croft.ResourceClass]croft.Inventory{croft.VCPU: inv, croft.MemoryMB: inv, croft.DiskGB: inv}})
	scheduler, err := schedule.New(schedule.Config{Partition: croft.NewPartitionID(), Records: store, Holds: store,
		View: store, Registry: store, Groups: store, Claims: placement, Crush: scheduletest.Crush{Memory: store}})
	if err != nil {
		t.Fatal(err)
	}
	v, err := vm.New(vm.Config{Scheduler: scheduler, Keys: noKeys{},
		ResolveImage: func(name string) (string, error) { return name, nil }})
	if err != nil {
		t.Fatal(err)
	}
	return v, store
}

// TestAnImageThatPoolsDoNotKnowIsSaidWithTheCommandThatNamesOne: a user's commands may know the name.
func TestAnImageThatPoolsDoNotKnowIsSaidWithTheCommandThatNamesOne(t *testing.T) {
	find := image.Finder(nil)
	v, err := vm.New(vm.Config{Scheduler: &schedule.Scheduler{}, Keys: noKeys{},
		ResolveImage: func(name string) (string, error) {
			entry, err := find(name)
			return entry.URL, err
		}})
	if err != nil {
		t.Fatal(err)
	}
	mine := settings
	mine.Image = "mine"
	if err := v.Check(mine); croft.KindOf(err) != croft.NotFound ||
		!strings.Contains(err.Error(), "croft image add --machine") {
		t.Errorf("an image that is in no catalog: %v", err)
	}
}

// resource returns a resource that a manager has just recorded.
func resource() pool.Resource {
	return pool.Resource{ID: 7, Name: "vms_00000007", Pool: "vms", State: pool.Starting,
		Instance: croft.NewInstanceID(), Created: time.Now().UTC()}
}

// begin starts a resource's instance, and returns once it is requested.
func begin(t *testing.T, v *vm.Instances, r pool.Resource) error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	requested := false
	_, err := v.Start(ctx, r, settings, func() { requested = true; cancel() })
	if requested {
		return nil
	}
	return err
}

// create stores an instance that a client requested.
func create(t *testing.T, store *scheduletest.Memory, inst croft.Instance) {
	t.Helper()
	if _, err := store.Create(t.Context(), inst); err != nil {
		t.Fatal(err)
	}
}

// replace has another instance take the ID of an instance.
func replace(t *testing.T, v *vm.Instances, store *scheduletest.Memory, id croft.InstanceID,
	change func(*croft.Instance)) {
	t.Helper()
	st, err := store.FindByID(t.Context(), id)
	if err == nil {
		_, err = v.Scheduler.Destroy(t.Context(), st.Instance.Project, string(id), false)
	}
	if err == nil {
		st, err = store.FindByID(t.Context(), id)
	}
	if err == nil {
		err = store.Forget(t.Context(), *st.Order)
	}
	if err != nil {
		t.Fatal(err)
	}
	next := croft.Instance{ID: id, Project: st.Instance.Project, Name: st.Instance.Name, Created: time.Now().UTC(),
		Spec: croft.Spec{GuestSettings: croft.GuestSettings{Tags: st.Instance.Spec.Tags}}}
	change(&next)
	create(t, store, next)
}

// isForeign fails the test unless an instance is recognized as not made for the resource, and is left alone when the
// resource is deleted.
func isForeign(t *testing.T, v *vm.Instances, store *scheduletest.Memory, r pool.Resource) {
	t.Helper()
	if err := v.Probe(t.Context(), r, settings); !errors.Is(err, pool.ErrLost) {
		t.Errorf("a livecheck takes it for the resource's: %v", err)
	}
	seen := errors.New("not seen")
	watching, stop := context.WithCancel(t.Context())
	_ = v.Watch(watching, func(_ time.Time, lost func(pool.Resource, pool.Instance) error) {
		seen = lost(r, settings)
		stop()
	})
	if seen == nil {
		t.Error("the watch takes it for the resource's")
	}
	if err := v.Destroy(t.Context(), r, settings); err != nil {
		t.Errorf("deleting the resource: %v", err)
	}
	st, err := store.FindByID(t.Context(), r.Instance)
	if err != nil || st.Instance.State == croft.StateDestroying {
		t.Errorf("deleting the resource destroyed it: %+v, %v", st.Instance, err)
	}
}

func TestAnInstanceThatAClientCreatedIsNeitherAdoptedNorDestroyed(t *testing.T) {
	for _, project := range []croft.Project{"mallory", "shop"} {
		t.Run(string(project), func(t *testing.T) {
			v, store := made(t)
			r := resource()
			create(t, store, croft.Instance{ID: r.Instance, Project: project, Name: "trap", Created: time.Now().UTC(),
				Spec: croft.Spec{GuestSettings: croft.GuestSettings{Tags: map[string]string{vm.Tag: r.Name}}}})
			if err := begin(t, v, r); croft.KindOf(err) != croft.Conflict {
				t.Errorf("the start adopts it: %v", err)
			}
			isForeign(t, v, store, r)
		})
	}
}

func TestAnInstanceThatReplacesTheResourcesOneIsNotTheResources(t *testing.T) {
	for name, change := range map[string]func(*croft.Instance, pool.Resource){
		"with its ID, name and tags": func(*croft.Instance, pool.Resource) {},
		"made for another resource": func(inst *croft.Instance, _ pool.Resource) {
			inst.MadeFor = "pool resource 8"
		},
		"created at an earlier moment": func(inst *croft.Instance, r pool.Resource) { inst.Created = r.Created },
	} {
		for _, up := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				v, store := made(t)
				r := resource()
				if err := begin(t, v, r); err != nil {
					t.Fatal(err)
				}
				if up {
					st, err := store.FindByID(t.Context(), r.Instance)
					if err != nil {
						t.Fatal(err)
					}
					r.State, r.CameUp, r.InstanceRevision = pool.Up, time.Now(), st.Instance.CreateRevision
				}
				replace(t, v, store, r.Instance, func(inst *croft.Instance) { change(inst, r) })
				isForeign(t, v, store, r)
			})
		}
	}
}

// A program of schema 1.7 drops the mark when it writes the record, for example when it moves the instance.
func TestAnInstanceWhoseMarkIsLostIsRecognizedByItsRecord(t *testing.T) {
	v, store := made(t)
	r := resource()
	create(t, store, croft.Instance{ID: r.Instance, Project: "shop", Name: "other", Created: time.Now().UTC()})
	st, err := store.FindByID(t.Context(), r.Instance)
	if err != nil {
		t.Fatal(err)
	}
	r.InstanceRevision = st.Instance.CreateRevision
	if err := v.Destroy(t.Context(), r, settings); err != nil {
		t.Fatal(err)
	}
	if _, err := store.FindByID(t.Context(), r.Instance); croft.KindOf(err) != croft.NotFound {
		t.Errorf("the resource's instance is still there: %v", err)
	}
}

func TestInstancesOfTheFormerVersionAreRecognizedByProjectTagAndTime(t *testing.T) {
	began := time.Now().UTC().Add(-time.Hour)
	before := began.Add(-time.Second)
	for name, c := range map[string]struct {
		change func(*croft.Instance)
		ours   bool
	}{
		"made within the resource's start": {func(*croft.Instance) {}, true},
		"of another project":               {func(inst *croft.Instance) { inst.Project = "mallory" }, false},
		"without the resource's tag":       {func(inst *croft.Instance) { inst.Spec.Tags = nil }, false},
		"made before the resource":         {func(inst *croft.Instance) { inst.Created = before }, false},
		"made after it came up":            {func(inst *croft.Instance) { inst.Created = began.Add(time.Hour) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			v, store := made(t)
			r := resource()
			r.Instance = pool.DerivedInstance(v.Scheduler.Partition, r.ID)
			r.State, r.Created, r.CameUp = pool.Up, began, began.Add(time.Minute)
			inst := croft.Instance{ID: r.Instance, Project: "shop", Name: "vms-00000007",
				Created: began.Add(time.Second), Spec: croft.Spec{
					GuestSettings: croft.GuestSettings{Tags: map[string]string{vm.Tag: r.Name}}}}
			c.change(&inst)
			create(t, store, inst)
			if !c.ours {
				isForeign(t, v, store, r)
				return
			}
			if err := v.Probe(t.Context(), r, settings); errors.Is(err, pool.ErrLost) {
				t.Errorf("the resource's instance is taken for another's: %v", err)
			}
		})
	}
}
