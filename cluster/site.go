package cluster

import (
	"maps"
	"strings"
	"time"

	"croft"
)

// SiteType selects the driver of a site.
type SiteType string

// The types of sites.
const (
	OpenStack SiteType = "openstack" // Keystone and Heat
	Local     SiteType = "local"     // the hosts of this cloud; there is one such site, and it needs no credential
	Croft     SiteType = "croft"     // another croft cloud, through its API
	Sim       SiteType = "sim"       // in memory, for tests and trials
)

// SiteTypes lists the types of sites.
var SiteTypes = []SiteType{OpenStack, Local, Croft, Sim}

// LocalSite is the name of the site of type Local.
const LocalSite = "local"

// Site is a place where clusters can be built. Only operators write it, since the server calls its URL. It never
// contains a credential.
type Site struct {
	Name      string   `json:"name"`                // unique in the cloud
	Type      SiteType `json:"type"`                // driver that builds there
	AuthURL   string   `json:"auth_url,omitempty"`  // address of Keystone; of a croft site: of its API
	Region    string   `json:"region,omitempty"`    // of the catalogue
	Interface string   `json:"interface,omitempty"` // of the catalogue; "public" if empty
	CACert    string   `json:"ca_cert,omitempty"`   // PEM, in addition to the system's certificates
	Enabled   bool     `json:"enabled"`             // whether new clusters are built there
	Priority  int      `json:"priority"`            // higher priorities are chosen first
	// parameters such as network_name, flavor_name, key_name, allowed_ip
	Defaults     map[string]any `json:"defaults,omitempty"`
	BuildTimeout Seconds        `json:"build_timeout,omitempty"` // seconds that a build may take; 0: an hour
	MaxClusters  int            `json:"max_clusters,omitempty"`  // 0: no limit
	Created      time.Time      `json:"created"`                 // when it was added
	Updated      time.Time      `json:"updated"`                 // when it was last changed
	Generation   int64          `json:"generation"`              // revision of the stored record
	Health       Health         `json:"health"`                  // derived, never stored

	// CreateRevision is the revision at which the site was created. It identifies the site: a later site of the same
	// name has another one. Never stored.
	CreateRevision int64 `json:"-"`
}

// BuildTimeout is the maximum duration of a build at a site that sets none.
const BuildTimeout = time.Hour

// Health is the result of the last request to a site.
type Health struct {
	OK    bool      `json:"ok"`              // whether the last check succeeded
	Error string    `json:"error,omitempty"` // why it failed
	Since time.Time `json:"since,omitzero"`  // since when the site is in this state
}

// Credential lets the server act for a user at a site. Answers never contain its secret.
type Credential struct {
	ID            CredentialID   `json:"id"`                       // its UUID
	Name          string         `json:"name"`                     // unique for its user in the project
	Project       croft.Project  `json:"project"`                  // the project whose user has it
	User          string         `json:"user"`                     // who has it
	Site          string         `json:"site"`                     // the site that it is for
	Kind          CredentialKind `json:"kind"`                     // password or application credential
	Username      string         `json:"username,omitempty"`       // at the site
	UserDomain    string         `json:"user_domain,omitempty"`    // domain of the user
	ProjectName   string         `json:"project_name,omitempty"`   // project at the site
	ProjectID     string         `json:"project_id,omitempty"`     // UUID of the project at the site
	ProjectDomain string         `json:"project_domain,omitempty"` // domain of the project at the site
	Secret        Sealed         `json:"secret,omitempty"`         // stored, never part of an answer
	VerifiedAt    time.Time      `json:"verified_at,omitzero"`     // when the site last accepted it
	LastError     string         `json:"last_error,omitempty"`     // why the site refused it
	Created       time.Time      `json:"created"`                  // when it was added
	Updated       time.Time      `json:"updated"`                  // when it was last changed
	Generation    int64          `json:"generation"`               // grows with every change

	// SiteCreated is the CreateRevision of the site that accepted a new credential; 0: any site of the name. Never
	// stored.
	SiteCreated int64 `json:"-"`
}

// CredentialKind is the kind of secret of a credential.
type CredentialKind string

// The kinds. Heat needs a password: it creates trusts, which OpenStack does not allow with an application credential.
const (
	Password CredentialKind = "password"
	Token    CredentialKind = "token" // of another croft cloud
)

// SiteAccess is the data that a driver needs to call a site for a user.
type SiteAccess struct {
	Partition  croft.PartitionID // of this server: List returns only the clusters of this partition
	Site       Site
	Credential Credential // the zero value at a local site
	Secret     Secret
}

