package images

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"croft"
	"croft/compute"
	"croft/compute/diskcopy"
	"croft/compute/image"
	"croft/etcdstore"
	"croft/etcdstore/etcdtest"
	"croft/internal/endpoint"
	"croft/internal/testing/patient"
	"croft/schedule/images"
	"croft/trust/pki"
)

// cloud has hosts that get images of the catalog from an origin and from each other.
type cloud struct {
	testing.TB
	store   *etcdstore.Store
	manager *images.Manager
	hosts   map[string]*host
	// answers for the request of a host to another one for an image, if not nil and if it returns an answer
	between func(from, to string, r *http.Request, next http.RoundTripper) (*http.Response, error)

	content []byte // of the image at the origin
	origin  *httptest.Server
	fetched atomic.Int32 // downloads from the origin

	mu    sync.Mutex
	peers map[string]string // names of hosts, by the address of their API

	ca *pki.CA // of the hosts' certificates; nil: they use plain HTTP
}

// chunks is the size of the image at the origin.
const chunks = 6

func newCloud(t testing.TB) *cloud {
	t.Helper()
	c := &cloud{TB: t, store: etcdtest.Start(t), hosts: map[string]*host{}, peers: map[string]string{}}
	c.content = bytes.Repeat([]byte("an image"), (chunks*diskcopy.Chunk-512)/8)
	copy(c.content, "\xeb\xfe")
	copy(c.content[510:], "\x55\xaa")
	c.origin = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.fetched.Add(1)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(c.content))
	}))
	t.Cleanup(c.origin.Close)
	c.manager = &images.Manager{Store: c.store.Images, Hosts: c.store.Registry, Instances: c.store.Instances,
		Log: slog.New(slog.DiscardHandler)}
	return c
}

func (c *cloud) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// join adds a host, or starts its agent again.
func (c *cloud) join(name string) *host {
	c.Helper()
	h := c.hosts[name]
	if h == nil {
		h = &host{t: c.TB, store: c.store, id: croft.NewHostID(), name: name, state: c.TempDir()}
		c.hosts[name] = h
	}
	api := httptest.NewUnstartedServer(nil)
	scheme, client := c.secure(h, api)
	address := scheme + "://" + api.Listener.Addr().String()
	c.mu.Lock()
	c.peers[api.Listener.Addr().String()] = name
	c.mu.Unlock()
	files, err := image.NewCopies(filepath.Join(h.state, "catalog"), 0)
	c.must(err)
	transport := client.Transport.(*http.Transport)
	c.Cleanup(transport.CloseIdleConnections)
	h.start(func(config *compute.Config) {
		config.Host.API, config.Copies, config.CopyFiles = address, c.store.Images, files
		config.Host.Images, config.ResyncEvery = true, time.Second
		config.Peers = func(croft.Host) (*http.Client, error) {
			return &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
				if c.between == nil {
					return transport.RoundTrip(r)
				}
				c.mu.Lock()
				to := c.peers[r.URL.Host]
				c.mu.Unlock()
				return c.between(name, to, r, transport)
			})}, nil
		}
	})
	api.Config.Handler = (&compute.API{Agent: h.agent, Token: "secret"}).Handler()
	if api.TLS != nil {
		api.StartTLS()
	} else {
		api.Start()
	}
	stop := h.stop
	h.stop = func() { stop(); api.CloseClientConnections(); api.Close() }
	c.Cleanup(h.stop)
	c.until("the host is alive", func() bool {
		all, err := c.store.Registry.Hosts(c.Context(), h.id)
		return err == nil && all[h.id].Alive && all[h.id].API == address
	})
	return h
}

