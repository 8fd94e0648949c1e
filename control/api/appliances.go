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
	// Of a to z, 0 to 9 and dashes, beginning with a letter. Unique in the cloud.
	Name        string `json:"name" maxLength:"63" minLength:"1"`
	Description string `json:"description,omitempty" maxLength:"1024"`
	// Every project may use it.
	Public    bool           `json:"public,omitempty"`
	MinSlaves int            `json:"min_slaves,omitempty" maximum:"1000" minimum:"0"`
	Agent     *cluster.Agent `json:"agent,omitempty"`
}

// ApplianceChange changes an appliance.
type ApplianceChange = cluster.ApplianceChange

// NewImplementation describes how a site builds an appliance.
type NewImplementation struct {
	// The name of the site.
	Site string `json:"site" maxLength:"63" minLength:"1"`
	// Of Heat, or the text for the site local. Either this or image.
	Template string `json:"template,omitempty" maxLength:"524288"`
	// The name of an image of which a template is made.
	Image string `json:"image,omitempty" maxLength:"255"`
	// What one host of each role takes, to know whether a cluster fits.
	Resources map[cluster.Role]croft.Resources `json:"host_resources,omitempty"`
	// Fixed values.
	Parameters map[string]any `json:"parameters,omitempty" maxProperties:"256"`
	Enabled    *bool          `json:"enabled,omitempty"` // nil: yes
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
