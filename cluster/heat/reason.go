package heat

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2/openstack/orchestration/v1/stackevents"
	"github.com/gophercloud/gophercloud/v2/openstack/orchestration/v1/stacks"
)

// The search for the cause of a failure covers groups nested up to eventDepth deep, and up to mostEvents events.
const (
	eventDepth = 5
	mostEvents = 200
)

// reason returns why a stack failed: its own reason, and the reason of the resource that failed first.
func (o *glimpse) reason(ctx context.Context, st stacks.ListedStack) (string, error) {
	events, err := o.events(ctx, st)
	if err != nil && !missing(err) {
		return "", err
	}
	text := st.StatusReason
	if cause := firstCause(events, st); cause != "" && !strings.Contains(text, cause) {
		text += "; " + cause
	}
	if text == "" {
		text = "the site gives no reason"
	}
	return text, nil
}

func (o *glimpse) events(ctx context.Context, st stacks.ListedStack) ([]stackevents.Event, error) {
	ctx, cancel := o.brief(ctx)
	defer cancel()
	var body struct {
		Events []stackevents.Event `json:"events"`
	}
	query := fmt.Sprintf("events?limit=%d&nested_depth=%d&sort_dir=desc", mostEvents, eventDepth)
	_, err := o.c.Get(ctx, o.c.ServiceURL("stacks", st.Name, st.ID, query), &body, nil)
	return body.Events, err
}

// firstCause returns the reason of the resource that failed first in the stack's last operation.
func firstCause(latestFirst []stackevents.Event, st stacks.ListedStack) string {
	cause := ""
	for _, e := range latestFirst {
		own := e.PhysicalResourceID == st.ID
		switch {
		case own && strings.HasSuffix(e.ResourceStatus, "_IN_PROGRESS"):
			return cause
		case own, !strings.HasSuffix(e.ResourceStatus, "_FAILED"), follows(e.ResourceStatusReason):
		default:
			cause = e.ResourceName + ": " + e.ResourceStatusReason
		}
	}
	return cause
}

// follows reports whether a reason only says that another resource failed before.
func follows(reason string) bool {
	return reason == "" || slices.ContainsFunc([]string{"aborted", "cancelled", "canceled"}, func(word string) bool {
		return strings.Contains(reason, word)
	})
}
