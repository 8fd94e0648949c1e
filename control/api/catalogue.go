package api

import (
	"maps"
	"slices"
	"strings"

	"croft"
	"croft/tenant"
)

// ResourceType is a class of resources.
type ResourceType struct {
	Name   croft.ResourceClass `json:"name"`   // such as VCPU or CUSTOM_GPU
	Custom bool                `json:"custom"` // defined by this cloud, not in OpenStack's list
}

// ResourceTypeList has all classes of resources.
type ResourceTypeList struct {
	ResourceTypes []ResourceType `json:"resource_types"` // by name
	More
}

// ResourceTypesOf returns classes as the API shows them.
func ResourceTypesOf(all []croft.ResourceClass) ResourceTypeList {
	list := ResourceTypeList{ResourceTypes: []ResourceType{}}
	for _, c := range all {
		list.ResourceTypes = append(list.ResourceTypes, ResourceType{c, strings.HasPrefix(string(c),
			croft.CustomPrefix)})
	}
	return list
}

// Capability is a trait.
type Capability struct {
	Name   croft.Trait `json:"name"`   // such as CUSTOM_SSD
	Custom bool        `json:"custom"` // defined by this cloud, not in OpenStack's list
}

// CapabilityNamed names a capability.
type CapabilityNamed struct {
	Name croft.Trait `path:"name" json:"-"` // name, which starts with CUSTOM_
}

// CapabilityOf returns a trait as the API shows it.
func CapabilityOf(t croft.Trait) Capability {
	return Capability{t, strings.HasPrefix(string(t), croft.CustomPrefix)}
}

// CapabilityList has traits by name.
type CapabilityList struct {
	Capabilities []Capability `json:"capabilities"` // by name
	More
}

// CapabilitiesOf returns traits as the API shows them.
func CapabilitiesOf(all []croft.Trait) CapabilityList {
	list := CapabilityList{Capabilities: []Capability{}}
	for _, t := range all {
		list.Capabilities = append(list.Capabilities, CapabilityOf(t))
	}
	return list
}

// Inventory is the amount of a resource class that a host offers, and the amount that is claimed.
type Inventory struct {
	ResourceType croft.ResourceClass `json:"resource_type"` // such as VCPU
	croft.Inventory
	Capacity int64 `json:"capacity"` // the amount that may be claimed in total
	// The claimed amount.
	Used int64 `json:"used"`
}

// InventoryList has the inventories of a host by class.
type InventoryList struct {
	Host        croft.HostID `json:"host" format:"uuid"` // its UUID
	Name        string       `json:"name"`               // name of the host
	Inventories []Inventory  `json:"inventories"`        // by resource type
}

// InventoriesOf returns the inventories of a provider as the API shows them.
func InventoriesOf(p croft.Provider) InventoryList {
	list := InventoryList{p.ID, p.Name, []Inventory{}}
	for _, class := range slices.Sorted(maps.Keys(p.Inventories)) {
		i := p.Inventories[class]
		list.Inventories = append(list.Inventories, Inventory{class, i, i.Capacity(), p.Used[class]})
	}
	return list
}

// UserList has the users that the caller sees.
type UserList struct {
	Users []tenant.User `json:"users"` // by name
	More
}
