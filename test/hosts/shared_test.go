package hosts

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"croft/internal/testing/libvirttest"
)

// TestADiskOnSharedStorageOutlivesItsHosts: what a guest has written is there after its host was killed and declared
// dead, and again after its next host was declared dead although it was only frozen: until that host thaws and gives
// the disk up, no other QEMU opens it.
func TestADiskOnSharedStorageOutlivesItsHosts(t *testing.T) {
	if testing.Short() {
		t.Skip("its guest boots three times: make test-guests")
	}
	libvirttest.Start(t)
	w := newCenter(t)
	w.shared = filepath.Join(w.dir, "shared")
	if err := os.Mkdir(w.shared, 0o755); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"a", "b", "c"} {
		w.hosts = append(w.hosts, w.newHost(name, 11+i))
		w.hosts[i].start()
	}
	a, b, c := w.hosts[0], w.hosts[1], w.hosts[2]
	for _, h := range w.hosts {
		h.waitUntilReady()
	}
	eventually(t, "all hosts mount the storage", func(context.Context) error {
		if r := w.user("croft", "storage", "list"); r.exit != 0 || !strings.Contains(r.stdout, "a, b, c") {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
	key := filepath.Join(w.dir, "id")
	must(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
	w.hostCommand("drain", b)
	w.hostCommand("drain", c)
	asked := time.Now()
	if r := w.request("web", nil, "--storage", "nfs1", "--restart", "elsewhere", "--key", key+".pub", "--wait=ready",
		"--timeout", patience.String()); r.exit != 0 {
		t.Fatalf("%v", r)
	}
	t.Logf("first boot, with the image and the disk: %.1fs", time.Since(asked).Seconds())
	w.hostCommand("enable", b)
	id := w.show("web").ID
	inGuest := func(h *host, what, command, want string) {
		t.Helper()
		eventually(t, what, func(context.Context) error {
			address := w.schedule("web")
			if address.exit != 0 { // it boots
				return fmt.Errorf("%v", address)
			}
			out, err := h.guestDisk(key, strings.TrimSpace(address.stdout), command)
			if err != nil || out != want {
				return fmt.Errorf("%q: %w", out, err)
			}
			return nil
		})
	}
	const written = "for i in 1 2 3; do echo kept $i; done"
	inGuest(a, "the guest writes on its disk", // sync alone flushes no disk without a file system
		`(`+written+`) | dd of=/dev/vda bs=1M seek=900 conv=fsync 2>/dev/null`, "")
	const read = `dd if=/dev/vda bs=1M skip=900 count=1 2>/dev/null | head -n 3`
	kept := "kept 1\nkept 2\nkept 3"

	a.process.end(syscall.SIGKILL)
	w.silent(a, "web")
	begun := time.Now()
	w.fence(a)
	eventually(t, "it starts elsewhere", func(context.Context) error {
		if all := b.domains(); all[id] == "" {
			return fmt.Errorf("b has %v", all)
		}
		return nil
	})
	started := time.Since(begun)
	inGuest(b, "the disk has what was written", read, kept)
	w.must("wait", "web")
	t.Logf("from host fence to the start of the guest elsewhere: %.1fs; to data read in it over ssh: %.1fs",
		started.Seconds(), time.Since(begun).Seconds())

	w.hostCommand("enable", c)

	// b is only frozen, and its guest writes as soon as it thaws
	if out, err := b.guestDisk(key, w.must("web"), `n=0; while n=$((n+1)); do echo "late $n" |
		dd of=/dev/vda bs=1M seek=910 conv=fsync 2>/dev/null; done </dev/null >/dev/null 2>&1 &`); err != nil {
		t.Fatalf("start a writer: %v: %s", err, out)
	}
	b.freeze()
	w.silent(b, "web")
	w.fence(b)
	eventually(t, "the next host waits for the disk", func(context.Context) error {
		st := w.show("web")
		if st.HostID != c.id() || !strings.Contains(st.Error, "lock") {
			return fmt.Errorf("it is %+v", st)
		}
		return nil
	})
	if all := c.domains(); all[id] != "" {
		t.Errorf("c runs the guest while the QEMU of b has the disk open: %v", all)
	}
	b.thaw()
	inGuest(c, "the disk has what was written", read, kept)
	if all := b.domains(); len(all) > 0 {
		t.Errorf("b still has %v", all)
	}
	w.must("wait", "web")
	w.must("stop", "--wait", "web")
	if r := w.user("croft", "host", "leftover", "remove", "b", id); r.exit != 0 {
		t.Fatalf("croft host leftover remove: %v", r)
	}
	eventually(t, "the leftover of b is removed", func(context.Context) error {
		if r := w.user("croft", "audit"); r.exit != 0 || r.stdout != "" {
			return fmt.Errorf("croft audit: %v", r)
		}
		return nil
	})
	disk := filepath.Join(w.shared, "instances", id, "disk.qcow2")
	must(t, "qemu-img", "check", disk) // what b had left was not the disk
	w.storageHangs(c)
	w.must("remove", "--wait", "web")
	if _, err := os.Stat(disk); !os.IsNotExist(err) {
		t.Errorf("the disk of the removed instance: %v, want that it is gone", err)
	}
}

// storageHangs replaces a file of the storage by a pipe that nobody writes to, so that each access to it hangs as with
// a server that does not respond: the host tells of it, and runs a guest whose disk is its own.
func (w *world) storageHangs(h *host) {
	w.t.Helper()
	file := filepath.Join(w.shared, "croft-storage.json")
	must(w.t, "mv", file, file+".away")
	must(w.t, "mkfifo", file)
	says := func(want bool) func(context.Context) error {
		return func(context.Context) error {
			r := w.user("croft", "host", "list")
			if strings.Contains(r.stderr, "host "+h.name+": use the shared storage nfs1") != want {
				return fmt.Errorf("%v", r)
			}
			return nil
		}
	}
	eventually(w.t, "the host says that the storage does not respond", says(true))
	if r := w.request("beside", h, "--wait", "--timeout", patience.String()); r.exit != 0 {
		w.t.Errorf("a guest with a disk on the host: %v", r)
	}
	w.must("destroy", "--wait", "beside")
	pipe, err := os.OpenFile(file, os.O_RDWR, 0) // what waits for it returns
	if err != nil {
		w.t.Fatal(err)
	}
	must(w.t, "mv", file+".away", file)
	_ = pipe.Close()
	eventually(w.t, "the storage is offered again", says(false))
}

// fence declares a host dead that is off, or only silent.
func (w *world) fence(h *host) {
	w.t.Helper()
	if r := w.user("croft", "host", "fence", h.name, "--confirm-off", "--yes", h.name); r.exit != 0 ||
		!strings.Contains(r.stderr, "is recreated on host") {
		w.t.Fatalf("croft host fence: %v\nwant that its instance is recreated", r)
	}
}

// hostCommand runs croft host, which must succeed.
func (w *world) hostCommand(command string, h *host) {
	w.t.Helper()
	if r := w.user("croft", "host", command, h.name); r.exit != 0 {
		w.t.Fatalf("croft host %s %s: %v", command, h.name, r)
	}
}

// freeze stops all processes of a host, and thaw lets them go on.
func (h *host) freeze() { h.signalAll(syscall.SIGSTOP) }
func (h *host) thaw()   { h.signalAll(syscall.SIGCONT) }

// signalAll signals all processes of a host except the first one, which only waits for them; new ones are found
// by another search.
func (h *host) signalAll(s syscall.Signal) {
	h.w.t.Helper()
	first := fmt.Sprint(h.process.cmd.Process.Pid)
	space, err := os.Readlink("/proc/" + first + "/ns/pid")
	if err != nil {
		h.w.t.Fatal(err)
	}
	for found := -1; ; {
		all := 0
		links, _ := filepath.Glob("/proc/[0-9]*/ns/pid")
		for _, link := range links {
			name := strings.Split(link, "/")[2]
			if in, err := os.Readlink(link); err != nil || in != space || name == first {
				continue
			}
			pid, err := strconv.Atoi(name)
			if err == nil && syscall.Kill(pid, s) == nil {
				all++
			}
		}
		if all == found {
			return
		}
		found = all
	}
}
