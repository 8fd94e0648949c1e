package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"croft"
)

var noon = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

const planned croft.ClusterID = "5b0d7a53-9f6b-4a39-8f3c-1f2a6f0e7a10"

// record returns the record of a cluster with two slaves, as the manager leaves it in a state.
func record(state State, change ...func(c *Cluster)) Cluster {
	c := Cluster{ID: planned, Name: "c", Project: "p", User: "ada", Appliance: "hadoop", Slaves: 2, Indexes: []int{0,
		1},
		NextIndex: 2, State: state, Created: noon}
	if state != Scheduling {
		c.Site, c.Implementation, c.Revision = "there", "i", 1
		c.Remote = Remote{Name: RemoteName(planned), Asked: true, ID: "stack"}
		c.Sizing = Sizing{Told: []int{0, 1}, Taken: true, Good: []int{0, 1}}
		c.Good, c.MasterIP = 2, "10.0.0.1"
		c.Members = members(MemberReady, 0, 1)
	}
	if state == Building || state == Resizing {
		c.Deadline = noon.Add(30 * time.Minute)
	}
	for _, f := range change {
		f(&c)
	}
	return c
}

func members(state MemberState, slaves ...int) []Member {
	all := []Member{{ID: IDOf(planned, Master, 0), Role: Master, State: state, Address: "10.0.0.1"}}
	for _, i := range slaves {
		all = append(all, Member{ID: IDOf(planned, Slave, i), Role: Slave, Index: i, State: state, Address: "10.0.0.2"})
	}
	return all
}

func looked(phase Phase, change ...func(s *Seen)) Learned {
	s := Seen{Phase: phase, Remote: Remote{ID: "stack"}, MasterIP: "10.0.0.1"}
	if phase == Standing || phase == Unsized {
		s.Members = members(MemberReady, 0, 1)
		s.Outputs = map[string]any{"master_ip": "10.0.0.1", "hosts": []any{}}
	}
	if phase == Broken || phase == Unsized || phase == Stuck {
		s.Failure = "no valid host"
	}
	for _, f := range change {
		f(&s)
	}
	return Learned{Did: ActLook, Seen: &s}
}

func whileClocksDiffer(l Learned) Learned {
	l.ClocksDiffer = true
	return l
}

func heldSince(at time.Time, l Learned) Learned {
	l.Held = at
	return l
}

func did(a Act, err error) Learned {
	return Learned{Did: a, Err: err, Remote: Remote{ID: "stack"}}
}

func candidates(sites ...string) Learned {
	l := Learned{Did: ActChoose}
	for _, s := range sites {
		l.Candidates = append(l.Candidates, Candidate{Site: Site{Name: s}, Implementation: Implementation{ID: "i",
			Revision: 2}})
	}
	return l
}

var (
	silence = Silent(croft.Errorf(croft.Unavailable, "no route"))
	fault   = Faulty(croft.Errorf(croft.Unavailable, "500 DBConnectionError"))
	refusal = croft.Errorf(croft.Denied, "401")
	noRoom  = croft.Errorf(croft.NoCapacity, "quota")
)

func pin(c *Cluster)     { c.Hints.Sites = []string{"there"} }
func unknown(c *Cluster) { c.Remote.ID, c.Sizing, c.Members = "", Sizing{}, nil }
func lateNow(c *Cluster) { c.Deadline = noon }
func grown(c *Cluster)   { c.Slaves, c.Indexes, c.NextIndex = 3, []int{0, 1, 2}, 3 }
func told(c *Cluster)    { c.Sizing.Told = c.Indexes }
func back(c *Cluster)    { c.Sizing.Back = true }
func asked(c *Cluster)   { c.Remote.Counted, c.Remote.Open = true, 1 }
func partly(c *Cluster)  { c.PartialSince = noon.Add(-complete) }
func faulty(c *Cluster)  { c.FaultSince = noon.Add(-faultPatience) }
func stale(c *Cluster)   { c.Step = "site there unreachable since 2026-11-25T11:00:00Z" }
func leftover(c *Cluster) {
	c.State, c.Attempts = Scheduling, []Tried{{Site: "there", Error: "bad"}}
	c.Error, c.KeptUntil = &Failure{Code: FailedBuild, Message: "bad"}, noon.Add(KeepFailed)
}
func clearing(c *Cluster) {
	leftover(c)
	c.Retry = Retry{Since: noon, Taken: true, Next: noon.Add(5 * time.Second)}
}
func taken(c *Cluster) {
	c.Retry = Retry{Since: noon, Taken: true, Tries: 1, Next: noon.Add(5 * time.Second)}
}
func credential(c *Cluster) {
	c.Error = &Failure{Code: FailedCredential, Message: "x"}
}