// secure gives a host its certificate, and returns the host's client for other hosts.
func (c *cloud) secure(h *host, api *httptest.Server) (scheme string, client *http.Client) {
	c.Helper()
	if c.ca == nil {
		return "http", endpoint.AgentClient(nil)
	}
	p := c.store.Partition()
	keeper := pki.Keeper{Files: pki.Files{Dir: filepath.Join(h.state, "pki"), Authority: pki.Hosts},
		Issuer: c.ca.For(pki.HostIdentity(p, h.id), "127.0.0.1"), Log: slog.New(slog.DiscardHandler)}
	_, err := keeper.Ensure(c.Context())
	c.must(err)
	api.TLS = keeper.Files.Server(p, false, pki.Kinds(pki.Host))
	return "https", endpoint.AgentClient(keeper.Files.Client(p, pki.Kinds(pki.Host)))
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (c *cloud) until(what string, reached func() bool) {
	c.Helper()
	patient.Until(c, what, reached)
}

// add adds the image of the origin to the catalog, and waits until a host has fetched it.
func (c *cloud) add(name string) croft.Image {
	c.Helper()
	i, err := c.manager.Add(c.Context(), croft.Image{Project: croft.DefaultProject, Name: name,
		Origin: c.origin.URL + "/disk.img", SizeBytes: 1 << 30})
	c.must(err)
	return c.settled(i, croft.ImageReady)
}

func (c *cloud) settled(i croft.Image, want croft.ImageState) croft.Image {
	c.Helper()
	c.until(fmt.Sprint("image ", i.Name, " is ", want), func() bool {
		now, err := c.store.Images.Get(c.Context(), i.ID)
		c.must(err)
		i = now
		return i.State == want
	})
	return i
}

// withoutOrigin makes the hosts with copies the only sources of an image.
func (c *cloud) withoutOrigin(i croft.Image) croft.Image {
	c.Helper()
	next := i
	next.Origin = ""
	next, err := c.store.Images.Change(c.Context(), i, next)
	c.must(err)
	return next
}

// copyTo orders a copy on a host.
func (c *cloud) copyTo(i croft.Image, host string) croft.Image {
	c.Helper()
	next, err := c.store.Images.AddCopy(c.Context(), i, croft.ImageCopy{Image: i.ID, Host: c.hosts[host].id,
		Task: croft.ImageCopied, SHA256: i.SHA256, Format: i.Format, SizeBytes: i.SizeBytes, Key: i.Key})
	c.must(err)
	return next
}

// copyOn returns the order for a copy on a host.
func (c *cloud) copyOn(i croft.Image, host string) croft.ImageCopy {
	c.Helper()
	now, err := c.store.Images.ImageCopy(c.Context(), c.hosts[host].id, i.ID)
	c.must(err)
	return now
}

func (c *cloud) awaitCopy(i croft.Image, host string) {
	c.Helper()
	c.until("host "+host+" has its copy", func() bool { return c.copyOn(i, host).Made })
	c.hasFile(i, host)
}

// path returns where a host has the file of an image.
func (c *cloud) path(i croft.Image, host string) string {
	return filepath.Join(c.hosts[host].state, "catalog", string(i.ID)+"."+i.SHA256+"."+i.Format)
}

// hasFile compares the file of a host with the image, and checks that the host has no other one.
func (c *cloud) hasFile(i croft.Image, host string) {
	c.Helper()
	got, err := os.ReadFile(c.path(i, host))
	if sum := sha256.Sum256(got); err != nil || hex.EncodeToString(sum[:]) != i.SHA256 {
		c.Errorf("host %s has %d other bytes: %v", host, len(got), err)
	}
	others := slices.DeleteFunc(c.hosts[host].files("catalog"), func(file string) bool {
		return !strings.Contains(file, string(i.ID)) || filepath.Join(c.hosts[host].state, file) == c.path(i, host)
	})
	if len(others) > 0 {
		c.Errorf("host %s also has the files %q", host, others)
	}
}

// makers returns the name of the host with the only copy, and the others in order.
func (c *cloud) makers(i croft.Image) (first string, others []string) {
	for name, h := range c.hosts {
		if slices.Contains(i.Copies, h.id) {
			first = name
		} else {
			others = append(others, name)
		}
	}
	slices.Sort(others)
	return first, others
}

// isContent reports whether a request is for the bytes of an image.
func isContent(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/content") }

// stream returns the answer of a host that has these bytes, and says that they are another file.
func stream(t *testing.T, identity string, bytes []byte) *http.Response {
	t.Helper()
	path := filepath.Join(t.TempDir(), "lie")
	f, err := os.Create(path)
	if err == nil {
		_, err = f.Write(bytes)
	}
	if err != nil {
		t.Fatal(err)
	}
	answer := httptest.NewRecorder()
	head := diskcopy.Head{Identity: identity, Size: int64(len(bytes)), SHA256: identity}
	text, err := json.Marshal(head)
	answer.Header().Set("Croft-Disk", string(text))
	if err = errors.Join(err, diskcopy.Send(t.Context(), answer, f, head, func(int64) {}), f.Close()); err != nil {
		t.Fatal(err)
	}
	return answer.Result()
}

func TestAnImageIsFetchedFromItsOriginOncePerCloud(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	for _, name := range []string{"a", "b", "c"} {
		c.join(name)
	}
	i := c.add("web")
	first, others := c.makers(i)
	c.must(c.manager.Mend(t.Context())) // orders the second copy
	i = c.settled(i, croft.ImageReady)
	if len(i.Copies) != croft.MinImageCopies || c.hosts[first].id != i.Copies[0] {
		t.Fatalf("copies are on %v", i.Copies)
	}
	for _, name := range others {
		if c.hosts[name].id == i.Copies[1] {
			c.awaitCopy(i, name)
		}
	}
	for _, name := range append(others, first) { // also the host without an order for a copy
		h := c.hosts[name]
		inst := h.request("on-"+name, i.Reference())
		h.await(inst, croft.StateRunning)
		c.hasFile(i, name)
	}
	if n := c.fetched.Load(); n != 1 {
		t.Errorf("the origin was asked %d times", n)
	}
}

func TestAHostThatSendsOtherBytesIsPassedOver(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.join("a")
	i := c.withoutOrigin(c.add("web"))
	c.join("b")
	i = c.copyTo(i, "b")
	c.awaitCopy(i, "b")
	lie := bytes.Clone(c.content)
	lie[3*diskcopy.Chunk] ^= 1
	var lies atomic.Int32
	c.between = func(_, to string, r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if to == "a" && isContent(r) {
			lies.Add(1)
			return stream(t, i.SHA256, lie), nil
		}
		return next.RoundTrip(r)
	}
	for n := 0; lies.Load() == 0 && n < 50; n++ { // until the liar is the first one to be asked
		name := fmt.Sprint("c", n)
		h := c.join(name)
		h.await(h.request("on-"+name, i.Reference()), croft.StateRunning)
		c.hasFile(i, name)
	}
	if lies.Load() == 0 {
		t.Error("of 50 hosts none asked the first one first")
	}

	// Without an honest host the instance waits, and nothing of the lie is kept.
	c.hosts["b"].stop()
	c.until("b is silent", func() bool {
		all, err := c.store.Registry.Hosts(t.Context(), c.hosts["b"].id)
		return err == nil && !all[c.hosts["b"].id].Alive
	})
	h := c.join("d")
	inst := h.request("on-d", i.Reference())
	h.follow(inst, func(st *croft.Status) bool {
		return st != nil && st.Observation != nil && strings.Contains(st.Observation.Error, "SHA-256")
	})
	if files := h.files("catalog"); len(files) != 0 {
		t.Errorf("of the lie it keeps %q", files)
	}
	c.join("b") // a host that lies does not end the instance
	h.follow(inst, func(st *croft.Status) bool {
		return st.Observation != nil && st.Observation.State == croft.StateRunning
	})
	c.hasFile(i, "d")
}

func TestTheOriginIsAskedIfNoHostGivesTheImage(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.join("a")
	i := c.add("web")
	c.between = func(string, string, *http.Request, http.RoundTripper) (*http.Response, error) {
		return nil, errors.New("no route to host")
	}
	h := c.join("b")
	h.await(h.request("on-b", i.Reference()), croft.StateRunning)
	c.hasFile(i, "b")
	if n := c.fetched.Load(); n != 2 {
		t.Errorf("the origin was asked %d times", n)
	}
}

// cut ends after some bytes, as a connection to a host that dies.
type cut struct {
	io.Reader
	io.Closer
}

func TestACopyContinuesWithAnotherHostIfTheFirstDies(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.join("a")
	i := c.withoutOrigin(c.add("web"))
	c.join("b")
	i = c.copyTo(i, "b")
	c.awaitCopy(i, "b")
	var dead atomic.Value // the host that was asked first
	var continued atomic.Value
	c.between = func(_, to string, r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if !isContent(r) {
			return next.RoundTrip(r)
		}
		if dead.CompareAndSwap(nil, to) {
			answer, err := next.RoundTrip(r)
			if err == nil {
				answer.Body = cut{io.LimitReader(answer.Body, 4*diskcopy.Chunk), answer.Body}
			}
			return answer, err
		}
		if dead.Load() == to {
			return nil, errors.New("no route to host")
		}
		continued.Store(r.URL.Query().Get("from"))
		return next.RoundTrip(r)
	}
	h := c.join("c")
	h.await(h.request("on-c", i.Reference()), croft.StateRunning)
	c.hasFile(i, "c")
	if from := continued.Load(); from != "3" {
		t.Errorf("the other host was asked from chunk %v", from)
	}
}

// A file system that fills up in the middle of a copy costs nothing of what has arrived.
func TestACopyContinuesOnceItsFullFileSystemHasSpace(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.join("a")
	i := c.withoutOrigin(c.add("web"))
	b := &host{t: t, store: c.store, id: croft.NewHostID(), name: "b", state: t.TempDir()}
	c.hosts["b"] = b
	dir := filepath.Join(b.state, "catalog")
	filler := filepath.Join(dir, "filler")
	c.must(os.Mkdir(dir, 0o700))
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=300m", "none", dir).CombinedOutput(); err != nil {
		t.Skipf("this needs root to mount a file system: %s", out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %s", out)
		}
	})
	var asked []string // the chunks from which the other host was asked
	var mu sync.Mutex
	c.between = func(_, _ string, r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if !isContent(r) {
			return next.RoundTrip(r)
		}
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, r.URL.Query().Get("from"))
		if len(asked) == 1 { // after the host has looked for space, and before the first chunk
			if err := fill(filler, 5*diskcopy.Chunk/2); err != nil {
				t.Error(err)
			}
		}
		return next.RoundTrip(r)
	}
	c.join("b")
	i = c.copyTo(i, "b")
	c.until("the copy has failed", func() bool { return c.copyOn(i, "b").Error != "" })
	if why := c.copyOn(i, "b").Error; !strings.Contains(why, "full") && !strings.Contains(why, "free some space") {
		t.Errorf("it failed because: %s", why)
	}
	c.must(os.Remove(filler))
	c.awaitCopy(i, "b")
	mu.Lock()
	defer mu.Unlock()
	if len(asked) != 2 || asked[0] != "0" || asked[1] != "2" {
		t.Errorf("the other host was asked from the chunks %q", asked)
	}
}

