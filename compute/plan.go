package compute

import (
	"cmp"
	"fmt"
	"slices"

	"croft"
)

// Op is one kind of step.
type Op string

// The kinds of steps. All are idempotent; the next pass repairs a crash between two steps.
const (
	OpBuild   Op = "build"   // fetch the image, make the disk, define the domain
	OpStart   Op = "start"   // boot it
	OpStop    Op = "stop"    // power it off
	OpRebuild Op = "rebuild" // power it off once the image is cached, and build it again
	OpResize  Op = "resize"  // give the domain and its disk the size of the spec
	OpEject   Op = "eject"   // empty its CD drive
	OpRestore Op = "restore" // make its disks from a backup
	OpMark    Op = "mark"    // record on the domain which order it carries out
	OpRemove  Op = "remove"  // remove the domain
	OpClean   Op = "clean"   // remove its files
	OpRelease Op = "release" // release its claim
	OpForget  Op = "forget"  // remove order, observation, record and name
	OpReport  Op = "report"  // report to the operator, change nothing
	OpRefuse  Op = "refuse"  // report to the user, change nothing
	OpLeave   Op = "leave"   // leave it off, because its restart policy requires this
	OpDepart  Op = "depart"  // let the target of its move copy the disk
	OpArrive  Op = "arrive"  // copy the disk from its host, define the domain
	OpAccept  Op = "accept"  // record that the instance is here now
)

// Step is one operation with its reason in English.
type Step struct {
	Op     Op
	Reason string
}

// Have is what exists of an instance on this host.
type Have struct {
	Home   croft.PartitionID
	Domain *Domain // nil: not defined
	Files  bool    // its directory exists
	// JustStarted says that the guest was started so recently that, if it is off, it cannot stay up; the next resync
	// tries again.
	JustStarted bool
	// Asked says that the target of the instance's move is ready to copy the disk.
	Asked bool
	// Full says that the file system of the instance's disks has so little space that a guest which is paused for
	// want of it would be paused again.
	Full bool
	// Halted says that the guest was seen to power itself off since it was started for this order.
	Halted bool
}

// Plan compares an order with the existing state and returns the steps to take, in order. It is pure. A missing order
// (nil) never causes a removal.
func Plan(want *croft.Order, have Have) []Step {
	switch {
	case want == nil && have.Domain == nil:
		return nil
	case want == nil:
		return []Step{{OpReport, "a domain without an order; it is left alone"}}
	case want.Partition != have.Home:
		return []Step{{OpReport, fmt.Sprintf("an order of another installation, %s", want.Partition)}}
	case have.Domain != nil && have.Domain.Partition != have.Home:
		return []Step{{OpRefuse, fmt.Sprintf("a domain of this UUID belongs to another installation, %s",
			have.Domain.Partition)}}
	case have.Domain != nil && have.Domain.Generation > want.Generation:
		return []Step{{OpReport, fmt.Sprintf("the order's generation %d is older than the domain's, %d",
			want.Generation, have.Domain.Generation)}}
	}
	switch {
	case want.Want == croft.WantGone:
		return planGone(have)
	case want.Want == croft.WantLeft:
		return planLeft(have)
	case want.HostDeath != 0:
		return []Step{{OpReport, "this host was declared dead: nothing is started until `croft host fence --on`"}}
	}
	switch want.Want {
	case croft.WantStopped:
		return append(planEjection(want, have), planStopped(want, have)...)
	case croft.WantRunning:
		return append(planEjection(want, have), planRunning(want, have)...)
	case croft.WantLeaving:
		return planLeaving(have)
	case croft.WantArriving:
		return planArriving(want, have)
	}
	return []Step{{OpRefuse, fmt.Sprintf("the order wants %q, which this agent does not know; upgrade it", want.Want)}}
}

func planGone(have Have) []Step {
	// Even without a domain the hypervisor may keep other state, such as an address.
	steps := []Step{{OpRemove, "it is to be gone"}}
	if have.Files {
		steps = append(steps, Step{OpClean, "it is to be gone"})
	}
	return append(steps, Step{OpRelease, "it is gone"}, Step{OpForget, "it is gone and its claim is back"})
}

// planLeft keeps the disk for an operator to decide about. The guest may run elsewhere, so it must not run here.
func planLeft(have Have) []Step {
	if have.Domain == nil || have.Domain.Power == PowerOff {
		return nil
	}
	return []Step{{OpStop, "it was lost with this host, and may run elsewhere"}}
}

func planLeaving(have Have) (steps []Step) {
	if have.Domain != nil && have.Domain.Power != PowerOff {
		if !have.Asked {
			return nil
		}
		steps = append(steps, Step{OpStop, "it moves to another host and is " + string(have.Domain.Power)})
	}
	return append(steps, Step{OpDepart, "it moves to another host"})
}

