package gate_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore"
	"croft/etcdstore/etcdtest"
	"croft/hosts/audit"
	"croft/internal/testing/patient"
	"croft/trust/gate"
)

var seedFlag = flag.Uint64("seed", 0, "run this seed alone")

// hostile is a cloud of three hosts, the first of which is compromised and knows all IDs and revisions: the worst case.
type hostile struct {
	*cloud
	t   *testing.T
	rng *rand.Rand

	host, alice, bob croft.HostID
	instances        []croft.InstanceID // all instances, of any host
	images           []croft.ImageID    // of which a copy is ordered: on the hostile host, on alice, on bob
	released         map[croft.InstanceID]bool
	condemned        map[croft.InstanceID]bool // on the hostile host, with a tombstone
	concerned        map[croft.InstanceID]bool // with an order or a claim there
	here             map[croft.InstanceID]bool // on it

	http *http.Client
	etcd *clientv3.Client
}

func newHostile(t *testing.T, seed uint64) *hostile {
	h := &hostile{cloud: newCloud(t), t: t, rng: rand.New(rand.NewPCG(seed, 1)), host: croft.NewHostID(),
		alice: croft.NewHostID(), bob: croft.NewHostID(),
		released: map[croft.InstanceID]bool{}, condemned: map[croft.InstanceID]bool{},
		concerned: map[croft.InstanceID]bool{}, here: map[croft.InstanceID]bool{}}
	transport := &http.Transport{TLSClientConfig: h.front.TLS(t, h.host), ForceAttemptHTTP2: true}
	h.http = &http.Client{Transport: transport}
	h.etcd = etcdtest.Client(t, h.server, etcdstore.Credentials{})
	t.Cleanup(transport.CloseIdleConnections)
	for _, id := range []croft.HostID{h.host, h.alice, h.bob} {
		h.live(id)
	}
	h.populate()
	return h
}

