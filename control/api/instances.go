package api

import (
	"croft"
	"croft/tenant/objects"
)

// InstanceNamed names an instance.
type InstanceNamed struct {
	ID string `path:"id" json:"-"` // UUID of the instance, or its name

	// Project is the project of the instance. Default: the caller's own; for operators who have none, all projects for
	// a UUID, else the project default.
	Project croft.Project `query:"project" json:"-"`
}

// Waiting is the part of the input of an operation whose answer can wait for the instance.
type Waiting struct {
	// Wait is the state to wait for: the instance runs with an address, has set itself up, is off, or is gone.
	Wait string `query:"wait" json:"-" enum:"running,ready,stopped,gone"`

	// Timeout is the longest wait, such as 30s: more than 0, and 10m at most.
	Timeout Patience `query:"timeout" json:"-" default:"1m"`
}

// InstanceChange is the input of operations that change an instance.
type InstanceChange struct {
	InstanceNamed
	Waiting
}

// InstanceStop is the input of stopInstance.
type InstanceStop struct {
	InstanceChange

	// Force cuts the power at once, without asking the guest to shut down: it may lose what it has not written to its
	// disks yet.
	Force bool `query:"force" json:"-"`
}

// InstanceMove is the input of moveInstance.
type InstanceMove struct {
	InstanceChange

	// Host is the UUID or name of the host to move to; the cloud's choice by default.
	Host string `query:"host" json:"-" maxLength:"256"`
}

// InstanceRemoval is the input of destroyInstance.
type InstanceRemoval struct {
	InstanceChange

	// Force frees the claim and the name at once if the host does not answer, and destroys a member of a cluster. Only
	// operators may use it.
	Force bool `query:"force" json:"-"`
	// Snapshots removes the snapshots of the instance with it. An instance that has some is refused otherwise.
	Snapshots bool `query:"snapshots" json:"-"`
}

// ConsoleLog is the input of getInstanceLog.
type ConsoleLog struct {
	InstanceNamed

	Follow bool `query:"follow" json:"-"` // continue with what the guest writes from now on
}

// Console is the input of attachConsole.
type Console struct {
	InstanceNamed

	TakeOver bool `query:"takeover" json:"-"` // end the attachment of another client
}

// Screen is the input of attachScreen.
type Screen struct {
	InstanceNamed

	TakeOver bool `query:"takeover" json:"-"` // end the attachment of another client
}

// GuestCommand is the input of runCommand.
type GuestCommand struct {
	InstanceNamed

	// Timeout is how long the command may take, such as 30s: more than 0, and 10m at most.
	Timeout Patience `query:"timeout" json:"-" default:"1m"`

	// The program and its arguments. No shell reads them. Each has 64 KiB at most, and all together 128 KiB.
	Command []string `json:"command" maxItems:"1024" maxLength:"65536"`
	// What the program reads from stdin, in base64; nothing by default. At most 256 KiB.
	Stdin []byte `json:"stdin,omitempty" maxLength:"349528"`
}

// CommandResult is the result of runCommand.
type CommandResult struct {
	// The exit code of the command: 127 if the guest has no such program, 128 and the number of the signal that ended
	// it.
	Exit int `json:"exit"`
	// What it wrote to stdout, in base64: the first MiB.
	Stdout []byte `json:"stdout"`
	// What it wrote to stderr, likewise.
	Stderr []byte `json:"stderr"`
	// Whether it wrote more than that to one of both.
	Cut bool `json:"cut"`
	// Whether the guest ended it because its time was over.
	TimedOut bool `json:"timed_out"`
}

// GuestPort is the input of forwardPort.
type GuestPort struct {
	InstanceNamed

	Port int `query:"port" json:"-" minimum:"1" maximum:"65535" default:"22"` // port of the guest
}

// EventPosition is the input of watchEvents.
type EventPosition struct {
	InProject

	// Last is the id of the last event with an id that the client received.
	Last int64 `header:"Last-Event-ID" json:"-" minimum:"1"`
}

// InstanceShown is the input of getInstance.
type InstanceShown struct {
	InstanceNamed

	// Internal adds the field internal. Only operators may use it.
	Internal bool `query:"internal" json:"-"`
}

// InstanceFilter is the input of listInstances.
type InstanceFilter struct {
	InProject
	Filtered
	Page
	Terms

	// The field that the list is sorted by; with - before it, the largest come first. Instances with the same value
	// are in the order of their names.
	Sort string `query:"sort" json:"-" enum:"name,-name,state,-state,address,-address,host,-host,project,-project,resources,-resources,image,-image,created,-created,expires,-expires" default:"name"`
}

// ClaimFilter is the input of listClaims.
type ClaimFilter struct {
	InProject
	Page
	Terms
}

