package etcdstore_test

import (
	"fmt"
	"testing"

	"croft"
	"croft/etcdstore/etcdtest"
	"croft/hosts/audit"
	"croft/tenant"
	"croft/tenant/access"
	"croft/tenant/objects"
	"croft/tenant/objects/objectstest"
)

// noted creates objects with properties.
type noted struct {
	*fixture
	bare
	made map[objects.Ref]croft.Instance // for a group: one of its members
}

func newNoted(t *testing.T) *noted {
	f := newFixture(t)
	return &noted{f, f.raw(t), map[objects.Ref]croft.Instance{}}
}

// create creates an instance, optionally as a member of groups on the host.
func (n *noted) create(t *testing.T, project croft.Project, groups ...string) croft.Instance {
	t.Helper()
	inst := etcdtest.NewInstance(fmt.Sprintf("vm%d", len(n.made)+len(groups)*100))
	inst.Name, inst.Project = inst.Name+"-"+string(inst.ID)[:8], project
	for _, group := range groups {
		inst.Spec.Affinities = append(inst.Spec.Affinities, croft.Affinity{Group: group, Rule: croft.Together})
	}
	inst = etcdtest.Must(n.Instances.Create(t.Context(), inst))(t)
	if len(groups) > 0 {
		n.inst = inst
		inst = etcdtest.Must(n.Instances.Assign(t.Context(), inst, n.order(1, croft.WantRunning)))(t)
	}
	return inst
}

func refOf(inst croft.Instance) objects.Ref {
	return objects.Ref{Kind: objects.Instance, Project: inst.Project, ID: string(inst.ID)}
}

func (n *noted) add(t *testing.T, kind objects.Kind, project croft.Project) objects.Ref {
	t.Helper()
	ref := objects.Ref{Kind: kind, Project: project, ID: fmt.Sprintf("name%d", len(n.made))}
	inst := croft.Instance{}
	switch kind {
	case objects.Instance:
		inst = n.create(t, project)
		ref = refOf(inst)
	case objects.Host:
		ref = objects.Ref{Kind: kind, ID: string(croft.NewHostID())}
		if err := n.Registry.PutHost(t.Context(), croft.Host{ID: croft.HostID(ref.ID), Name: ref.ID}); err != nil {
			t.Fatal(err)
		}
	case objects.Group:
		inst = n.create(t, project, ref.ID)
	}
	n.made[ref] = inst
	return ref
}

