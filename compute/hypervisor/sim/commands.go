package sim

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"time"

	"croft"
	"croft/compute"
)

var _ compute.GuestAgents = (*Hypervisor)(nil)

// guestAgent is the agent of one run of a simulated guest.
type guestAgent struct {
	h     *Hypervisor
	guest *guest
	run   int64
}

// GuestAgent implements compute.GuestAgents. Only a guest that answers has an agent; see Answer.
//
// A simulated guest knows these programs: echo WORD..., warn WORD... (which writes to stderr), cat, exit CODE, sleep
// SECONDS, and write TEXT, which writes the text to all its disks as Write does.
func (h *Hypervisor) GuestAgent(ctx context.Context, id croft.InstanceID) (compute.GuestAgent, error) {
	return call(ctx, h, OpExec, id, func() (compute.GuestAgent, error) {
		g, err := h.find(id)
		switch {
		case err != nil:
			return nil, err
		case g.Power == compute.PowerOff:
			return nil, errOff
		case !g.Answers || g.Power != compute.PowerOn:
			return nil, compute.ErrNoAgent
		}
		return guestAgent{h, g, g.runs}, nil
	})
}

// process is a program that a simulated guest runs.
type process struct {
	ends   time.Time
	result compute.GuestResult
}

// ask calls f while the guest runs.
func (a guestAgent) ask(ctx context.Context, f func() error) error {
	return a.h.do(ctx, OpExec, a.guest.Machine.ID, func() error {
		if a.h.guests[a.guest.Machine.ID] != a.guest || a.guest.runs != a.run || a.guest.Power == compute.PowerOff {
			return errOff
		}
		if !a.guest.Answers || a.guest.Power != compute.PowerOn {
			return &compute.GuestError{Err: croft.Errorf(croft.Unavailable, "its guest agent does not answer")}
		}
		return f()
	})
}

// Start implements compute.GuestAgent.
func (a guestAgent) Start(ctx context.Context, command compute.GuestCommand) (number int64, err error) {
	err = a.ask(ctx, func() error {
		p := a.guest.execute(command)
		if a.guest.processes == nil {
			a.guest.processes = map[int64]process{}
		}
		a.guest.lastProcess++
		number = a.guest.lastProcess
		a.guest.processes[number] = p
		return nil
	})
	return number, err
}

// Ended implements compute.GuestAgent.
func (a guestAgent) Ended(ctx context.Context, number int64) (ended *compute.GuestResult, err error) {
	err = a.ask(ctx, func() error {
		p, runs := a.guest.processes[number]
		switch {
		case !runs:
			return croft.Errorf(croft.Unavailable, "its guest agent knows no process %d", number)
		case time.Now().Before(p.ends):
			return nil
		}
		delete(a.guest.processes, number)
		ended = &p.result
		return nil
	})
	return ended, err
}

// execute starts a program. The caller holds the hypervisor's mutex.
func (g *guest) execute(command compute.GuestCommand) process {
	p := process{ends: time.Now()}
	rest := strings.Join(command.Words[1:], " ")
	switch command.Words[0] {
	case "echo":
		p.result.Stdout = []byte(rest + "\n")
	case "warn":
		p.result.Stderr = []byte(rest + "\n")
	case "cat":
		p.result.Stdout = command.Stdin
	case "exit":
		code, err := strconv.Atoi(rest)
		if p.result.Exit = code; err != nil {
			p.result.Exit = 2
		}
	case "sleep":
		seconds, _ := strconv.ParseFloat(rest, 64) // 0 if it is no number
		lasts := time.Duration(seconds * float64(time.Second))
		if lasts > command.Timeout {
			lasts, p.result.Exit = command.Timeout, compute.ExitTimedOut
		}
		p.ends = p.ends.Add(lasts)
	case "write":
		disks, err := g.write(rest)
		if err != nil {
			p.result.Exit, p.result.Stderr = 1, []byte(err.Error()+"\n")
		}
		for _, disk := range disks {
			p.result.Stdout = append(p.result.Stdout, cmp.Or(string(disk), "disk")+"\n"...)
		}
	default:
		p.result.Exit, p.result.Stderr = 127, []byte(command.Words[0]+": not found\n")
	}
	return p
}
