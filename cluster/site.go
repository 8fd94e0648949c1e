package cluster

import (
	"maps"
	"strings"
	"time"

	"croft"
)

// SiteType says which driver reaches a site.
type SiteType string

// The types of sites.
const (
	OpenStack SiteType = "openstack" // Keystone and Heat
	Local     SiteType = "local"     // the hosts of this cloud; there is one such site, and it needs no credential
	Croft     SiteType = "croft"     // another cloud of croft, by its API
	Sim       SiteType = "sim"       // in memory, for tests and for trying things out
)

// SiteTypes lists the types of sites.
var SiteTypes = []SiteType{OpenStack, Local, Croft, Sim}

// LocalSite is the name of the site of type Local.
const LocalSite = "local"

// Site is a place where clusters can be built. Operators alone write it, since its URL is called by the server. It
// never holds a credential.
type Site struct {
	Name         string         `json:"name"`
	Type         SiteType       `json:"type"`
	AuthURL      string         `json:"auth_url,omitempty"`  // of Keystone; of a croft its API
	Region       string         `json:"region,omitempty"`    // of the catalogue
	Interface    string         `json:"interface,omitempty"` // of the catalogue; "public" if empty
	CACert       string         `json:"ca_cert,omitempty"`   // PEM, beside the system's
	Enabled      bool           `json:"enabled"`
	Priority     int            `json:"priority"`           // higher ones first
	Defaults     map[string]any `json:"defaults,omitempty"` // parameters: network_name, flavor_name, key_name, allowed_ip
	BuildTimeout time.Duration  `json:"build_timeout,omitempty"`
	MaxClusters  int            `json:"max_clusters,omitempty"` // 0: no limit
	Created      time.Time      `json:"created"`
	Updated      time.Time      `json:"updated"`
	Generation   int64          `json:"generation"` // version of the stored record
	Health       Health         `json:"health"`     // derived, never stored

	// CreateRevision is the revision at which the site was created: its identity, which the next site of its name does
	// not share. Never stored.
	CreateRevision int64 `json:"-"`
}

// BuildTimeout is how long a build may take where the site does not say.
const BuildTimeout = time.Hour

// Health is how a site was when it was last asked.
type Health struct {
	OK    bool      `json:"ok"`
	Error string    `json:"error,omitempty"`
	Since time.Time `json:"since,omitzero"` // since when it is so
}

// Credential lets the server act for a user at a site.
type Credential struct {
	ID            CredentialID   `json:"id"`
	Name          string         `json:"name"` // unique for its user in the project
	Project       croft.Project  `json:"project"`
	User          string         `json:"user"`
	Site          string         `json:"site"`
	Kind          CredentialKind `json:"kind"`
	Username      string         `json:"username,omitempty"`
	UserDomain    string         `json:"user_domain,omitempty"`
	ProjectName   string         `json:"project_name,omitempty"`
	ProjectID     string         `json:"project_id,omitempty"`
	ProjectDomain string         `json:"project_domain,omitempty"`
	Secret        Sealed         `json:"secret,omitempty"` // stored, never answered
	VerifiedAt    time.Time      `json:"verified_at,omitzero"`
	LastError     string         `json:"last_error,omitempty"`
	Created       time.Time      `json:"created"`
	Updated       time.Time      `json:"updated"`
	Generation    int64          `json:"generation"`

	// SiteCreated is the CreateRevision of the site that accepted a new credential; 0: any site of the name.
	// It is never stored.
	SiteCreated int64 `json:"-"`
}

// CredentialKind says what the secret is.
type CredentialKind string

// The kinds. Heat needs a password: it makes trusts, which an application credential may not.
const (
	Password CredentialKind = "password"
	Token    CredentialKind = "token" // of another croft
)

// Access is what a driver needs to reach a site for a user.
type Access struct {
	Partition  croft.PartitionID // of this server: List tells of its clusters alone
	Site       Site
	Credential Credential // the zero one at a local site
	Secret     Secret
}