// fill makes a file that leaves some bytes free.
func fill(file string, left int64) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return err
	}
	return unix.Fallocate(int(f.Fd()), 0, 0, int64(st.Bavail)*st.Bsize-left)
}

// A host that sends some other bytes and breaks off cannot make an honest one look like a liar.
func TestABeginningFromALiarDoesNotSpoilTheRest(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.join("a")
	i := c.withoutOrigin(c.add("web"))
	c.join("b")
	i = c.copyTo(i, "b")
	c.awaitCopy(i, "b")
	lie := bytes.Clone(c.content)
	lie[5] ^= 1
	var liar atomic.Value
	c.between = func(_, to string, r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if !isContent(r) {
			return next.RoundTrip(r)
		}
		if liar.CompareAndSwap(nil, to) {
			answer := stream(t, i.SHA256, lie)
			answer.Body = cut{io.LimitReader(answer.Body, 4*diskcopy.Chunk), answer.Body}
			return answer, nil
		}
		if liar.Load() == to {
			return nil, errors.New("no route to host")
		}
		return next.RoundTrip(r)
	}
	h := c.join("c")
	h.await(h.request("on-c", i.Reference()), croft.StateRunning)
	c.hasFile(i, "c")
}

func TestAnImageIsRemovedWhileAnInstanceOfItStarts(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.join("a")
	i := c.withoutOrigin(c.add("web"))
	asked, goOn := make(chan struct{}), make(chan struct{})
	c.between = func(_, _ string, r *http.Request, next http.RoundTripper) (*http.Response, error) {
		answer, err := next.RoundTrip(r)
		close(asked)
		select {
		case <-goOn:
		case <-r.Context().Done():
		}
		return answer, err
	}
	b := c.join("b")
	inst := b.request("late", i.Reference())
	<-asked
	_, err := c.manager.RemoveNamed(t.Context(), croft.DefaultProject, "web")
	c.must(err)
	c.until("the first host has removed its copy", func() bool {
		return len(c.hosts["a"].files("catalog")) == 0
	})
	close(goOn)
	b.await(inst, croft.StateRunning) // the sender had opened the file: the bytes are those of the image
	a := c.hosts["a"]
	none := a.request("none", i.Reference())
	a.follow(none, func(st *croft.Status) bool {
		return st != nil && st.Observation != nil && st.Observation.State == croft.StateFailed &&
			strings.Contains(st.Observation.Error, "was removed from the cloud's catalog")
	})
	c.until("the order is gone", func() bool {
		all, err := c.store.Images.HostCopies(t.Context(), "")
		return err == nil && len(all) == 0
	})
}

