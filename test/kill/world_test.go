package kill

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"croft/compute"
	"croft/compute/restic"
	"croft/internal/testing/freeport"
)

// A world is one cloud of processes.
type world struct {
	t        *testing.T
	seed     uint64
	dir      string
	length   time.Duration
	over     context.Context // ends when the faults must end
	etcd     []string
	places   []string // addresses of Placement servers
	controls []*control
	hosts    []*host
	api      *process // a server of the API
	url      string   // of that server
	access   string   // a token for it
	backups  bool     // the machine has what backups need
	image    string   // file
	ledger   *ledger
	facts    *facts
	journal  *journal
	work     sync.WaitGroup // faults in progress

	mu       sync.Mutex
	breaches []string // invariants that were violated during the run
	forgets  []forgetting
	movers   int // moves that ended wrongly
	counts   map[string]int
	disks    *disks
}

// A control is a process that serves etcd and Placement.
type control struct {
	*process
	disk *disk // nil: cannot be frozen
	etcd string
}

// A host runs guests.
type host struct {
	*process
	stateDir string
	member   bool // it serves etcd too, so it is neither drained nor forgotten
	api      string
}

// A forgetting is the period in which a host may have been forgotten by force.
type forgetting struct {
	host       string
	begin, end time.Time
}

func newWorld(t *testing.T, seed uint64, length time.Duration) *world {
	dir, err := os.MkdirTemp("", "croft-kill-")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, seed: seed, dir: dir, length: length, counts: map[string]int{}, facts: newFacts(),
		disks: newDisks(), journal: newJournal(t, filepath.Join(dir, "clients.log"))}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the last commands:\n%s", w.journal.end())
			t.Logf("the logs of all processes and commands are kept in %s", dir)
			return
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return w
}

// random returns the random source of one actor.
func (w *world) random(actor uint64) *rand.Rand { return rand.New(rand.NewPCG(w.seed, actor)) }

// sleep ends early when the faults end.
func (w *world) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.over.Done():
	}
}

// environment is the environment of all processes, without settings from outside.
func (w *world) environment() []string {
	plain := slices.DeleteFunc(os.Environ(), func(s string) bool {
		return strings.HasPrefix(s, "CROFT_") || strings.HasPrefix(s, "XDG_") || strings.HasPrefix(s, "HOME=") ||
			strings.HasPrefix(s, "OTEL_")
	})
	return append(plain, "HOME="+w.dir, "CROFT_STATE_DIR="+filepath.Join(w.dir, "none"))
}

// clientEnvironment returns the addresses of the cloud's servers.
func (w *world) clientEnvironment() []string {
	return append(w.environment(), "CROFT_FENCE="+filepath.Join(w.dir, "fence.yaml"),
		"CROFT_ETCD_ENDPOINTS="+strings.Join(w.etcd, ","),
		"CROFT_PLACEMENT_ENDPOINT="+strings.Join(w.places, ","))
}

// agentSettings make agents sweep and resync often, so that they repair problems soon.
var agentSettings = []string{"CROFT_SIM_BOOT=200ms", "CROFT_SWEEP=5s", "CROFT_RESYNC=5s", "CROFT_OFFER_VCPU_RATIO=40",
	"CROFT_OFFER_DISK_RATIO=8",
	"CROFT_METADATA_SERVER=false"}

func (w *world) address() string { return freeport.For(w.t, "127.0.0.1") }

func (w *world) disk(name string) (*disk, string) {
	d, err := newDisk(w.t, w.dir, name)
	if err != nil {
		w.t.Logf("no disk is frozen: %v", err)
	}
	return d, filepath.Join(w.dir, name)
}

