package manager

import (
	"time"

	"croft"
	"croft/cluster"
)

// pause is the delay of the next pass after an error of the store.
const pause = 5 * time.Second

// alarmAfter is how long a site may take to remove a cluster before an operator should check.
const alarmAfter = time.Hour

// entry is the state of a cluster that a manager keeps between two passes. Only the cluster's worker uses it, except
// for the fields of its sleep.
type entry struct {
	holder   *cluster.Holder
	held     time.Time // start of the hold
	revised  int64     // revision of the record at the end of the last pass
	due      time.Time // when to look again although the record did not change; zero: never
	standing bool      // another manager holds it
	acted    time.Time // end of the last act at the site: older observations do not count
	timer    *time.Timer
	asleep   *looking      // the observation to ask for; nil: it needs none
	fresh    *sight        // observation made during the sleep
	state    cluster.State // for metrics
	removal  time.Time     // start of its removal; zero: it is not being removed
}

// place is a site and credential, whose clusters are observed together.
type place struct {
	site       string
	credential cluster.CredentialID
}

// looking is a cluster to observe.
type looking struct {
	place
	build cluster.Build
}

// sight is an observation.
type sight struct {
	seen  *cluster.Seen // nil: the state could not be read
	err   error
	begun time.Time
}

// stray is an object at a site that should not exist.
type stray struct {
	site    string
	cluster croft.ClusterID
	remote  string
}
