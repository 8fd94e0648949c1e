package images_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"croft"
	"croft/etcdstore"
	"croft/etcdstore/etcdtest"
	"croft/schedule"
	"croft/tenant"
)

func TestMain(m *testing.M) { etcdtest.Main(m) }

// world is a store with two hosts that take orders.
type world struct {
	*testing.T
	s    *etcdstore.Store
	a, b croft.HostID
}

func start(t *testing.T) *world {
	t.Parallel()
	w := &world{t, etcdtest.Start(t), croft.NewHostID(), croft.NewHostID()}
	for _, id := range []croft.HostID{w.a, w.b} {
		w.must(w.s.Registry.PutHost(t.Context(), croft.Host{ID: id, Name: "h-" + string(id[:8]), API: "http://h"}))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); _ = w.s.Registry.StayAlive(ctx, id) }()
		t.Cleanup(func() { cancel(); <-ended })
		for alive := false; !alive; {
			hosts, err := w.s.Registry.Hosts(t.Context(), id)
			w.must(err)
			alive = hosts[id].Alive
		}
	}
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) is(err error, kind croft.Kind) {
	w.Helper()
	if !errors.Is(err, kind) {
		w.Fatalf("got %v, want the kind %s", err, kind)
	}
}

var file = croft.ImageFile{SHA256: strings.Repeat("a", 64), Format: "qcow2", SizeBytes: 3 << 29, DiskBytes: 1 << 33}

// create adds an image that a host fetches, of at most 5 GiB.
func (w *world) create(project croft.Project, name string, public bool) (croft.Image, error) {
	i := croft.Image{ID: croft.NewImageID(), Project: project, Name: name, Public: public,
		Origin: "https://example.com/x", State: croft.ImagePending,
		SizeBytes: 5 << 30, ChargedGB: 5, Key: "key", Expires: time.Now().Add(time.Hour)}
	return w.s.Images.Create(w.Context(), i, croft.ImageCopy{Image: i.ID, Host: w.a, Task: croft.ImageFetch, Key: "key",
		SizeBytes: i.SizeBytes})
}

func (w *world) ready(project croft.Project, name string) croft.Image {
	w.Helper()
	i, err := w.create(project, name, false)
	w.must(err)
	w.must(w.s.Images.MadeImage(w.Context(), w.a, i.ID, file))
	return w.get(i.ID)
}

func (w *world) get(id croft.ImageID) croft.Image {
	w.Helper()
	i, err := w.s.Images.Get(w.Context(), id)
	w.must(err)
	return i
}

func (w *world) used(p croft.Project) tenant.Amounts {
	w.Helper()
	all, err := w.s.Projects.Accounts(w.Context(), p)
	w.must(err)
	return all[0].Used
}

func TestAnImageIsChargedForItsMaximumUntilItsSizeIsKnown(t *testing.T) {
	w := start(t)
	i, err := w.create("lab", "web", false)
	w.must(err)
	if used := w.used("lab"); used[tenant.ImageGB] != 5 || used[tenant.CountImages] != 1 {
		t.Errorf("a pending image uses %s", used)
	}
	w.must(w.s.Images.MadeImage(t.Context(), w.a, i.ID, file))
	w.must(w.s.Images.MadeImage(t.Context(), w.a, i.ID, file)) // it may be repeated
	if i = w.get(i.ID); i.State != croft.ImageReady || i.SHA256 != file.SHA256 || !i.Expires.IsZero() {
		t.Errorf("it is %+v", i)
	}
	if used := w.used("lab"); used[tenant.ImageGB] != 2 {
		t.Errorf("a ready image of 1.5 GiB uses %s", used)
	}
	w.must(w.s.Images.Remove(t.Context(), i))
	if used := w.used("lab"); len(used) != 0 {
		t.Errorf("a removed image uses %s", used)
	}
	c, err := w.s.Images.ImageCopy(t.Context(), w.a, i.ID)
	w.must(err)
	if !c.Removing {
		t.Error("its copy is not to be removed")
	}
	w.must(w.s.Images.ForgetImage(t.Context(), w.a, i.ID))
	_, err = w.s.Images.ImageCopy(t.Context(), w.a, i.ID)
	w.is(err, croft.NotFound)
	found, err := w.s.Projects.Check(t.Context())
	if err != nil || len(found) != 0 {
		t.Errorf("the counters differ: %v %v", found, err)
	}
}

