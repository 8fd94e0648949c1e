package api

import (
	"croft"
	"croft/cluster"
)

// ImageNamed names an image for sites.
type ImageNamed struct {
	Name string `path:"name" json:"-"` // name of the image
}

// NewSiteImage is the input of addImage.
type NewSiteImage struct {
	Name string `json:"name" minLength:"1" maxLength:"63"` // lower-case letters, digits and dashes; starts with a letter

	// URL is where the image is fetched; for operators. Without it, only images that a site already has can be named.
	URL       string `json:"url,omitempty"         maxLength:"2048"`
	SHA256    string `json:"sha256,omitempty"      maxLength:"64"`                  // required SHA-256, in hexadecimal digits
	Format    string `json:"format,omitempty"      enum:"qcow2,raw"`                // format of the file
	MinDiskGB int    `json:"min_disk_gb,omitempty" minimum:"0" maximum:"1000000"`   // smallest disk, in GB
	MinRAMMB  int    `json:"min_ram_mb,omitempty"  minimum:"0" maximum:"100000000"` // smallest memory, in MB
}

// ImageAtSite is the input of bringImage.
type ImageAtSite struct {
	ImageNamed
	InProject

	Site string `path:"site"          json:"-"`        // name of the site
	Ref  string `json:"ref,omitempty" maxLength:"255"` // name of the image at the site, if the site already has it
}

// Catalog lists the images that requests may name.
type Catalog struct {
	Images []Image `json:"images"` // by name
	// Sources are the address prefixes of other images that tenants may name; without them, tenants may name images of
	// the catalog only.
	Sources []string `json:"sources"`
	// SiteImages are the images that implementations of appliances name.
	SiteImages []cluster.SiteImage `json:"site_images,omitempty"`
	More
}

// Image is an image of the catalog.
type Image struct {
	Name        string `json:"name"`                  // what requests name
	Alias       string `json:"alias,omitempty"`       // name of the image that this alias means
	Description string `json:"description,omitempty"` // for people
	User        string `json:"user,omitempty"`        // login name
	// What verifies it, in words.
	VerifiedBy string `json:"verified_by"`
	URL        string `json:"url,omitempty"` // address where hosts fetch the image; for operators
	// Architecture of the machines that start from it; left out: not stated.
	Arch croft.Arch `json:"arch,omitempty" enum:"x86_64,aarch64"`
}
