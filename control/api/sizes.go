package api

import "croft"

// SizeList has the named sizes of instances.
type SizeList struct {
	Sizes []croft.Size `json:"sizes"` // by name
	More
}

// SizeNamed names a size.
type SizeNamed struct {
	Name string `path:"name" json:"-"` // name of the size
}

// NewSize is the input of createSize.
type NewSize struct {
	Name string `json:"name" maxLength:"63" minLength:"1"` // unique in the cloud
	// What an instance of this size claims. VCPU, MEMORY_MB and DISK_GB are among them.
	Resources croft.Resources `json:"resources" maxProperties:"16" minProperties:"1" minimum:"1"`
	// Requests that name neither a size nor amounts get it, in place of the former default.
	Default bool `json:"default,omitempty"`
}

// SizeChange is the input of changeSize.
type SizeChange struct {
	_ struct{} `minProperties:"1"`

	SizeNamed

	// The new name. Instances keep the name of the size that they were made with.
	To      string `json:"name,omitempty" maxLength:"63" minLength:"1"`
	Default *bool  `json:"default,omitempty"` // whether it is the default
}