func TestAnImageThatFailsIsChargedOnlyAsARecord(t *testing.T) {
	w := start(t)
	i, err := w.create("lab", "web", false)
	w.must(err)
	w.must(w.s.Images.FailedImage(t.Context(), w.a, i.ID, "the server is slow", false))
	if i = w.get(i.ID); i.State != croft.ImagePending {
		t.Errorf("it is %s after a passing failure", i.State)
	}
	w.must(w.s.Images.FailedImage(t.Context(), w.a, i.ID, "it is no disk", true))
	if i = w.get(i.ID); i.State != croft.ImageFailed || i.Error != "it is no disk" || len(i.Copies) != 0 {
		t.Errorf("it is %+v", i)
	}
	if used := w.used("lab"); used[tenant.ImageGB] != 0 || used[tenant.CountImages] != 1 {
		t.Errorf("it uses %s", used)
	}
	w.must(w.s.Images.MadeImage(t.Context(), w.a, i.ID, file)) // too late
	if i = w.get(i.ID); i.State != croft.ImageFailed {
		t.Errorf("it is %s", i.State)
	}
}

func TestAHostCannotMakeAnImageAnotherOne(t *testing.T) {
	w := start(t)
	i := w.ready("lab", "web")
	i, err := w.s.Images.AddCopy(t.Context(), i, croft.ImageCopy{Image: i.ID, Host: w.b, Task: croft.ImageCopied})
	w.must(err)
	other := file
	other.SHA256 = strings.Repeat("b", 64)
	w.is(w.s.Images.MadeImage(t.Context(), w.b, i.ID, other), croft.Invalid)
	w.must(w.s.Images.FailedImage(t.Context(), w.b, i.ID, "no", true)) // others have it
	if i = w.get(i.ID); i.State != croft.ImageReady || i.SHA256 != file.SHA256 {
		t.Errorf("it is %+v", i)
	}
	big := file
	big.SizeBytes = 6 << 30
	i, err = w.create("lab", "big", false)
	w.must(err)
	w.is(w.s.Images.MadeImage(t.Context(), w.a, i.ID, big), croft.Invalid)
}

func TestNamesOfImagesAreTakenOnce(t *testing.T) {
	w := start(t)
	i := w.ready("lab", "web")
	_, err := w.create("lab", "web", false)
	w.is(err, croft.Conflict)
	_, err = w.create("other", "web", false)
	w.must(err)
	_, err = w.create("third", "all", true)
	w.must(err)
	_, err = w.create("fourth", "all", true)
	w.is(err, croft.Conflict)
	next := i
	next.Public = true
	_, err = w.s.Images.Change(t.Context(), i, next)
	w.must(err)
	_, err = w.s.Images.Change(t.Context(), i, next)
	w.is(err, croft.Conflict) // it has changed
}

