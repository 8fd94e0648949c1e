package kill

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/compute/backup"
)

// A look is a snapshot of all stored records, claims and running guests, read without the code under test.
type look struct {
	print    string // equal as long as nothing changes
	records  map[string]croft.Instance
	orders   map[string]croft.Order       // by host/instance
	observed map[string]croft.Observation // likewise
	names    map[string]string            // project/name to instance
	groups   []croft.GroupMember
	projects map[string]string           // of the members of groups
	claims   map[string]map[string]bool  // by provider, of consumers
	amounts  map[string]croft.Resources  // claimed amounts by provider/consumer
	guests   map[string]map[string]guest // by host
	volumes  map[string]croft.Volume     // and snapshots, by host/volume
	named    map[string]bool             // volumes with a name, by UUID
	attached map[string]string           // by instance/volume, to the host
	images   map[string]croft.Image
	copies   map[string]string // by host/image
	backups  map[string]backup.Backup
	dead     []string
	leases   []string // sessions of commands
	files    []string // the guests in the files of hypervisors
}

func (w *world) look() (*look, error) {
	l := &look{
		records: map[string]croft.Instance{}, orders: map[string]croft.Order{},
		observed: map[string]croft.Observation{}, names: map[string]string{},
		projects: map[string]string{}, claims: map[string]map[string]bool{}, amounts: map[string]croft.Resources{},
		guests: map[string]map[string]guest{}, volumes: map[string]croft.Volume{}, named: map[string]bool{},
		attached: map[string]string{}, images: map[string]croft.Image{}, copies: map[string]string{},
		backups: map[string]backup.Backup{},
	}
	print := sha256.New()
	if err := l.readStore(w, print); err != nil {
		return nil, err
	}
	if err := l.readClaims(w.places[0]); err != nil {
		return nil, err
	}
	for _, h := range w.hosts {
		guests, err := h.guests()
		if err != nil {
			return nil, err
		}
		l.guests[h.id()] = guests
	}
	fmt.Fprint(print, l.amounts)
	for _, h := range w.hosts {
		for id, g := range l.guests[h.id()] {
			l.files = append(l.files, fmt.Sprint(h.name, id, g.on, len(g.machine.Volumes)))
		}
	}
	slices.Sort(l.files)
	fmt.Fprint(print, l.files)
	l.print = fmt.Sprintf("%x", print.Sum(nil))
	return l, nil
}

func (l *look) readStore(w *world, print io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	got, err := w.ledger.etcd.Get(ctx, "/croft/", clientv3.WithPrefix())
	if err != nil {
		return err
	}
	for _, kv := range got.Kvs {
		kind, rest := cut(string(kv.Key))
		switch kind {
		case "instances":
			err = put(l.records, rest, kv.Value)
		case "orders":
			err = put(l.orders, rest, kv.Value)
		case "observed":
			err = put(l.observed, rest, kv.Value)
		case "names":
			l.names[rest] = string(kv.Value)
		case "groups":
			part := strings.Split(rest, "/") // PROJECT/GROUP/RULE/HOST/INSTANCE
			if len(part) != 5 {
				return fmt.Errorf("a group has the key %s", kv.Key)
			}
			l.groups = append(l.groups, croft.GroupMember{
				Affinity: croft.Affinity{Group: part[1], Rule: croft.AffinityRule(part[2])},
				Host:     croft.HostID(part[3]), Instance: croft.InstanceID(part[4]),
			})
			l.projects[part[4]] = part[0]
		case "volumes":
			err = l.readVolumes(rest, kv.Value)
		case "images":
			switch part, rest, _ := strings.Cut(rest, "/"); part {
			case "records":
				err = put(l.images, rest, kv.Value)
			case "copies":
				l.copies[rest] = string(kv.Value)
			}
		case "backups":
			if part, rest, _ := strings.Cut(rest, "/"); part == "records" {
				err = put(l.backups, rest, kv.Value)
			}
		case "dead":
			l.dead = append(l.dead, rest)
		case "sessions":
			l.leases = append(l.leases, rest)
		default:
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", kv.Key, err)
		}
		fmt.Fprintln(print, string(kv.Key), kv.ModRevision)
	}
	return nil
}

// readVolumes reads a record of volumes and snapshots, whose key without the kind is given.
func (l *look) readVolumes(key string, value []byte) error {
	switch part, rest, _ := strings.Cut(key, "/"); part {
	case "records":
		return put(l.volumes, rest, value)
	case "names", "snapshots":
		l.named[last(string(value))] = true
	case "attached":
		l.attached[rest] = string(value)
	}
	return nil
}

