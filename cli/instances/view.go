package instances

import (
	"fmt"
	"time"

	"croft"
	"croft/cli/out"
	"croft/schedule"
)

func noAddress(st croft.Status) error {
	name, state := st.Instance.Name, schedule.Describe(&st)
	if state == schedule.Unknown {
		return croft.Errorf(croft.Unavailable,
			"instance %s has no address: whether it runs cannot be told, since it is on host %s%s", name, st.Host.Name,
			silence(*st.Host))
	}
	if o := st.Observation; o != nil && o.State == croft.StateFailed {
		return fmt.Errorf("instance %s has no address: it failed: %s", name, o.Error)
	}
	if state == string(croft.StateStopped) {
		return fmt.Errorf("instance %s has no address: it is stopped; `schedule start %s` boots it", name, name)
	}
	return fmt.Errorf("instance %s has no address yet: it is %s; with --wait this waits for one", name, state)
}

// silence is a clause with the time since when a host is silent; empty: the host is alive.
func silence(h croft.Host) string {
	if h.Alive {
		return ""
	}
	return ", which is silent" + Since(h)
}

// Address is schedule.Address.
func Address(st croft.Status) string { return schedule.Address(&st) }

// state is the state of an instance in words, in its color.
func state(st croft.Status) out.Cell { return StateCell(schedule.Describe(&st)) }

func StateCell(word string) out.Cell {
	switch croft.State(word) {
	case croft.StateRunning:
		return out.Cell{Text: word, Color: out.Green}
	case croft.StateFailed, schedule.Unknown:
		return out.Cell{Text: word, Color: out.Red}
	case croft.StateStopped:
		return out.Cell{Text: word}
	}
	return out.Cell{Text: word, Color: out.Yellow}
}

// Since returns when a silent host last reported.
func Since(h croft.Host) string {
	if h.Seen.IsZero() {
		return ""
	}
	return " since " + h.Seen.Local().Format(time.DateTime)
}