func TestAnImageIsFoundByThoseWhoMayUseIt(t *testing.T) {
	w := start(t)
	i := w.ready("lab", "web")
	find := func(p croft.Project, id croft.ProjectID, name string) error {
		_, err := w.s.Images.Find(t.Context(), p, id, name)
		return err
	}
	w.must(find("lab", "", "web"))
	for _, name := range []string{"web", "web@lab", string(i.ID)} {
		w.is(find("other", "1", name), croft.NotFound)
	}
	next := i
	next.Shares = []croft.ImageShare{{Project: "other", ID: "1"}}
	i, err := w.s.Images.Change(t.Context(), i, next)
	w.must(err)
	w.is(find("other", "1", "web"), croft.NotFound) // otherwise lab would say what the name means there
	w.must(find("other", "1", "web@lab"))
	w.must(find("other", "1", string(i.ID)))
	w.is(find("other", "2", "web@lab"), croft.NotFound) // a later project of the name
	all, err := w.s.Images.Usable(t.Context(), "other", "2")
	if err != nil || len(all) != 0 {
		t.Errorf("the later project may use %v, %v", all, err)
	}
	next = i
	next.Shares, next.Public = nil, true
	i, err = w.s.Images.Change(t.Context(), i, next)
	w.must(err)
	w.must(find("third", "3", "web"))
	w.must(w.s.Images.Remove(t.Context(), i))
	w.is(find("third", "3", "web"), croft.NotFound)
	w.is(find("lab", "", "../web"), croft.NotFound)
}

func TestOnlyAHostWithAnOrderLearnsWhereAnImageIs(t *testing.T) {
	w := start(t)
	i := w.ready("lab", "web")
	inst := etcdtest.NewInstance("guest")
	inst.Project, inst.Spec.Image = "lab", i.Reference()
	inst, err := w.s.Instances.Create(t.Context(), inst)
	w.must(err)
	_, err = w.s.Images.ImageSource(t.Context(), w.b, i.ID, inst.ID)
	w.is(err, croft.NotFound) // it has no order yet
	inst, err = w.s.Instances.Assign(t.Context(), inst, schedule.NewOrder(w.s.Partition(), inst, w.b,
		croft.WantRunning))
	w.must(err)
	source, err := w.s.Images.ImageSource(t.Context(), w.b, i.ID, inst.ID)
	w.must(err)
	if source.Key != "key" || source.SHA256 != file.SHA256 || len(source.Hosts) != 1 || source.Hosts[0].ID != w.a ||
		source.Hosts[0].Token != "" {
		t.Errorf("it learns %+v", source)
	}
	other := w.ready("other", "secret")
	_, err = w.s.Images.ImageSource(t.Context(), w.b, other.ID, inst.ID)
	w.is(err, croft.NotFound) // of another image
	_, err = w.s.Images.ImageSource(t.Context(), w.b, other.ID, "")
	w.is(err, croft.NotFound) // without an order for a copy
	cd := w.ready("lab", "cd")
	installed := etcdtest.NewInstance("installed")
	installed.Project, installed.Spec.ISO = "lab", &croft.ISO{Image: cd.Reference()}
	installed, err = w.s.Instances.Create(t.Context(), installed)
	w.must(err)
	order := schedule.NewOrder(w.s.Partition(), installed, w.b, croft.WantRunning)
	installed, err = w.s.Instances.Assign(t.Context(), installed, order)
	w.must(err)
	_, err = w.s.Images.ImageSource(t.Context(), w.b, cd.ID, installed.ID)
	w.must(err) // its CD
	_, err = w.s.Images.ImageSource(t.Context(), w.b, other.ID, installed.ID)
	w.is(err, croft.NotFound)
	order = schedule.NewOrder(w.s.Partition(), installed, w.b, croft.WantRunning)
	order.Ejected = true
	installed, err = w.s.Instances.Reorder(t.Context(), installed, order)
	w.must(err)
	if !installed.Ejected {
		t.Error("the record does not say that the CD is ejected")
	}
	_, err = w.s.Images.ImageSource(t.Context(), w.b, cd.ID, installed.ID)
	w.is(err, croft.NotFound) // it is ejected
	w.must(w.s.Images.Remove(t.Context(), i))
	_, err = w.s.Images.ImageSource(t.Context(), w.b, i.ID, inst.ID)
	w.is(err, croft.NotFound)
	if !strings.Contains(err.Error(), "was removed from the cloud's catalog") {
		t.Error(err)
	}
}