// startControl starts etcd and Placement in one process, without a host.
func (w *world) startControl() {
	etcd, place, d := w.address(), w.address(), (*disk)(nil)
	w.etcd, w.places = []string{"http://" + etcd}, []string{"http://" + place}
	d, dir := w.disk("control")
	args := []string{"up", "--insecure", "--hypervisor", "none", "--state-dir", filepath.Join(dir, "state"),
		"--etcd-listen", etcd, "--placement-listen", place}
	p := w.begin("control", args, []string{"CROFT_ETCD_PEER_LISTEN=" + w.address(), "CROFT_SWEEP=5s"})
	w.controls = []*control{{p, d, "http://" + etcd}}
	w.awaitReady("http://" + place)
}

// startMember starts a host that serves etcd and Placement too; all but the first join the first.
func (w *world) startMember(name, token string) {
	etcd, place, api := w.address(), w.address(), w.address()
	d, dir := w.disk(name)
	state := filepath.Join(dir, "state")
	args := []string{"up", "--insecure", "--hypervisor", "sim", "--state-dir", state, "--etcd-listen", etcd,
		"--placement-listen", place, "--api-listen", api}
	env := append([]string{"CROFT_HOST_NAME=" + name, "CROFT_ETCD_PEER_LISTEN=" + w.address()}, agentSettings...)
	if token != "" {
		join := exec.Command(filepath.Join(binaries, "croft"),
			append(slices.Clone(args), "--join", "@"+token, "--etcd-member", "--only-join")...)
		join.Env, join.Dir = append(w.environment(), env...), w.dir
		if out, err := join.CombinedOutput(); err != nil {
			w.t.Fatalf("%s joins: %v\n%s", name, err, out)
		}
	}
	p := w.begin(name, args, env)
	w.controls = append(w.controls, &control{p, d, "http://" + etcd})
	w.hosts = append(w.hosts, &host{process: p, stateDir: state, member: true, api: "http://" + api})
	w.etcd, w.places = append(w.etcd, "http://"+etcd), append(w.places, "http://"+place)
	w.awaitReady("http://" + place)
	w.awaitReady("http://" + api)
}

// startAgent starts a host that only runs guests.
func (w *world) startAgent(name string) {
	state, api := filepath.Join(w.dir, name), w.address()
	p := w.begin(name, []string{"compute", "--hypervisor", "sim", "--state-dir", state, "--etcd",
		strings.Join(w.etcd, ","),
		"--placement", strings.Join(w.places, ","), "--api-listen", api},
		append([]string{"CROFT_HOST_NAME=" + name}, agentSettings...))
	w.hosts = append(w.hosts, &host{process: p, stateDir: state, api: "http://" + api})
	w.awaitReady("http://" + api)
}

// token returns a file with the token to join with.
func (w *world) token() string {
	cmd := exec.Command(filepath.Join(binaries, "croft"), "token", "create", "--etcd", w.etcd[0], "--placement",
		w.places[0])
	cmd.Env, cmd.Dir = w.clientEnvironment(), w.dir
	var says bytes.Buffer
	cmd.Stderr = &says
	out, err := cmd.Output()
	if err != nil {
		w.t.Fatalf("croft token create: %v: %s", err, &says)
	}
	file := filepath.Join(w.dir, "token")
	if err := os.WriteFile(file, out, 0o600); err != nil {
		w.t.Fatal(err)
	}
	return file
}

// startAPI starts a server of the API, which also carries out backups, and gives it a store for them.
func (w *world) startAPI() {
	w.access = strings.TrimSpace(w.command("token", "create", "--for", "api", "--user", "root", "--role",
		"partition-admin"))
	address, key := w.address(), filepath.Join(w.dir, "cluster.key")
	w.command("cluster", "credential", "key", key)
	w.url = "http://" + address
	w.api = w.begin("api", []string{"control", "--insecure", "--listen", address, "--state-dir",
		filepath.Join(w.dir, "api"), "--etcd", strings.Join(w.etcd, ","), "--placement", strings.Join(w.places, ",")},
		[]string{"CROFT_HOST_FENCE=" + filepath.Join(w.dir, "fence.yaml"), "CROFT_CLUSTERS_CREDENTIAL_KEY_FILE=" + key})
	w.awaitReady(w.url)
	if missing := restic.Missing(); len(missing) > 0 {
		w.t.Logf("no backups are made: %v are missing", missing)
		return
	}
	w.backups = true
	repository, password := filepath.Join(w.dir, "repository"), filepath.Join(w.dir, "password")
	if err := os.Mkdir(repository, 0o700); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(password, []byte("the password of the store\n"), 0o600); err != nil {
		w.t.Fatal(err)
	}
	a := &actor{w: w, n: 107, r: w.random(107), env: w.throughAPI()}
	if r := a.run(true, "croft", "backup", "store", "add", "main", repository, "--password-file", password); !r.ok() {
		w.t.Fatalf("croft backup store add ends with %d: %s", r.code, r.out)
	}
}

