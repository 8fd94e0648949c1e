package api

import (
	"croft"
	"croft/cluster"
)

// ApplianceList has appliances.
type ApplianceList struct {
	Appliances []cluster.Appliance `json:"appliances"`
}

// NewAppliance describes an appliance to create.
type NewAppliance struct {
	Name        string         `json:"name"`
	Description string         `json:"description,omitempty"`
	Public      bool           `json:"public,omitempty"`
	MinSlaves   int            `json:"min_slaves,omitempty"`
	Agent       *cluster.Agent `json:"agent,omitempty"`
}

// ApplianceChange changes an appliance. Omitted fields stay unchanged.
type ApplianceChange struct {
	Description *string        `json:"description,omitempty"`
	Public      *bool          `json:"public,omitempty"`
	MinSlaves   *int           `json:"min_slaves,omitempty"`
	Agent       *cluster.Agent `json:"agent,omitempty"`
}

// NewImplementation describes how a site builds an appliance.
type NewImplementation struct {
	Site       string                           `json:"site"`
	Template   string                           `json:"template,omitempty"`
	Image      string                           `json:"image,omitempty"`
	Resources  map[cluster.Role]croft.Resources `json:"host_resources,omitempty"`
	Parameters map[string]any                   `json:"parameters,omitempty"`
	Enabled    *bool                            `json:"enabled,omitempty"` // nil: yes
}

// NewImplementationOf returns the body for an implementation.
func NewImplementationOf(i cluster.Implementation) NewImplementation {
	return NewImplementation{Site: i.Site, Template: i.Template, Image: i.Image, Resources: i.Resources,
		Parameters: i.Parameters, Enabled: &i.Enabled}
}

// Plain returns the implementation of an appliance.
func (i NewImplementation) Plain(appliance string) cluster.Implementation {
	return cluster.Implementation{Appliance: appliance, Site: i.Site, Template: i.Template, Image: i.Image,
		Resources: i.Resources, Parameters: i.Parameters, Enabled: i.Enabled == nil || *i.Enabled}
}

// ImplementationChange is the body of changeImplementation.
type ImplementationChange struct {
	Enabled bool `json:"enabled"`
}

// ImplementationList has implementations.
type ImplementationList struct {
	Implementations []cluster.Implementation `json:"implementations"`
}

// NewSiteImage describes an image for sites.
type NewSiteImage struct {
	Name      string `json:"name"`
	URL       string `json:"url,omitempty"`
	SHA256    string `json:"sha256,omitempty"`
	Format    string `json:"format,omitempty"`
	MinDiskGB int    `json:"min_disk_gb,omitempty"`
	MinRAMMB  int    `json:"min_ram_mb,omitempty"`
}

// ImageAtSite is the body of bringImage.
type ImageAtSite struct {
	Ref string `json:"ref,omitempty"` // the name of an image that the site already has; empty: upload it
}