// put decodes the part of a value that this version of croft knows.
func put[T any](all map[string]T, key string, value []byte) error {
	var v T
	err := json.Unmarshal(value, &v)
	all[key] = v
	return err
}

func (l *look) readClaims(endpoint string) error {
	var all struct {
		Providers []struct{ UUID string } `json:"resource_providers"`
	}
	if err := ask(endpoint+"/resource_providers", &all); err != nil {
		return err
	}
	for _, p := range all.Providers {
		var of struct {
			Allocations map[string]struct{ Resources croft.Resources }
		}
		if err := ask(endpoint+"/resource_providers/"+p.UUID+"/allocations", &of); err != nil {
			return err
		}
		l.claims[p.UUID] = map[string]bool{}
		for id, a := range of.Allocations {
			l.claims[p.UUID][id] = true
			l.amounts[p.UUID+"/"+id] = a.Resources
		}
	}
	return nil
}

func ask(url string, answer any) error {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("X-Auth-Token", "admin")
	req.Header.Set("OpenStack-API-Version", "placement 1.36")
	got, err := anybody.Do(req)
	if err != nil {
		return err
	}
	defer got.Body.Close()
	if got.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, got.Status)
	}
	return json.NewDecoder(got.Body).Decode(answer)
}

// A violation is an invariant that does not hold at rest.
type violation struct {
	instance string
	text     string
	move     bool // the command that moved the instance died; an operator must end the move
}

// violations compares all records with each other and with the answers to commands.
func (w *world) violations(l *look) (all []violation) {
	complain := func(id, format string, args ...any) {
		all = append(all, violation{instance: id, text: fmt.Sprintf(format, args...),
			move: l.records[id].Moving != "" || strings.Contains(format, unclaimed)})
	}
	for _, id := range slices.Sorted(maps.Keys(l.records)) {
		w.checkInstance(l, l.records[id], func(format string, args ...any) { complain(id, format, args...) })
	}
	for key := range l.orders {
		host, id, _ := strings.Cut(key, "/")
		if inst, exists := l.records[id]; !exists || string(inst.Host) != host {
			complain(id, "host %s has an order %+v that belongs to no record", host, l.orders[key].Want)
		}
	}
	for key := range l.observed {
		if _, exists := l.orders[key]; !exists {
			complain(last(key), "an observation without an order: %s", key)
		}
	}
	for name, id := range l.names {
		if inst, exists := l.records[id]; !exists || string(inst.Project)+"/"+inst.Name != name {
			complain(id, "the name %s belongs to no record", name)
		}
	}
	w.checkClaims(l, complain)
	for host, guests := range l.guests {
		for id := range guests {
			if inst, exists := l.records[id]; !exists || string(inst.Host) != host {
				complain(id, "a guest on host %s belongs to no record", host)
			}
		}
	}
	for _, host := range l.dead {
		complain("", "host %s is dead", host)
	}
	w.checkDisks(l, complain)
	l.checkGroups(complain)
	return append(all, w.checkFacts(l)...)
}

// checkClaims looks for claims without owners.
func (w *world) checkClaims(l *look, complain func(id, format string, args ...any)) {
	owners := map[string]bool{}
	for id, inst := range l.records {
		owners[string(inst.Host)+"/"+id] = true
		if inst.Storage != "" {
			owners[string(inst.Storage)+"/"+id] = true
		}
	}
	for _, v := range l.volumes {
		owners[provider(v)+"/"+string(v.ID)] = true
	}
	for key := range l.amounts {
		if !owners[key] {
			complain(last(key), "a claim of %s belongs to no record: %v", key, l.amounts[key])
		}
	}
}

// provider returns the UUID of the provider of which a volume or snapshot claims its size.
func provider(v croft.Volume) string {
	if v.Storage != "" {
		return string(v.Storage)
	}
	return string(v.Host)
}

func last(key string) string { return key[strings.LastIndexByte(key, '/')+1:] }

// lacksImage reports whether an instance that was lost cannot be made again, because a user removed its image.
func (w *world) lacksImage(seen croft.Observation) bool {
	return seen.State == croft.StateFailed && w.ledger.lost(string(seen.Instance)) > 0 &&
		strings.HasPrefix(seen.Error, "the image was removed from the cloud's catalog")
}

