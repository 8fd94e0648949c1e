package local

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"croft"
	"croft/cluster"
	"croft/schedule"
	"croft/schedule/sshkeys"
)

// The tags of members, which their guests can read.
const (
	tagCluster = "croft-cluster" // name of the cluster on the site
	tagRole    = "croft-role"
	tagIndex   = "croft-index"
	tagJoined  = "croft-joined" // with the build, or with a resize
)

// The values of tagJoined.
const (
	withBuild  = "build"
	withResize = "resize"
)

// member is a member that a build wants.
type member struct {
	id    croft.InstanceID
	name  string
	role  cluster.Role
	index int
}

// wanted returns the members of a build, the master first.
func wanted(b cluster.Build) []member {
	all := []member{{instanceOf(b.Cluster, cluster.Master, 0), nameOf(b, "-master"), cluster.Master, 0}}
	for _, i := range b.Indexes {
		all = append(all, member{instanceOf(b.Cluster, cluster.Slave, i), nameOf(b, "-slave-"+strconv.Itoa(i)),
			cluster.Slave, i})
	}
	return all
}

func instanceOf(c croft.ClusterID, r cluster.Role, index int) croft.InstanceID {
	return croft.InstanceID(cluster.IDOf(c, r, index))
}

// nameOf returns the name of a member.
func nameOf(b cluster.Build, suffix string) string {
	return cluster.MachineName(b.Name, b.Cluster, suffix)
}

// recipe is a text together with the parameters of one cluster.
type recipe struct {
	*text
	build  cluster.Build
	params map[string]string
	rule   croft.AffinityRule
	made   map[cluster.Role]made
	keys   map[cluster.Role][]string // lines of authorized_keys
}

// recipe parses the text of a build. Invalid.
func (d *Driver) recipe(ctx context.Context, b cluster.Build) (*recipe, error) {
	t, err := textOf(b.Implementation)
	if err != nil {
		return nil, err
	}
	given := b.Parameters
	if _, told := given[cluster.ParamImage]; !told && b.Image != "" {
		given = map[string]any{cluster.ParamImage: b.Image}
		for name, v := range b.Parameters {
			given[name] = v
		}
	}
	r := &recipe{text: t, build: b, params: t.values(given), made: map[cluster.Role]made{},
		keys: map[cluster.Role][]string{}}
	if r.rule, err = t.rule(); err != nil {
		return nil, err
	}
	asked, err := keysAsked(b)
	if err != nil {
		return nil, err
	}
	for _, role := range []cluster.Role{cluster.Master, cluster.Slave} {
		m, err := t.make(role, r.params)
		if err != nil {
			return nil, err
		}
		named := m.image
		if m.image, err = d.resolve(ctx, b.Project, named); err != nil {
			if croft.KindOf(err) == croft.NotFound {
				err = &cluster.ImageError{Err: croft.Errorf(croft.Invalid, "%v", err)}
			}
			return nil, fmt.Errorf("the image of the %s: %w", role, err)
		}
		if croft.InCatalog(m.image) {
			m.named = named
		}
		// An operator chose the image that was copied to the site.
		m.public = named != b.Image && d.PublicImage != nil && d.PublicImage(named, m.image)
		keys := strings.FieldsFunc(written(b.Parameters[paramKeyName]), func(c rune) bool {
			return c == ',' || c == ' '
		})
		if r.keys[role], err = d.keysOf(ctx, b.Project, slices.Concat(m.keys, keys, asked)); err != nil {
			return nil, err
		}
		r.made[role] = m
	}
	return r, nil
}

// keysAsked returns the keys in the request for a cluster. Invalid.
func keysAsked(b cluster.Build) (lines []string, err error) {
	for _, key := range b.Keys() {
		line, err := sshkeys.Parse(key)
		if err != nil {
			return nil, err
		}
		lines = append(lines, line)
	}
	return lines, nil
}

