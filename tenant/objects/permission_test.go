package objects_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"croft"
	"croft/tenant/access"
	"croft/tenant/objects"
)

var (
	member = as("lab", access.Member)
	reader = as("lab", access.Reader)
)

// may finds out the rights of a caller to a property k of an instance of the caller's project.
func (w *world) may(c access.Caller, ref objects.Ref) string {
	w.Helper()
	got := ""
	if _, there := w.read(c, ref).Properties["k"]; there {
		got += "r"
	}
	_, err := w.change(c, ref, set(`{"k": "v"}`))
	if err == nil {
		got += "w"
	} else if !errors.Is(err, croft.Denied) {
		w.Fatal(err)
	}
	return got
}

func TestTheMostExactPermissionCounts(t *testing.T) {
	for _, c := range []struct {
		name, permissions string
		caller            access.Caller
		want              string
	}{
		{"without permissions a member writes", "[]", member, "rw"},
		{"without permissions a project-admin writes", "[]", as("lab", access.ProjectAdmin), "rw"},
		{"without permissions a reader reads", "[]", reader, "r"},
		{"for everybody", "[{value: r}]", member, "r"},
		{"nothing for everybody", "[{value: ''}]", member, ""},
		{"a partition-admin always reads", "[{value: ''}]", operator, "r"},
		{"a partition-admin writes where allowed", "[{value: ''}, {role: partition-admin, value: w}]", operator, "rw"},
		{"a project before everybody", "[{value: rw}, {project: lab, value: r}]", member, "r"},
		{"a role before a project", "[{project: lab, value: rw}, {role: member, value: r}]", member, "r"},
		{"project and role before a role",
			"[{role: member, value: r}, {project: lab, role: member, value: w}]", member, "w"},
		{"the exact one denies", "[{value: rw}, {project: lab, role: member, value: ''}]", member, ""},
		{"ties are added up", "[{role: member, value: r}, {role: reader, value: w}]",
			as("lab", access.Member, access.Reader), "rw"},
		{"a tie with nothing takes nothing away", "[{role: member, value: r}, {role: reader, value: ''}]",
			as("lab", access.Member, access.Reader), "r"},
		{"another project does not count", "[{value: r}, {project: lab-2, value: rw}]", member, "r"},
		{"another role does not count", "[{value: r}, {role: project-admin, value: rw}]", member, "r"},
		{"where none fits nothing is allowed", "[{role: project-admin, value: rw}]", member, ""},
		{"a reader may be let write", "[{role: reader, value: w}]", reader, "w"},
	} {
		for _, at := range []string{"properties: {k: {permissions: %s}}", "permissions: %s"} {
			t.Run(c.name+" "+at[:5], func(t *testing.T) {
				w := newWorld(t)
				ref := w.add(objects.Instance, "lab")
				w.mustChange(operator, ref, set(`{"k": "v"}`))
				w.define(fmt.Sprintf(at, c.permissions))
				if got := w.may(c.caller, ref); got != c.want {
					t.Errorf("may %q, want %q", got, c.want)
				}
			})
		}
	}
}

func TestAPropertysOwnPermissionsReplaceThoseOfTheDefinition(t *testing.T) {
	w := newWorld(t)
	ref := w.add(objects.Instance, "lab")
	w.mustChange(operator, ref, set(`{"k": "v", "other": "v", "third": "v"}`))
	w.define("properties: {k: {permissions: [{value: rw}]}, other: {}}\npermissions: [{role: member, value: ''}]")
	if got := w.read(member, ref); len(got.Properties) != 1 || w.may(member, ref) != "rw" {
		t.Errorf("read %+v", got)
	}
}

// naive decides literally by the sentences of the specification.
func naive(all []objects.Permission, c access.Caller) (read, write bool) {
	fits := func(p objects.Permission, project, role bool) bool {
		return (p.Project != "") == project && (p.Role != "") == role &&
			(p.Project == "" || p.Project == c.Project) && (p.Role == "" || slices.Contains(c.Roles, p.Role))
	}
	for _, level := range []struct{ project, role bool }{{true, true}, {false, true}, {true, false}, {false, false}} {
		granted, any := "", false
		for _, p := range all {
			if fits(p, level.project, level.role) {
				granted, any = granted+string(p.Value), true
			}
		}
		if any {
			read, write = strings.Contains(granted, "r"), strings.Contains(granted, "w")
			break
		}
	}
	return read || slices.Contains(c.Roles, access.PartitionAdmin), write
}

