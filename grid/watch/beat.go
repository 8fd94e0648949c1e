package watch

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"croft"
	"croft/internal/lazyregexp"
	"croft/internal/plain"
)

// A Beat is one line that a node sends to say that it lives, with some facts about it.
//
//	beat BOOT COUNT REVISION LOAD LEASE
//
// The line does not name the node: the SSH key with which it arrived identifies the node.
type Beat struct {
	Boot     string        `json:"boot"`     // changes when the node boots
	Count    uint64        `json:"count"`    // increases with every beat of a boot
	Revision string        `json:"revision"` // the revision applied last on the node; empty: unknown
	Load     float64       `json:"load"`     // average of the last minute
	Lease    time.Duration `json:"lease"`    // the lease that the node asks for; 0: none
}

const (
	maxLine  = 256       // bytes of a beat
	maxLoad  = 1_000_000 // a larger load is refused
	maxLease = 3600      // seconds
	absent   = "-"       // a field that the node does not know
)

var (
	bootForm     = lazyregexp.New(`^[0-9a-zA-Z-]{1,64}$`)
	revisionForm = lazyregexp.New(`^[a-z]{1,10}:[0-9a-f]{1,64}$`)
)

// String returns the beat as a line, without a line break.
func (b Beat) String() string {
	revision := b.Revision
	if revision == "" {
		revision = absent
	}
	return fmt.Sprintf("beat %s %d %s %s %d", b.Boot, b.Count, revision, strconv.FormatFloat(b.Load, 'f', 2, 64),
		int64(b.Lease/time.Second))
}

// ParseBeat parses a line from a node, which may contain anything. Invalid: it is no beat.
func ParseBeat(line string) (Beat, error) {
	wrong := func(what, got string) (Beat, error) {
		return Beat{}, croft.Errorf(croft.Invalid, "a beat has %s %q: want beat BOOT COUNT REVISION LOAD LEASE", what,
			plain.Cut(got, 80))
	}
	if len(line) > maxLine {
		return wrong(fmt.Sprintf("at most %d bytes, not %d as", maxLine, len(line)), line)
	}
	f := strings.Fields(line)
	if len(f) != 6 || f[0] != "beat" {
		return wrong("six words, not", line)
	}
	b := Beat{Boot: f[1]}
	if !bootForm.MatchString(b.Boot) {
		return wrong("no boot such as", f[1])
	}
	var err error
	if b.Count, err = strconv.ParseUint(f[2], 10, 64); err != nil {
		return wrong("no count such as", f[2])
	}
	if f[3] != absent {
		if b.Revision = f[3]; !revisionForm.MatchString(f[3]) {
			return wrong("no revision such as", f[3])
		}
	}
	if f[4] != absent {
		b.Load, err = strconv.ParseFloat(f[4], 64)
		if err != nil || math.IsNaN(b.Load) || b.Load < 0 || b.Load > maxLoad {
			return wrong("no load such as", f[4])
		}
	}
	lease, err := strconv.ParseUint(f[5], 10, 16)
	if err != nil || lease > maxLease {
		return wrong("no lease in seconds such as", f[5])
	}
	b.Lease = time.Duration(lease) * time.Second
	return b, nil
}

// A Reply is the answer to a beat: "granted" and seconds, or why the node gets no lease.
type Reply string

// The replies besides granted.
const (
	Taken   Reply = "taken"           // the beat was recorded, and asked for no lease
	Standby Reply = "refused standby" // this controller does not lead
	Revoked Reply = "refused out"     // the node's slots may have moved elsewhere
	TooLong Reply = "refused lease"   // the lease is longer than half of the grace
	Old     Reply = "refused old"     // a beat with a higher count has arrived before
	Bad     Reply = "refused beat"    // the line is no beat
)

// Granted returns the reply that grants a lease. The lease starts when the node sent its beat.
func Granted(lease time.Duration) Reply {
	return Reply(fmt.Sprintf("granted %d", int64(lease/time.Second)))
}