// A host may be killed between any two steps: from what is on the disk and in etcd it goes on.
func TestACopyIsCompletedAfterAKillAtAnyStep(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.join("a")
	i := c.withoutOrigin(c.add("web"))
	b := c.join("b")
	b.stop()
	staged := filepath.Join(b.state, "catalog", string(i.ID)+".staged")
	i = func() croft.Image { // orders need no agent, only a host that was alive a moment ago
		b = c.join("b")
		var gate atomic.Bool
		gate.Store(true)
		c.between = func(_, _ string, r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if gate.Load() {
				return nil, errors.New("no route to host")
			}
			return next.RoundTrip(r)
		}
		next := c.copyTo(i, "b")
		c.until("it was tried", func() bool { return c.copyOn(i, "b").Error != "" })
		b.stop()
		gate.Store(false)
		return next
	}()
	for _, step := range []struct {
		name    string
		prepare func()
	}{
		{"a staging file without a log", func() { c.must(os.WriteFile(staged, c.content[:1000], 0o600)) }},
		{"a staging file that is complete, but has no name yet", func() {
			c.must(os.WriteFile(staged, c.content, 0o600))
		}},
		{"a staging file with other bytes", func() {
			c.must(os.WriteFile(staged, bytes.Repeat([]byte("x"), len(c.content)), 0o600))
		}},
		{"a file with its name, that is not recorded", func() {
			c.must(os.WriteFile(c.path(i, "b"), c.content, 0o600))
		}},
		{"a recorded file that is lost", func() {}},
	} {
		t.Log(step.name)
		step.prepare()
		b = c.join("b")
		c.until(step.name, func() bool {
			_, err := os.Stat(c.path(i, "b"))
			return err == nil && c.copyOn(i, "b").Made
		})
		c.until("no staging file is left: "+step.name, func() bool { return len(b.files("catalog")) == 1 })
		c.hasFile(i, "b")
		b.stop()
		if step.name == "a recorded file that is lost" {
			break
		}
		c.must(os.Remove(c.path(i, "b")))
	}

	// The removal was carried out, and its order is still there.
	b = c.join("b")
	b.stop()
	c.must(os.Remove(c.path(i, "b")))
	_, err := c.manager.RemoveNamed(context.WithoutCancel(t.Context()), croft.DefaultProject, "web")
	c.must(err)
	c.join("b")
	c.until("both orders are gone", func() bool {
		all, err := c.store.Images.HostCopies(t.Context(), "")
		return err == nil && len(all) == 0
	})
}