func (h *hostile) check(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// secret must never be read by any other host; nor may the name of an instance for which the host has neither
// order nor claim.
const secret = "SECRET"

func nameOf(id croft.InstanceID) string { return "name-of-" + string(id) }

// live makes a host with capacity, announced and alive.
func (h *hostile) live(id croft.HostID) {
	h.check(h.Registry.PutHost(h.t.Context(), croft.Host{ID: id, Name: "host-" + string(id[:8]), Token: secret,
		API: "https://" + secret, Problems: []string{secret}}))
	h.check(h.EnsureProvider(h.t.Context(), croft.Provider{ID: id, Name: "host-" + string(id),
		Inventories: map[croft.ResourceClass]croft.Inventory{croft.VCPU: {Total: 1000}}}))
	ctx, cancel := context.WithCancel(h.t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = h.Registry.StayAlive(ctx, id) }()
	h.t.Cleanup(func() { cancel(); <-ended })
	for { // until it is alive
		hosts, err := h.Registry.Hosts(h.t.Context(), id)
		h.check(err)
		if hosts[id].Alive {
			return
		}
	}
}

func (h *hostile) record(id croft.InstanceID) croft.Instance {
	inst, err := h.Instances.Create(h.t.Context(), croft.Instance{ID: id, Project: "p", Name: nameOf(id),
		Spec: croft.Spec{Resources: croft.Resources{croft.VCPU: 1}, Image: secret,
			GuestSettings: croft.GuestSettings{Keys: []string{secret}, UserData: []byte(secret)}, HostKey: secret,
			Query: secret}})
	h.check(err)
	h.instances = append(h.instances, id)
	return inst
}

func order(inst croft.Instance, host croft.HostID, want croft.Want) croft.Order {
	return croft.Order{Host: host, Instance: inst.ID, Generation: inst.Generation + 1, Want: want,
		Project: inst.Project, Name: inst.Name, Spec: inst.Spec}
}

func (h *hostile) claim(id croft.InstanceID, on croft.HostID) {
	h.check(h.Claim(h.t.Context(), id, croft.Owner{Project: "p"},
		croft.Candidate{Allocations: map[croft.HostID]croft.Resources{on: {croft.VCPU: 1}}}))
}

// on makes an instance on a host.
func (h *hostile) on(host croft.HostID, id croft.InstanceID) croft.Instance {
	inst := h.record(id)
	h.claim(inst.ID, host)
	inst, err := h.Instances.Assign(h.t.Context(), inst, order(inst, host, croft.WantRunning))
	h.check(err)
	h.check(h.Orders.Observe(h.t.Context(), croft.Observation{Host: host, Instance: inst.ID, State: croft.StateRunning,
		Error: secret, Password: secret}))
	return inst
}

// populate makes a few instances of every kind.
func (h *hostile) populate() {
	ctx := h.t.Context()
	move := func(inst croft.Instance, from, to croft.HostID) {
		there := order(inst, to, croft.WantRunning)
		there.MovedFrom = from
		_, err := h.Instances.Relocate(ctx, inst, order(inst, from, croft.WantGone), there)
		h.check(err)
	}
	for range 1 + h.rng.IntN(2) {
		for _, host := range []croft.HostID{h.host, h.alice, h.bob} {
			h.on(host, croft.NewInstanceID())
			gone := h.on(host, croft.NewInstanceID())
			_, err := h.Instances.Reorder(ctx, gone, order(gone, host, croft.WantGone))
			h.check(err)
			if host == h.host {
				h.condemned[gone.ID], h.released[gone.ID] = true, true
			}
		}
		move(h.on(h.alice, croft.NewInstanceID()), h.alice, h.host)
		away := h.on(h.host, croft.NewInstanceID())
		move(away, h.host, h.alice)
		h.released[away.ID] = true // its remaining claim is on the hostile host
		move(h.on(h.alice, croft.NewInstanceID()), h.alice, h.bob)
		for _, host := range []croft.HostID{h.host, h.alice} { // requests in flight, and leaked claims
			h.claim(h.record(croft.NewInstanceID()).ID, host)
			leaked := croft.NewInstanceID()
			h.claim(leaked, host)
			h.instances = append(h.instances, leaked)
			h.released[leaked] = host == h.host
		}
		reborn := h.on(h.host, croft.NewInstanceID()) // its tombstone stays on the hostile host
		h.check(h.Release(ctx, reborn.ID, croft.On()))
		h.check(h.Instances.Bury(ctx, reborn, order(reborn, h.host, croft.WantGone)))
		h.on(h.alice, reborn.ID)
		buried := h.on(h.alice, croft.NewInstanceID())
		h.check(h.Instances.Bury(ctx, buried, order(buried, h.alice, croft.WantGone)))
	}
	for _, host := range []croft.HostID{h.host, h.alice, h.bob} {
		v := croft.Volume{ID: croft.NewVolumeID(), Project: "p", Host: host, SizeGB: 1}
		v.Name = "volume-" + string(v.ID)
		v, err := h.Volumes.Create(ctx, v)
		h.check(err)
		_, err = h.Volumes.Settle(ctx, v)
		h.check(err)
		h.instances = append(h.instances, v.ID.Consumer())
	}
	for i, host := range []croft.HostID{h.host, h.alice, h.bob} {
		key := "key"
		if i > 0 {
			key = secret
		}
		id := croft.NewImageID()
		_, err := h.Images.Create(ctx, croft.Image{ID: id, Project: "p", Name: "image-" + string(id[:8]), Key: key,
			State: croft.ImagePending, SizeBytes: 512, ChargedGB: 1},
			croft.ImageCopy{Image: id, Host: host, Task: croft.ImageUpload, Key: key, SizeBytes: 512})
		h.check(err)
		h.images = append(h.images, id)
	}
	claims, err := h.Claims(ctx, h.host)
	h.check(err)
	b, err := h.Records.HostEvidence(ctx, h.host)
	h.check(err)
	for id := range claims {
		h.concerned[id] = true
	}
	for _, o := range b.Orders {
		h.concerned[o.Instance] = true
	}
	for id, inst := range b.Instances {
		h.here[id] = inst.Host == h.host
	}
}

func pick[T any](h *hostile, from ...T) T { return from[h.rng.IntN(len(from))] }

// anyHost and anyInstance return IDs that an attacker would try.
func (h *hostile) anyHost() croft.HostID {
	return pick(h, h.host, h.host, h.host, h.host, h.alice, h.alice, h.bob, croft.NewHostID(), "", h.host+"/",
		h.host+"/../"+h.alice, "*", croft.HostID(strings.ToUpper(string(h.alice))))
}

func (h *hostile) anyInstance() croft.InstanceID {
	id := pick(h, h.instances...)
	if h.rng.IntN(6) > 0 {
		return id
	}
	return pick(h, croft.NewInstanceID(), "", "..", "../"+id, id+"/../..",
		croft.InstanceID(strings.ToUpper(string(id))), id+"?x", "\x00")
}

// anyRevision returns the stored revision, as if guessed, or another one.
func (h *hostile) anyRevision(host croft.HostID, id croft.InstanceID) int64 {
	o, _ := h.Orders.Order(h.t.Context(), host, id)
	inst, _ := h.Instances.Instance(h.t.Context(), id)
	return pick(h, o.Revision, o.Revision, inst.Revision, 0, int64(h.rng.IntN(1000)))
}

// anyOrder returns an order as if the host had read it.
func (h *hostile) anyOrder() any {
	host, id := h.anyHost(), h.anyInstance()
	return map[string]any{"host": host, "instance": id, "want": pick(h, croft.WantGone, croft.WantArriving),
		"revision": h.anyRevision(host, id), "moved_from": h.anyHost(),
		"move": croft.Move{Host: h.anyHost(), Then: croft.WantRunning}}
}

// attacks makes a question for every method. A method without an attack fails the test.
var attacks = map[string]func(*hostile) any{
	"WatchOrders": func(h *hostile) any {
		return map[string]any{"host": h.anyHost(), "agent": croft.Agent{Host: h.anyHost()}}
	},
	"Order":    (*hostile).anyPlace,
	"Remains":  (*hostile).anyPlace,
	"Observed": (*hostile).anyPlace,
	"Observe": func(h *hostile) any {
		return croft.Observation{Host: h.anyHost(), Instance: h.anyInstance(), Generation: int64(h.rng.IntN(9)),
			State: pick(h, croft.StateRunning, croft.StateFailed, "made up"), Error: "x"}
	},
	"Forget": (*hostile).anyOrder,
	"Origin": (*hostile).anyOrder,
	"Arrived": func(h *hostile) any {
		said := h.anyOrder().(map[string]any)
		said["failure"] = pick(h, "", "x")
		return said
	},
	"HandOver": (*hostile).anyOrder,
	"PutHost": func(h *hostile) any {
		return map[string]any{"id": h.anyHost(), "name": pick(h, "host-"+string(h.alice[:8]), "x"),
			"api": pick(h, "", "file:///etc/passwd", "http://u:p@x", "http://192.0.2.1:1"), "drained": true,
			"token": "t"}
	},
	"Hosts": func(h *hostile) any {
		return pick(h, []croft.HostID{h.host}, []croft.HostID{}, []croft.HostID{h.alice},
			[]croft.HostID{h.host, h.alice}, []croft.HostID{h.anyHost()}, nil)
	},
	"Serve": func(h *hostile) any {
		return map[string]any{"agent": croft.Agent{Host: h.anyHost(), Place: "elsewhere"}, "known": true, "may": true}
	},
	"Instance": func(h *hostile) any { return h.anyInstance() },
	"HostBooks": func(h *hostile) any {
		return map[string]any{"host": h.anyHost(), "more": []croft.InstanceID{h.anyInstance(), pick(h, h.instances...),
			pick(h, h.instances...)}}
	},
	"Drop": func(h *hostile) any {
		host, id := h.anyHost(), h.anyInstance()
		return audit.Difference{Kind: pick(h, audit.LostOrder, audit.LostObservation, audit.LostName,
			audit.LeakedClaim), Host: host, Instance: id,
			Project: "p", Name: nameOf(id), Revision: h.anyRevision(host, id), Mendable: true}
	},
	"EnsureProvider": func(h *hostile) any {
		return croft.Provider{ID: h.anyHost(), Root: h.anyHost(), Name: pick(h, "mine", "host-"+string(h.alice)),
			Inventories: map[croft.ResourceClass]croft.Inventory{pick[croft.ResourceClass](h, croft.VCPU,
				"a/b"): {Total: 1 << 20, AllocationRatio: 9}},
			Traits: []croft.Trait{pick[croft.Trait](h, "CUSTOM_MINE", "MISC_SHARES_VIA_AGGREGATE",
				"../../allocations")}, Aggregates: []string{pick(h, "11111111-1111-4111-8111-111111111111", "../x")}}
	},
	"WatchVolumes":   (*hostile).anyVolume,
	"Volume":         (*hostile).anyVolume,
	"MadeVolume":     (*hostile).anyVolume,
	"FailedVolume":   (*hostile).anyVolume,
	"DetachedVolume": (*hostile).anyVolume,
	"ForgetVolume":   (*hostile).anyVolume,
	"WatchImages":    (*hostile).anyImage,
	"ImageCopy":      (*hostile).anyImage,
	"ImageSource":    (*hostile).anyImage,
	"MadeImage":      (*hostile).anyImage,
	"FailedImage":    (*hostile).anyImage,
	"ForgetImage":    (*hostile).anyImage,
	"TookSnapshot":   (*hostile).anyVolume,
	"RolledBack":     (*hostile).anyVolume,
	"WatchJobs":      (*hostile).anyJob,
	"Job":            (*hostile).anyJob,
	"Report":         (*hostile).anyJob,
	"Claims":         func(h *hostile) any { return h.anyHost() },
	"Release":        func(h *hostile) any { return h.anyInstance() },
	"Vacate":         func(h *hostile) any { return h.anyInstance() },
	"Gates":          func(*hostile) any { return map[string]any{} },
	"Usable":         func(*hostile) any { return map[string]any{} },
	// Not served: calls of the caretaker.
	"Books":    func(*hostile) any { return map[string]any{} },
	"Fence":    func(h *hostile) any { return map[string]any{"id": h.anyInstance(), "state": "scheduling"} },
	"Discard":  func(h *hostile) any { return map[string]any{"id": h.anyInstance(), "state": "scheduling"} },
	"TakeTurn": func(*hostile) any { return 60e9 },
}

// streams do not end on their own.
var streams = []string{"WatchOrders", "WatchVolumes", "WatchJobs", "WatchImages"}

func (h *hostile) anyVolume() any {
	return map[string]any{"host": h.anyHost(), "volume": h.anyInstance(), "size_gb": h.rng.IntN(9), "error": "x",
		"instance": h.anyInstance()}
}

func (h *hostile) anyJob() any {
	return map[string]any{"host": h.anyHost(), "job": pick(h, string(h.anyInstance()), "../x"),
		"report": map[string]any{"done": true, "error": "x"}}
}

func (h *hostile) anyImage() any {
	return map[string]any{"host": h.anyHost(), "image": pick(h, h.images...), "instance": h.anyInstance(), "error": "x",
		"final": h.rng.IntN(2) == 0, "file": map[string]any{"sha256": strings.Repeat("a", 64), "format": "raw",
			"size_bytes": 512, "disk_bytes": 512}}
}

func (h *hostile) anyPlace() any {
	return map[string]any{"host": h.anyHost(), "instance": h.anyInstance()}
}

// post calls a method as the hostile host, and returns the status and everything that is answered within a
// moment.
func (h *hostile) post(name string, question any) (int, string) {
	h.t.Helper()
	body, err := json.Marshal(question)
	h.check(err)
	ctx, cancel := context.WithTimeout(h.t.Context(), patient.Longest)
	defer cancel()
	if slices.Contains(streams, name) {
		defer time.AfterFunc(100*time.Millisecond, cancel).Stop() // the stream does not end on its own
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+h.front.Address+"/v1/agent/"+name,
		bytes.NewReader(append(body, '\n')))
	h.check(err)
	answer, err := h.http.Do(request)
	h.check(err)
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text)
}

