package audit_test

import (
	"slices"
	"strings"
	"testing"

	"croft"
	"croft/hosts/audit"
)

const (
	h1  croft.HostID     = "host-1"
	h2  croft.HostID     = "host-2"
	web croft.InstanceID = "instance-web"
)

var size = croft.Resources{croft.VCPU: 1, croft.MemoryMB: 256}

// healthy is the evidence of one instance that runs on the first of two hosts.
func healthy() *audit.Evidence {
	inst := croft.Instance{ID: web, Project: "p", Name: "web", State: croft.StateScheduled, Host: h1, Generation: 1,
		Revision: 7, Spec: croft.Spec{Resources: size}}
	return &audit.Evidence{
		Hosts: map[croft.HostID]croft.Host{h1: {ID: h1, Name: "one", Alive: true},
			h2: {ID: h2, Name: "two", Alive: true}},
		Instances:    map[croft.InstanceID]croft.Instance{web: inst},
		Sessions:     map[string]bool{"living": true},
		Names:        []audit.Name{{Project: "p", Name: "web", Instance: web, Revision: 7}},
		Orders:       []croft.Order{{Host: h1, Instance: web, Generation: 1, Want: croft.WantRunning}},
		Observations: []croft.Observation{{Host: h1, Instance: web, Generation: 1, State: croft.StateRunning}},
		Claims:       map[croft.HostID]map[croft.InstanceID]croft.Resources{h1: {web: size}, h2: {}},
		Contents: map[croft.HostID]audit.Contents{
			h1: {Guests: []audit.Guest{{Instance: web, Generation: 1, Running: true}},
				Directories: []croft.InstanceID{web}}, h2: {},
		},
	}
}

// with changes the instance's record.
func with(change func(*croft.Instance)) func(*audit.Evidence) {
	return func(b *audit.Evidence) {
		inst := b.Instances[web]
		change(&inst)
		b.Instances[web] = inst
	}
}

// bury reduces the instance to the state after a forced destroy.
func bury(b *audit.Evidence) {
	delete(b.Instances, web)
	delete(b.Claims[h1], web)
	b.Names = nil
	b.Orders[0].Want = croft.WantGone
}

// hold turns the instance into a held claim.
func hold(b *audit.Evidence) {
	with(func(i *croft.Instance) { i.State, i.Generation = croft.StateHeld, 0 })(b)
	b.Orders, b.Observations, b.Contents[h1] = nil, nil, audit.Contents{}
}

func silence(b *audit.Evidence) {
	b.Hosts[h1] = croft.Host{ID: h1, Name: "one"}
	delete(b.Contents, h1)
}

func both(changes ...func(*audit.Evidence)) func(*audit.Evidence) {
	return func(b *audit.Evidence) {
		for _, change := range changes {
			change(b)
		}
	}
}

var staysApart = croft.Affinity{Group: "g", Rule: croft.Apart}

func member(id croft.InstanceID, host croft.HostID) audit.GroupMember {
	return audit.GroupMember{GroupMember: croft.GroupMember{Affinity: staysApart, Instance: id, Name: string(id),
		Host: host},
		Project: "p"}
}

// grouped makes the instance a member of a group with these members.
func grouped(members ...audit.GroupMember) func(*audit.Evidence) {
	return both(with(func(i *croft.Instance) { i.Spec.Affinities = []croft.Affinity{staysApart} }),
		func(b *audit.Evidence) { b.Members = members })
}

