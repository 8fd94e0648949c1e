package apply

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"croft"
	"croft/control/api"
	"croft/schedule/sshkeys"
	"croft/tenant"
	"croft/tenant/objects"
)

// state is what a project has.
type state struct {
	keys      map[string]string // lines by name
	volumes   map[string]api.Volume
	instances map[string]api.Instance // with labels and user-data
	sizes     map[string]croft.Resources
}

// action is what a step does.
type action string

// The actions, in the order in which a plan has them for one kind.
const (
	create action = "create"
	change action = "change"
)

// step is one change of a plan.
type step struct {
	Action action `json:"action"`
	Kind   string `json:"kind"` // key, volume or instance
	Name   string `json:"name"`
	What   string `json:"what"` // the change, for people

	request *api.InstanceRequest // of an instance that is created
	more    tenant.Amounts       // charged to the project in addition; for a request: what only the request has
	do      func(*run) error
}

// plan returns the steps from what a project has to what it is to have: first the keys, then the volumes, then the
// instances. Conflict: something cannot be changed; all of it is named. NotFound: there is no such key.
func plan(want document, have state) ([]step, error) {
	p := planner{want: want, have: have, made: map[string]bool{}}
	for _, name := range slices.Sorted(maps.Keys(want.Keys)) {
		p.key(name, want.Keys[name])
	}
	for _, name := range slices.Sorted(maps.Keys(want.Instances)) {
		if _, exists := have.instances[name]; !exists {
			p.withInstance(want.Instances[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want.Volumes)) {
		p.volume(name, want.Volumes[name])
	}
	for _, name := range slices.Sorted(maps.Keys(want.Instances)) {
		if now, exists := have.instances[name]; exists {
			p.existing(name, want.Instances[name], now)
		} else {
			p.missing(name, want.Instances[name])
		}
	}
	if err := errors.Join(p.wrong...); err != nil {
		return nil, fmt.Errorf("nothing was changed: %w", err)
	}
	if len(p.refused) > 0 {
		return nil, croft.Errorf(croft.Conflict, "nothing was changed, since these cannot be changed: %s",
			strings.Join(p.refused, "; "))
	}
	return slices.Concat(p.detached, p.steps), nil
}

type planner struct {
	want     document
	have     state
	made     map[string]bool // volumes that are made with an instance
	steps    []step
	detached []step // before all others
	refused  []string
	wrong    []error // about instances that cannot be created
}

func (p *planner) refuse(format string, args ...any) {
	p.refused = append(p.refused, fmt.Sprintf(format, args...))
}

func (p *planner) add(a action, kind, name, what string, do func(*run) error) {
	p.steps = append(p.steps, step{Action: a, Kind: kind, Name: name, What: what, do: do})
}

// charge says what the newest step charges to the project in addition.
func (p *planner) charge(more tenant.Amounts) { p.steps[len(p.steps)-1].more = more }

func (p *planner) key(name, line string) {
	now, exists := p.have.keys[name]
	switch {
	case !exists:
		p.add(create, "key", name, strings.Fields(line)[0], func(r *run) error { return r.addKey(name, line) })
		p.charge(tenant.Amounts{tenant.CountKeys: 1})
	case !sshkeys.Same(now, line):
		p.refuse("key %s is another key in the cloud (`croft key remove %s`, and apply again)", name, name)
	}
}

// withInstance notes the volumes that are made in the request for an instance, so that they are on its host.
func (p *planner) withInstance(i instance) {
	for _, name := range i.Volumes {
		if _, exists := p.have.volumes[name]; !exists && p.want.Volumes[name].Storage == "" {
			p.made[name] = true
		}
	}
}

func (p *planner) volume(name string, want volume) {
	now, exists := p.have.volumes[name]
	switch {
	case p.made[name]:
	case !exists:
		near := p.userOf(name)
		if _, runs := p.have.instances[near]; !runs || want.Storage != "" {
			near = ""
		}
		p.add(create, "volume", name, want.Size,
			func(r *run) error { return r.createVolume(name, want, near) })
		p.charge(tenant.Amounts{tenant.CountVolumes: 1, tenant.Measure(croft.DiskGB): want.sizeGB})
	case want.Storage == "" != (now.Storage == "") ||
		want.Storage != now.Storage && want.Storage != croft.StorageShared:
		p.refuse("volume %s is on %s", name, cmp.Or(now.Storage, "its host"))
	case want.sizeGB < now.SizeGB:
		p.refuse("volume %s has %d GiB, and volumes cannot shrink to %s", name, now.SizeGB, want.Size)
	case want.sizeGB > now.SizeGB:
		p.add(change, "volume", name, fmt.Sprintf("grow from %dG to %s", now.SizeGB, want.Size),
			func(r *run) error { return r.growVolume(name, want.sizeGB) })
		p.charge(tenant.Amounts{tenant.Measure(croft.DiskGB): want.sizeGB - now.SizeGB})
	}
}

// userOf returns the instance of the file that has a volume; empty: none.
func (p *planner) userOf(volume string) string {
	for name, i := range p.want.Instances {
		if slices.Contains(i.Volumes, volume) {
			return name
		}
	}
	return ""
}

// missing plans the creation of an instance.
func (p *planner) missing(name string, want instance) {
	var attached []string
	var disks []croft.NewDisk
	what := []string{cmp.Or(want.query.Total().String(), want.Size, "the default size")}
	if want.Image != "" {
		what = append(what, want.Image)
	}
	if len(want.Keys) == 0 && want.UserData == "" {
		what = append(what, "without a key to log in with")
	}
	for _, v := range want.Volumes {
		if p.made[v] {
			disks = append(disks, croft.NewDisk{Name: v, SizeGB: p.want.Volumes[v].sizeGB})
			what = append(what, "with a new volume "+v+" of "+p.want.Volumes[v].Size)
			continue
		}
		attached = append(attached, v)
		p.free(v, name)
	}
	keys, err := lines(want.Keys, p.want.Keys, p.have.keys)
	if err != nil {
		p.wrong = append(p.wrong, fmt.Errorf("instance %s: %w", name, err))
		return
	}
	request := want.request(name, keys, attached, disks)
	more := tenant.Amounts{tenant.CountInstances: 1, tenant.CountVolumes: int64(len(disks))}
	p.steps = append(p.steps, step{create, "instance", name, strings.Join(what, ", "), &request, more,
		func(r *run) error { return r.createInstance(request, want.Labels) }})
}

// free plans that a volume is detached from another instance of the file. It reports whether the volume is attached to
// the instance already.
func (p *planner) free(volume, instance string) (attached bool) {
	now, exists := p.have.volumes[volume]
	switch {
	case !exists || now.Instance == "":
		return false
	case now.InstanceName == instance:
		return true
	}
	if other, in := p.want.Instances[now.InstanceName]; !in || slices.Contains(other.Volumes, volume) {
		p.refuse("volume %s is attached to %s (`croft volume detach %s`, and apply again)", volume,
			cmp.Or(now.InstanceName, string(now.Instance)), volume)
	}
	return false // existing plans the detachment
}

// existing plans the changes of an instance.
func (p *planner) existing(name string, want instance, now api.Instance) {
	for _, difference := range fixed(want, now, p.want.Keys, p.have.keys) {
		p.refuse("instance %s: %s", name, difference)
	}
	p.resources(name, want, now)
	labels := map[string]*objects.Value{}
	var words []string
	for key, v := range want.Labels {
		if had, has := now.Labels[key]; !has || had != v {
			labels[key] = &v
			words = append(words, key+"="+v.String())
		}
	}
	if len(labels) > 0 {
		slices.Sort(words)
		p.add(change, "instance", name, "set "+strings.Join(words, ", "),
			func(r *run) error { return r.label(name, labels) })
	}
	if protected := want.Protected; protected != nil && *protected != now.Protected {
		p.add(change, "instance", name, fmt.Sprintf("set protected=%t", *protected),
			func(r *run) error { return r.protect(name, *protected) })
	}
	for _, v := range want.Volumes {
		if !p.free(v, name) {
			p.add(change, "instance", name, "attach volume "+v, func(r *run) error { return r.attach(v, name) })
		}
	}
	for _, v := range slices.Sorted(maps.Keys(p.have.volumes)) {
		if p.have.volumes[v].Instance == now.ID && !slices.Contains(want.Volumes, v) &&
			(want.Volumes != nil || p.userOf(v) != "") {
			p.detached = append(p.detached, step{Action: change, Kind: "instance", Name: name,
				What: "detach volume " + v, do: func(r *run) error { return r.detach(v) }})
		}
	}
}

// resources plans another size: other amounts, or the present ones of the named size.
func (p *planner) resources(name string, want instance, now api.Instance) {
	total := want.query.Total()
	if want.Size != "" {
		size, exists := p.have.sizes[want.Size]
		if !exists {
			p.refuse("instance %s is to have the size %s, and there is none (`croft size list`)", name, want.Size)
			return
		}
		total = joined(now.Resources, size)
	}
	if len(total) == 0 {
		return
	}
	changed, more := croft.Resources{}, tenant.Amounts{}
	var words []string
	for _, class := range slices.Sorted(maps.Keys(joined(total, now.Resources))) {
		from, to := now.Resources[class], total[class]
		if from == to {
			continue
		}
		switch {
		case class != croft.VCPU && class != croft.MemoryMB && class != croft.DiskGB:
			p.refuse("instance %s has %s:%d, and its %s cannot change to %d", name, class, from, class, to)
		case class == croft.DiskGB && to < from:
			p.refuse("instance %s has a disk of %d GiB, and disks cannot shrink to %d", name, from, to)
		case class != croft.DiskGB && now.State != string(croft.StateStopped):
			p.refuse("instance %s is %s, and its %s changes from %d to %d only while it is stopped (`schedule stop %s --wait`, "+
				"and apply again)", name, now.State, class, from, to, name)
		default:
			changed[class], more[tenant.Measure(class)] = to, to-from
			words = append(words, fmt.Sprintf("%s from %d to %d", class, from, to))
		}
	}
	switch {
	case want.Size != "" && (len(changed) > 0 || want.Size != now.Size):
		what := strings.TrimSuffix("resize to size "+want.Size+": "+strings.Join(words, ", "), ": ")
		p.add(change, "instance", name, what,
			func(r *run) error { return r.resize(name, api.InstanceSize{Size: want.Size}) })
		p.charge(more)
	case len(changed) > 0:
		p.add(change, "instance", name, "resize "+strings.Join(words, ", "),
			func(r *run) error { return r.resize(name, api.InstanceSize{Resources: changed}) })
		p.charge(more)
	}
}

// fixed returns the differences of an instance that only another instance can have. Where an instance is placed is
// decided when it is created, so the conditions on its host are not compared.
func fixed(want instance, now api.Instance, keys, stored map[string]string) (differences []string) {
	differ := func(field string, is, wanted any) {
		differences = append(differences, fmt.Sprintf("its %s is %s, and the file says %s (remove it and apply again, or "+
			"correct the file)", field, text(is), text(wanted)))
	}
	if want.Image != "" && want.Image != now.Image {
		differ("image", now.Image, want.Image)
	}
	if want.UserData != "" && string(now.GuestSettings.UserData) != want.UserData {
		differences = append(differences, "its user_data differs from the file's (remove it and apply again, or correct the "+
			"file)")
	}
	lines, err := lines(want.Keys, keys, stored)
	if err != nil {
		differences = append(differences, err.Error())
	} else if len(lines) > 0 && !sameKeys(lines, now.Keys) {
		differences = append(differences, "its keys differ from the file's (remove it and apply again, or correct the file)")
	}
	guest, had := want.GuestSettings, now.GuestSettings.Explicit()
	guest.Tags, had.Tags, had.Keys, had.UserData = nil, nil, nil, nil
	if len(want.Tags) > 0 && !maps.Equal(want.Tags, now.Tags) {
		differ("tags", now.Tags, want.Tags)
	}
	is, wanted := fields(had), fields(guest)
	settings := now.InstanceSettings
	if settings.Storage == croft.StorageLocal {
		settings.Storage = ""
	}
	maps.Copy(is, fields(settings))
	maps.Copy(wanted, fields(want.InstanceSettings))
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if !reflect.DeepEqual(is[name], wanted[name]) {
			differ(name, is[name], wanted[name])
		}
	}
	return differences
}

// fields returns the fields of a struct as they are in JSON, without empty ones.
func fields(v any) map[string]any {
	all := map[string]any{}
	encoded, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(encoded, &all)
	}
	if err != nil {
		panic(err) // structs of the API can always be encoded
	}
	return all
}

