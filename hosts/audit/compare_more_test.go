package audit_test

import (
	"slices"
	"strings"
	"testing"

	"croft"
	"croft/hosts/audit"
)

// kindsOf compares and returns the kinds found; mendable kinds end in +.
func kindsOf(e *audit.Evidence) []string {
	var kinds []string
	for _, d := range audit.Compare(*e) {
		kind := string(d.Kind)
		if d.Mendable {
			kind += "+"
		}
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	return kinds
}

// moved makes the instance one that moved from the second host to the first; the second is silent and has a tombstone.
func moved(e *audit.Evidence) {
	with(func(i *croft.Instance) { i.MovedFrom = h2 })(e)
	e.Hosts[h2] = croft.Host{ID: h2, Name: "two"}
	delete(e.Contents, h2)
	e.Orders = append(e.Orders, croft.Order{Host: h2, Instance: web, Want: croft.WantGone})
	e.Observations, e.Contents[h1] = nil, audit.Contents{}
}

func observe(state croft.State, host croft.HostID, id croft.InstanceID) func(*audit.Evidence) {
	return func(e *audit.Evidence) {
		e.Observations = []croft.Observation{{Host: host, Instance: id, Generation: 1, State: state}}
	}
}

func TestDifferencesAreSorted(t *testing.T) {
	e := &audit.Evidence{
		Names:    []audit.Name{{Instance: "c"}, {Instance: "b", Name: "2"}, {Instance: "b", Name: "1"}},
		UserData: []audit.UserData{{Instance: "b"}, {Instance: "a"}},
		Orders:   []croft.Order{{Host: h2, Instance: "a"}, {Host: h1, Instance: "d"}},
	}
	var got []string
	for _, d := range audit.Compare(*e) {
		got = append(got, strings.Join([]string{string(d.Host), string(d.Instance), string(d.Kind), d.Name}, "/"))
	}
	want := []string{"/a/lost user-data/", "/b/lost name/1", "/b/lost name/2", "/b/lost user-data/", "/c/lost name/",
		"host-1/d/lost order/", "host-2/a/lost order/"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCompareMore(t *testing.T) {
	for _, c := range []struct {
		sentence string
		change   func(*audit.Evidence)
		want     []string
	}{
		{"a name of another project's is lost, and the instance's own missing", func(e *audit.Evidence) {
			e.Names[0].Project = "q"
		}, []string{"lost name+", "missing name+"}},
		{"a name that is not the instance's is lost", func(e *audit.Evidence) { e.Names[0].Name = "other" },
			[]string{"lost name+", "missing name+"}},
		{"an empty name without an instance is lost", func(e *audit.Evidence) {
			e.Names = append(e.Names, audit.Name{Instance: "ghost"})
		}, []string{"lost name+"}},
		{"user-data of an instance is not lost", func(e *audit.Evidence) {
			e.UserData = []audit.UserData{{Instance: web}}
		}, nil},
		{"user-data without an instance is lost", func(e *audit.Evidence) {
			e.UserData = []audit.UserData{{Instance: "ghost"}}
		}, []string{"lost user-data+"}},
		{"a membership in another project is lost", func(e *audit.Evidence) {
			grouped(member(web, h1))(e)
			e.Members[0].Project = "q"
		}, []string{"lost membership+", "missing membership+"}},
		{"evidence of one host is compared for its own instances alone", func(e *audit.Evidence) {
			e.Only, e.Names, e.Orders, e.Observations = h2, nil, nil, nil
			e.Contents = map[croft.HostID]audit.Contents{h2: {}}
			e.Claims = map[croft.HostID]map[croft.InstanceID]croft.Resources{h2: {}}
		}, nil},
		{"and for them completely", func(e *audit.Evidence) {
			e.Only, e.Names, e.Orders, e.Observations = h1, nil, nil, nil
		}, []string{"missing order+"}},
		{"an address that is not kept can be", chosen(), []string{"missing address+"}},
		{"one that is kept for another instance cannot", chosen(audit.TakenAddress{Address: "10.0.0.9", Host: h1,
			Instance: "ghost"}), []string{"lost address+", "missing address"}},
		{"one that is kept on its host is as it should be", chosen(audit.TakenAddress{Address: "10.0.0.9", Host: h1,
			Instance: web}), nil},
		{"one of an instance that moves is left to the move", both(chosen(),
			with(func(i *croft.Instance) { i.Moving = h2 })), []string{"unfinished move+"}},
		{"where hosts were not read, none is unknown", func(e *audit.Evidence) { e.Hosts = nil }, nil},
		{"an observation of nothing that is on record is lost", func(e *audit.Evidence) {
			e.Observations = append(e.Observations, croft.Observation{Host: "", Instance: "ghost"})
		}, []string{"lost observation+"}},
		{"a domain that was seen stopped and is gone is missed", both(observe(croft.StateStopped, h1, web),
			func(e *audit.Evidence) { e.Contents[h1] = audit.Contents{} }), []string{"missing guest"}},
		{"so is one that was seen booting", both(observe(croft.StateBooting, h1, web),
			func(e *audit.Evidence) { e.Contents[h1] = audit.Contents{} }), []string{"missing guest"}},
		{"one that was seen for an older order is not", both(observe(croft.StateRunning, h1, web),
			func(e *audit.Evidence) {
				e.Orders[0].Generation, e.Contents[h1] = 2, audit.Contents{}
			}), nil},
		{"one that was seen on another host is not missed here", func(e *audit.Evidence) {
			observe(croft.StateRunning, h2, web)(e)
			e.Contents[h1] = audit.Contents{}
		}, []string{"lost observation+"}},
		{"a running instance with an order is in order although its host is alone", func(e *audit.Evidence) {
			delete(e.Hosts, h2)
			delete(e.Claims, h2)
			delete(e.Contents, h2)
		}, nil},
		{"an order gone to the instance's own host is not undone", func(e *audit.Evidence) {
			e.Orders[0].Want = croft.WantGone
		}, nil},
		{"who was moved waits for the host before", moved, []string{"undone tombstone"}},
		{"not where it was seen on its host", both(moved, observe(croft.StateFetching, h1, web)), nil},
		{"but where that only waits", both(moved, observe(croft.StatePending, h1, web)), []string{"undone tombstone"}},
		{"or where the host before saw it", both(moved, observe(croft.StateRunning, h2, web)),
			[]string{"undone tombstone"}},
		{"or where its host saw another one", both(moved, observe(croft.StateRunning, h1, "ghost")),
			[]string{"lost observation+", "undone tombstone"}},
		{"not where it does not come from there", both(moved, with(func(i *croft.Instance) { i.MovedFrom = "" })), nil},
		{"not for a host that is not on record", both(moved, func(e *audit.Evidence) { delete(e.Hosts, h2) }), nil},
		{"a lost order on a host that did not answer may go", func(e *audit.Evidence) {
			e.Orders = append(e.Orders, croft.Order{Host: h2, Instance: "ghost", Want: croft.WantRunning})
			delete(e.Contents, h2)
		}, []string{"lost order+"}},
		{"one whose guest runs may not", func(e *audit.Evidence) {
			e.Orders = append(e.Orders, croft.Order{Host: h2, Instance: "ghost", Want: croft.WantRunning})
			e.Contents[h2] = audit.Contents{Guests: []audit.Guest{{Instance: "ghost"}}}
		}, []string{"lost order"}},
		{"an order of a request that is still scheduling is no stray", func(e *audit.Evidence) {
			with(func(i *croft.Instance) { i.State, i.Session, i.Host = croft.StateScheduling, "living", "" })(e)
			e.Observations, e.Contents = nil, nil
		}, nil},
		{"a claim beside the right one is a stray", func(e *audit.Evidence) { e.Claims[h2][web] = size },
			[]string{"stray claim+"}},
		{"not to be mended while the instance goes", both(with(func(i *croft.Instance) {
			i.State = croft.StateDestroying
		}), func(e *audit.Evidence) { e.Claims[h2][web] = size }), []string{"stray claim"}},
		{"a claim on another host alone is told once", func(e *audit.Evidence) {
			delete(e.Claims[h1], web)
			e.Claims[h2][web] = size
		}, []string{"missing claim+"}},
		{"a missing claim does not hide another's stray one", func(e *audit.Evidence) {
			delete(e.Claims[h1], web)
			db := e.Instances[web]
			db.ID, db.Name = "db", "db"
			e.Instances["db"] = db
			e.Names = append(e.Names, audit.Name{Project: "p", Name: "db", Instance: "db"})
			e.Orders = append(e.Orders, croft.Order{Host: h1, Instance: "db", Generation: 1, Want: croft.WantRunning})
			e.Claims[h1]["db"], e.Claims[h2]["db"] = size, size
		}, []string{"missing claim+", "stray claim+"}},
		{"nor does another difference of the same instance", func(e *audit.Evidence) {
			e.Names, e.Claims[h2][web] = nil, size
		}, []string{"missing name+", "stray claim+"}},
		{"a claim goes with its tombstone", func(e *audit.Evidence) {
			bury(e)
			e.Claims[h1][web] = size
			silence(e)
		}, nil},
		{"a claim with an order that is lost is leaked", func(e *audit.Evidence) {
			delete(e.Instances, web)
			e.Names = nil
		}, []string{"leaked claim", "lost order"}},
		{"a guest with an order has its disks", func(e *audit.Evidence) {
			e.Orders = append(e.Orders, croft.Order{Host: h2, Instance: "ghost", Want: croft.WantGone})
			e.Contents[h2] = audit.Contents{Directories: []croft.InstanceID{"ghost"}}
		}, []string{"undone tombstone"}},
		{"disks of an instance of the host's stay although its order is missing", func(e *audit.Evidence) {
			e.Orders, e.Observations = nil, nil
			e.Contents[h1] = audit.Contents{Directories: []croft.InstanceID{web}}
		}, []string{"missing order+"}},
		{"disks on a host without an ID are stray", func(e *audit.Evidence) {
			e.Contents[""] = audit.Contents{Directories: []croft.InstanceID{"ghost"},
				Guests: []audit.Guest{{Instance: "other"}}}
		}, []string{"stray files+", "stray guest"}},
		{"a claim on a host without an ID is leaked", func(e *audit.Evidence) {
			e.Claims[""] = map[croft.InstanceID]croft.Resources{"ghost": size}
		}, []string{"leaked claim+"}},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			e := healthy()
			c.change(e)
			if got := kindsOf(e); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// Agents on one machine see each other's guests in the hypervisor that they share.
func TestGuestsOfAnotherAgentOnTheMachineAreNoStrays(t *testing.T) {
	for what, c := range map[string]struct {
		boot, place string
		strays      int
	}{
		"another agent of the machine":                {"b1", "p2", 0},
		"a copy of the machine":                       {"b2", "p2", 1},
		"the machine, which lost its state directory": {"b1", "p1", 1},
		"an agent that does not say where it runs":    {"", "p2", 1},
	} {
		e := healthy()
		one, two := e.Hosts[h1], e.Hosts[h2]
		one.Boot, one.Place, two.Boot, two.Place = c.boot, c.place, "b1", "p1"
		if c.boot == "" {
			two.Boot = ""
		}
		e.Hosts[h1], e.Hosts[h2] = one, two
		e.Contents[h2] = audit.Contents{Guests: []audit.Guest{{Instance: web}}}
		strays := 0
		for _, d := range audit.Compare(*e) {
			if d.Kind == audit.StrayGuest {
				strays++
			}
		}
		if strays != c.strays {
			t.Errorf("%s: %d strays, want %d", what, strays, c.strays)
		}
	}
}

// TestALostInstanceIsSaidToBelongToNoHost: a host's name is in the record of the loss alone.
func TestALostInstanceIsSaidToBelongToNoHost(t *testing.T) {
	e := healthy()
	inst := e.Instances[web]
	inst.State, inst.Host = croft.StateLost, ""
	inst.Lost = &croft.Loss{Host: "gone", HostName: "rack7"}
	e.Instances[web] = inst
	e.Contents[h2] = audit.Contents{Guests: []audit.Guest{{Instance: web}}}
	said := map[audit.Kind]audit.Difference{}
	for _, d := range audit.Compare(*e) {
		if strings.HasSuffix(d.Cause, "host ") || strings.Contains(d.Cause, "host :") ||
			strings.Contains(d.Advice, "forget `") {
			t.Errorf("a host without a name: %s; do: %s", d.Cause, d.Advice)
		}
		said[d.Kind] = d
	}
	for _, kind := range []audit.Kind{audit.StrayGuest, audit.StrayOrder, audit.LeakedClaim} {
		if !strings.Contains(said[kind].Cause, "no host, since it was lost with host rack7") {
			t.Errorf("%s: the cause is %q", kind, said[kind].Cause)
		}
	}
	if advice := said[audit.StrayGuest].Advice; !strings.Contains(advice, "schedule recreate "+string(web)) {
		t.Errorf("the advice about the guest is %q", advice)
	}
}

// A difference names its host by name, says where the claim is, and differences are sorted.
func TestDifferencesAreToldAlike(t *testing.T) {
	e := healthy()
	delete(e.Claims[h1], web)
	e.Claims[h2] = map[croft.InstanceID]croft.Resources{web: size}
	e.Contents[h2] = audit.Contents{Guests: []audit.Guest{{Instance: "d"}, {Instance: "a"}, {Instance: "c"},
		{Instance: web}}}
	e.Hosts[h1] = croft.Host{ID: h1, Name: "one", Alive: true, Problems: []string{"z", "a"}}
	var got []string
	for _, d := range audit.Compare(*e) {
		got = append(got, d.HostName+" "+string(d.Kind)+" "+string(d.Instance)+" "+d.Name)
		if d.Kind == audit.MissingClaim && d.Cause != "it claims nothing on its host, whose room can be given to others: its claim is on host two" {
			t.Errorf("the cause of a missing claim is %q", d.Cause)
		}
		if d.Kind == audit.StrayGuest && d.Instance == web && (d.Name != "web" || d.Project != "p") {
			t.Errorf("a stray guest of an instance elsewhere is told as %+v", d)
		}
	}
	want := []string{"one problem of the host's  a", "one problem of the host's  z",
		"one missing claim instance-web web",
		"two stray guest a ", "two stray guest c ", "two stray guest d ", "two stray guest instance-web web"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	delete(e.Claims[h2], web)
	for _, d := range audit.Compare(*e) {
		if d.Kind == audit.MissingClaim && d.Cause != "it claims nothing on its host, whose room can be given to "+
			"others: its allocations were removed outside croft, or Placement was restored from an older copy" {
			t.Errorf("the cause of a missing claim is %q", d.Cause)
		}
	}
}

// Memberships are identified by group, which is a pointer in a difference.
func TestMembershipsAreConfirmedByTheirGroup(t *testing.T) {
	other := croft.Affinity{Group: "h", Rule: croft.Apart}
	same, again := staysApart, staysApart
	lost := func(a *croft.Affinity) []audit.Difference {
		return []audit.Difference{{Kind: audit.LostMember, Instance: web, Affinity: a}}
	}
	for _, c := range []struct {
		name          string
		first, second *croft.Affinity
		want          int
	}{
		{"the same group", &same, &again, 1},
		{"another group", &same, &other, 0},
		{"no group before", nil, &same, 0},
		{"no group any more", &same, nil, 0},
		{"no groups", nil, nil, 1},
	} {
		if got := audit.Confirm(lost(c.first), lost(c.second)); len(got) != c.want {
			t.Errorf("%s: got %v", c.name, got)
		}
	}
}

func TestSeatsAreConfirmedByWhatTheyAre(t *testing.T) {
	lost := func(location string) []audit.Difference {
		return []audit.Difference{{Kind: audit.LostSeat, Instance: web, Seat: croft.Seat{Group: "g",
			Clause: "same-rack", Location: location}}}
	}
	if got := audit.Confirm(lost("s/r/k"), lost("s/r/k")); len(got) != 1 {
		t.Errorf("the same seat: got %v", got)
	}
	if got := audit.Confirm(lost("s/r/k"), lost("s/r/l")); len(got) != 0 {
		t.Errorf("another seat: got %v", got)
	}
}

// chosen gives the instance a chosen address, and the directory these entries.
func chosen(entries ...audit.TakenAddress) func(*audit.Evidence) {
	return func(e *audit.Evidence) {
		inst := e.Instances[web]
		inst.Spec.FixedAddress = "10.0.0.9"
		e.Instances[web], e.Addresses = inst, entries
	}
}
