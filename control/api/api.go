// Package api is the contract of the cloud's API: the OpenAPI document, which is authoritative, and the corresponding
// Go types. The server and its clients share both; tests keep the types equal to the document.
package api

import (
	"croft"
	"croft/control/cloud"
	"croft/hosts"
	"croft/internal/hostkey"
	"croft/internal/redact"
	"croft/schedule"
	"croft/tenant/access"
)

// Cloud is the answer of GET /v1.
type Cloud struct {
	Version  string `json:"version"`  // of croft
	Document string `json:"document"` // SHA-256 of /openapi.json in hexadecimal digits
	Login    *Login `json:"login,omitempty"`
}

// Login is the OpenID Connect issuer whose tokens a cloud accepts.
type Login struct {
	// Its URL.
	Issuer string `json:"issuer"`
	Client string `json:"client"` // the audience that tokens must have
}

// InstanceRequest asks for an instance.
type InstanceRequest struct {
	// The UUID that the instance gets. A random one by default.
	ID croft.InstanceID `json:"id,omitempty" format:"uuid"`
	// Unique in the project, and the guest's host name. vm- and the beginning of the UUID by default.
	Name string `json:"name,omitempty" maxLength:"63" minLength:"1"`
	// What it takes, as `schedule` has it: VCPU:1,MEMORY_MB:256,DISK_GB:1.
	Query string `json:"query" maxLength:"16384" minLength:"1"`
	// A name of the catalog, or a URL with a beginning that listImages gives. Operators may name any, and files on the
	// hosts.
	Image string `json:"image" maxLength:"4096" minLength:"1"`
	// Public SSH keys that may log in, as lines of authorized_keys.
	Keys []string `json:"keys,omitempty" maxItems:"100" maxLength:"16384" minLength:"1"`
	// At most 64 KiB, in base64.
	UserData []byte `json:"user_data,omitempty" maxLength:"87384"`
	// Where it finds its metadata.
	Metadata croft.Metadata `json:"metadata,omitempty" enum:"auto,server,nocloud,config-drive"`
	// Whether the metadata server wants a token.
	IMDS croft.IMDS `json:"imds,omitempty" enum:"optional,required,off"`
	// Readable by the guest.
	Tags map[string]string `json:"tags,omitempty" maxProperties:"256"`
	// When to boot a guest that went off.
	Restart croft.Restart `json:"restart,omitempty" enum:"always,on-failure,never"`
	// Networks of the hosts by name.
	Networks []string `json:"networks,omitempty" maxItems:"16"`
	Open     []string `json:"open,omitempty" maxItems:"32"` // in the syntax of croft.ParseOpenPort
	// It may be recreated on another host.
	Ephemeral bool `json:"ephemeral,omitempty"`
	// The groups that it joins.
	Affinities []croft.Affinity `json:"affinities,omitempty" maxItems:"16"`
	// in the syntax of croft.ParseBound
	In []string `json:"in,omitempty" maxItems:"16" maxLength:"1024" minLength:"1"`
	// in the syntax of objects.ParseFilter
	Where []string `json:"where,omitempty" maxItems:"16" maxLength:"4096" minLength:"1"`
	// The same, none of which may hold.
	WhereNot []string `json:"where_not,omitempty" maxItems:"16" maxLength:"4096" minLength:"1"`
	// in the syntax of croft.ParseNear
	Near []string `json:"near,omitempty" maxItems:"8" maxLength:"300" minLength:"1"`
	// in the syntax of croft.ParseFar
	Far      []string `json:"far,omitempty" maxItems:"8" maxLength:"300" minLength:"1"`
	Distance string   `json:"distance,omitempty" maxLength:"32" minLength:"1"` // the type of these distances
	// seconds after the request; 0: never
	Expires int64 `json:"expires,omitempty" maximum:"315360000" minimum:"0"`
	// Which host with room to take: `spread` the one with the most room, `pack` the one with the least, and
	// `crush:NAME` the first in the order in which the policy of this name gives hosts for the UUID.
	Policy string `json:"policy,omitempty" pattern:"^(spread|pack|crush:[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)$"`
}

// Expiry is the body of keepInstance.
type Expiry struct {
	Expires int64 `json:"expires" maximum:"315360000" minimum:"0"` // seconds from now on; 0: never
}

// ClaimRequest asks for a held claim.
type ClaimRequest struct {
	InstanceRequest
	Image string `json:"image,omitempty" maxLength:"4096" minLength:"1"` // required for the use, if not given here
	Hold  int64  `json:"hold" maximum:"315360000" minimum:"1"`           // seconds after the request
}

