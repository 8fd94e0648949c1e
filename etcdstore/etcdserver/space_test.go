package etcdserver_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"

	"croft"
	"croft/etcdstore"
	"croft/etcdstore/etcdserver"
	"croft/etcdstore/etcdtest"
	"croft/internal/testing/patient"
)

// smallDisk returns a directory on its own disk of a size in MiB.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounts a disk: run as root")
	}
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size="+size, "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("mount a tmpfs: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill takes all free space of a disk.
func fill(t *testing.T, dir string) (empty func()) {
	t.Helper()
	f, err := os.CreateTemp(dir, "filler-")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, 1<<20)
	for err == nil {
		_, err = f.Write(block)
	}
	return func() {
		if err := os.Remove(f.Name()); err != nil {
			t.Error(err)
		}
	}
}

func TestADiskThatIsTooSmallIsSaidBeforeTheStart(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t, "60m")
	_, err := etcdserver.Start(t.Context(), etcdserver.Config{Dir: filepath.Join(dir, "etcd"),
		Listen: "127.0.0.1:0"})
	etcdtest.WantKind(t, err, croft.Unavailable)
	etcdtest.WantSays(t, err.Error(), "MiB are left on the disk of "+dir,
		"it needs 256 MiB to start: make room there, or name another state directory")
	left, err := os.ReadDir(filepath.Join(dir, "etcd"))
	if err != nil || len(left) > 0 {
		t.Errorf("it left %v, %v", left, err)
	}
}

// While the disk is full the store is read-only, and errors say why. When there is space again it accepts writes; a
// restart in between makes no difference.
func TestAFullDiskMakesTheStoreReadOnly(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t, "400m")
	config := etcdserver.Config{Dir: filepath.Join(dir, "etcd"), Listen: "127.0.0.1:0"}
	server, err := etcdserver.Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	end := server.Close
	defer func() { end() }()
	open := func() *etcdstore.Store {
		store, err := etcdstore.Open(t.Context(), etcdstore.Config{Embedded: server, Mint: true})
		if err != nil {
			t.Fatal(err)
		}
		return store
	}
	store := open()
	web := etcdtest.Must(store.Instances.Create(t.Context(), etcdtest.NewInstance("web")))(t)

	empty := fill(t, dir)
	var refused error
	patient.Until(t, "it takes no writes", func() bool {
		_, refused = store.Instances.Create(t.Context(), etcdtest.NewInstance("name-"+string(croft.NewInstanceID())))
		return refused != nil
	})
	etcdtest.WantKind(t, refused, croft.Unavailable)
	etcdtest.WantSays(t, refused.Error(), "out of space", "make room there; croft up notices it")
	if got, err := store.Instances.Instance(t.Context(), web.ID); err != nil || got.Name != "web" {
		t.Errorf("it cannot be read: %v, %v", got, err)
	}
	for range 200 { // small writes that are still accepted do not end it
		if _, err := store.Instances.Create(t.Context(), etcdtest.NewInstance(strings.Repeat("x", 60))); err == nil {
			t.Fatal("it takes writes in between")
		}
	}
	if err := store.Usable(t.Context()); croft.KindOf(err) != croft.Unavailable {
		t.Errorf("it calls itself usable: %v", err)
	}

	if err := store.Close(); err != nil {
		t.Error(err)
	}
	server.Close()
	end = func() {}
	full := fill(t, dir) // the space that was released when the server ended
	_, err = etcdserver.Start(t.Context(), config)
	etcdtest.WantKind(t, err, croft.Unavailable)
	etcdtest.WantSays(t, err.Error(), "0 MiB are left on the disk of "+dir, "it needs 16 MiB to start")
	full()
	if server, err = etcdserver.Start(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	end = server.Close
	short, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	if err := server.AwaitRoom(short); err == nil {
		t.Error("there is room although the disk is full")
	}
	cancel()
	empty()
	if err := server.AwaitRoom(t.Context()); err != nil {
		t.Fatal(err)
	}
	store = open()
	defer store.Close()
	patient.Until(t, "it takes writes again", func() bool {
		_, err = store.Instances.Create(t.Context(), etcdtest.NewInstance("name-"+string(croft.NewInstanceID())))
		return err == nil
	})
	if err := store.Instances.Discard(t.Context(), web); err != nil {
		t.Error(err)
	}
}