func TestPermissionsAgreeWithANaiveReading(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	pick := func(texts ...string) string { return texts[random.IntN(len(texts))] }
	roles := []string{"reader", "member", "project-admin", "partition-admin"}
	for range 2000 {
		var all []objects.Permission
		for range 1 + random.IntN(6) {
			all = append(all, objects.Permission{Project: croft.Project(pick("", "", "lab", "office")),
				Role:  access.Role(pick(append(roles, "", "", "")...)),
				Value: objects.Grant(pick("", "r", "w", "rw"))})
		}
		c := access.Caller{Project: croft.Project(pick("lab", "office", "third"))}
		for range random.IntN(3) {
			c.Roles = append(c.Roles, access.Role(pick(roles...)))
		}
		d := objects.Definition{Unknown: objects.Allow, Permissions: all}
		read, write := d.Allowed(c, objects.Instance, "k")
		if wantRead, wantWrite := naive(all, c); read != wantRead || write != wantWrite {
			t.Fatalf("%+v for %+v: read %v, write %v, want %v, %v", all, c, read, write, wantRead, wantWrite)
		}
	}
}

// secret is a definition under which members can neither read nor write the property secret.
const secret = `
properties:
  secret: {type: string, maxLength: 8, permissions: [{value: ""}, {role: partition-admin, value: rw}]}
`

func TestADeniedWriteNamesOnlyWhatTheCallerNamed(t *testing.T) {
	w := newWorld(t)
	w.define(`permissions: [{value: r}]
properties: {mine: {permissions: [{value: rw}]}}`)
	ref := w.add(objects.Instance, "lab")
	_, err := w.change(member, ref, set(`{"b": 1, "mine": 2, "a": 3}`))
	w.wantError(err, croft.Denied, ref.String()+": you may not write the properties a, b;")
	forbidden, is := errors.AsType[*objects.ForbiddenError](err)
	if !is || !slices.Equal(forbidden.Keys, []string{"a", "b"}) {
		t.Errorf("forbidden %+v", forbidden)
	}
	if got := w.read(member, ref); !got.Empty() {
		t.Errorf("changed to %+v", got)
	}
	_, err = w.change(member, ref, objects.Change{Remove: []string{"a"}})
	w.wantError(err, croft.Denied, "you may not write the property a;")
	_, err = w.change(reader, ref, objects.Change{AddTags: []string{"t"}})
	w.wantError(err, croft.Denied, "you may not change its tags")
}

// TestWhatIsHiddenLeavesNoTrace performs the same actions as a member in two clouds, one of which has hidden
// properties. All results must be equal, except for generations, which depend on the number of writes in the cloud.
func TestWhatIsHiddenLeavesNoTrace(t *testing.T) {
	look := func(hidden bool) (seen []string) {
		w := newWorld(t)
		w.define(secret)
		see := func(v any, err error) {
			seen = append(seen, fmt.Sprintf("%v, %v", v, err))
		}
		var refs []objects.Ref
		for range 3 {
			refs = append(refs, w.add(objects.Instance, "lab"))
		}
		foreign := w.add(objects.Instance, "office")
		w.mustChange(operator, foreign, set(`{"secret": "s", "open": 1}`))
		if hidden {
			w.mustChange(operator, refs[0], set(`{"secret": "a"}`))
			w.mustChange(operator, refs[2], set(`{"secret": "b"}`))
		}
		none := int64(0)
		first := set(`{"open": "1"}`)
		first.Generation = &none
		_, err := w.change(member, refs[0], first)
		see("", err)
		w.mustChange(member, refs[1], objects.Change{Set: first.Set, AddTags: []string{"t"}})
		if hidden { // it violates the definition now, which members must not see
			w.define(strings.Replace(secret, "8", "0", 1))
		}
		for _, filter := range []string{"secret", "secret=a", "secret=*", "secret=b open", "open", "open=1", "tag:t",
			"open secret=a*"} {
			for _, o := range w.list(member, filter) {
				see(filter+" "+fmt.Sprint(o.ID, o.Properties, o.Tags), nil)
			}
		}
		for _, o := range w.list(member, "secret", "open") {
			see(o.ID, nil)
		}
		for _, o := range w.list(member) {
			see(o.ID, nil)
		}
		for _, ref := range refs {
			o := w.read(member, ref)
			see(fmt.Sprint(o.Properties, o.Tags, o.Generation == 0), nil)
			_, err := w.change(member, ref, set(`{"secret": "x"}`))
			see("", err)
			_, err = w.change(member, ref, objects.Change{Remove: []string{"secret"}})
			see("", err)
			_, err = w.change(member, ref, objects.Change{Remove: []string{"secre"}})
			see("", err)
			_, err = w.change(member, ref, objects.Change{AddTags: []string{"more"}})
			see("", err)
			many := map[string]objects.Value{}
			for i := range objects.MaxProperties {
				many[fmt.Sprintf("key%d", i)] = objects.Integer(1)
			}
			_, err = w.change(member, ref, objects.Change{Set: many})
			see("", err)
			after := w.read(member, ref)
			see(len(after.Properties), nil)
		}
		breaches, err := w.Check(t.Context(), member, scopeOf(member), objects.Instance)
		see(breaches, err)
		_, err = w.change(member, foreign, set(`{"open": 2}`))
		see("", err)
		all, err := w.List(t.Context(), member, scopeOf(member), objects.Host, nil)
		see(all, err)
		return seen
	}
	without, with := look(false), look(true)
	if len(without) < 20 {
		t.Fatalf("looked at %d things only", len(without))
	}
	for i := range max(len(with), len(without)) {
		if i >= len(with) || i >= len(without) || with[i] != without[i] {
			t.Fatalf("a hidden property shows:\nwithout %q\nwith    %q", without[min(i, len(without)-1):],
				with[min(i, len(with)-1):])
		}
	}
}

