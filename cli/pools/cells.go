package pools

import (
	"strings"
	"time"

	"croft/cli/out"
	"croft/pool/api"
)

func stateCell(r api.Resource) out.Cell {
	switch {
	case r.State == "UP" && r.Ticket != 0:
		return out.Cell{Text: "taken", Color: out.Green}
	case r.State == "UP" && r.Failures > 0:
		return out.Cell{Text: "failing", Color: out.Red}
	case r.State == "UP":
		return out.Cell{Text: "ready", Color: out.Green}
	case r.State == "ENDED":
		return out.Cell{Text: "ended"}
	}
	return out.Cell{Text: strings.ToLower(r.State), Color: out.Yellow}
}

// ticketCell is a ticket's state in a word.
func ticketCell(t api.Ticket) out.Cell {
	switch {
	case t.Waiting() && t.Never:
		return out.Cell{Text: "never", Color: out.Red}
	case t.Waiting():
		return out.Cell{Text: "waiting", Color: out.Yellow}
	case t.Ready():
		return out.Cell{Text: "ready", Color: out.Green}
	case t.State == api.TicketFailed:
		return out.Cell{Text: "failed", Color: out.Red}
	}
	return out.Cell{Text: "closed"}
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format(time.DateTime)
}
