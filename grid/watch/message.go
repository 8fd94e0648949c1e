package watch

import (
	"fmt"
	"strings"

	"croft/grid/place"
)

// Message returns the message of a commit of the watch. It ends in trailers, one fact a line:
//
//	Watch-Leader: ctl1
//	Watch-State: web1 out
//	Watch-Reason: web1 silent for 1m12s; it answers no dial, neither from here nor from web2
//	Watch-Slot: web/front@7 0 web1 web2
//
// The words of a slot are the job, the number, the old node and the new node; - stands for no node.
func Message(leader string, actions []Action, changes []place.Change) string {
	var b strings.Builder
	var what []string
	for _, a := range actions {
		what = append(what, a.Node+" "+a.State)
	}
	title := strings.Join(what, ", ")
	if len(title) > 60 {
		title = fmt.Sprintf("%s and %d more", what[0], len(what)-1)
	}
	fmt.Fprintf(&b, "grid watch: %s\n\nWatch-Leader: %s\n", title, leader)
	for _, a := range actions {
		fmt.Fprintf(&b, "Watch-State: %s %s\nWatch-Reason: %s %s\n", a.Node, a.State, a.Node, a.Reason)
	}
	for _, c := range changes {
		from, to := c.From, c.To
		if from == "" {
			from = absent
		}
		if to == "" {
			to = absent
		}
		fmt.Fprintf(&b, "Watch-Slot: %s %d %s %s\n", c.Job, c.Slot, from, to)
	}
	return b.String()
}