// throughAPI is the environment of a client that reaches the cloud through the server of its API.
func (w *world) throughAPI() []string {
	return []string{"CROFT_URL=" + w.url, "CROFT_TOKEN=" + w.access}
}

var anybody = &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

func isReady(url string) bool {
	answer, err := anybody.Get(url + "/readyz")
	if err != nil {
		return false
	}
	answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

// awaitReady waits without limit until a part is ready.
func (w *world) awaitReady(url string) {
	w.t.Helper()
	for start := time.Now(); !isReady(url); time.Sleep(50 * time.Millisecond) {
		if time.Since(start) > 5*time.Minute {
			w.t.Fatalf("%s never was ready", url)
		}
	}
}

// id returns the host's UUID, once it has one.
func (h *host) id() string {
	id, _ := compute.ReadHostID(h.stateDir, false)
	return string(id)
}

// A guest is one in the file of a host's hypervisor.
type guest struct {
	on      bool
	machine compute.Machine
}

// guests returns the guests in the file of the host's hypervisor. None runs while the host is switched off.
func (h *host) guests() (map[string]guest, error) {
	text, err := os.ReadFile(filepath.Join(h.stateDir, "sim.json"))
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var kept struct {
		Guests map[string]struct {
			Machine compute.Machine `json:"machine"`
			Power   compute.Power   `json:"power"`
		} `json:"guests"`
	}
	if err := json.Unmarshal(text, &kept); err != nil {
		return nil, fmt.Errorf("the guests of %s: %w", h.name, err)
	}
	off := h.isOff()
	all := map[string]guest{}
	for id, g := range kept.Guests {
		all[id] = guest{g.Power == compute.PowerOn && !off, g.Machine}
	}
	return all, nil
}

// count counts an event for the final report.
func (w *world) count(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[what]++
}

// breach records a violation during the run, once.
func (w *world) breach(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if text := fmt.Sprintf(format, args...); !slices.Contains(w.breaches, text) {
		w.breaches = append(w.breaches, text)
		w.t.Logf("%s BREACH: %s", time.Now().Format("15:04:05.000"), text)
	}
}

// watch checks continuously for guests that run on two hosts, and for volumes that are open on two. A guest that is off
// on one of them is none: a move leaves it there with its disk until the guest runs on the other host, and a lost host
// keeps it. A violation counts only if two successive looks find it, because a guest may have moved between two reads
// of one look.
func (w *world) watch(ctx context.Context) {
	before := map[string]string{}
	for ctx.Err() == nil {
		open := map[string][]string{} // by the UUID of an instance, or of a volume
		for _, h := range w.hosts {
			guests, err := h.guests()
			if err != nil {
				w.breach("%v", err)
			}
			for id, g := range guests {
				if !g.on || w.facts.forced(id) {
					continue
				}
				open[id] = append(open[id], h.name)
				for _, v := range g.machine.Volumes {
					open[string(v.ID)] = append(open[string(v.ID)], h.name+" in "+id)
				}
			}
		}
		twice := map[string]string{}
		for id, on := range open {
			if len(on) > 1 {
				twice[id] = strings.Join(on, " and ")
				if before[id] == twice[id] {
					w.breach("the disk of %s is open on %s", id, twice[id])
				}
			}
		}
		before = twice
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}
