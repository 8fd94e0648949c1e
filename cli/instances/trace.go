package instances

import (
	"fmt"

	"croft/internal/out"
	"croft/schedule"
)

// traceTable lists the hosts in the order in which a CRUSH policy gives them.
func traceTable(why *schedule.Explanation, most int) *out.Table {
	t := &out.Table{}
	t.Head("ORDER", "HOST", "PASS", "POLICY "+why.Policy.Name)
	for i, step := range why.Trace[:min(most, len(why.Trace))] {
		verdict, pass := "takes it, unless one before does", fmt.Sprint(step.Pass)
		if step.Why != "" {
			verdict = step.Why
		}
		if step.Pass < 0 {
			pass = "over"
		}
		t.Texts(fmt.Sprint(i+1), step.Host, pass, verdict)
	}
	return t.AndMore(len(why.Trace) - most)
}