func TestWhatASiteTellsOfAMemberIsTidied(t *testing.T) {
	for _, address := range []string{"-oProxyCommand=id", "ssh://else.example", "10.0.0.1\n10.0.0.2", "fe80::1%$(id)"} {
		at := looked(Standing, func(s *Seen) {
			m := &s.Members[1]
			m.Address, m.State, m.Name = address, "OWNED", "a\x1b[2J\nb"
			endless := strings.Repeat("e", 1<<20)
			m.Error, m.Step, m.RemoteID = endless, endless, endless
		})
		for _, m := range Plan(record(Building), at, noon).Record.Members {
			long := max(len(m.Error), len(m.Step), len(m.RemoteID)) > MaxMessage
			if m.Address != "" && m.Address != "10.0.0.1" && m.Address != "10.0.0.2" ||
				strings.ContainsAny(m.Name, "\x1b\n") || long || m.State == "OWNED" {
				t.Errorf("%q: got %.200q", address, fmt.Sprint(m))
			}
		}
	}
}

func TestAFaultThatGoesOnIsToldInTheSameWords(t *testing.T) {
	fault := Faulty(croft.Errorf(croft.Unavailable, "500 DBConnectionError"))
	first := Plan(record(Building, unknown), did(ActLaunch, fault), noon)
	c := first.Record
	for minute := range 4 {
		c = Plan(c, did(ActLaunch, fault), noon.Add(time.Duration(minute)*time.Minute)).Record
	}
	if c.Step != first.Record.Step {
		t.Errorf("got %q, want %q", c.Step, first.Record.Step)
	}
}

