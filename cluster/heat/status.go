package heat

import (
	"strings"

	"croft/cluster"
)

// phase converts the status of a stack. Actions of others on the driver's stacks (check, suspend, snapshot) leave them
// standing.
func phase(status string) cluster.Phase {
	action, state, _ := strings.Cut(status, "_")
	switch {
	case status == "DELETE_COMPLETE":
		return cluster.Absent
	case action == "DELETE" && state == "FAILED":
		return cluster.Stuck
	case action == "DELETE":
		return cluster.Removing
	case (action == "CREATE" || action == "INIT" || action == "ADOPT") && state != "COMPLETE" && state != "FAILED":
		return cluster.Working
	case (action == "CREATE" || action == "ADOPT") && state == "FAILED", status == "ROLLBACK_COMPLETE":
		return cluster.Broken
	case (action == "UPDATE" || action == "ROLLBACK") && state == "FAILED":
		return cluster.Unsized
	case (action == "UPDATE" || action == "ROLLBACK") && state != "COMPLETE":
		return cluster.Updating
	}
	return cluster.Standing
}