func TestOperatorsFindWhatMembersDoNot(t *testing.T) {
	w := newWorld(t)
	w.define(secret)
	ref := w.add(objects.Instance, "lab")
	w.mustChange(operator, ref, set(`{"secret": "a"}`))
	if all := w.list(operator, "secret=a"); len(all) != 1 {
		t.Errorf("an operator finds %v", all)
	}
	if all := w.list(member, "secret=a"); len(all) != 0 {
		t.Errorf("a member finds %v", all)
	}
}

func TestObjectsOfOthersAreNotFound(t *testing.T) {
	w := newWorld(t)
	ref, host := w.add(objects.Instance, "office"), w.add(objects.Host, "")
	w.mustChange(operator, ref, set(`{"k": 1}`))
	for _, of := range []objects.Ref{ref, host} {
		_, err := w.Object(t.Context(), member, scopeOf(member), of)
		w.wantError(err, croft.NotFound, "there is no "+of.String())
		_, err = w.change(member, of, set(`{"k": 2}`))
		w.wantError(err, croft.NotFound, "there is no "+of.String())
	}
	agent := access.Caller{Roles: []access.Role{access.Agent}, Host: croft.HostID(host.ID)}
	if _, err := w.Object(t.Context(), agent, access.Scope{}, host); err != nil {
		t.Errorf("an agent cannot see its own host: %v", err)
	}
	_, err := w.Change(t.Context(), agent, access.Scope{}, host, set(`{"k": 1}`))
	w.wantError(err, croft.Denied, "you may not write the property k")
	other := w.add(objects.Host, "")
	_, err = w.Object(t.Context(), agent, access.Scope{}, other)
	w.wantError(err, croft.NotFound, "")
}

func TestOnlyOperatorsDefine(t *testing.T) {
	w := newWorld(t)
	at := objects.Place{Level: objects.Partition, Kind: objects.Instance}
	for _, c := range []access.Caller{member, reader, as("lab", access.ProjectAdmin), as("lab", access.Agent), {}} {
		_, err := w.SetDefinition(t.Context(), c, objects.Definition{Place: at, Unknown: objects.Allow})
		w.wantError(err, croft.Denied, "you may not change definitions")
		w.wantError(w.RemoveDefinition(t.Context(), c, at), croft.Denied, "you may not change definitions")
	}
}

func TestTheLastVisiblePropertyIsRemovedWhateverIsHidden(t *testing.T) {
	for _, hidden := range []bool{false, true} {
		w := newWorld(t)
		w.define(secret + "  owner: {required: true}\n")
		ref := w.add(objects.Instance, "lab")
		w.mustChange(member, ref, set(`{"owner": "jo"}`))
		if hidden {
			w.mustChange(operator, ref, set(`{"secret": "a"}`))
		}
		if got := w.mustChange(member, ref, objects.Change{Remove: []string{"owner"}}); !got.Empty() ||
			got.Generation != 0 {
			t.Errorf("hidden %v: left %+v", hidden, got)
		}
	}
}

func TestWhoMayOnlyWriteLearnsNothingByRemoving(t *testing.T) {
	w := newWorld(t)
	w.define("properties: {drop: {permissions: [{role: member, value: w}]}}")
	ref := w.add(objects.Instance, "lab")
	for range 2 {
		w.mustChange(member, ref, objects.Change{Remove: []string{"drop"}})
		w.mustChange(member, ref, set(`{"drop": "x"}`))
	}
	if got := w.read(member, ref); !got.Empty() {
		t.Errorf("a member reads %+v", got)
	}
}
