package api

import (
	"croft"
	"croft/cluster"
)

// ApplianceNamed names an appliance.
type ApplianceNamed struct {
	InProject

	Name string `path:"name" json:"-"` // name of the appliance
}

// ApplianceList lists appliances.
type ApplianceList struct {
	Appliances []cluster.Appliance `json:"appliances"` // by name
	More
}

// NewAppliance is the input of createAppliance.
type NewAppliance struct {
	InProject

	// Name is unique in its project, of a to z, 0 to 9 and dashes, and starts with a letter.
	Name        string         `json:"name"                  minLength:"1" maxLength:"63"`
	Description string         `json:"description,omitempty" maxLength:"1024" pattern:"^[^\\p{C}\\p{Zl}\\p{Zp}]*$"` // for people
	Public      bool           `json:"public,omitempty"`                                                            // every project may use it
	MinSlaves   int            `json:"min_slaves,omitempty"  minimum:"0" maximum:"1000"`                            // fewest slaves of a cluster
	Agent       *cluster.Agent `json:"agent,omitempty"`                                                             // makes accounts for users
}

// ApplianceChange is the input of changeAppliance.
type ApplianceChange struct {
	ApplianceNamed
	cluster.ApplianceChange

	Base Match `header:"If-Match" json:"-"` // generation that the change builds on; left out: any
}

// ImplementationNamed names an implementation of an appliance.
type ImplementationNamed struct {
	ApplianceNamed

	ID cluster.ImplementationID `path:"id" json:"-"` // UUID of the implementation
}

// NewImplementation is the input of addImplementation: how a site builds an appliance.
type NewImplementation struct {
	ApplianceNamed

	Site string `json:"site" minLength:"1" maxLength:"63"` // name of the site

	// Template is a template of Heat, or the text for the site local. Either it or Image is set.
	Template string `json:"template,omitempty" maxLength:"524288"`
	Image    string `json:"image,omitempty"    maxLength:"255"` // name of an image that a template is made of

	// Resources is what one host of each role takes, to compute whether a cluster fits.
	Resources  map[cluster.Role]croft.Resources `json:"host_resources,omitempty" maxProperties:"16" minimum:"0"`
	Parameters map[string]any                   `json:"parameters,omitempty" maxProperties:"256"` // fixed values
	Enabled    *bool                            `json:"enabled,omitempty"`                        // for new clusters; yes by default
}

// Plain returns the implementation of an appliance.
func (i NewImplementation) Plain(appliance string) cluster.Implementation {
	return cluster.Implementation{Appliance: appliance, Site: i.Site, Template: i.Template, Image: i.Image,
		Resources: i.Resources, Parameters: i.Parameters, Enabled: i.Enabled == nil || *i.Enabled}
}

// ImplementationChange is the input of changeImplementation.
type ImplementationChange struct {
	ImplementationNamed

	Enabled bool `json:"enabled"` // new clusters may be built by it
}

// ImplementationList lists implementations.
type ImplementationList struct {
	Implementations []cluster.Implementation `json:"implementations"` // by site and revision
	More
}