func (n *noted) end(t *testing.T, ref objects.Ref) {
	t.Helper()
	var err error
	switch ref.Kind {
	case objects.Instance:
		err = n.Instances.Discard(t.Context(), n.made[ref])
	case objects.Host:
		err = n.Registry.ForgetHost(t.Context(), croft.HostID(ref.ID))
	case objects.Group:
		n.inst = n.made[ref]
		err = n.Instances.Bury(t.Context(), n.inst, n.order(2, croft.WantGone))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// hasNoted reports whether anything is stored about an object.
func (n *noted) hasNoted(t *testing.T, ref objects.Ref) bool {
	t.Helper()
	key := "objects/" + string(ref.Kind) + "/"
	if ref.Project != "" {
		key += string(ref.Project) + "/"
	}
	return n.has(t, key+ref.ID)
}

// note adds a tag to an object.
func (n *noted) note(t *testing.T, ref objects.Ref) {
	t.Helper()
	etcdtest.Must(objects.New(n.Objects).Change(t.Context(), objectstest.Operator, access.Everything(), ref,
		objects.Change{AddTags: []string{"t"}}))(t)
	if !n.hasNoted(t, ref) {
		t.Fatalf("nothing is stored about %s", ref)
	}
}

func TestStoreKeepsTheContractOfObjects(t *testing.T) {
	t.Parallel()
	objectstest.TestStore(t, func(t *testing.T) objectstest.Fixture {
		n := newNoted(t)
		return objectstest.Fixture{Store: n.Objects, Add: n.add, Remove: n.end, Has: n.hasNoted,
			LoseAnswer: n.LoseAnswer, Twice: n.SendTwice}
	})
}

func TestWhateverEndsAnInstanceEndsWhatIsNotedAboutIt(t *testing.T) {
	t.Parallel()
	n := newNoted(t)
	for name, end := range map[string]func(croft.Instance) error{
		"forget": func(croft.Instance) error {
			return n.Orders.Forget(t.Context(), etcdtest.Must(n.Orders.Order(t.Context(), n.host, n.inst.ID))(t))
		},
		"bury": func(inst croft.Instance) error {
			return n.Instances.Bury(t.Context(), inst, n.order(2, croft.WantGone))
		},
	} {
		inst := n.create(t, "lab", "web", "db")
		refs := []objects.Ref{refOf(inst), {Kind: objects.Group, Project: "lab", ID: "web"},
			{Kind: objects.Group, Project: "lab", ID: "db"}}
		for _, ref := range refs {
			n.note(t, ref)
		}
		if err := end(inst); err != nil {
			t.Fatal(err)
		}
		for _, ref := range refs {
			if n.hasNoted(t, ref) {
				t.Errorf("%s: something is stored about %s, which ended", name, ref)
			}
		}
	}
}

func TestAGroupKeepsItsPropertiesUntilItsLastMemberLeaves(t *testing.T) {
	t.Parallel()
	n := newNoted(t)
	group := objects.Ref{Kind: objects.Group, Project: "lab", ID: "web"}
	var members []croft.Instance
	for range 3 {
		members = append(members, n.create(t, "lab", group.ID))
	}
	n.create(t, "lab", "web2") // the keys of another group follow directly
	n.note(t, group)
	for i, inst := range members {
		n.inst = inst
		if err := n.Instances.Bury(t.Context(), inst, n.order(2, croft.WantGone)); err != nil {
			t.Fatal(err)
		}
		if got, want := n.hasNoted(t, group), i < 2; got != want {
			t.Errorf("after %d members left, something is stored: %v, want %v", i+1, got, want)
		}
	}
}

func TestAMoveKeepsThePropertiesOfAGroup(t *testing.T) {
	t.Parallel()
	n := newNoted(t)
	group := objects.Ref{Kind: objects.Group, Project: "lab", ID: "web"}
	inst := n.create(t, "lab", group.ID)
	n.note(t, group)
	n.note(t, refOf(inst))
	to := croft.HostID(n.add(t, objects.Host, "").ID)
	n.live(t, to)
	n.inst = inst
	tombstone, order := n.order(2, croft.WantGone), n.order(2, croft.WantRunning)
	order.Host = to
	etcdtest.Must(n.Instances.Relocate(t.Context(), inst, tombstone, order))(t)
	if !n.hasNoted(t, group) || !n.hasNoted(t, refOf(inst)) {
		t.Error("the move removed what was noted")
	}
}

func TestAMembershipThatIsMendedAwayEndsItsGroup(t *testing.T) {
	t.Parallel()
	n := newNoted(t)
	a := croft.Affinity{Group: "web", Rule: croft.Apart}
	ghost := croft.NewInstanceID()
	at := n.put(t, "groups/lab/web/anti-affinity/"+string(n.host)+"/"+string(ghost), "ghost")
	group := objects.Ref{Kind: objects.Group, Project: "lab", ID: "web"}
	n.note(t, group)
	if err := n.Records.Drop(t.Context(), audit.Difference{Kind: audit.LostMember, Affinity: &a, Project: "lab",
		Host: n.host, Instance: ghost, Revision: at}); err != nil {
		t.Fatal(err)
	}
	if n.hasNoted(t, group) {
		t.Error("something is stored about a group without members")
	}
}

func TestAnInstanceThatCameAnewIsAnotherOne(t *testing.T) {
	t.Parallel()
	n := newNoted(t)
	ref := n.add(t, objects.Instance, "lab")
	before := etcdtest.Must(n.Objects.Read(t.Context(), access.Everything(), ref))(t)
	n.end(t, ref)
	again := etcdtest.NewInstance("again")
	again.ID, again.Project = croft.InstanceID(ref.ID), "office"
	etcdtest.Must(n.Instances.Create(t.Context(), again))(t)
	_, err := n.Objects.Write(t.Context(), before, objects.Object{Ref: ref, Tags: []string{"t"}})
	etcdtest.WantKind(t, err, croft.Conflict)
	if n.hasNoted(t, ref) {
		t.Error("something is stored about an instance of another project")
	}
}

func TestARemovedProjectLeavesNothingNoted(t *testing.T) {
	t.Parallel()
	n := newNoted(t)
	etcdtest.Must(n.Projects.Create(t.Context(), tenant.Tenant{Name: "lab"}))(t)
	mine, other := objects.Ref{Kind: objects.Image, Project: "lab", ID: "debian-12"},
		objects.Ref{Kind: objects.Image, Project: "lab-2", ID: "debian-12"}
	n.note(t, mine)
	n.note(t, other)
	if err := n.Projects.Remove(t.Context(), "lab"); err != nil {
		t.Fatal(err)
	}
	if n.hasNoted(t, mine) || !n.hasNoted(t, other) {
		t.Error("something is stored about an image of a removed project, or nothing about one of another")
	}
}

func TestWhatAnOlderProgramLeftIsNotListed(t *testing.T) {
	t.Parallel()
	n := newNoted(t)
	n.put(t, "objects/instance/lab/"+string(croft.NewInstanceID()), `{"tags":["t"]}`)
	n.put(t, "objects/host/"+string(croft.NewHostID()), `{"tags":["t"]}`)
	n.put(t, "objects/group/lab/nobody", `{"tags":["t"]}`)
	for _, kind := range []objects.Kind{objects.Instance, objects.Host, objects.Group} {
		if all, _, err := n.Objects.List(t.Context(), access.Everything(), kind); len(all) != 0 || err != nil {
			t.Errorf("listed %v, %v", all, err)
		}
	}
}