// keysOf returns lines of authorized_keys: each text is one, or the name of a key that the project keeps. Invalid.
func (d *Driver) keysOf(ctx context.Context, p croft.Project, texts []string) (lines []string, err error) {
	var names []string
	for _, text := range texts {
		if !strings.ContainsAny(text, " \t") {
			if text != "" {
				names = append(names, text)
			}
			continue
		}
		line, err := sshkeys.Parse(text)
		if err != nil {
			return nil, err
		}
		lines = append(lines, line)
	}
	stored, err := schedule.FindKeys(ctx, d.Keys.ListKeys, p, names)
	if croft.KindOf(err) == croft.NotFound {
		err = croft.Errorf(croft.Invalid, "%v", err)
	}
	lines = append(lines, stored...)
	slices.Sort(lines)
	return slices.Compact(lines), err
}

// request returns the request for the claim of a member.
func (r *recipe) request(m member, joined string) schedule.Request {
	b, made := r.build, r.made[m.role]
	q := schedule.Request{ID: m.id, Project: b.Project, Name: m.name, Query: made.query, Image: made.image,
		Named: made.named, Public: made.public, Cluster: b.Cluster,
		Hold: max(b.Timeout, cluster.BuildTimeout) + cluster.BuildTimeout}
	q.Keys, q.Networks, q.Ephemeral = r.keys[m.role], made.networks, made.ephemeral
	q.Tags = map[string]string{tagCluster: b.Remote.Name, tagRole: string(m.role), tagIndex: strconv.Itoa(m.index),
		tagJoined: joined}
	if r.rule != "" {
		q.Affinities = []croft.Affinity{{Group: "cluster-" + string(b.Cluster), Rule: r.rule}}
	}
	return q
}

// use returns the order for a member. masterIP may be empty if the text does not use it.
func (r *recipe) use(m member, key, masterIP string) (schedule.Use, error) {
	values := r.memberValues(r.params, m.role, m.name, m.index)
	values[nameCluster], values[nameSize] = string(r.build.Cluster), strconv.Itoa(len(r.build.Indexes))
	values[cluster.ParamAllowedIP] = written(r.build.Parameters[cluster.ParamAllowedIP])
	if keys := r.keys[m.role]; len(keys) > 0 {
		values[nameKey] = keys[0]
	}
	if m.role == cluster.Slave {
		values[nameMasterIP] = masterIP
	}
	data, err := r.setUp(m.role, values)
	return schedule.Use{GuestSettings: croft.GuestSettings{UserData: data}, ClusterKey: key}, err
}

// policy returns the policy that chooses the hosts of a cluster; nil: the default.
func (d *Driver) policy(ctx context.Context, t *text) (*schedule.Policy, error) {
	if t.Policy == "" {
		return nil, nil
	}
	if _, err := d.Scheduler.Crush.Find(ctx, t.Policy); err != nil {
		return nil, croft.Errorf(croft.Invalid, "%v", err)
	}
	return schedule.PolicyNamed("crush:" + t.Policy)
}

// roll is the existing members, by ID.
type roll map[croft.InstanceID]*croft.Status

// ofCluster returns the members of a cluster from a list.
func ofCluster(all []croft.Status, id croft.ClusterID) roll {
	have := roll{}
	for i := range all {
		if all[i].Instance.Cluster == id {
			have[all[i].Instance.ID] = &all[i]
		}
	}
	return have
}

func (d *Driver) read(ctx context.Context, b cluster.Build) (roll, error) {
	all, err := d.Scheduler.View.List(ctx, b.Project)
	return ofCluster(all, b.Cluster), err
}

// master returns the master's status; nil: none exists.
func (h roll) master(b cluster.Build) *croft.Status {
	return h[instanceOf(b.Cluster, cluster.Master, 0)]
}

// extra returns the members that a build does not want, by name.
func (h roll) extra(b cluster.Build) []*croft.Status {
	keep := map[croft.InstanceID]bool{}
	for _, m := range wanted(b) {
		keep[m.id] = true
	}
	var rest []*croft.Status
	for id, st := range h {
		if !keep[id] {
			rest = append(rest, st)
		}
	}
	slices.SortFunc(rest, func(a, b *croft.Status) int { return cmp.Compare(a.Instance.Name, b.Instance.Name) })
	return rest
}

// address returns the address of a member, known from its lease even before the guest has it; empty: not known yet.
func address(st *croft.Status) string {
	if st == nil || st.Observation == nil || st.Instance.State != croft.StateScheduled {
		return ""
	}
	best := ""
	for _, a := range st.Observation.Addresses {
		if best == "" || a.Is4() && strings.Contains(best, ":") {
			best = a.String()
		}
	}
	return best
}