// Appliance is a kind of cluster, such as slurm.
type Appliance struct {
	// unique in its project; unique in the cloud in the store
	Name    string        `json:"name" maxLength:"63" minLength:"1"`
	Project croft.Project `json:"project,omitempty"` // of its owner; empty: operators
	// The user who created it.
	Owner       string `json:"owner"`
	Description string `json:"description,omitempty" maxLength:"1024" pattern:"^[^\\p{C}\\p{Zl}\\p{Zp}]*$"` // for people
	Public      bool   `json:"public"`                                                                      // every project may use it
	MinSlaves   int    `json:"min_slaves,omitempty" maximum:"1000" minimum:"0"`                             // the smallest number of slaves
	// what runs on the hosts, if anything
	Agent      *Agent    `json:"agent,omitempty"`
	Created    time.Time `json:"created"`    // when it was created
	Updated    time.Time `json:"updated"`    // when it was last changed
	Generation int64     `json:"generation"` // grows with every change
}

// Agent is the service on the master that creates accounts for users.
type Agent struct {
	Port int    `json:"port,omitempty" maximum:"65535" minimum:"1"`                   // 80 by default
	Path string `json:"path,omitempty" maxLength:"256" pattern:"^/[A-Za-z0-9._/-]*$"` // /new_account/ by default
}

// Implementation says how a site builds an appliance. Only Enabled can change: a new text is a new revision.
type Implementation struct {
	ID        ImplementationID `json:"id" format:"uuid"`  // its UUID
	Appliance string           `json:"appliance"`         // its UUID
	Project   croft.Project    `json:"project,omitempty"` // of the appliance, which is charged
	// The name of the site.
	Site     string `json:"site" maxLength:"63" minLength:"1"`
	Revision int    `json:"revision"` // counts from 1 per appliance and site
	// template of Heat, or of a local site; either Template or Image is set
	Template string `json:"template,omitempty" maxLength:"524288"`
	// The name of an image of which a template is made.
	Image string `json:"image,omitempty" maxLength:"255"`
	// of a member of each role, to compute the needed capacity
	Resources  map[Role]croft.Resources `json:"host_resources,omitempty"`
	Parameters map[string]any           `json:"parameters,omitempty" maxProperties:"256"` // fixed values
	// New clusters may be built by it; yes by default.
	Enabled    bool      `json:"enabled"`
	Created    time.Time `json:"created"`    // when it was added
	Generation int64     `json:"generation"` // grows with every change
}

// MaxTemplate bounds a template, in bytes.
const MaxTemplate = 512 << 10

// SiteImage is a disk image with a verified source, which can be copied to sites.
type SiteImage struct {
	// Lower-case letters, digits and dashes; starts with a letter.
	Name string `json:"name" maxLength:"63" minLength:"1"`
	// Where it is fetched; for operators. Without it, only images that a site has already can be named.
	URL string `json:"url,omitempty" maxLength:"2048"`
	// The required SHA-256, in hexadecimal digits.
	SHA256    string `json:"sha256,omitempty" maxLength:"64"`
	Format    string `json:"format,omitempty" enum:"qcow2,raw"`                    // qcow2 or raw
	MinDiskGB int    `json:"min_disk_gb,omitempty" maximum:"1000000" minimum:"0"`  // in GiB
	MinRAMMB  int    `json:"min_ram_mb,omitempty" maximum:"100000000" minimum:"0"` // in MiB
	// by site; if an image is private there, by site/credential
	On      map[string]Placed `json:"on,omitempty"`
	Created time.Time         `json:"created"` // when it was added
	// when it was last changed
	Updated time.Time `json:"updated"`
	// grows with every change
	Generation int64 `json:"generation"`
}

// Placed is the copy of an image at a site.
type Placed struct {
	Ref   string     `json:"ref,omitempty"`                              // the site's reference of the image
	State ImageState `json:"state" enum:"MISSING,UPLOADING,READY,ERROR"` // at the site
	Error string     `json:"error,omitempty"`                            // why it failed
	Done  int64      `json:"done,omitempty"`                             // bytes copied
	Total int64      `json:"total,omitempty"`                            // 0: unknown
}

// LeaveSite removes the copies of an image at a site, and reports whether there were any. A later site of the same name
// may be another cloud, where the reference names nothing or another image.
func (i *SiteImage) LeaveSite(site string) bool {
	before := len(i.On)
	maps.DeleteFunc(i.On, func(place string, _ Placed) bool {
		return place == site || strings.HasPrefix(place, site+"/")
	})
	return len(i.On) < before
}

// ImageState is the state of the copy of an image at a site.
type ImageState string

// The states of images.
const (
	ImageMissing   ImageState = "MISSING"
	ImageUploading ImageState = "UPLOADING"
	ImageReady     ImageState = "READY"
	ImageFailed    ImageState = "ERROR"
)

// CredentialKind returns the usual kind of credentials for a site. Invalid: the site needs no credential.
func (s Site) CredentialKind() (CredentialKind, error) {
	kinds := map[SiteType]CredentialKind{OpenStack: Password, Croft: Token, Sim: Password}
	kind, needs := kinds[s.Type]
	if !needs {
		return "", croft.Errorf(croft.Invalid, "site %s is of type %s, which needs no credential", s.Name, s.Type)
	}
	return kind, nil
}
