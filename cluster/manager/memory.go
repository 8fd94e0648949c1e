package manager

import (
	"time"

	"croft"
	"croft/cluster"
)

// pause is how long after a fault of the store a cluster is looked at again.
const pause = 5 * time.Second

// alarmAfter is how long a site may take to remove a cluster before an operator should look.
const alarmAfter = time.Hour

// entry is what a manager remembers of a cluster between two passes. Its worker alone uses it, but for what sleeps.
type entry struct {
	holder   *cluster.Holder
	held     time.Time // since when
	revised  int64     // of the record when the last pass ended
	due      time.Time // when to look again although the record is as it was; zero: no need
	standing bool      // another manager holds it
	acted    time.Time // when an act at the site was last over: what was seen before does not count
	timer    *time.Timer
	asleep   *looking      // what a look would ask; nil: it does not wait for one
	fresh    *sight        // what was seen meanwhile
	state    cluster.State // for metrics
	removal  time.Time     // since when it is to be removed; zero: it is not
}

// place is where clusters are looked at together.
type place struct {
	site       string
	credential cluster.CredentialID
}

// looking is a cluster that a look is to be at.
type looking struct {
	place
	build cluster.Build
}

// sight is what a look saw.
type sight struct {
	seen  *cluster.Seen // nil: nothing was learned
	err   error
	begun time.Time
}

// stray is something at a site that should not be there.
type stray struct {
	site    string
	cluster croft.ClusterID
	remote  string
}