// TestPlan checks the decision of each state for each kind of observation.
func TestPlan(t *testing.T) {
	for _, c := range []struct {
		name  string
		c     Cluster
		l     Learned
		state State
		act   Act
		code  FailureCode
		step  string // substring
	}{
		{"a new cluster gets a site chosen", record(Scheduling), Learned{}, Scheduling, ActChoose, "", ""},
		{"a site that is chosen is written before it is asked", record(Scheduling), candidates("a", "b"), Building,
			ActLaunch, "", "site a"},
		{"no site at all is an error that says why", record(Scheduling),
			Learned{Did: ActChoose, Dropped: []Dropped{{Site: "a", Reason: "full"}}}, Failed, ActRest, FailedRoom, ""},
		{"a hint that names nothing is an error", record(Scheduling), did(ActChoose, croft.Errorf(croft.Invalid,
			"hint")),
			Failed, ActRest, FailedBuild, ""},
		{"a store that does not answer chooses nothing", record(Scheduling), did(ActChoose, silence), Scheduling,
			ActRest,
			"", "being chosen"},
		{"an image is brought before the launch", record(Scheduling), Learned{Did: ActChoose, Candidates: []Candidate{{
			Site: Site{Name: "a"}, Implementation: Implementation{Image: "debian-12"}}}}, Scheduling, ActBring, "",
			"image"},
		{"an image on its way says how far it is", record(Scheduling, chosenSite), Learned{Did: ActBring,
			Image:  "debian-12",
			Placed: Placed{State: ImageUploading, Done: 40, Total: 100}}, Scheduling, ActRest, "",
			"image debian-12: 40 %"},
		{"an image that is there lets the launch begin", record(Scheduling, chosenSite), Learned{Did: ActBring,
			Placed: Placed{State: ImageReady}}, Building, ActLaunch, "", ""},
		{"an image that cannot be brought has another site chosen", record(Scheduling, chosenSite),
			Learned{Did: ActBring,
				Placed: Placed{State: ImageFailed, Error: "404"}}, Scheduling, ActChoose, FailedImage, ""},

		{"a launch of unknown outcome is repeated, not looked for", record(Building, unknown), Learned{}, Building,
			ActLaunch, "", ""},
		{"a launch that was taken is waited for", record(Building, unknown), did(ActLaunch, nil), Building, ActRest, "",
			"building"},
		{"a launch without an answer changes no state", record(Building, unknown), did(ActLaunch, silence), Building,
			ActRest, "", "unreachable since"},
		{"a launch that is refused for lack of room has another site chosen", record(Building, unknown),
			did(ActLaunch, noRoom), Scheduling, ActChoose, FailedRoom, ""},
		{"a launch that is refused where a hint pins the site is an error", record(Building, unknown, pin),
			did(ActLaunch, noRoom), Failed, ActRest, FailedRoom, ""},
		{"a launch that was the only one and is refused leaves nothing to remove",
			record(Building, unknown, asked, pin), did(ActLaunch, croft.Errorf(croft.Invalid, "bad template")), Failed,
			ActRest, FailedBuild, ""},
		{"a launch that the site answers with a fault is repeated", record(Building, unknown), did(ActLaunch, fault),
			Building, ActRest, "", "fails since 2026-11-25T12:00:00Z: 500 DBConnectionError"},
		{"a launch that the site answers with faults for five minutes has failed",
			record(Building, unknown, faulty), did(ActLaunch, fault), Scheduling, ActChoose, FailedBuild, ""},
		{"a build that stands without a slave for long enough has failed", record(Building, partly),
			looked(Standing, func(s *Seen) { s.Members[2].State = MemberGone }), Scheduling, ActChoose, FailedBuild,
			""},
		{"a launch with an image that the site does not have names the image", record(Building, unknown, pin),
			did(ActLaunch, &ImageError{croft.Errorf(croft.Invalid, "there is no image nope")}), Failed, ActRest,
			FailedImage, ""},
		{"a build whose master is gone has failed although slaves are awaited",
			record(Building, partly, pin), looked(Working, func(s *Seen) {
				s.Members = members(MemberBuilding, 0)
				s.Members[0].State = MemberGone
			}), Failed, ActRest, FailedMaster, ""},
		{"a refused credential is told, and tried again", record(Building), did(ActLook, refusal), Building, ActRest,
			FailedCredential, "refuses"},
		{"a build under way is waited for", record(Building), looked(Working), Building, ActRest, "", "building"},
		{"a build that stands is ready", record(Building), looked(Standing), Ready, ActRest, "", ""},
		{"a build that stands without a slave is waited for", record(Building), looked(Standing, func(s *Seen) {
			s.Members[2].State = MemberBuilding
		}), Building, ActRest, "", ""},
		{"a build whose master has no address has failed", record(Building), looked(Standing, func(s *Seen) {
			s.MasterIP = ""
		}), Scheduling, ActChoose, FailedOutputs, ""},
		{"a build whose outputs cannot be used has failed", record(Building, pin), looked(Standing, func(s *Seen) {
			s.Failure = "output hosts: error"
		}), Failed, ActRest, FailedOutputs, ""},
		{"a build that failed has another site chosen before anything is removed", record(Building), looked(Broken),
			Scheduling, ActChoose, FailedBuild, ""},
		{"a build that failed for lack of room says so", record(Building), looked(Broken,
			func(s *Seen) { s.NoRoom = true }),
			Scheduling, ActChoose, FailedRoom, ""},
		{"a third build that failed is the last", record(Building, func(c *Cluster) {
			c.Attempts = make([]Tried, 2)
		}),
			looked(Broken), Failed, ActRest, FailedBuild, ""},
		{"what was built while nobody looked is seen although it is late", record(Building, lateNow), Learned{},
			Building,
			ActLook, "", ""},
		{"a build past its deadline that stands is ready", record(Building, lateNow), looked(Standing), Ready,
			ActRest, "",
			""},
		{"a build past its deadline has failed", record(Building, lateNow), looked(Working), Scheduling, ActChoose,
			FailedDeadline, ""},
		{"a build past its deadline at a silent site has failed", record(Building, lateNow), did(ActLook, silence),
			Scheduling, ActChoose, FailedDeadline, ""},
		{"a build that somebody removed is an error", record(Building), looked(Absent), Failed, ActRest,
			FailedRemoved, ""},
		{"a build that the credential does not show is an error, and nothing is removed", record(Building),
			looked(Absent, elsewhere), Failed, ActRest, FailedCredential, ""},

		{"with another site left the failed build is removed first", record(Building, leftover), candidates("b"),
			Scheduling, ActDestroy, FailedBuild, "is being removed"},
		{"with no other site left the failed build is kept to be looked at", record(Building, leftover), candidates(),
			Failed, ActRest, FailedBuild, ""},
		{"once the failed build is gone a site is chosen", record(Building, clearing), looked(Absent), Scheduling,
			ActChoose, FailedBuild, ""},
		{"a failed build that is still there is waited for", record(Building, clearing), looked(Removing), Scheduling,
			ActRest, FailedBuild, ""},

		{"a ready cluster is looked at", record(Ready), Learned{}, Ready, ActLook, "", ""},
		{"a ready cluster that is whole stays ready", record(Ready), looked(Standing), Ready, ActRest, "", ""},
		{"a ready cluster whose site is silent stays ready", record(Ready), did(ActLook, silence), Ready, ActRest, "",
			"unreachable since"},
		{"a ready cluster without a slave is degraded", record(Ready), looked(Standing, func(s *Seen) {
			s.Members[2].State = MemberGone
		}), Degraded, ActRest, "", ""},
		{"a slave that is not told of any more is missing", record(Ready), looked(Standing, func(s *Seen) {
			s.Members = s.Members[:2]
		}), Degraded, ActRest, "", ""},
		{"slaves that a template never tells of are not missing", record(Ready), looked(Standing, func(s *Seen) {
			s.Members = s.Members[:1]
			delete(s.Outputs, "hosts")
		}), Ready, ActRest, "", ""},
		{"a ready cluster without its master is an error", record(Ready), looked(Standing, func(s *Seen) {
			s.Members[0].State = MemberGone
		}), Failed, ActRest, FailedMaster, ""},
		{"a master that boots again is waited for", record(Ready), looked(Standing, func(s *Seen) {
			s.Members[0].State = MemberBuilding
		}), Ready, ActRest, "", ""},
		{"a ready cluster whose stack is gone was removed outside", record(Ready), looked(Absent), Failed, ActRest,
			FailedRemoved, ""},
		{"a ready cluster that the credential does not show is an error", record(Ready), looked(Absent, elsewhere),
			Failed,
			ActRest, FailedCredential, ""},
		{"a degraded cluster that is whole again is ready", record(Degraded), looked(Standing), Ready, ActRest, "", ""},
		{"a degraded cluster whose resize failed stays so", record(Degraded), looked(Unsized), Degraded, ActRest, "",
			""},

		{"a ready cluster whose removal outside failed is an error", record(Ready), looked(Stuck), Failed, ActRest,
			FailedRemoved, ""},
		{"a ready cluster that is being removed outside is an error", record(Ready), looked(Removing), Failed, ActRest,
			FailedRemoved, ""},
		{"another size is a resize, and looked for first", record(Ready, grown), Learned{}, Resizing, ActLook, "", ""},
		{"a degraded cluster can be resized", record(Degraded, grown), Learned{}, Resizing, ActLook, "", ""},
		{"a resize is asked for where nothing is under way", record(Resizing, grown), looked(Standing), Resizing,
			ActResize, "", "3 slaves"},
		{"a resize is not asked for while something is under way", record(Resizing, grown), looked(Updating), Resizing,
			ActRest, "", ""},
		{"a resize after one that failed is asked for", record(Resizing, grown), looked(Unsized), Resizing, ActResize,
			"",
			""},
		{"a resize that conflicts is waited for", record(Resizing, grown), did(ActResize, croft.Errorf(croft.Conflict,
			"x")),
			Resizing, ActRest, "", ""},
		{"a resize that was taken is waited for", record(Resizing, grown), did(ActResize, nil), Resizing, ActRest, "",
			"resizing"},
		{"a resize that is over is ready", record(Resizing, grown, told), looked(Standing, func(s *Seen) {
			s.Members = members(MemberReady, 0, 1, 2)
		}), Ready, ActRest, "", ""},
		{"a resize that stands with a member missing is waited for", record(Resizing, grown, told), looked(Standing),
			Resizing, ActRest, "", ""},
		{"a resize that stands with a member missing for long enough is taken back",
			record(Resizing, grown, told, partly), looked(Standing), Resizing, ActLook, FailedResize, "taken back"},
		{"a resize of a cluster whose master is gone is an error", record(Resizing, grown),
			looked(Standing, func(s *Seen) { s.Members[0].State = MemberGone }), Failed, ActRest, FailedMaster, ""},
		{"a resize of a cluster that is half removed outside is an error", record(Resizing, grown, told), looked(Stuck),
			Failed, ActRest, FailedRemoved, ""},
		{"a resize that goes on at a site that responds again says so", record(Resizing, grown, told, stale),
			looked(Updating), Resizing, ActRest, "", "is resizing it"},
		{"a growth that failed is taken back", record(Resizing, grown, told), looked(Unsized), Resizing, ActLook,
			FailedResize, "taken back"},
		{"a growth that is refused is taken back", record(Resizing, grown), did(ActResize, noRoom), Resizing, ActLook,
			FailedResize, "taken back"},
		{"a growth past its deadline is taken back", record(Resizing, grown, told, lateNow), looked(Updating), Resizing,
			ActLook, FailedResize, "taken back"},
		{"a growth that was taken back is ready, with its error", record(Resizing, back, resizeError), looked(Standing),
			Ready, ActRest, FailedResize, ""},
		{"a growth that cannot be taken back is degraded", record(Resizing, back, resizeError), looked(Unsized),
			Degraded,
			ActRest, FailedResize, ""},
		{"a stack that is gone in a resize was removed outside", record(Resizing, grown), looked(Absent), Failed,
			ActRest,
			FailedRemoved, ""},

		{"a deletion asks the site, whatever was seen", record(Deleting), Learned{}, Deleting, ActDestroy, "", ""},
		{"a deletion of what was never asked for needs no site", record(Deleting,
			func(c *Cluster) { c.Remote = Remote{} }),
			Learned{}, Deleted, ActRest, "", ""},
		{"a deletion that was taken is looked at", record(Deleting, taken), Learned{}, Deleting, ActLook, "", ""},
		{"a deletion without an answer goes on later", record(Deleting), did(ActDestroy, silence), Deleting, ActRest,
			"",
			"unreachable since"},
		{"a deletion with a refused credential says so", record(Deleting), did(ActDestroy, refusal), Deleting, ActRest,
			FailedCredential, "refuses"},
		{"a cluster that is absent after it was asked to go is deleted", record(Deleting, taken), looked(Absent),
			Deleted,
			ActRest, "", ""},
		{"absent where the credential shows another project is not gone", record(Deleting, taken),
			looked(Absent, elsewhere), Deleting, ActRest, FailedCredential, "another project"},
		{"a removal under way is waited for", record(Deleting, taken), looked(Removing), Deleting, ActRest, "", ""},
		{"a removal that failed is waited with", record(Deleting, taken), looked(Stuck), Deleting, ActRest, "",
			"asked again"},
		{"a removal that failed is asked for again in time", record(Deleting, taken, func(c *Cluster) {
			c.Retry.Next = noon
		}), looked(Stuck), Deleting, ActDestroy, "", ""},
		{"a cluster that was given up is deleted at once", record(Deleting, func(c *Cluster) { c.Abandoned = true }),
			Learned{}, Deleted, ActRest, "", ""},

		{"an error rests", record(Failed), Learned{}, Failed, ActRest, "", ""},
		{"what failed stays for a while", record(Failed, func(c *Cluster) { c.KeptUntil = noon.Add(time.Minute) }),
			Learned{}, Failed, ActRest, "", ""},
		{"what failed is removed then", record(Failed, func(c *Cluster) { c.KeptUntil = noon }), Learned{}, Failed,
			ActDestroy, "", ""},
		{"an error of the credential is looked at again", record(Failed, credential), Learned{}, Failed, ActLook,
			FailedCredential, ""},
		{"an error of the credential that is mended is ready again", record(Failed, credential), looked(Standing),
			Ready,
			ActRest, "", ""},
		{"a tombstone rests", record(Deleted, func(c *Cluster) { c.Ended = noon }), Learned{}, Deleted, ActRest, "",
			""},
		{"an old tombstone is forgotten", record(Deleted, func(c *Cluster) { c.Ended = noon.Add(-Remembered) }),
			Learned{},
			Deleted, ActForget, "", ""},

		{"while clocks differ an old tombstone stays",
			record(Deleted, func(c *Cluster) { c.Ended = noon.Add(-Remembered) }), Learned{ClocksDiffer: true}, Deleted,
			ActRest, "", ""},
		{"while clocks differ a cluster that was warned stays", record(Ready, idle, warned),
			Learned{ClocksDiffer: true}, Ready, ActLook, "", ""},
		{"while clocks differ what failed is kept",
			record(Failed, func(c *Cluster) { c.KeptUntil = noon.Add(-time.Hour) }),
			Learned{ClocksDiffer: true}, Failed, ActRest, "", ""},
		{"while clocks differ a build meets no deadline", record(Building, lateNow),
			whileClocksDiffer(looked(Working)), Building, ActRest, "", ""},
		{"patience with members counts from when this manager holds the cluster", record(Building, partly),
			heldSince(noon, looked(Standing, func(s *Seen) { s.Members = members(MemberBuilding, 0, 1) })), Building,
			ActRest, "", ""},
		{"patience with faults counts from when this manager holds the cluster", record(Building, faulty),
			heldSince(noon, did(ActLook, fault)), Building, ActRest, "", ""},
		{"an idle cluster is warned first", record(Ready, idle), Learned{}, Ready, ActLook, "", ""},
		{"an idle cluster that was warned goes", record(Ready, idle, warned), Learned{}, Deleting, ActDestroy, "", ""},
		{"a cluster with a use is not idle", record(Ready, idle, warned, func(c *Cluster) { c.Uses = []Use{{}} }),
			Learned{}, Ready, ActLook, "", ""},
		{"a cluster that expires goes although it is used", record(Ready, warned, func(c *Cluster) {
			c.Uses, c.Expires = []Use{{}}, noon
		}), Learned{}, Deleting, ActDestroy, "", ""},
		{"a cluster that expires goes while it is built", record(Building, warned,
			func(c *Cluster) { c.Expires = noon }),
			Learned{}, Deleting, ActDestroy, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			next := Plan(c.c, c.l, noon)
			code := FailureCode("")
			if next.Record.Error != nil {
				code = next.Record.Error.Code
			}
			if next.Record.State != c.state || next.Do != c.act || code != c.code {
				t.Errorf("got %s, %s, error %q (%s); want %s, %s, %q", next.Record.State, next.Do, code, next.Reason,
					c.state, c.act, c.code)
			}
			if !strings.Contains(next.Record.Step, c.step) {
				t.Errorf("step %q, want %q in it", next.Record.Step, c.step)
			}
			if next.Do != ActRest && next.Reason == "" {
				t.Error("the act has no reason")
			}
			if next.Record.State != c.c.State && len(next.Events) == 0 {
				t.Error("a change of state is no event")
			}
		})
	}
}