// joined returns a map with the keys of both.
func joined[M ~map[K]V, K comparable, V any](a, b M) M {
	all := M{}
	maps.Copy(all, a)
	maps.Copy(all, b)
	return all
}

// text returns a value for people.
func text(v any) string {
	if v == nil || reflect.ValueOf(v).IsZero() {
		return "empty"
	}
	encoded, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return strings.Trim(string(encoded), `"`)
}

// lines returns lines of authorized_keys, from names of keys and from lines. NotFound.
func lines(given []string, keys, stored map[string]string) (all []string, err error) {
	for _, k := range given {
		line := cmp.Or(keys[k], stored[k])
		if strings.ContainsAny(k, " \t") {
			line = k
		}
		if line == "" {
			return nil, croft.Errorf(croft.NotFound, "neither the file nor the project has a key %q", k)
		}
		all = append(all, line)
	}
	return all, nil
}

func sameKeys(a, b []string) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(line string) bool {
		return !slices.ContainsFunc(b, func(other string) bool { return sshkeys.Same(line, other) })
	})
}

// unnamed returns what a project has and the file does not name, for people.
func unnamed(want document, have state) (all []string) {
	for _, name := range slices.Sorted(maps.Keys(have.instances)) {
		i, in := want.Instances[name]
		if !in {
			all = append(all, "instance "+name)
			continue
		}
		for _, label := range slices.Sorted(maps.Keys(have.instances[name].Labels)) {
			if _, in := i.Labels[label]; !in {
				all = append(all, "label "+label+" of "+name)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(have.volumes)) {
		if _, in := want.Volumes[name]; !in {
			all = append(all, "volume "+name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(have.keys)) {
		if _, in := want.Keys[name]; !in {
			all = append(all, "key "+name)
		}
	}
	return all
}
