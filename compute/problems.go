package compute

import (
	"croft/audit"
	"fmt"
	"sync/atomic"
)

// problemKind orders what may be wrong with a host; of each there is at most one.
type problemKind int

const (
	problemName   problemKind = iota // another host has its name
	problemShrunk                    // less is offered than is claimed
	problemGuests                    // there are guests here that are not the host's
	problemDisk                      // its disk is nearly full
	problemKinds
)

// troubles are the newest reasons why the agent cannot do its work, for who asks.
type troubles struct {
	seat       atomic.Pointer[string] // why it does nothing
	known      atomic.Pointer[error]  // why the host is not made known yet
	hypervisor atomic.Pointer[error]  // what was wrong when the hypervisor was asked last
}

// strangers says which guests here belong to nobody, or to another host.
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
