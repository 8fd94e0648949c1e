package cluster

import (
	"fmt"
	"time"

	"croft"
)

// Created is the answer to a request for a cluster.
type Created struct {
	Cluster Cluster
	Reused  bool // it was there already: the request joined it, or was made before
}

// Change changes what a user may change of a cluster. Nil fields stay.
type Change struct {
	Name   *string
	Slaves *int
	// Indexes names the wanted slaves, for a cloud whose site this cloud is: both then count alike after a resize that
	// one of them refused. Slaves, if given, is their number.
	Indexes  *[]int
	KeepIdle *time.Duration
	Expires  *time.Duration // from now on; 0: never
}

// Removal says how a cluster is to be deleted.
type Removal struct {
	User    string // who asks
	Force   bool   // although others use it
	Abandon bool   // without its site: what is left there stays
}

// Filter chooses clusters; empty fields choose all.
type Filter struct {
	State           State
	Appliance, Site string
}

// Explanation says where a cluster would be built.
type Explanation struct {
	Candidates []Choice  `json:"candidates"` // best first
	Dropped    []Dropped `json:"dropped"`
	Reuse      string    `json:"reuse,omitempty"` // the name of the cluster that the request would join
	Quota      string    `json:"quota,omitempty"` // why the project may have no cluster more
}

// Choice is a candidate as users see it.
type Choice struct {
	Site           string           `json:"site"`
	Implementation ImplementationID `json:"implementation"`
	Revision       int              `json:"revision"`
	Credential     string           `json:"credential,omitempty"` // its name
	Capacity       string           `json:"capacity"`             // one sentence
	Why            string           `json:"why"`                  // what put it before those behind it
}

// ChoiceError says that no site can build a cluster. It is a croft.NoCapacity.
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
	Unverified bool // do not try to log in first
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

// SiteHealth is how a site answers now.
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

// Login is an account as its user gets it.
type Login struct {
	Username string
	Password Secret
	Made     bool // just now
}

// AwayError says that something outside of the cloud's own store cannot answer now: a site, what runs there, or the
// keys. It is Unavailable; unlike what is wrong inside of the cloud, users are told of it.
type AwayError struct{ Text string }

// Away makes an AwayError.
func Away(format string, args ...any) error { return &AwayError{fmt.Sprintf(format, args...)} }

// Error implements error.
func (e *AwayError) Error() string { return e.Text }

// Unwrap returns its kind.
func (e *AwayError) Unwrap() error { return croft.Unavailable }

// SilentError is the error of a driver whose site sent no HTTP response at all. Its kind is Unavailable.
type SilentError struct{ Err error }

// Silent marks an error as the silence of a site.
func Silent(err error) error { return &SilentError{err} }

// Error implements error.
func (e *SilentError) Error() string { return e.Err.Error() }

// Unwrap returns the cause and the kind.
func (e *SilentError) Unwrap() []error { return []error{e.Err, croft.Unavailable} }

// FaultError is the error of a driver whose site responded to a request, and could not serve it: a response of 5xx, or
// a page of a proxy. Its kind is Unavailable. It counts against the stack or the credential of the request, and never
// closes the site for others.
type FaultError struct{ Err error }

// Faulty marks an error as a fault that a site responded with.
func Faulty(err error) error { return &FaultError{err} }

// Error implements error.
func (e *FaultError) Error() string { return e.Err.Error() }

// Unwrap returns the cause and the kind.
func (e *FaultError) Unwrap() []error { return []error{e.Err, croft.Unavailable} }

// ImageError is the error of a driver whose site has no such image. It has the kind of its cause.
type ImageError struct{ Err error }

// Error implements error.
func (e *ImageError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *ImageError) Unwrap() error { return e.Err }

// Output is an output of a cluster as its user reads it.
type Output struct {
	Name   string
	Value  any
	Secret bool // it is kept sealed
}