// everything returns all that the cloud and Placement store, by key.
func (h *hostile) everything() map[string]string {
	h.t.Helper()
	got, err := h.etcd.Get(h.t.Context(), "/croft/"+string(h.Partition())+"/", clientv3.WithPrefix())
	h.check(err)
	all := map[string]string{}
	for _, kv := range got.Kvs {
		all[strings.TrimPrefix(string(kv.Key), "/croft/"+string(h.Partition())+"/")] = string(kv.Value)
	}
	return all
}

// own reports whether a host may change the value of a key.
func (h *hostile) own(key string, is bool) bool {
	kind, rest, _ := strings.Cut(key, "/")
	switch kind {
	case "seen": // the other host is alive, and renews it each minute
		return croft.HostID(rest) == h.host || is
	case "hosts", "alive", "agents", "twins", "orders", "observed":
		first, _, _ := strings.Cut(rest, "/")
		return croft.HostID(first) == h.host
	case "volumes":
		host, _, _ := strings.Cut(strings.TrimPrefix(rest, "records/"), "/")
		return croft.HostID(host) == h.host && is
	case "images":
		place, id, _ := strings.Cut(rest, "/")
		host, _, _ := strings.Cut(id, "/")
		return place == "copies" && croft.HostID(host) == h.host ||
			place == "records" && croft.ImageID(id) == h.images[0] && is
	case "instances", "userdata":
		return h.condemned[croft.InstanceID(rest)] && !is
	case "names":
		id := croft.InstanceID(strings.TrimPrefix(rest, "p/name-of-"))
		return h.condemned[id] && !is
	case "macs": // of a record that goes
		_, id, _ := strings.Cut(rest, "/")
		return h.condemned[croft.InstanceID(id)] && !is
	case "quota": // the charge of its instance is given back
		id, isEntry := strings.CutPrefix(strings.TrimSuffix(rest, "/repaid"), "unsettled/p/")
		return isEntry && (h.condemned[croft.InstanceID(id)] || strings.Contains(id, string(h.images[0]))) && is
	case "placement":
		kind, id, _ := strings.Cut(rest, "/")
		switch {
		case kind == "head" || strings.Contains(id, string(h.host)):
			return true
		case strings.HasPrefix(id, "CUSTOM_MINE") || id == "mine": // names that it created
			return true
		}
		return h.released[croft.InstanceID(id)] && !is
	}
	return false
}

