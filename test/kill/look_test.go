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
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
)

// A look is a snapshot of all stored records, claims and running guests, read without the code under test.
type look struct {
	print    string // equal as long as nothing changes
	records  map[string]croft.Instance
	orders   map[string]croft.Order       // by host/instance
	observed map[string]croft.Observation // likewise
	names    map[string]string            // project/name to instance
	groups   []croft.GroupMember
	projects map[string]string          // of the members of groups
	claims   map[string]map[string]bool // by provider, of consumers
	amounts  map[string]croft.Resources // claimed amounts by provider/consumer
	guests   map[string]map[string]bool // by host: guest to whether it is on
	leases   []string                   // sessions of commands
}

func (w *world) look() (*look, error) {
	l := &look{
		records: map[string]croft.Instance{}, orders: map[string]croft.Order{},
		observed: map[string]croft.Observation{}, names: map[string]string{},
		projects: map[string]string{}, claims: map[string]map[string]bool{}, amounts: map[string]croft.Resources{},
		guests: map[string]map[string]bool{},
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
	fmt.Fprint(print, l.amounts, l.guests)
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
		all = append(all, violation{instance: id, text: fmt.Sprintf(format, args...), move: l.records[id].Moving != ""})
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
	for host, on := range l.claims {
		for id := range on {
			if inst, exists := l.records[id]; !exists || string(inst.Host) != host {
				complain(id, "a claim on host %s (%v) belongs to no record", host, l.amounts[host+"/"+id])
			}
		}
	}
	for host, guests := range l.guests {
		for id := range guests {
			if inst, exists := l.records[id]; !exists || string(inst.Host) != host {
				complain(id, "a guest on host %s belongs to no record", host)
			}
		}
	}
	l.checkGroups(complain)
	for _, s := range l.leases {
		complain("", "the session %s of a command is left", s)
	}
	return append(all, w.checkFacts(l)...)
}

func last(key string) string { return key[strings.LastIndexByte(key, '/')+1:] }

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
	if seen := l.observed[key]; seen.State != state || seen.Generation != order.Generation {
		complain("it is wanted %s by generation %d and observed %s of generation %d: %s", order.Want, order.Generation,
			seen.State, seen.Generation, seen.Error)
	}
	if on, exists := l.guests[string(inst.Host)][id]; !exists || on != (order.Want == croft.WantRunning) {
		complain("it is wanted %s, its guest is there: %v, and on: %v", order.Want, exists, on)
	}
	if got := l.amounts[key]; !maps.Equal(got, inst.Spec.Resources) {
		complain("it claims %v of its host %s and was made with %v", got, inst.Host, inst.Spec.Resources)
	}
	w.facts.mu.Lock()
	defer w.facts.mu.Unlock()
	if f := w.facts.all[id]; f != nil && !f.wants[string(order.Want)] {
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
			return
		case onlyMoves && !ended && w.movers > 0 && time.Since(moved) > 15*time.Second:
			w.t.Logf("moves whose operators died: %d", len(wrong))
			(&actor{w: w, n: 101, r: w.random(101)}).run(true, "croft", "audit", "--fix")
			ended, moved = true, time.Now()
		case time.Since(moved) > patience || time.Since(begun) > 15*time.Minute:
			w.report(wrong)
			return
		}
	}
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
