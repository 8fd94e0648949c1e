package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"croft"
)

// Driver calls sites of one type. Every method can be repeated safely: a call that was abandoned may still take effect,
// and the next call finds its result. Unavailable: the outcome is unknown; a *SilentError says that no response
// arrived, a *FaultError that the site answered with a fault. Denied: the site refuses the credential. Drivers keep no
// state that a restart would lose. clustertest checks all of them against one contract.
type Driver interface {
	// Check parses an implementation before it is stored. Invalid, with the line in the template.
	Check(ctx context.Context, i Implementation) (Contract, error)
	// Probe reads the state of a site; with a credential, also whether the site accepts it.
	Probe(ctx context.Context, at SiteAccess) (Probe, error)
	// Room says whether a cluster fits now; for a build with Growth, whether the slaves of Indexes fit in addition to
	// the existing ones. It changes nothing.
	Room(ctx context.Context, at SiteAccess, b Build) (Room, error)
	// Bring starts or continues the copy of an image to the site, for a bounded time, and returns its progress.
	Bring(ctx context.Context, at SiteAccess, i SiteImage) (Placed, error)
	// Launch asks the site to build a cluster under the name Remote.Name. It returns once the site has accepted the
	// request, and adopts the result of an earlier call. NoCapacity: the site has no room. Invalid: the site refuses
	// the template or a parameter. Conflict: something that does not belong to this cloud has the name.
	Launch(ctx context.Context, at SiteAccess, b Build) (Remote, error)
	// Resize asks the site to give a cluster the slaves of the build, also after a failed resize. Once Resize has
	// returned, Observe reports this resize and no earlier one. Conflict: another operation is in progress there.
	Resize(ctx context.Context, at SiteAccess, b Build) error
	// Destroy asks the site to remove a cluster, found by Remote.ID or only by Remote.Name, and does not touch foreign
	// objects. It returns once the site has accepted the request; Observe then reports Removing, Stuck or Absent. A
	// cluster that does not exist is no error.
	Destroy(ctx context.Context, at SiteAccess, b Build) error
	// Observe looks at clusters that share site and credential, with as few requests as possible. The result has no
	// entry for a cluster whose state could not be read.
	Observe(ctx context.Context, at SiteAccess, all []Build) (map[croft.ClusterID]Seen, error)
	// List returns the clusters of this partition on the site, for the sweep.
	List(ctx context.Context, at SiteAccess) ([]Found, error)
}

// Contract is the parameters that a template declares and the operations that it supports.
type Contract struct {
	Declared    map[string]Declared // parameters by name
	RemoveNamed bool                // slaves can be removed by name, not only the last ones
}

// Declared is a parameter that a template declares.
type Declared struct {
	Type    string // type in Heat: string, number, boolean, json, comma_delimited_list
	Default bool   // the template has a default, so a value is optional
	Hidden  bool
}

// Build is the input of a driver about a cluster.
type Build struct {
	Partition      croft.PartitionID
	Cluster        croft.ClusterID
	Name           string
	Project        croft.Project
	User           string
	Implementation Implementation
	Image          string         // reference of the image at the site, if the implementation names an image
	Parameters     map[string]any // all values for the template; may contain secrets
	Indexes        []int          // of the wanted slaves, ascending
	Removed        []int          // indexes of slaves that were removed by name
	Growth         bool           // for Room: the cluster exists, and Indexes are the slaves to add
	Remote         Remote
	Timeout        time.Duration // for the site itself; the deadline of the manager is separate
}

// Phase is the state of a cluster on its site.
type Phase string

// The phases.
const (
	Absent   Phase = "absent"   // the site does not know the cluster, or has removed it
	Working  Phase = "working"  // the site is building it
	Updating Phase = "updating" // the site is resizing it
	Standing Phase = "standing" // the site completed the last request
	Broken   Phase = "broken"   // the build failed
	Unsized  Phase = "unsized"  // the resize failed
	Removing Phase = "removing" // the site is removing it
	Stuck    Phase = "stuck"    // the removal failed, and has to be asked for again
)

// Seen is the observed state of a cluster on its site.
type Seen struct {
	Phase    Phase
	Remote   Remote
	Members  []Member       // as far as the site reports them; those without an address are BUILDING
	MasterIP string         // empty: not known yet
	Outputs  map[string]any // all outputs, including secret ones; only if Phase is Standing
	Failure  string         // the reason, if Phase is Broken, Unsized or Stuck, or if Outputs cannot be used
	NoRoom   bool           // the reason of Failure is a lack of room, so another site may succeed
	// the credential belongs to another project now, so the site does not show the cluster
	Elsewhere bool
	Consoles  map[MemberID]string // the last parts of the consoles of failed members
}

// Probe is the state of a site.
type Probe struct {
	Version  string          `json:"version,omitempty"` // of Keystone, or of croft
	Builds   bool            `json:"builds"`            // it can build clusters: Heat is in its catalogue
	Free     croft.Resources `json:"free,omitempty"`    // as far as known
	Accepted bool            `json:"accepted"`          // the credential was accepted
}

// Room says whether a cluster fits.
type Room struct {
	Known bool
	Fits  bool
	Why   string  // why it does not fit: "needs 12 VCPU, 8 are left"
	Free  float64 // the fraction of its scarcest resource that would be left; 0 to 1
}

// Found is a cluster of this partition on a site.
type Found struct {
	Cluster croft.ClusterID
	Remote  Remote
}

// Wants reports whether the build includes a member.
func (b Build) Wants(m Member) bool { return m.Role == Master || slices.Contains(b.Indexes, m.Index) }

// Keys returns the public SSH keys among the parameters.
func (b Build) Keys() (keys []string) {
	listed, _ := b.Parameters[ParamKeys].([]any)
	for _, key := range listed {
		keys = append(keys, fmt.Sprint(key))
	}
	return keys
}

// Backends are the stores, drivers and keys that the survey, the registry, the requests and the manager of a cloud work
// with.
type Backends struct {
	Partition croft.PartitionID
	Records   Records
	Catalogue ApplianceStore
	Accounts  Accounts
	Drivers   map[SiteType]Driver
	Vault     Vault                                // nil: no secret can be opened or stored
	Images    func(name string) (SiteImage, error) // of the cloud's own catalogue; NotFound; nil: it has none
	AllowedIP string                               // CIDR of this server, for templates; may be empty
	Log       *slog.Logger
}