// While the disk is full no new records are stored, but records are removed and changed. etcd refuses all other writes
// only once its reserve is used up too; even then it deletes. With free space, everything is accepted again.
func TestRemovalsHaveRoomOnAFullDisk(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t, "400m")
	server, err := etcdserver.Start(t.Context(), etcdserver.Config{Dir: filepath.Join(dir, "etcd"),
		Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	store, err := etcdstore.Open(t.Context(), etcdstore.Config{Embedded: server, Mint: true})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	var all []croft.Instance
	for range 40 {
		all = append(all, etcdtest.Must(store.Instances.Create(t.Context(),
			etcdtest.NewInstance("name-"+string(croft.NewInstanceID()))))(t))
	}

	empty := fill(t, dir)
	create := func() error {
		_, err := store.Instances.Create(t.Context(), etcdtest.NewInstance("name-"+string(croft.NewInstanceID())))
		return err
	}
	patient.Until(t, "nothing new is stored", func() bool { return create() != nil })
	etcdtest.WantSays(t, create().Error(), "out of space except for removals")
	remove := func(some []croft.Instance) {
		t.Helper()
		for _, inst := range some {
			if err := store.Instances.Discard(t.Context(), inst); err != nil {
				t.Fatalf("a removal is refused: %v", err)
			}
		}
	}
	remove(all[:30])
	etcd := server.Client()
	defer etcd.Close()
	for range 2500 { // more writes than etcd makes without a small file
		etcdtest.Must(etcd.Put(t.Context(), "/beat", "beat"))(t)
	}
	if err := create(); err == nil {
		t.Error("new records are stored in the reserve")
	}

	patient.Until(t, "the reserve is used up", func() bool {
		_, err = etcd.Put(t.Context(), "/new/"+string(croft.NewInstanceID()), strings.Repeat("x", 1<<18))
		return err != nil
	})
	if !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Fatalf("without a reserve etcd says %v", err)
	}
	etcdtest.Must(etcd.Delete(t.Context(), "/new/", clientv3.WithPrefix()))(t)

	empty()
	patient.Until(t, "it takes writes again", func() bool { return create() == nil })
	remove(all[30:])
}

// A server that was killed while its disk was full accepts new records immediately after a start with free space.
func TestRoomIsNoticedAtTheStart(t *testing.T) {
	t.Parallel()
	config := etcdserver.Config{Dir: filepath.Join(smallDisk(t, "400m"), "etcd"), Listen: "127.0.0.1:0"}
	server, err := etcdserver.Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	etcd := server.Client()
	members := etcdtest.Must(etcd.MemberList(t.Context()))(t)
	etcdtest.Must(etcd.Put(t.Context(), fmt.Sprintf("%s%x", etcdserver.LowPrefix, members.Members[0].ID), ""))(t)
	_ = etcd.Close() // its end cancels the request
	server.Close()
	if server, err = etcdserver.Start(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if err := server.AwaitRoom(t.Context()); err != nil {
		t.Fatal(err)
	}
	store, err := etcdstore.Open(t.Context(), etcdstore.Config{Embedded: server, Mint: true})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	etcdtest.Must(store.Instances.Create(t.Context(), etcdtest.NewInstance("web")))(t)
}

// Of three members the one with a full disk ends, and the others continue; with free space it serves again, including
// the writes made meanwhile.
func TestAMemberWhoseDiskIsFullRests(t *testing.T) {
	t.Parallel()
	c := etcdtest.StartCluster(t, 2)
	dir := smallDisk(t, "400m")
	c.JoinAt(t, filepath.Join(dir, "etcd"))
	store := c.Open(t, 0)

	empty := fill(t, dir)
	if err := c.Servers[2].Wait(t.Context()); !errors.Is(err, etcdserver.ErrFull) {
		t.Fatalf("it ended with %v", err)
	}
	c.Stop(t, 2)
	if etcdserver.MayServe(dir) {
		t.Error("it may serve on a full disk")
	}
	rest := fill(t, dir)
	_, err := etcdserver.Start(t.Context(), etcdserver.Config{Dir: filepath.Join(dir, "etcd"),
		Listen: "127.0.0.1:0"})
	if !errors.Is(err, etcdserver.ErrFull) || croft.KindOf(err) != croft.Unavailable {
		t.Errorf("a start on the full disk: %v", err)
	}
	rest()
	var web croft.Instance
	patient.Until(t, "the other members take writes", func() bool {
		var err error // while they elect a leader
		web, err = store.Instances.Create(t.Context(), etcdtest.NewInstance("name-"+string(croft.NewInstanceID())))
		return err == nil
	})

	empty()
	if err := etcdserver.AwaitSpace(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	c.Start(t, 2)
	if got := etcdtest.Must(c.Open(t, 2).Instances.Instance(t.Context(), web.ID))(t); got.Name != web.Name {
		t.Errorf("it has %+v", got)
	}
}

// Neither of two members continues without the other: if one disk is full, both are read-only.
func TestAFullDiskOfTwoMembersMakesTheStoreReadOnly(t *testing.T) {
	t.Parallel()
	c := etcdtest.StartCluster(t, 1)
	dir := smallDisk(t, "400m")
	c.JoinAt(t, filepath.Join(dir, "etcd"))
	store := c.Open(t, 0)
	web := etcdtest.Must(store.Instances.Create(t.Context(), etcdtest.NewInstance("web")))(t)
	create := func() error {
		_, err := store.Instances.Create(t.Context(), etcdtest.NewInstance("name-"+string(croft.NewInstanceID())))
		return err
	}

	empty := fill(t, dir)
	patient.Until(t, "it takes no writes", func() bool { return create() != nil })
	if err := create(); croft.KindOf(err) != croft.Unavailable || !strings.Contains(err.Error(), "out of space") {
		t.Errorf("it refuses with %v", err)
	}
	if got := etcdtest.Must(store.Instances.Instance(t.Context(), web.ID))(t); got.Name != "web" {
		t.Errorf("it has %+v", got)
	}
	empty()
	patient.Until(t, "it takes writes again", func() bool { return create() == nil })
}