// declareDead declares a silent host dead.
func (c *cloud) declareDead(h *host) croft.Death {
	c.Helper()
	c.until(h.name+" is silent", func() bool {
		all, err := c.store.Registry.Hosts(c.Context(), h.id)
		return err == nil && !all[h.id].Alive
	})
	death, err := c.store.Registry.BeginDeath(c.Context(), h.id)
	c.must(err)
	death, err = c.store.Registry.DeclareDead(c.Context(), h.id, death, croft.ConfirmedOff)
	c.must(err)
	return death
}

func TestMendOrdersCopiesElsewhereAndNotesWhatIsLost(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.join("a")
	i := c.withoutOrigin(c.add("web"))
	b := c.join("b")
	c.must(c.manager.Mend(t.Context()))
	i = c.settled(i, croft.ImageReady)
	c.awaitCopy(i, "b")

	// An operator declares the first host dead: the next host gets a copy, and the dead one is out of the record.
	a := c.hosts["a"]
	c.join("c")
	a.stop()
	c.until("a is silent", func() bool {
		all, err := c.store.Registry.Hosts(t.Context(), a.id)
		return err == nil && !all[a.id].Alive
	})
	c.must(c.manager.Mend(t.Context()))
	if now := c.settled(i, croft.ImageReady); len(now.Copies) != 2 {
		t.Errorf("a host is only silent, and the copies are on %v", now.Copies)
	}
	c.declareDead(a)
	c.must(c.manager.Mend(t.Context()))
	i = c.settled(i, croft.ImageReady)
	if len(i.Copies) != 2 || slices.Contains(i.Copies, a.id) {
		t.Fatalf("copies are on %v", i.Copies)
	}
	c.awaitCopy(i, "c")

	// All others are declared dead, too: the image is lost, with the reason, until one returns with its disk.
	c.hosts["c"].stop()
	c.declareDead(c.hosts["c"])
	b.stop()
	death := c.declareDead(b)
	c.must(c.manager.Mend(t.Context()))
	i = c.settled(i, croft.ImageLost)
	if !strings.Contains(i.Error, "the only hosts that had it are gone") {
		t.Errorf("the reason is %q", i.Error)
	}
	c.must(c.store.Registry.EndDeath(t.Context(), b.id, death))
	c.must(c.manager.Mend(t.Context()))
	c.settled(i, croft.ImageReady)
}

