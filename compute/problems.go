package compute

import (
	"croft/audit"
	"fmt"
	"sync/atomic"
)

// problemKind lists the problems of a host; each kind is reported at most once.
type problemKind int

const (
	problemName   problemKind = iota // another host has its name
	problemShrunk                    // less is offered than claimed
	problemGuests                    // guests run here that are not the host's
	problemDisk                      // its disk is nearly full
	problemKinds
)

// troubles holds the latest reasons why the agent cannot work.
type troubles struct {
	seat       atomic.Pointer[string] // why it does nothing
	known      atomic.Pointer[error]  // why the host is not known yet
	hypervisor atomic.Pointer[error]  // the result of the last request to the hypervisor
}

// strangers describes the guests here that have no owner or belong to another host.
func strangers(strays []audit.Difference) string {
	if len(strays) == 0 {
		return ""
	}
	sentence := fmt.Sprintf("%s: %s", strays[0].Instance, strays[0].Cause)
	if len(strays) > 1 {
		sentence += fmt.Sprintf(" (and %d more)", len(strays)-1)
	}
	return sentence
}