func planArriving(want *croft.Order, have Have) (steps []Step) {
	if have.Domain == nil || have.Domain.Generation < want.Generation {
		steps = append(steps, Step{OpArrive, "it comes from another host"})
	}
	return append(steps, Step{OpAccept, "its disk is here"})
}

func planEjection(want *croft.Order, have Have) []Step {
	if have.Domain == nil || !have.Domain.CD || want.CD() != nil {
		return nil
	}
	return []Step{{OpEject, "its CD is to be ejected"}}
}

func planStopped(want *croft.Order, have Have) []Step {
	switch {
	case have.Domain == nil:
		return []Step{{OpBuild, "there is no domain yet"}}
	case have.Domain.Generation < want.Rebuilt:
		return []Step{{OpRebuild, "a fresh disk is ordered"}}
	}
	var steps []Step
	if have.Domain.Power != PowerOff {
		steps = []Step{{OpStop, "it should be stopped and is " + string(have.Domain.Power)}}
	}
	if want.Restores(have.Domain.Generation) {
		steps = append(steps, restoring...)
	}
	if have.Domain.Generation < want.Resized {
		steps = append(steps, Step{OpResize, "another size is ordered"}, Step{OpMark, "it has the size"})
	}
	return steps
}

// restoring replaces the disks of a domain that is off.
var restoring = []Step{{OpRestore, "a backup is ordered as its disks"}, {OpMark, "it has the disks of the backup"}}

func planRunning(want *croft.Order, have Have) []Step {
	switch {
	case have.Domain == nil:
		return []Step{{OpBuild, "there is no domain yet"}, {OpStart, "it should run"}}
	case have.Domain.Generation < want.Rebuilt:
		return []Step{{OpRebuild, "a fresh disk is ordered"}, {OpStart, "it should run"}}
	case want.Restores(have.Domain.Generation) && have.Domain.Power != PowerOff:
		return []Step{{OpRefuse, "its disks are to be restored from a backup, and it runs"}}
	case want.Restores(have.Domain.Generation):
		return append(slices.Clone(restoring), Step{OpStart, "it should run"})
	case have.Domain.Generation < want.Resized:
		return append([]Step{{OpResize, "another size is ordered"}}, planPower(want, have)...)
	}
	return planPower(want, have)
}

// planPower plans for a guest that should run and has the disk and the size of its order.
func planPower(want *croft.Order, have Have) []Step {
	switch {
	case have.Domain.Generation < want.Rebooted:
		return []Step{{OpStop, "a reboot is ordered"}, {OpMark, "what comes next is the start"},
			{OpStart, "a reboot is ordered"}}
	case have.Domain.Power == PowerOn && have.Domain.Started != want.Generation:
		return []Step{{OpMark, "it runs, as this order wants it"}}
	case have.Domain.Power == PowerOn && !have.Domain.notes(want):
		return []Step{{OpMark, "its project, its open ports or its name are not noted on the domain"}}
	case have.Domain.Power == PowerOn:
		return nil
	}
	if have.Domain.Stalled && (have.Full || have.JustStarted) {
		return []Step{{OpRefuse, "the guest is paused, because the disk of its host is full: what it wrote is kept, " +
			"and it goes on when there is space on the host again"}}
	}
	if end := leftOff(want, have); end != "" {
		return []Step{{OpLeave, fmt.Sprintf("%s, and its restart policy is %s", end, policy(want))}}
	}
	if have.JustStarted {
		return []Step{{OpRefuse,
			"the guest went off right after its start; it is tried again later (`schedule console` may show why)"}}
	}
	start := Step{OpStart, "it should run and is " + string(have.Domain.Power)}
	if have.Domain.Generation < want.Generation || !have.Domain.notes(want) {
		return []Step{{OpMark, "what comes next is the start"}, start}
	}
	return []Step{start}
}

// notes reports whether the domain's mark has the project, the open ports and the name of an order.
func (d *Domain) notes(want *croft.Order) bool {
	return d.Project == want.Project && slices.Equal(d.Open, want.Spec.Open) && d.Name == want.Name
}

func policy(want *croft.Order) croft.Restart {
	return cmp.Or(want.Spec.Restart, croft.RestartOnFailure)
}

// leftOff returns how a guest that should run ended, if its restart policy leaves it off; empty: start it. A
// guest that was not started for this order is always started.
func leftOff(want *croft.Order, have Have) croft.End {
	d := have.Domain
	if want == nil || want.Want != croft.WantRunning || d == nil || d.Power != PowerOff ||
		d.Started != want.Generation {
		return ""
	}
	end := croft.EndFailure
	if d.Halted || have.Halted {
		end = croft.EndGuest
	}
	switch policy(want) {
	case croft.RestartAlways, croft.RestartElsewhere, croft.RestartElsewhereDisk, croft.RestartElsewhereImage,
		croft.RestartElsewhereBackup:
		return ""
	case croft.RestartNever:
		return end
	}
	if end == croft.EndGuest {
		return end
	}
	return ""
}