// Each failure has another text, which the agent records in its own order.
func TestAFailureDoesNotWakeTheAgentThatRecordsIt(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.join("a")
	i := c.withoutOrigin(c.add("web"))
	var asked atomic.Int32
	c.between = func(string, string, *http.Request, http.RoundTripper) (*http.Response, error) {
		return nil, fmt.Errorf("no route to host, attempt %d", asked.Add(1))
	}
	c.join("b")
	i = c.copyTo(i, "b")
	c.until("it was tried", func() bool { return c.copyOn(i, "b").Error != "" })
	begun := time.Now()
	for range 50 { // each of them takes longer than a pass
		c.must(c.manager.Mend(t.Context()))
	}
	if n := asked.Load(); n > 2+int32(time.Since(begun)/(4*time.Second)) {
		t.Errorf("the first host was asked %d times", n)
	}
}

// put sends a chunk of an upload to its host, and returns the answer.
func (c *cloud) put(ctx context.Context, host string, i croft.Image, offset int, chunk io.Reader) (string, error) {
	all, err := c.store.Registry.Hosts(ctx, c.hosts[host].id)
	if err != nil {
		return "", err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, fmt.Sprintf("%s/v1/image-copies/%s/upload?offset=%d",
		all[c.hosts[host].id].API, i.ID, offset), chunk)
	if err != nil {
		return "", err
	}
	r.Header.Set("Authorization", "Bearer secret")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return fmt.Sprint(answer.StatusCode, " ", strings.TrimSpace(string(text))), err
}

