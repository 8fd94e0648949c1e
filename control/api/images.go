package api

// ImageNamed names an image for sites.
type ImageNamed struct {
	Name string `path:"name" json:"-"` // name of the image
}

// NewSiteImage is the input of addImage.
type NewSiteImage struct {
	Name string `json:"name" minLength:"1" maxLength:"63"` // of a to z, 0 to 9 and dashes; starts with a letter

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
