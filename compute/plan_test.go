package compute

import (
	"slices"
	"testing"

	"croft"
)

func TestPlan(t *testing.T) {
	t.Parallel()
	const home, foreign = croft.PartitionID("home"), croft.PartitionID("foreign")
	order := func(want croft.Want, generation int64) *croft.Order {
		return &croft.Order{Partition: home, Want: want, Generation: generation}
	}
	anew := func(want croft.Want, rebooted, rebuilt int64) *croft.Order {
		return &croft.Order{Partition: home, Want: want, Generation: 4, Rebooted: rebooted, Rebuilt: rebuilt}
	}
	domain := func(power Power) *Domain {
		d := &Domain{Partition: home, Ordered: Ordered{Generation: 2}, Power: power}
		if power != PowerOff {
			d.Started = 2
		}
		return d
	}
	// ended returns a guest that was started for generation 2 and is off.
	ended := func(halted bool) *Domain {
		return &Domain{Partition: home, Ordered: Ordered{Generation: 2}, Started: 2, Power: PowerOff,
			Crashed: !halted, Halted: halted}
	}
	// stalled returns a guest that is paused for want of space on its host.
	stalled := func() *Domain {
		d := domain(PowerPaused)
		d.Stalled = true
		return d
	}
	ordered := func(generation int64, restart croft.Restart) *croft.Order {
		return &croft.Order{Partition: home, Want: croft.WantRunning, Generation: generation,
			Spec: croft.Spec{GuestSettings: croft.GuestSettings{Restart: restart}}}
	}
	resized := func(want croft.Want, generation int64) *croft.Order {
		o := order(want, generation)
		o.Resized = generation
		return o
	}
	of := func(project croft.Project, want croft.Want) *croft.Order {
		o := order(want, 2)
		o.Project = project
		return o
	}
	tests := []struct {
		name string
		want *croft.Order
		have Have
		ops  []Op
	}{
		{"nothing wanted and nothing there is nothing to do", nil, Have{}, nil},
		{"orphan is left alone", nil, Have{Domain: domain(PowerOn), Files: true}, []Op{OpReport}},
		{"files without order are left alone", nil, Have{Files: true}, nil},
		{"an order of another partition is left alone", &croft.Order{Partition: foreign, Want: croft.WantGone},
			Have{Domain: domain(PowerOn)}, []Op{OpReport}},
		{"a domain of another partition is refused", order(croft.WantGone, 3),
			Have{Domain: &Domain{Partition: foreign}}, []Op{OpRefuse}},
		{"an older generation does nothing", order(croft.WantGone, 1), Have{Domain: domain(PowerOn)}, []Op{OpReport}},
		{"a stopped guest gets another size, and stays off", resized(croft.WantStopped, 3),
			Have{Domain: domain(PowerOff)}, []Op{OpResize, OpMark}},
		{"a guest that is to be stopped is stopped before it gets another size", resized(croft.WantStopped, 3),
			Have{Domain: domain(PowerOn)}, []Op{OpStop, OpResize, OpMark}},
		{"a running guest gets another size while it runs", resized(croft.WantRunning, 3),
			Have{Domain: domain(PowerOn)}, []Op{OpResize, OpMark}},
		{"a guest that is off gets another size before it starts", resized(croft.WantRunning, 3),
			Have{Domain: domain(PowerOff)}, []Op{OpResize, OpMark, OpStart}},
		{"a guest gets another size once", resized(croft.WantStopped, 2), Have{Domain: domain(PowerOff)}, nil},
		{"a missing guest is built in its size", resized(croft.WantRunning, 3), Have{}, []Op{OpBuild, OpStart}},
		{"a missing guest is built and started", order(croft.WantRunning, 2), Have{}, []Op{OpBuild, OpStart}},
		{"a build that was interrupted is built again", order(croft.WantRunning, 2), Have{Files: true},
			[]Op{OpBuild, OpStart}},
		{"a defined guest is started", order(croft.WantRunning, 2), Have{Domain: domain(PowerOff)}, []Op{OpStart}},
		{"a paused guest is started", order(croft.WantRunning, 2), Have{Domain: domain(PowerPaused)}, []Op{OpStart}},
		{"a running guest is left alone", order(croft.WantRunning, 2), Have{Domain: domain(PowerOn)}, nil},
		{"a running guest that is ordered to run becomes the work of that order", order(croft.WantRunning, 3),
			Have{Domain: domain(PowerOn)}, []Op{OpMark}},
		{"a running guest of an earlier croft gets its project", of("red", croft.WantRunning),
			Have{Domain: domain(PowerOn)}, []Op{OpMark}},
		{"before its start too", of("red", croft.WantRunning), Have{Domain: domain(PowerOff)}, []Op{OpMark, OpStart}},
		{"a guest that powered itself off stays off", order(croft.WantRunning, 2), Have{Domain: ended(true)},
			[]Op{OpLeave}},
		{"it stays off at once", order(croft.WantRunning, 2), Have{Domain: ended(true), JustStarted: true},
			[]Op{OpLeave}},
		{"it stays off where the hypervisor has forgotten why it is", order(croft.WantRunning, 2),
			Have{Domain: ended(false), Halted: true}, []Op{OpLeave}},
		{"it is started where that is ordered later", order(croft.WantRunning, 3), Have{Domain: ended(true)},
			[]Op{OpMark, OpStart}},
		{"it is started where it always restarts", ordered(2, croft.RestartAlways), Have{Domain: ended(true)},
			[]Op{OpStart}},
		{"it stays off where it never restarts", ordered(2, croft.RestartNever), Have{Domain: ended(true)},
			[]Op{OpLeave}},
		{"a guest that died, or whose host went down, is started", order(croft.WantRunning, 2),
			Have{Domain: ended(false)}, []Op{OpStart}},
		{"that is so where it restarts on failure", ordered(2, croft.RestartOnFailure), Have{Domain: ended(false)},
			[]Op{OpStart}},
		{"that is so where it always restarts", ordered(2, croft.RestartAlways), Have{Domain: ended(false)},
			[]Op{OpStart}},
		{"a guest that died stays off where it never restarts", ordered(2, croft.RestartNever),
			Have{Domain: ended(false), JustStarted: true}, []Op{OpLeave}},
		{"a guest that never restarts is started for a later order", ordered(3, croft.RestartNever),
			Have{Domain: ended(false)}, []Op{OpMark, OpStart}},
		{"a guest that never restarts is started once", ordered(2, croft.RestartNever), Have{Domain: domain(PowerOff)},
			[]Op{OpStart}},
		{"a guest that waits for space on its host is not let go on before there is some", order(croft.WantRunning, 2),
			Have{Domain: stalled(), Full: true}, []Op{OpRefuse}},
		{"it is let go on at most once in a while", order(croft.WantRunning, 2),
			Have{Domain: stalled(), JustStarted: true}, []Op{OpRefuse}},
		{"it is let go on when there is space", order(croft.WantRunning, 2), Have{Domain: stalled()}, []Op{OpStart}},
		{"it is let go on also if it never restarts", ordered(2, croft.RestartNever), Have{Domain: stalled()},
			[]Op{OpStart}},
		{"a guest that waits for space is stopped", order(croft.WantStopped, 3), Have{Domain: stalled(), Full: true},
			[]Op{OpStop}},
		{"a guest that waits for space is rebooted", anew(croft.WantRunning, 4, 0), Have{Domain: stalled(), Full: true},
			[]Op{OpStop, OpMark, OpStart}},
		{"a paused guest that never restarts is let go on", ordered(2, croft.RestartNever),
			Have{Domain: domain(PowerPaused)}, []Op{OpStart}},
		{"a guest that ended and is to be stopped stays as it is", order(croft.WantStopped, 3),
			Have{Domain: ended(true)}, nil},
		{"a guest that cannot stay up is not started in a loop", order(croft.WantRunning, 2),
			Have{Domain: domain(PowerOff), JustStarted: true}, []Op{OpRefuse}},
		{"a running guest is stopped", order(croft.WantStopped, 3), Have{Domain: domain(PowerOn)}, []Op{OpStop}},
		{"a stopped guest stays stopped", order(croft.WantStopped, 3), Have{Domain: domain(PowerOff)}, nil},
		{"a missing guest that should be stopped is built only", order(croft.WantStopped, 3), Have{}, []Op{OpBuild}},
		{"a tombstone removes domain, files, claim and record in this order", order(croft.WantGone, 3),
			Have{Domain: domain(PowerOn), Files: true}, []Op{OpRemove, OpClean, OpRelease, OpForget}},
		{"a tombstone half carried out is finished", order(croft.WantGone, 3), Have{},
			[]Op{OpRemove, OpRelease, OpForget}},
		{"a guest to be rebooted is stopped, marked and started", anew(croft.WantRunning, 4, 0),
			Have{Domain: domain(PowerOn)}, []Op{OpStop, OpMark, OpStart}},
		{"a reboot that was done is not done again", anew(croft.WantRunning, 2, 0), Have{Domain: domain(PowerOn)},
			[]Op{OpMark}},
		{"a reboot that was ordered before a start is part of it", anew(croft.WantRunning, 3, 0),
			Have{Domain: domain(PowerOff)}, []Op{OpStop, OpMark, OpStart}},
		{"a guest to be stopped is not rebooted", anew(croft.WantStopped, 3, 0), Have{Domain: domain(PowerOn)},
			[]Op{OpStop}},
		{"a guest to be rebuilt is built and started", anew(croft.WantRunning, 0, 4), Have{Domain: domain(PowerOn)},
			[]Op{OpRebuild, OpStart}},
		{"a rebuild that a stop came after is not lost", anew(croft.WantStopped, 0, 3), Have{Domain: domain(PowerOff)},
			[]Op{OpRebuild}},
		{"a rebuild that was done is not done again", anew(croft.WantRunning, 0, 2), Have{Domain: domain(PowerOn)},
			[]Op{OpMark}},
		{"a guest that is not there is built once, rebuild or not", anew(croft.WantRunning, 3, 4), Have{},
			[]Op{OpBuild, OpStart}},
		{"a guest to be rebuilt that is to be gone is removed", anew(croft.WantGone, 3, 3),
			Have{Domain: domain(PowerOn)}, []Op{OpRemove, OpRelease, OpForget}},
		{"an unknown want is refused", order("hibernated", 3), Have{Domain: domain(PowerOn)}, []Op{OpRefuse}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.have.Home = home
			var got []Op
			for _, step := range Plan(test.want, test.have) {
				got = append(got, step.Op)
				if step.Reason == "" {
					t.Errorf("step %s has no reason", step.Op)
				}
			}
			if !slices.Equal(got, test.ops) {
				t.Errorf("got %v, want %v", got, test.ops)
			}
		})
	}
}
