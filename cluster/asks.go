package cluster

import (
	"fmt"
	"time"

	"croft"
)

// Created is the answer to a request for a cluster.
type Created struct {
	Cluster Cluster
	Reused  bool // the cluster existed before: the request joined it, or repeated an earlier request
}

// Change changes the fields of a cluster that a user may change. Nil fields stay.
type Change struct {
	Name   *string
	Slaves *int
	// Indexes names the wanted slaves. It is for a cloud that uses this cloud as a site: the two then count slaves
	// alike after a resize that one of them refused. Slaves, if given, is the number of Indexes.
	Indexes  *[]int
	KeepIdle *time.Duration
	Expires  *time.Duration // from now on; 0: never
}

// Removal is a request to delete a cluster.
type Removal struct {
	User    string // the user who asks
	Force   bool   // delete it even while other users have uses of it
	Abandon bool   // do not wait for the site: its remains of the cluster stay
}

// Filter selects clusters; an empty field selects all.
type Filter struct {
	State           State
	Appliance, Site string
}

// Explanation says where a cluster would be built.
type Explanation struct {
	Candidates []Choice  `json:"candidates"` // best first
	Dropped    []Dropped `json:"dropped"`
	Reuse      string    `json:"reuse,omitempty"` // the name of the cluster that the request would join
	Quota      string    `json:"quota,omitempty"` // why the quota of the project permits no further cluster
}

// Choice is a candidate as users see it.
type Choice struct {
	Site           string           `json:"site"`
	Implementation ImplementationID `json:"implementation"`
	Revision       int              `json:"revision"`
	Credential     string           `json:"credential,omitempty"` // name of the credential
	Capacity       string           `json:"capacity"`             // one sentence
	Why            string           `json:"why"`                  // why it ranks before the next choice
}

// ChoiceError says that no site can build a cluster. Its kind is NoCapacity.
type ChoiceError struct{ Dropped []Dropped }

// Error implements error.
func (e *ChoiceError) Error() string {
	text := "no site can build this cluster"
	for i, d := range e.Dropped {
		sep := "; "
		if i == 0 {
			sep = ": "
		}
		text += sep + d.Site + ": " + d.Reason
	}
	return text
}

// Unwrap returns its kind.
func (e *ChoiceError) Unwrap() error { return croft.NoCapacity }

// NewCredential describes a credential to create.
type NewCredential struct {
	Credential // without ID, Secret and times
	Plain      Secret
	Unverified bool // do not try to log in before storing it
}

// CredentialChange changes a credential. Nil fields stay.
type CredentialChange struct {
	Name, Username, UserDomain, ProjectName, ProjectID, ProjectDomain *string
	Plain                                                             *Secret
	Unverified                                                        bool
}

// SiteChange changes a site. Nil fields stay.
type SiteChange struct {
	AuthURL, Region, Interface, CACert *string
	Enabled                            *bool
	Priority, MaxClusters              *int
	Defaults                           map[string]any // replaces all of them
	BuildTimeout                       *time.Duration
}

// SiteHealth is the answer of a site to a probe made now.
type SiteHealth struct {
	Site      string `json:"site"`
	Reachable bool   `json:"reachable"`
	Error     string `json:"error,omitempty"`
	Probe
}

// ApplianceChange changes an appliance. Nil fields stay.
type ApplianceChange struct {
	Description *string
	Public      *bool
	MinSlaves   *int
	Agent       *Agent
}

// Login is an account as its user sees it.
type Login struct {
	Username string
	Password Secret
	Made     bool // the account was created by this request
}

// AwayError says that something outside of the cloud's own store does not answer now: a site, a service that runs
// there, or the vault. Its kind is Unavailable. Users see its text, unlike the text of internal errors.
type AwayError struct{ Text string }

// Away makes an AwayError.
func Away(format string, args ...any) error { return &AwayError{fmt.Sprintf(format, args...)} }

// Error implements error.
func (e *AwayError) Error() string { return e.Text }

// Unwrap returns its kind.
func (e *AwayError) Unwrap() error { return croft.Unavailable }

// SilentError is the error of a driver whose site sent no HTTP response at all. Its kind is Unavailable.
type SilentError struct{ Err error }

// Silent wraps err in a SilentError.
func Silent(err error) error { return &SilentError{err} }

// Error implements error.
func (e *SilentError) Error() string { return e.Err.Error() }

// Unwrap returns the cause and the kind.
func (e *SilentError) Unwrap() []error { return []error{e.Err, croft.Unavailable} }

// FaultError is the error of a driver whose site answered a request, but could not serve it: with a 5xx status, or with
// a page of a proxy. Its kind is Unavailable. It counts against the stack or the credential of the request, and never
// closes the site for other requests.
type FaultError struct{ Err error }

// Faulty wraps err in a FaultError.
func Faulty(err error) error { return &FaultError{err} }

// Error implements error.
func (e *FaultError) Error() string { return e.Err.Error() }

// Unwrap returns the cause and the kind.
func (e *FaultError) Unwrap() []error { return []error{e.Err, croft.Unavailable} }

// ImageError is the error of a driver whose site does not have the requested image. It has the kind of its cause.
type ImageError struct{ Err error }

// Error implements error.
func (e *ImageError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *ImageError) Unwrap() error { return e.Err }

// Output is an output of a cluster as its user reads it.
type Output struct {
	Name   string
	Value  any
	Secret bool // the value is stored sealed
}