// checkInstance checks one instance, starting from its record.
func (w *world) checkInstance(l *look, inst croft.Instance, complain func(string, ...any)) {
	id, key := string(inst.ID), string(inst.Host)+"/"+string(inst.ID)
	if inst.State == croft.StateLost { // its host was forgotten; a user must recreate or destroy it
		if inst.Host != "" || inst.Lost == nil || l.names[string(inst.Project)+"/"+inst.Name] != id {
			complain("it is lost, and on record as %+v", inst)
		}
		return
	}
	if inst.State != croft.StateScheduled || inst.Moving != "" {
		complain("it is %s, moving to %q, of session %q", inst.State, inst.Moving, inst.Session)
		return
	}
	if l.names[string(inst.Project)+"/"+inst.Name] != id {
		complain("it does not have its name %s", inst.Name)
	}
	order, ordered := l.orders[key]
	if !ordered {
		complain("its host %s has no order", inst.Host)
		return
	}
	if order.Generation != inst.Generation {
		complain("its order is of generation %d, its record of %d", order.Generation, inst.Generation)
	}
	state := map[croft.Want]croft.State{croft.WantRunning: croft.StateRunning,
		croft.WantStopped: croft.StateStopped}[order.Want]
	if w.lacksImage(l.observed[key]) {
		return
	}
	if seen := l.observed[key]; seen.State != state || seen.Generation != order.Generation {
		complain("it is wanted %s by generation %d and observed %s of generation %d: %s", order.Want, order.Generation,
			seen.State, seen.Generation, seen.Error)
	}
	if g, exists := l.guests[string(inst.Host)][id]; !exists || g.on != (order.Want == croft.WantRunning) {
		complain("it is wanted %s, its guest is there: %v, and on: %v", order.Want, exists, g.on)
	}
	got := maps.Clone(l.amounts[key])
	if inst.Storage != "" && got != nil {
		maps.Copy(got, l.amounts[string(inst.Storage)+"/"+id])
	}
	if !maps.Equal(got, inst.Spec.Resources) {
		complain("it claims %v of its host %s and of storage %q, and has the size %v", got, inst.Host, inst.Storage,
			inst.Spec.Resources)
	}
	if inst.Resizing != nil || inst.Backup != nil && inst.Backup.Error != "" {
		complain("its resize is %+v, its restore %+v", inst.Resizing, inst.Backup)
	}
	w.facts.mu.Lock()
	defer w.facts.mu.Unlock()
	if f := w.facts.all[id]; f != nil && w.ledger.lost(id) == 0 && !f.wants[string(order.Want)] {
		complain("it is wanted %s, and commands said %v", order.Want, slices.Collect(maps.Keys(f.wants)))
	}
}

// checkGroups checks members without records, records without membership, and rules.
func (l *look) checkGroups(complain func(id, format string, args ...any)) {
	member := map[string]bool{}
	hosts := map[string][]string{} // by group
	for _, m := range l.groups {
		id := string(m.Instance)
		inst, exists := l.records[id]
		if !exists || inst.Host != m.Host || !slices.Contains(inst.Spec.Affinities, m.Affinity) {
			complain(id, "a membership in %s on host %s belongs to no record", m.Affinity, m.Host)
		}
		member[id+m.Affinity.String()] = true
		key := l.projects[id] + "/" + m.Affinity.String()
		hosts[key] = append(hosts[key], string(m.Host))
		others := hosts[key][:len(hosts[key])-1]
		switch {
		case m.Rule == croft.Apart && slices.Contains(others, string(m.Host)):
			complain(id, "two members of %s are on host %s", m.Affinity, m.Host)
		case m.Rule == croft.Together && len(others) > 0 && !slices.Contains(others, string(m.Host)):
			complain(id, "members of %s are on %v", m.Affinity, hosts[key])
		}
	}
	for id, inst := range l.records {
		for _, a := range inst.Spec.Affinities {
			if inst.State == croft.StateScheduled && !member[id+a.String()] {
				complain(id, "it is not in its group %s", a)
			}
		}
	}
}

// checkFacts compares records with the answers to commands.
func (w *world) checkFacts(l *look) (all []violation) {
	w.facts.mu.Lock()
	defer w.facts.mu.Unlock()
	for id, f := range w.facts.all {
		_, exists := l.records[id]
		switch {
		case f.destroyed && exists:
			all = append(all, violation{instance: id, text: "it was destroyed and is there"})
		case f.refused && exists:
			all = append(all, violation{instance: id, text: "it was refused and is there"})
		case f.created && !f.doomed && !exists && !w.wasForgotten(id):
			all = append(all, violation{instance: id, text: "it was acknowledged, never destroyed, and is gone"})
		}
	}
	return all
}

// patience is how long nothing may change before a violation is final. Leases of commands live for 30 s, and agents
// repair only problems that two sweeps, 5 s apart, have found.
const patience = 75 * time.Second