// A connection that sends nothing more, as one of a client that lost its network, blocks neither another upload nor
// the continuation of its own.
func TestASlowUploadBlocksNoOther(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.join("a")
	sum := sha256.Sum256(c.content)
	var all []croft.Image
	for _, name := range []string{"one", "two"} {
		i, err := c.manager.Add(t.Context(), croft.Image{Project: croft.DefaultProject, Name: name,
			SizeBytes: int64(len(c.content)), SHA256: hex.EncodeToString(sum[:])})
		c.must(err)
		all = append(all, i)
	}
	read, write := io.Pipe()
	var work sync.WaitGroup
	work.Go(func() {
		_, err := c.put(t.Context(), "a", all[0], 0, read)
		read.CloseWithError(err)
	})
	_, err := write.Write(c.content[:1000])
	c.must(err)
	staged := filepath.Join(c.hosts["a"].state, "catalog", string(all[0].ID)+".staged")
	c.until("the beginning has arrived", func() bool {
		info, err := os.Stat(staged)
		return err == nil && info.Size() == 1000
	})
	answer, err := c.put(t.Context(), "a", all[1], 0, bytes.NewReader(c.content))
	if want := fmt.Sprintf(`200 {"received":%d}`, len(c.content)); err != nil || answer != want {
		t.Errorf("the other upload: %s %v", answer, err)
	}
	answer, err = c.put(t.Context(), "a", all[0], 1000, bytes.NewReader(c.content[1000:]))
	if want := fmt.Sprintf(`200 {"received":%d}`, len(c.content)); err != nil || answer != want {
		t.Errorf("the continuation: %s %v", answer, err)
	}
	c.must(write.Close())
	work.Wait()
	for _, i := range all {
		copies, err := c.store.Images.Copies(t.Context(), i)
		c.must(err)
		c.must(c.store.Images.Complete(t.Context(), copies[0]))
		c.hasFile(c.settled(i, croft.ImageReady), "a")
	}
}

// A host was killed after it had converted an upload, and before it had recorded that: the upload is gone by then.
func TestAConversionIsRecordedAfterAKill(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	a := c.join("a")
	i, err := c.manager.Add(t.Context(), croft.Image{Project: croft.DefaultProject, Name: "web", Convert: true,
		SizeBytes: 1000, SHA256: strings.Repeat("0", 64)})
	c.must(err)
	a.stop()
	sum := sha256.Sum256(c.content)
	done := i
	done.SHA256, done.Format = hex.EncodeToString(sum[:]), "raw"
	c.must(os.WriteFile(c.path(done, "a"), c.content, 0o600))
	copies, err := c.store.Images.Copies(t.Context(), i)
	c.must(err)
	c.must(c.store.Images.Complete(t.Context(), copies[0]))
	c.join("a")
	if i = c.settled(i, croft.ImageReady); i.SHA256 != done.SHA256 || i.Convert {
		t.Errorf("it is %+v", i)
	}
	c.hasFile(i, "a")
	c.join("b") // gets the converted file, not the upload
	i = c.copyTo(i, "b")
	c.awaitCopy(i, "b")
}
