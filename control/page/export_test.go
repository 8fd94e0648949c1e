package page

import (
	"time"

	"croft/tenant/access"
)

func init() { heartbeat, readEvery = 500*time.Millisecond, 100*time.Millisecond }

// Form is a form of the page, for tests.
type Form struct {
	Op, At, Name string
	Final        bool
	Rule, See    access.Rule
}

// Forms lists the forms that send one operation each.
func Forms() (all []Form) {
	for _, f := range forms() {
		one := Form{f.Op, f.At, f.name(), f.Final, operations()[f.Op].May, f.See}
		if f.See == (access.Rule{}) {
			one.See = one.Rule
		}
		all = append(all, one)
	}
	return all
}

// TryFor sets how long an answer may take that a user tries in the reference.
func (s *Server) TryFor(d time.Duration) { s.tryTime = d }

// Lists are the paths of the pages with things.
func Lists() (all []string) {
	for _, l := range listings() {
		all = append(all, "/"+l.Path)
	}
	return all
}

// Views returns the method and path of each view.
func Views() (all []string) {
	for _, v := range views() {
		all = append(all, v.at)
	}
	return all
}

// The limits on streams.
const (
	StreamsOfSession = streamsOfSession
	StreamsOfCaller  = streamsOfCaller
	StreamsOfServer  = streamsOfServer
)