// TestAHostileHostReachesNothingOfOthers calls every method with every kind of argument, as a host with a valid
// certificate, and checks all stored data and all answers.
func TestAHostileHostReachesNothingOfOthers(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64N(1 << 32)
	}
	t.Logf("again with: go test ./gate -run Hostile -seed %d", seed)
	h := newHostile(t, seed)
	served := gate.Policy()
	for name := range served {
		if attacks[name] == nil {
			t.Errorf("method %s has no attack: write one", name)
		}
	}
	before := h.everything()
	for _, name := range slices.Sorted(maps.Keys(attacks)) {
		attack := attacks[name]
		rounds := 50
		if slices.Contains(streams, name) {
			rounds = 3
		}
		for range rounds {
			question := attack(h)
			status, answer := h.post(name, question)
			after := h.everything()
			said := fmt.Sprintf("%s of %+v, answered %d %.300q", name, question, status, answer)
			h.compare(said, before, after)
			h.judge(said, name, question, status, answer)
			before = after
		}
		if status, _ := h.post(name, attack(h)); served[name] == "" && status != http.StatusForbidden {
			t.Errorf("%s is answered with %d", name, status)
		}
	}
	for _, name := range []string{"", "Create", "ForgetHost", "order", "Order/x", "../join", "Drain"} {
		if status, _ := h.post(name, map[string]any{}); status != http.StatusForbidden &&
			status != http.StatusNotFound {
			t.Errorf("%q, which is no method, is answered with %d", name, status)
		}
	}
}