func chosenSite(c *Cluster) { c.Site, c.Deadline = "there", noon.Add(time.Hour) }
func elsewhere(s *Seen)     { s.Elsewhere = true }
func resizeError(c *Cluster) {
	c.Error = &Failure{Code: FailedResize, Message: "no valid host"}
}
func idle(c *Cluster)   { c.KeepIdle, c.IdleSince = Seconds(time.Hour), noon.Add(-time.Hour) }
func warned(c *Cluster) { c.Warned = noon.Add(-5 * time.Minute) }

// While clocks differ, a time that has passed must not make the manager look again at once in a loop.
func TestWhileClocksDifferAPlanRestsForAWhile(t *testing.T) {
	for name, c := range map[string]Cluster{
		"tombstone": record(Deleted, func(c *Cluster) { c.Ended = noon.Add(-2 * Remembered) }),
		"failed":    record(Failed, func(c *Cluster) { c.KeptUntil = noon.Add(-time.Hour) }),
	} {
		next := Plan(c, Learned{ClocksDiffer: true}, noon)
		if next.Do != ActRest || !next.Over || next.At.Sub(noon) < paceSettled {
			t.Errorf("%s: %+v", name, next)
		}
	}
}

// TestALostSlaveIsMadeAgain checks that the site is asked again for a slave that two looks found gone, and not too
// often.
func TestALostSlaveIsMadeAgain(t *testing.T) {
	sent := func(ago time.Duration) func(*Cluster) { return func(c *Cluster) { c.Sizing.Sent = noon.Add(-ago) } }
	lost := func(state MemberState) Learned {
		return looked(Standing, func(s *Seen) { s.Members[2].State = state })
	}
	for _, c := range []struct {
		name string
		c    Cluster
		l    Learned
		want bool
	}{
		{"the first look that misses it does not", record(Ready, sent(time.Hour)), lost(MemberGone), false},
		{"the second one does", record(Degraded, sent(time.Hour)), lost(MemberGone), true},
		{"not soon after the size was told", record(Degraded, sent(time.Minute)), lost(MemberGone), false},
		{"one that boots is there", record(Degraded, sent(time.Hour)), lost(MemberBuilding), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			next := Plan(c.c, c.l, noon)
			if asked := !next.Record.Sizing.Taken; asked != c.want || next.Record.State != Degraded {
				t.Fatalf("asked again: %t, want %t; it is %s", asked, c.want, next.Record.State)
			}
			if !c.want {
				return
			}
			if again := Plan(next.Record, Learned{}, noon); again.Record.State != Resizing || again.Do != ActLook {
				t.Errorf("then it is %s, %s", again.Record.State, again.Do)
			}
		})
	}
}

