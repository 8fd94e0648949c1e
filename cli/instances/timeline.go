package instances

import (
	"fmt"
	"time"

	"croft"
	"croft/cli/out"
	"croft/internal/hostkey"
)

// timeline adds to the details when each step of the instance's way was done, how
// long it took, and how long that is after the first.
func timeline(t *out.Table, st croft.Status) {
	o := st.Observation
	if o == nil || len(o.Events) == 0 {
		return
	}
	events := o.Events
	if told := o.CloudInit; told != nil && !told.At.Before(events[len(events)-1].At) {
		events = append(events[:len(events):len(events)],
			croft.Event{Name: croft.EventName("cloud-init " + string(told.State)), At: told.At})
	}
	for i, e := range events {
		text := e.At.Format(time.RFC3339)
		if i > 0 {
			text += fmt.Sprintf(" +%s, %s in all", round(e.At.Sub(events[i-1].At)), round(e.At.Sub(events[0].At)))
		}
		t.Row(out.Cell{Text: string(e.Name), Color: out.Bold}, out.Cell{Text: text})
	}
}

// printable is a status without its secrets: the public half of the host key takes
// the place of the private one.
func printable(st croft.Status) croft.Status {
	st.Instance.Spec = printableSpec(st.Instance.Spec)
	if st.Order != nil {
		o := *st.Order
		o.Spec = printableSpec(o.Spec)
		st.Order = &o
	}
	return st
}

func printableSpec(s croft.Spec) croft.Spec {
	public, err := hostkey.Public(s.HostKey)
	if err != nil {
		public = "" // there is none, or it is no key: either way not to be shown
	}
	s.HostKey = public
	return s
}

// round shortens a duration to what people read.
func round(d time.Duration) time.Duration {
	if d < 10*time.Second {
		return d.Round(10 * time.Millisecond)
	}
	return d.Round(100 * time.Millisecond)
}