func TestCompare(t *testing.T) {
	for _, c := range []struct {
		sentence string
		change   func(*audit.Evidence)
		want     []string // kinds; mendable ones end in +
	}{
		{"what is as written is no difference", func(*audit.Evidence) {}, nil},
		{"a request under way is none", both(with(func(i *croft.Instance) {
			i.State, i.Session, i.Host = croft.StateScheduling, "living", ""
		}),
			func(b *audit.Evidence) { b.Orders, b.Observations, b.Contents = nil, nil, nil }), nil},
		{"a request whose scheduler died is one", both(with(func(i *croft.Instance) {
			i.State, i.Session, i.Host = croft.StateScheduling, "dead", ""
		}),
			func(b *audit.Evidence) { b.Orders, b.Observations, b.Contents = nil, nil, nil }),
			[]string{"abandoned request+"}},
		{"a claim that is held has no order, and is none", hold, nil},
		{"a claim that is held and missing can be made again",
			both(hold, func(b *audit.Evidence) { delete(b.Claims[h1], web) }), []string{"missing claim+"}},
		{"a claim that is held on another host too can go there",
			both(hold, func(b *audit.Evidence) { b.Claims[h2][web] = size }), []string{"stray claim+"}},
		{"a hold that somebody gives back is undone like a request whose scheduler died",
			both(hold, with(func(i *croft.Instance) { i.State = croft.StateScheduling })),
			[]string{"abandoned request+"}},
		{"a build under way is none", func(b *audit.Evidence) {
			b.Contents[h1], b.Observations[0].State = audit.Contents{}, croft.StateFetching
		}, nil},
		{"a domain that was seen and is gone is one", func(b *audit.Evidence) { b.Contents[h1] = audit.Contents{} },
			[]string{"missing guest"}},
		{"a destroy under way is none but for its tombstone",
			both(with(func(i *croft.Instance) { i.State = croft.StateDestroying }),
				func(b *audit.Evidence) {
					b.Orders[0].Want, b.Orders[0].Generation, b.Contents[h1] = croft.WantGone, 2, audit.Contents{}
					delete(b.Claims[h1], web)
				}), []string{"undone tombstone"}},
		{"a tombstone that waits for a silent host is none", both(bury, silence), nil},
		{"a tombstone on a host that lives is one", bury, []string{"undone tombstone"}},
		{"a silent host's guests are not missed", silence, nil},
		{"an order that is missing can be written again", func(b *audit.Evidence) { b.Orders = nil },
			[]string{"missing order+"}},
		{"a claim that is missing can be made again", func(b *audit.Evidence) { delete(b.Claims[h1], web) },
			[]string{"missing claim+"}},
		{"claims that were not read are not missed", func(b *audit.Evidence) { delete(b.Claims, h1) }, nil},
		{"a guest on a network that its host closed to its project is one", both(
			with(func(i *croft.Instance) { i.Spec.Networks = []string{"default", "lab"} }), func(b *audit.Evidence) {
				b.Hosts[h1] = croft.Host{ID: h1, Name: "one", Alive: true,
					Networks: map[string][]croft.Project{"lab": {"other"}}}
			}), []string{"closed network"}},
		{"a guest on a network that is open to its project is none", both(
			with(func(i *croft.Instance) { i.Spec.Networks = []string{"default", "lab"} }), func(b *audit.Evidence) {
				b.Hosts[h1] = croft.Host{ID: h1, Name: "one", Alive: true,
					Networks: map[string][]croft.Project{"lab": {"other", "p"}}}
			}), nil},
		{"a claim of another size is left alone", func(b *audit.Evidence) {
			b.Claims[h1][web] = croft.Resources{croft.VCPU: 2}
		}, []string{"wrong claim"}},
		{"what is claimed of a shared provider is not missed here",
			func(b *audit.Evidence) { b.Claims[h1][web] = croft.Resources{croft.VCPU: 1} }, nil},
		{"a class that is claimed nowhere is missed by who reads all", func(b *audit.Evidence) {
			b.Claims[h1][web], b.Elsewhere = croft.Resources{croft.VCPU: 1}, map[croft.InstanceID]croft.Resources{}
		}, []string{"wrong claim"}},
		{"a class that is claimed elsewhere is not", func(b *audit.Evidence) {
			b.Claims[h1][web], b.Elsewhere = croft.Resources{croft.VCPU: 1},
				map[croft.InstanceID]croft.Resources{web: {croft.MemoryMB: 256}}
		}, nil},
		{"what a claim has in excess elsewhere is told", func(b *audit.Evidence) {
			b.Elsewhere = map[croft.InstanceID]croft.Resources{web: {croft.MemoryMB: 256}}
		}, []string{"wrong claim"}},
		{"a member on its host is as it should be", grouped(member(web, h1)), nil},
		{"a member that its group does not count can be entered", grouped(), []string{"missing membership+"}},
		{"a member that is entered elsewhere is entered wrongly", grouped(member(web, h2)),
			[]string{"lost membership+", "missing membership+"}},
		{"a member that no longer exists can go", grouped(member(web, h1), member("ghost", h2)),
			[]string{"lost membership+"}},
		{"a member by another rule than it was made with can go", both(grouped(member(web, h1)),
			func(b *audit.Evidence) {
				m := member(web, h1)
				m.Rule = croft.Together
				b.Members = append(b.Members, m)
			}), []string{"lost membership+"}},
		{"members on one host that stay apart are told", both(grouped(member(web, h1), member("other", h1)),
			func(b *audit.Evidence) {
				other := b.Instances[web]
				other.ID, other.Name = "other", "other"
				b.Instances["other"], b.Claims[h1]["other"] = other, size
				b.Names = append(b.Names, audit.Name{Project: "p", Name: "other", Instance: "other"})
				b.Orders = append(b.Orders, croft.Order{Host: h1, Instance: "other", Generation: 1,
					Want: croft.WantRunning})
			}), []string{"broken rule"}},
		{"a claim of nobody leaks", func(b *audit.Evidence) { b.Claims[h2]["ghost"] = size },
			[]string{"leaked claim+"}},
		{"a claim of a guest without a record stays", func(b *audit.Evidence) {
			b.Claims[h2]["ghost"] = size
			b.Contents[h2] = audit.Contents{Guests: []audit.Guest{{Instance: "ghost"}}}
		}, []string{"leaked claim", "stray guest"}},
		{"a claim in the name of a guest that was given up leaks", func(b *audit.Evidence) {
			b.Claims[h2]["ghost"] = size
			b.Contents[h2] = audit.Contents{Guests: []audit.Guest{{Instance: "ghost"}}}
			b.Orders = append(b.Orders, croft.Order{Host: h2, Instance: "ghost", Generation: 2, Want: croft.WantLeft})
		}, []string{"leaked claim+", "leftover"}},
		{"a claim on another host than the instance's can go where it has its own",
			func(b *audit.Evidence) { b.Claims[h2][web] = size }, []string{"stray claim+"}},
		{"a claim that is on another host instead can be brought back, and is told once", func(b *audit.Evidence) {
			delete(b.Claims[h1], web)
			b.Claims[h2][web] = size
		}, []string{"missing claim+"}},
		{"a claim on another host stays where its own was not read", func(b *audit.Evidence) {
			delete(b.Claims, h1)
			b.Claims[h2][web] = size
		}, []string{"stray claim"}},
		{"a move that was begun ends with the instance", func(b *audit.Evidence) {
			inst := b.Instances[web]
			inst.State, inst.Moving = croft.StateDestroying, h2
			b.Instances[web] = inst
			b.Orders[0].Want = croft.WantGone
			b.Claims[h2][web] = size
			delete(b.Claims[h1], web)
		}, []string{"undone tombstone"}},
		{"a name without an instance can go", func(b *audit.Evidence) {
			b.Names = append(b.Names, audit.Name{Project: "p", Name: "db", Instance: "ghost"})
		}, []string{"lost name+"}},
		{"an instance without its name can have it", func(b *audit.Evidence) { b.Names = nil },
			[]string{"missing name+"}},
		{"an order without an instance can go where there is no guest", func(b *audit.Evidence) {
			b.Orders = append(b.Orders, croft.Order{Host: h2, Instance: "ghost", Want: croft.WantRunning})
		}, []string{"lost order+"}},
		{"an order without an instance stays where its guest is", func(b *audit.Evidence) {
			b.Orders = append(b.Orders, croft.Order{Host: h2, Instance: "ghost", Want: croft.WantRunning})
			b.Contents[h2] = audit.Contents{Guests: []audit.Guest{{Instance: "ghost"}}}
		}, []string{"lost order"}},
		{"two hosts with an order about one instance are told", func(b *audit.Evidence) {
			b.Orders = append(b.Orders, croft.Order{Host: h2, Instance: web, Want: croft.WantRunning})
		}, []string{"stray order"}},
		{"an observation without an order can go", func(b *audit.Evidence) {
			b.Observations = append(b.Observations, croft.Observation{Host: h2, Instance: web})
		}, []string{"lost observation+"}},
		{"a guest that nobody ordered is told and stays", func(b *audit.Evidence) {
			b.Contents[h2] = audit.Contents{Guests: []audit.Guest{{Instance: "ghost"}},
				Directories: []croft.InstanceID{"ghost"}}
		}, []string{"stray guest"}},
		{"a guest of another host's instance is told and stays", func(b *audit.Evidence) {
			b.Contents[h2] = audit.Contents{Guests: []audit.Guest{{Instance: web}},
				Directories: []croft.InstanceID{web}}
		}, []string{"stray guest"}},
		{"disks without any owner can go", func(b *audit.Evidence) {
			b.Contents[h2] = audit.Contents{Directories: []croft.InstanceID{"ghost"}}
		}, []string{"stray files+"}},
		{"disks of an instance elsewhere stay", func(b *audit.Evidence) {
			b.Contents[h2] = audit.Contents{Directories: []croft.InstanceID{web}}
		}, []string{"stray files"}},
		{"a host that is not on record is told", func(b *audit.Evidence) { delete(b.Hosts, h1) },
			[]string{"unknown host"}},
		{"a move that nobody ends can be ended", with(func(i *croft.Instance) { i.Moving = h2 }),
			[]string{"unfinished move+"}},
		{"a claim that is ahead of its move is no other difference",
			both(with(func(i *croft.Instance) { i.Moving = h2 }), func(b *audit.Evidence) {
				delete(b.Claims[h1], web)
				b.Claims[h2][web] = size
			}), []string{"unfinished move+"}},
		{"what a host's agent finds wrong is told", func(b *audit.Evidence) {
			b.Hosts[h2] = croft.Host{ID: h2, Name: "two", Alive: true, Problems: []string{"it shrank"}}
		}, []string{"problem of the host's"}},
		{"the books of one host say nothing about others", func(b *audit.Evidence) {
			b.Only, b.Names, b.Claims = h2, nil, map[croft.HostID]map[croft.InstanceID]croft.Resources{h2: {}}
			b.Orders, b.Observations, b.Contents = nil, nil, map[croft.HostID]audit.Contents{h2: {}}
		}, nil},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			b := healthy()
			c.change(b)
			var got []string
			for _, d := range audit.Compare(*b) {
				kind := string(d.Kind)
				if d.Mendable {
					kind += "+"
				}
				if got = append(got, kind); !d.Mendable && d.Advice == "" && d.Kind != audit.StrayFiles &&
					d.Kind != audit.HostProblem {
					t.Errorf("%s is not to be mended, and nothing says what to do", kind)
				}
				if d.Cause == "" || strings.Contains(d.Cause, "host-") && !strings.Contains(d.Cause, "host-id") {
					t.Errorf("%s: the cause %q names no host as people do", kind, d.Cause)
				}
			}
			if slices.Sort(got); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestOnlyWhatTwoLooksFindIsConfirmed(t *testing.T) {
	b := healthy()
	b.Claims[h2]["ghost"] = size
	first := audit.Compare(*b)
	b.Claims[h2] = map[croft.InstanceID]croft.Resources{"other": size}
	if both := audit.Confirm(first, audit.Compare(*b)); len(both) != 0 {
		t.Errorf("got %v, want nothing: the one claim was under way, the other may be", both)
	}
	if both := audit.Confirm(first, first); len(both) != 1 {
		t.Errorf("got %v, want the claim", both)
	}
}