// TestALaunchThatWasRefusedLeavesNothing checks that a refusal is final if no other request is without an answer.
func TestALaunchThatWasRefusedLeavesNothing(t *testing.T) {
	limit := croft.Errorf(croft.NoCapacity, "RequestLimitExceeded")
	for _, c := range []struct {
		name string
		c    Cluster
		act  Act
	}{
		{"the only request", record(Building, unknown, asked), ActChoose},
		{"after one without an answer", record(Building, unknown, func(c *Cluster) {
			c.Remote.Counted, c.Remote.Open = true, 2
		}), ActDestroy},
		{"of a program that does not count", record(Building, unknown), ActDestroy},
	} {
		t.Run(c.name, func(t *testing.T) {
			next := Plan(c.c, did(ActLaunch, limit), noon)
			if next.Do != ActChoose {
				t.Fatalf("it does %s", next.Do)
			}
			if chosen := Plan(next.Record, candidates("b"), noon); chosen.Do != ActLaunch && c.act == ActChoose ||
				chosen.Do != ActDestroy && c.act == ActDestroy {
				t.Errorf("with another site it does %s", chosen.Do)
			}
			next.Record.State = Deleting
			if gone := Plan(next.Record, Learned{}, noon); (gone.Record.State == Deleted) != (c.act == ActChoose) {
				t.Errorf("it is %s after it was to be deleted", gone.Record.State)
			}
		})
	}
}