// ClaimUse is the body of useClaim. For empty fields, the values of the claim's request apply.
type ClaimUse struct {
	// A name of the catalog, or a URL with a beginning that listImages gives. Operators may name any, and files on the
	// hosts.
	Image string `json:"image,omitempty" maxLength:"4096" minLength:"1"`
	// Public SSH keys that may log in, as lines of authorized_keys.
	Keys []string `json:"keys,omitempty" maxItems:"100" maxLength:"16384" minLength:"1"`
	// At most 64 KiB, in base64.
	UserData []byte `json:"user_data,omitempty" maxLength:"87384"`
	// Where it finds its metadata.
	Metadata croft.Metadata `json:"metadata,omitempty" enum:"auto,server,nocloud,config-drive"`
	// Whether the metadata server wants a token.
	IMDS croft.IMDS `json:"imds,omitempty" enum:"optional,required,off"`
	// Readable by the guest.
	Tags map[string]string `json:"tags,omitempty" maxProperties:"256"`
	// When to boot a guest that went off.
	Restart croft.Restart `json:"restart,omitempty" enum:"always,on-failure,never"`
	Expires int64         `json:"expires,omitempty" maximum:"315360000" minimum:"0"` // seconds after the use; 0: never
}

// Instance is the status of an instance without its secrets, with the fields that people read first.
type Instance struct {
	Name    string `json:"name"`
	State   string `json:"state"`   // schedule.Describe
	Address string `json:"address"` // schedule.Address
	croft.Status
}

// InstanceOf returns a status in the form for all callers: public keys replace private ones, and the address of the
// image has neither password nor signature.
func InstanceOf(st croft.Status) Instance {
	showPublic(&st.Instance.Spec)
	if st.Order != nil {
		o := *st.Order
		showPublic(&o.Spec)
		st.Order = &o
	}
	return Instance{st.Instance.Name, schedule.Describe(&st), schedule.Address(&st), st}
}

func showPublic(s *croft.Spec) {
	s.HostKey, s.ClusterKey = publicKey(s.HostKey), publicKey(s.ClusterKey)
	s.Image = redact.Image(s.Image)
}

// publicKey is empty if the key is missing or invalid.
func publicKey(private string) string {
	public, err := hostkey.Public(private)
	if err != nil {
		return ""
	}
	return public
}

// InstanceList is a page of instances.
type InstanceList struct {
	Instances []Instance `json:"instances"`
	Next      string     `json:"next,omitempty"` // where the next page starts; empty: this is the last page
}

// InProject is the input of operations on a project as a whole.
type InProject struct {
	// Project is the project. Default: the caller's own; for operators who have none, all projects where that makes
	// sense, else the project default.
	Project croft.Project `query:"project" json:"-"`
}

// KeyNamed names a key.
type KeyNamed struct {
	InProject

	Name string `path:"name" json:"-"` // name of the key
}

// NewKey is the input of addKey.
type NewKey struct {
	InProject

	Name string `json:"name" maxLength:"63" minLength:"1"`
	// The key as a line of authorized_keys.
	Line string `json:"line" maxLength:"16384" minLength:"1"`
}

// KeyList has the keys of a project.
type KeyList struct {
	Keys []schedule.Key `json:"keys"`
}

// TokenNamed names an access token.
type TokenNamed struct {
	InProject

	ID string `path:"id" json:"-"` // ID of the token
}

// NewToken is the input of createToken.
type NewToken struct {
	InProject

	// Whom the token stands for.
	User string      `json:"user" maxLength:"255" minLength:"1"`
	Role access.Role `json:"role" enum:"reader,member,project-admin,partition-admin"`
	Note string      `json:"note,omitempty" maxLength:"200"`
	Life string      `json:"life" maxLength:"32"` // a duration, such as 30d or 12h
}

// LogFilter is the input of listActions.
type LogFilter struct {
	InProject

	// KIND/NAME or KIND/ID, such as instance/web
	Object string `query:"object" json:"-" maxLength:"256"`
	User   string `query:"user"   json:"-" maxLength:"256"`                          // user who did it
	Since  string `query:"since"  json:"-" format:"date-time"`                       // earliest time of the request
	After  string `query:"after"  json:"-" maxLength:"256"`                          // field next of the page before
	Limit  int    `query:"limit"  json:"-" minimum:"1" maximum:"5000" default:"500"` // maximum number of entries
}

// TokenList has access tokens without their secrets.
type TokenList struct {
	Tokens []cloud.AccessToken `json:"tokens"`
}

// NewImage is the input of pullImage.
type NewImage struct {
	HostNamed

	Image string `json:"image" maxLength:"4096" minLength:"1"` // as requests name it
}

// Host is a host with its load, for operators.
type Host struct {
	hosts.Host
	Statuses []Instance `json:"statuses,omitempty"` // of its instances; only in the answer about one host
}

// HostList has all hosts.
type HostList struct {
	Hosts    []Host   `json:"hosts"`
	Problems []string `json:"problems,omitempty"` // of the cloud's store, one sentence each
	Error    string   `json:"error,omitempty"`    // the reason why the list is incomplete
}