// settle waits until there are no violations, for as long as anything changes, and fails with the remaining ones.
func (w *world) settle() {
	var print string
	moved, begun := time.Now(), time.Now()
	ended := false // the operator has ended interrupted moves
	for ; ; time.Sleep(500 * time.Millisecond) {
		now, err := w.look()
		var wrong []violation
		if err != nil {
			wrong = []violation{{text: err.Error()}}
		} else {
			w.removeLeftovers(now)
			wrong = w.violations(now)
			if now.print != print {
				print, moved = now.print, time.Now()
			}
		}
		onlyMoves := !slices.ContainsFunc(wrong, func(v violation) bool { return !v.move })
		switch {
		case len(wrong) == 0:
			w.t.Logf("all is as it should be after %v", time.Since(begun).Round(time.Second))
			w.audit()
			w.endSessions()
			return
		case onlyMoves && !ended && (w.movers > 0 || len(w.forgets) > 0) && time.Since(moved) > 15*time.Second:
			w.t.Logf("moves whose operators died, and volumes of hosts that were forgotten: %d", len(wrong))
			(&actor{w: w, n: 101, r: w.random(101)}).run(true, "croft", "audit", "--fix")
			ended, moved = true, time.Now()
		case time.Since(moved) > patience || time.Since(begun) > 15*time.Minute:
			w.report(wrong)
			return
		}
	}
}

// endSessions ends the server of the API, after which no session of it or of a command may be left. A control process
// that recreates lost instances has one.
func (w *world) endSessions() {
	w.api.hold()
	w.api.signal(syscall.SIGTERM)
	var left []string
	for start := time.Now(); time.Since(start) < patience; time.Sleep(200 * time.Millisecond) {
		now, err := w.look()
		if err == nil && len(now.leases) <= len(w.controls) {
			return
		}
		if err == nil {
			left = now.leases
		}
	}
	w.t.Errorf("the sessions %v are left", left)
}

// removeLeftovers does with the disks of lost instances on hosts that returned what an operator does who needs none.
func (w *world) removeLeftovers(l *look) {
	for key, order := range l.orders {
		if order.Want == croft.WantLeft {
			host, id, _ := strings.Cut(key, "/")
			(&actor{w: w, n: 105, r: w.random(105)}).run(true, "croft", "host", "leftover", "remove", host, id)
		}
	}
}

// audit runs croft's audit, and compares the usage counters of projects with the records.
func (w *world) audit() {
	q := (&actor{w: w, n: 104, r: w.random(104)}).run(true, "croft", "quota", "check")
	if !q.ok() {
		w.t.Errorf("croft quota check ends with %d: %s", q.code, q.out)
	}
	r := (&actor{w: w, n: 102, r: w.random(102)}).run(true, "croft", "audit")
	if !r.ok() || strings.TrimSpace(r.out) != "" {
		w.t.Errorf("croft audit ends with %d: %s", r.code, r.out)
	}
}

// report fails the test with the violations, and the history of the first few instances.
func (w *world) report(wrong []violation) {
	told := map[string]bool{}
	for _, v := range wrong {
		w.t.Errorf("%s: %s", v.instance, v.text)
	}
	for _, v := range wrong {
		if v.instance == "" || told[v.instance] || len(told) == 6 {
			continue
		}
		told[v.instance] = true
		w.t.Logf("--- instance %s in etcd:\n%s", v.instance, strings.Join(tail(w.ledger.of(v.instance), 40), "\n"))
		w.t.Logf("--- instance %s in logs:\n%s", v.instance, strings.Join(w.grep(v.instance), "\n"))
	}
	r := (&actor{w: w, n: 103, r: w.random(103)}).run(true, "croft", "audit")
	w.t.Logf("croft audit ends with %d:\n%s", r.code, r.out)
}

func tail(lines []string, n int) []string { return lines[max(0, len(lines)-n):] }

// grep returns the lines of logs about an instance.
func (w *world) grep(id string) (found []string) {
	files, _ := filepath.Glob(filepath.Join(w.dir, "*.log"))
	for _, name := range files {
		out, _ := exec.Command("grep", "-F", "-B2", id, name).Output()
		if len(out) == 0 {
			continue
		}
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		if filepath.Base(name) != "clients.log" {
			lines = slices.DeleteFunc(lines, func(line string) bool { return !strings.Contains(line, id) })
		}
		for _, line := range tail(lines, 40) {
			found = append(found, filepath.Base(name)+": "+line[:min(400, len(line))])
		}
	}
	return found
}

// checkLogs fails on lines that no process may log.
func (w *world) checkLogs() {
	files, _ := filepath.Glob(filepath.Join(w.dir, "*.log"))
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			w.t.Error(err)
		}
		for _, word := range []string{"panic:", "DATA RACE", "fatal error:"} {
			if at := strings.Index(string(text), word); at >= 0 {
				w.t.Errorf("%s says:\n%s", filepath.Base(name), text[at:min(len(text), at+3000)])
			}
		}
	}
}
