package api

import (
	"time"

	"croft"
)

// CatalogImage is an image of the cloud's catalog, as people see it.
type CatalogImage struct {
	// What requests name: its name or, of an image that another project shares, NAME@PROJECT.
	Name    string        `json:"name"`
	ID      croft.ImageID `json:"id" format:"uuid"` // its UUID
	Project croft.Project `json:"project"`          // the project that it belongs to
	Public  bool          `json:"public"`           // all projects may use it
	// State in one word: pending until its bytes are complete and verified, ready, failed, or lost with its hosts.
	State string `json:"state"`
	// Why it is failed or lost, or why it is still pending, in one sentence; empty: there is no reason.
	Error       string `json:"error"`
	Format      string `json:"format,omitempty"`      // of the file: qcow2 or raw
	SHA256      string `json:"sha256,omitempty"`      // of the file, in hexadecimal digits
	SizeBytes   int64  `json:"size_bytes"`            // of the file; while it is pending, the most that it may have
	DiskBytes   int64  `json:"disk_bytes,omitempty"`  // size of the disk that guests see
	ChargedGB   int64  `json:"charged_gb"`            // charged to its project as IMAGE_GB
	User        string `json:"user,omitempty"`        // login name
	Description string `json:"description,omitempty"` // for people
	// Architecture of the machines that start from it; left out: not stated.
	Arch croft.Arch `json:"arch,omitempty" enum:"x86_64,aarch64"`
	// UUID of the instance that it was saved from, for its own project; left out: it was not saved.
	Saved croft.InstanceID `json:"saved,omitempty" format:"uuid"`
	// Projects that may use it, for its own project.
	Shares []croft.Project `json:"shares,omitempty"`
	Copies int             `json:"copies"`           // how many hosts have a verified copy
	Hosts  []string        `json:"hosts,omitempty"`  // names of the hosts that are to have a copy; for operators
	Origin string          `json:"origin,omitempty"` // where it was fetched from; for operators
	Until  *time.Time      `json:"until,omitempty"`  // when it is given up if it is still pending then
	Made   time.Time       `json:"created"`          // when it was requested

}

// CatalogImageNamed names an image of the cloud's catalog.
type CatalogImageNamed struct {
	InProject

	Name string `path:"name" json:"-"` // name or UUID of the image
}

// NewCatalogImage is the input of createCatalogImage.
type NewCatalogImage struct {
	InProject

	Name string `json:"name" maxLength:"63" minLength:"1"` // unique in the project
	// Where a host fetches the image, once: an address as in requests for instances, with what verifies it, or the name
	// of an image in the server's files. Left out: it is uploaded.
	URL string `json:"url,omitempty" maxLength:"2048" minLength:"1"`
	// Size of the upload in bytes.
	SizeBytes int64 `json:"size_bytes,omitempty" minimum:"1" maximum:"1099511627776"`
	// SHA-256 of the upload, in hexadecimal digits.
	SHA256 string `json:"sha256,omitempty" maxLength:"64" minLength:"64"`
	// The most that an image with a URL, or one that is converted, may have, in GiB, which is charged until its size is
	// known.
	MaxGB int64 `json:"max_gb,omitempty" minimum:"1" maximum:"1024" default:"10"`
	// Architecture of the machines that start from it: instances get such a machine. Left out: as its name or URL says.
	Arch croft.Arch `json:"arch,omitempty" enum:"x86_64,aarch64"`
	// The upload is a VMDK, VHDX, VHD or VDI, or an OVA with one, and is converted to a qcow2 of at most max_gb.
	Convert     bool   `json:"convert,omitempty"`
	Public      bool   `json:"public,omitempty"`                                                           // for all projects; only operators may set it
	User        string `json:"user,omitempty" maxLength:"32" pattern:"^[A-Za-z_][A-Za-z0-9_.-]*$"`         // login name
	Description string `json:"description,omitempty" maxLength:"200" pattern:"^[^\\p{C}\\p{Zl}\\p{Zp}]*$"` // for people
}

// CatalogImageChange is the input of changeCatalogImage. An omitted field stays.
type CatalogImageChange struct {
	_ struct{} `minProperties:"1"`

	CatalogImageNamed

	User        *string `json:"user,omitempty" maxLength:"32" pattern:"^[A-Za-z_][A-Za-z0-9_.-]*$"`         // login name
	Description *string `json:"description,omitempty" maxLength:"200" pattern:"^[^\\p{C}\\p{Zl}\\p{Zp}]*$"` // for people
	Public      *bool   `json:"public,omitempty"`                                                           // only operators may change it
	// Names of projects that may use it from now on. Whether they exist is not checked.
	Share []croft.Project `json:"share,omitempty" maxItems:"100" maxLength:"63" minLength:"1"`
	// Names of projects that may not use it any more.
	Unshare []croft.Project `json:"unshare,omitempty" maxItems:"100" maxLength:"63" minLength:"1"`
}

// SavedImage is the input of saveInstance.
type SavedImage struct {
	InstanceNamed

	Name        string `json:"name" maxLength:"63" minLength:"1"`                                          // of the image; unique in the project
	User        string `json:"user,omitempty" maxLength:"32" pattern:"^[A-Za-z_][A-Za-z0-9_.-]*$"`         // login name
	Description string `json:"description,omitempty" maxLength:"200" pattern:"^[^\\p{C}\\p{Zl}\\p{Zp}]*$"` // for people
	// Remove what tells machines apart: machine ID, SSH host keys, DHCP leases, MAC addresses, enrolments.
	Generalize bool `json:"generalize,omitempty"`
}

// UploadChunk is the input of uploadCatalogImage.
type UploadChunk struct {
	CatalogImageNamed

	Offset int64 `query:"offset" json:"-" minimum:"0" maximum:"1099511627776"` // of the first byte
}

// Upload says how far the upload of an image is.
type Upload struct {
	Offset    int64 `json:"offset"`     // bytes that have arrived for good: the next chunk starts there
	SizeBytes int64 `json:"size_bytes"` // of the whole upload
}

// CatalogImageList has images of the cloud's catalog.
type CatalogImageList struct {
	Images []CatalogImage `json:"images"` // the project's own ones first, then those shared with it, then the public ones
	More
}
