package compute

import (
	"croft/audit"
	"fmt"
	"sync/atomic"
)

// problemKind orders the problems of a host; there is at most one of each kind.
type problemKind int

const (
	problemName   problemKind = iota // another host has its name
	problemShrunk                    // less is offered than is claimed
	problemGuests                    // there are guests here that are not the host's
	problemDisk                      // its disk is nearly full
	problemKinds
)

// troubles are the newest reasons why the agent cannot work.
type troubles struct {
	seat       atomic.Pointer[string] // why it does nothing
	known      atomic.Pointer[error]  // why the host is not known yet
	hypervisor atomic.Pointer[error]  // the result of the last request to the hypervisor
}

// strangers reports the guests here that belong to nobody, or to another host.
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