// InstanceRequest asks for an instance.
type InstanceRequest struct {
	// The UUID that the instance gets. A random one by default.
	ID croft.InstanceID `json:"id,omitempty" format:"uuid"`
	// Unique in the project, and the guest's host name. vm- and the beginning of the UUID by default.
	Name string `json:"name,omitempty" maxLength:"63" minLength:"1"`
	// What it takes, as `schedule` has it: VCPU:1,MEMORY_MB:256,DISK_GB:1. With a size, only what its host must have,
	// such as required=HW_CPU_X86_AVX2.
	Query string `json:"query,omitempty" maxLength:"16384" minLength:"1"`
	// Name of the size that says the amounts. Without amounts and a size, it gets the default size of the cloud.
	Size string `json:"size,omitempty" maxLength:"63" minLength:"1"`
	// A name of the catalog, or a URL with a beginning that listImages gives. Operators may name any, and files on the
	// hosts. It may be left out if machine.iso or the network installs one to the empty disk.
	Image string `json:"image,omitempty" maxLength:"4096" minLength:"1"`
	croft.GuestSettings
	croft.InstanceSettings
	// The locations and aggregates that its host has to be in: site1/row2, or in:ssd,nvme for one of several; with ! in
	// front, that it may not be in: !site1 or !in:site1,site2.
	In []string `json:"in,omitempty" maxItems:"16" maxLength:"1024" minLength:"1"`
	// Conditions on the properties and tags of its host, all of which have to hold: disk=ssd, disk=ss* for a beginning,
	// disk alone for any value, tag:quiet. One text may have several, separated by blanks.
	Where []string `json:"where,omitempty" maxItems:"16" maxLength:"4096" minLength:"1"`
	// The same, none of which may hold.
	WhereNot []string `json:"where_not,omitempty" maxItems:"16" maxLength:"4096" minLength:"1"`
	// What its host is to be near to, as NAME for as near as possible, or NAME:DISTANCE for at most so far: db, or
	// db:rack for the same rack, or ssd:3. A name is that of an instance, an aggregate, a host or a location.
	Near []string `json:"near,omitempty" maxItems:"8" maxLength:"300" minLength:"1"`
	// What its host is to be far from, as NAME:DISTANCE for at least so far: db:host for another host, db:rack for
	// another rack, or ssd:3.
	Far      []string `json:"far,omitempty" maxItems:"8" maxLength:"300" minLength:"1"`
	Distance string   `json:"distance,omitempty" maxLength:"32" minLength:"1"` // the type of these distances
	// Volumes of the project to attach. The instance gets a host only where they are.
	Volumes []string `json:"volumes,omitempty" maxItems:"16" maxLength:"63" minLength:"1"`
	// Volumes to create on its host and to attach. They outlive the instance.
	Disks []croft.NewDisk `json:"disks,omitempty" maxItems:"16"`
	// It is neither destroyed, nor is its disk replaced, until changeInstance ends the protection. It cannot expire.
	Protected bool `json:"protected,omitempty"`
	// seconds after the request; 0: never
	Expires int64 `json:"expires,omitempty" maximum:"315360000" minimum:"0"`
	// Which host with room to take: `spread` the one with the most room, `pack` the one with the least, and
	// `crush:NAME` the first in the order in which the policy of this name gives hosts for the UUID.
	Policy string `json:"policy,omitempty" pattern:"^(spread|pack|crush:[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)$"`
}

// NewInstance is the input of createInstance.
type NewInstance struct {
	InProject
	Waiting
	InstanceRequest
}

// Candidates is the input of explainRequest.
type Candidates struct {
	InProject
	InstanceRequest
}

// InstancePatch is the input of changeInstance.
type InstancePatch struct {
	_ struct{} `minProperties:"1"`

	InstanceNamed
	// Base is the version that the change builds on, as the header ETag of getInstance had it; left out: any.
	Base Match `header:"If-Match" json:"-"`

	// Labels to set, by name; null removes one.
	Labels map[string]*objects.Value `json:"labels,omitempty" maxProperties:"64"`
	// Seconds from now on after which it is destroyed; 0: never.
	Expires *int64 `json:"expires,omitempty" maximum:"315360000" minimum:"0"`
	// Whether it is protected: neither destroyed, rebuilt, restored in place nor rolled back, and without an expiry.
	Protected *bool `json:"protected,omitempty"`
}

// Expiry is the input of keepInstance.
type Expiry struct {
	InstanceNamed

	Expires int64 `json:"expires" maximum:"315360000" minimum:"0"` // seconds from now on; 0: never
}

// InstanceSize is the input of resizeInstance.
type InstanceSize struct {
	InstanceChange

	// The new amounts of VCPU, MEMORY_MB or DISK_GB; other classes stay. Left out: those of the size.
	Resources croft.Resources `json:"resources,omitempty" maxProperties:"3" minProperties:"1" minimum:"1"`
	// The name of a size that the instance gets instead.
	Size string `json:"size,omitempty" maxLength:"63"`
}

// ClaimRequest is the input of createClaim.
type ClaimRequest struct {
	InProject
	InstanceRequest

	Image string `json:"image,omitempty" maxLength:"4096" minLength:"1"` // required for the use, if not given here
	Hold  int64  `json:"hold" maximum:"315360000" minimum:"1"`           // seconds after the request
}

// ClaimUse is the input of useClaim. For empty fields, the values of the claim's request apply.
type ClaimUse struct {
	InstanceChange

	// A name of the catalog, or a URL with a beginning that listImages gives. Operators may name any, and files on the
	// hosts.
	Image string `json:"image,omitempty" maxLength:"4096" minLength:"1"`
	croft.GuestSettings
	Expires int64 `json:"expires,omitempty" maximum:"315360000" minimum:"0"` // seconds after the use; 0: never
}

// Change is an instance that changed, in an event. If it is gone, only its UUID, project and name are set.
type Change struct {
	// Revision of the store; several instances may change at one revision.
	Revision int64 `json:"revision"`
	Instance
}

// InstanceList is a page of instances.
type InstanceList struct {
	Instances []Instance `json:"instances"` // by name
	More
}