// compare finds changes by a call to data that is not the host's own.
func (h *hostile) compare(said string, before, after map[string]string) {
	h.t.Helper()
	for key, value := range after {
		if was, there := before[key]; (!there || was != value) && !h.own(key, true) {
			h.t.Errorf("%s:\nwrote %s: %.200s", said, key, value)
		}
	}
	for key := range before {
		if _, there := after[key]; !there && !h.own(key, false) {
			h.t.Errorf("%s:\nremoved %s", said, key)
		}
	}
}

// judge finds data in an answer that the host may not read.
func (h *hostile) judge(said, name string, question any, status int, answer string) {
	h.t.Helper()
	if status >= http.StatusInternalServerError {
		h.t.Errorf("%s: a host made the gate fail", said)
	}
	for _, id := range h.instances {
		if !h.concerned[id] && strings.Contains(answer, nameOf(id)) {
			h.t.Errorf("%s:\ntells of instance %s", said, id)
		}
	}
	if strings.Contains(answer, secret) || strings.Contains(answer, "U0VDUkVU") { // the same in base64
		h.judgeSecrets(said, name, answer)
	}
	if p, ok := question.(map[string]any); ok && !slices.Contains(streams, name) {
		if host, ok := p["host"].(croft.HostID); ok && host != h.host && status == http.StatusOK && name != "Order" &&
			name != "Remains" {
			h.t.Errorf("%s: was answered, of another host", said)
		}
	}
}

// judgeSecrets allows the secrets of instances on the host itself.
func (h *hostile) judgeSecrets(said, name, answer string) {
	h.t.Helper()
	var told []any
	var one any
	h.check(json.Unmarshal([]byte(answer), &one))
	told = append(told, one)
	for len(told) > 0 {
		v := told[0]
		told = told[1:]
		switch v := v.(type) {
		case []any:
			told = append(told, v...)
		case map[string]any:
			if h.whose(v) {
				continue
			}
			for _, inner := range v {
				told = append(told, inner)
			}
		case string:
			if strings.Contains(v, secret) || strings.Contains(v, "U0VDUkVU") {
				h.t.Errorf("%s:\ntells a secret of another host's", said)
			}
		}
	}
}

// whose reports whether an answered value is the host's own: its record, its order or observation, or the record of an
// instance on it.
func (h *hostile) whose(v map[string]any) bool {
	if _, isPlace := v["instance"]; isPlace {
		return v["host"] == string(h.host)
	}
	id, _ := v["id"].(string)
	return id == string(h.host) || v["host"] == string(h.host) && h.here[croft.InstanceID(id)]
}