// TestASlaveThatNobodyWants checks that a slave is removed that exists because an abandoned resize took effect later.
func TestASlaveThatNobodyWants(t *testing.T) {
	extra := looked(Standing, func(s *Seen) { s.Members = members(MemberReady, 0, 1) })
	c := record(Ready, func(c *Cluster) {
		c.Slaves, c.Indexes, c.Removed, c.Good, c.Members = 1, []int{0}, []int{1}, 1, members(MemberReady, 0)
		c.Sizing = Sizing{Told: []int{0}, Taken: true, Good: []int{0}}
	})
	told := 0
	for now := noon; now.Before(noon.Add(3 * time.Hour)); now = now.Add(30 * time.Second) {
		l := Learned{}
		for range 10 {
			next := Plan(c, l, now)
			if c = next.Record; next.Do == ActRest {
				break
			}
			l = extra
			if next.Do == ActResize {
				told++
				l = did(ActResize, nil)
			}
		}
	}
	if told < 1 || told > 4 {
		t.Errorf("the site was told the size %d times within three hours, want once an hour", told)
	}
	if c.State != Ready {
		t.Errorf("it is %s", c.State)
	}
}

// TestARequestOfLongAgoIsSettledByTheNextOne checks that requests without an answer for ten minutes do not count as
// open once another request is sent, while younger ones do.
func TestARequestOfLongAgoIsSettledByTheNextOne(t *testing.T) {
	for age, want := range map[time.Duration]int{settleAfter: 1, settleAfter - time.Second: 4} {
		c := record(Resizing, grown, func(c *Cluster) { c.Sizing.Open, c.Sizing.Sent = 3, noon.Add(-age) })
		next := Plan(c, looked(Standing), noon)
		if got := next.Record.Sizing; next.Do != ActResize || got.Open != want || !got.Sent.Equal(noon) {
			t.Errorf("%s later it does %s with %+v, want %d open", age, next.Do, got, want)
		}
	}
}

// TestAbsentIsGoneOnlyAfterTheSiteTookTheRemoval checks that Absent alone does not end a removal: an abandoned launch
// may still take effect.
func TestAbsentIsGoneOnlyAfterTheSiteTookTheRemoval(t *testing.T) {
	next := Plan(record(Deleting, func(c *Cluster) {
		c.Retry = Retry{Since: noon, Tries: 1, Next: noon.Add(5 * time.Second)}
	}), looked(Absent), noon)
	if next.Record.State != Deleting {
		t.Errorf("before the site took the removal it is %s", next.Record.State)
	}
}
