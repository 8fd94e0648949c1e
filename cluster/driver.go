package cluster

import (
	"context"
	"time"

	"croft"
)

// Driver reaches sites of one type. Every method is safe to repeat: a call that was given up may still take effect, and
// the next one finds what it did. Unavailable: nothing is known; a *SilentError says that no response arrived, a
// *FaultError that the site responded with a fault. Denied: the site refuses the credential. Drivers keep nothing that
// a restart would lose. clustertest holds each of them to one contract.
type Driver interface {
	// Check reads an implementation before it is stored. Invalid, with the line of the template.
	Check(ctx context.Context, i Implementation) (Contract, error)
	// Probe asks how a site is; with a credential, whether it is accepted.
	Probe(ctx context.Context, at Access) (Probe, error)
	// Room says whether a cluster fits now; of a build with Growth, whether the slaves of Indexes fit beside what is
	// there. It changes nothing.
	Room(ctx context.Context, at Access, b Build) (Room, error)
	// Bring begins or goes on to bring an image to the site, for a bounded time, and says how far it is.
	Bring(ctx context.Context, at Access, i Image) (Placed, error)
	// Launch has the site build a cluster, which Remote.Name names there. It returns once the site has taken the
	// request, and adopts what an earlier call began. NoCapacity: the site has no room. Invalid: it refuses the
	// template or a parameter. Conflict: something that is not ours has the name.
	Launch(ctx context.Context, at Access, b Build) (Remote, error)
	// Resize has the site change a cluster to the slaves of the build, also after a resize that failed. Once it has
	// returned, Observe tells of this resize and of nothing before it. Conflict: something else is under way there.
	Resize(ctx context.Context, at Access, b Build) error
	// Destroy has the site remove a cluster, whether it is known by Remote.ID or by Remote.Name alone, and leaves alone
	// what is not ours. It returns once the site has taken the request; Observe then says Removing, Stuck or Absent. Of
	// what is not there it is no error.
	Destroy(ctx context.Context, at Access, b Build) error
	// Observe looks at clusters that share site and credential, with as few requests as can be. One about which nothing
	// could be learned is missing in the answer.
	Observe(ctx context.Context, at Access, all []Build) (map[croft.ClusterID]Seen, error)
	// List returns the clusters of this partition that the site has, for the sweep.
	List(ctx context.Context, at Access) ([]Found, error)
}

// Contract is what a template asks for and offers.
type Contract struct {
	Declared    map[string]Declared // parameters by name
	RemoveNamed bool                // slaves can be removed by name, not just the last one
}

// Declared is a parameter that a template declares.
type Declared struct {
	Type    string // of Heat: string, number, boolean, json, comma_delimited_list
	Default bool   // it has one, so nobody needs to fill it
	Hidden  bool
}

// Build is all that a driver needs to know of a cluster.
type Build struct {
	Partition      croft.PartitionID
	Cluster        croft.ClusterID
	Name           string
	Project        croft.Project
	User           string
	Implementation Implementation
	Image          string         // reference at the site, where the implementation names an image
	Parameters     map[string]any // all that the template is to be told; may hold secrets
	Indexes        []int          // of the wanted slaves, ascending
	Removed        []int          // indexes that were taken out by name
	Growth         bool           // for Room: the cluster is there, and Indexes are the slaves to be added
	Remote         Remote
	Timeout        time.Duration // for the site itself; our own deadline is apart from it
}

// Phase is how far a site is with a cluster.
type Phase string

// The phases.
const (
	Absent   Phase = "absent"   // the site knows nothing of it, or has removed it
	Working  Phase = "working"  // it is being built
	Updating Phase = "updating" // it is being resized
	Standing Phase = "standing" // the last request was carried out
	Broken   Phase = "broken"   // the build failed
	Unsized  Phase = "unsized"  // the resize failed
	Removing Phase = "removing" // it is being removed
	Stuck    Phase = "stuck"    // the removal failed; ask again
)

// Seen is what a site has of a cluster.
type Seen struct {
	Phase     Phase
	Remote    Remote
	Members   []Member            // as far as the site tells; those without an address are BUILDING
	MasterIP  string              // empty: not known yet
	Outputs   map[string]any      // all of them, secret ones too; only where Phase is Standing
	Failure   string              // why, where Phase is Broken, Unsized or Stuck, or where Outputs are of no use
	NoRoom    bool                // Failure is for lack of room, so that another site may do better
	Elsewhere bool                // the credential sees another project now: the site refuses to show the cluster
	Consoles  map[MemberID]string // the ends of the consoles of members that failed
}

// Probe is how a site answers.
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
	Why   string  // it does not fit: "needs 12 VCPU, 8 are left"
	Free  float64 // the fraction of its scarcest resource that would be left; 0 to 1
}

// Found is a cluster of ours that a site has.
type Found struct {
	Cluster croft.ClusterID
	Remote  Remote
}