// Appliance is what clusters are for, such as slurm.
type Appliance struct {
	Name        string        `json:"name"`              // unique among its project's; in a Catalogue unique in the cloud
	Project     croft.Project `json:"project,omitempty"` // of its owner; empty: operators
	Owner       string        `json:"owner"`
	Description string        `json:"description,omitempty"`
	Public      bool          `json:"public"` // every project may use it
	MinSlaves   int           `json:"min_slaves,omitempty"`
	Agent       *Agent        `json:"agent,omitempty"`
	Created     time.Time     `json:"created"`
	Updated     time.Time     `json:"updated"`
	Generation  int64         `json:"generation"`
}

// Agent is what on the master makes accounts for users.
type Agent struct {
	Port int    `json:"port,omitempty"` // 80 by default
	Path string `json:"path,omitempty"` // /new_account/ by default
}

// Implementation says how a site builds an appliance. It is immutable but for Enabled: a new text is a new revision.
type Implementation struct {
	ID         ImplementationID         `json:"id"`
	Appliance  string                   `json:"appliance"`
	Project    croft.Project            `json:"project,omitempty"` // of the appliance, which is charged
	Site       string                   `json:"site"`
	Revision   int                      `json:"revision"`           // counts up from 1 for the appliance at the site
	Template   string                   `json:"template,omitempty"` // Heat's, or the text of a local site; or Image, exactly one
	Image      string                   `json:"image,omitempty"`
	Resources  map[Role]croft.Resources `json:"host_resources,omitempty"` // of a member of each role, for capacity
	Parameters map[string]any           `json:"parameters,omitempty"`     // fixed values
	Enabled    bool                     `json:"enabled"`
	Created    time.Time                `json:"created"`
	Generation int64                    `json:"generation"`
}

// MaxTemplate bounds a template, in bytes.
const MaxTemplate = 512 << 10

// Image is a disk image with a checked source, which can be brought to sites.
type Image struct {
	Name       string            `json:"name"`
	URL        string            `json:"url,omitempty"`
	SHA256     string            `json:"sha256,omitempty"`
	Format     string            `json:"format,omitempty"` // qcow2 or raw
	MinDiskGB  int               `json:"min_disk_gb,omitempty"`
	MinRAMMB   int               `json:"min_ram_mb,omitempty"`
	On         map[string]Placed `json:"on,omitempty"` // by site, and where private there, by site/credential
	Created    time.Time         `json:"created"`
	Updated    time.Time         `json:"updated"`
	Generation int64             `json:"generation"`
}

// Placed is an image at a site.
type Placed struct {
	Ref   string     `json:"ref,omitempty"` // what the site calls it
	State ImageState `json:"state"`
	Error string     `json:"error,omitempty"`
	Done  int64      `json:"done,omitempty"`  // bytes brought
	Total int64      `json:"total,omitempty"` // 0: not known
}

// LeaveSite forgets where the image is at a site, and reports whether it was there. A later site of the same name may
// be another cloud, in which the reference names nothing, or something else.
func (i *Image) LeaveSite(site string) bool {
	before := len(i.On)
	maps.DeleteFunc(i.On, func(place string, _ Placed) bool {
		return place == site || strings.HasPrefix(place, site+"/")
	})
	return len(i.On) < before
}

// ImageState is how far an image is at a site.
type ImageState string

// The states of images.
const (
	ImageMissing   ImageState = "MISSING"
	ImageUploading ImageState = "UPLOADING"
	ImageReady     ImageState = "READY"
	ImageFailed    ImageState = "ERROR"
)

// CredentialKind returns the usual kind of credentials for a site. Invalid: it needs none.
func (s Site) CredentialKind() (CredentialKind, error) {
	kinds := map[SiteType]CredentialKind{OpenStack: Password, Croft: Token, Sim: Password}
	kind, needs := kinds[s.Type]
	if !needs {
		return "", croft.Errorf(croft.Invalid, "site %s is of type %s, which needs no credential", s.Name, s.Type)
	}
	return kind, nil
}
