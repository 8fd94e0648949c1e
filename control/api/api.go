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
	Issuer string `json:"issuer"`
	Client string `json:"client"` // the audience that tokens must have
}

// InstanceRequest asks for an instance.
type InstanceRequest struct {
	ID         croft.InstanceID  `json:"id,omitempty"`
	Name       string            `json:"name,omitempty"`
	Query      string            `json:"query"`
	Image      string            `json:"image"`
	Keys       []string          `json:"keys,omitempty"`
	UserData   []byte            `json:"user_data,omitempty"`
	Metadata   croft.Metadata    `json:"metadata,omitempty"`
	IMDS       croft.IMDS        `json:"imds,omitempty"`
	Tags       map[string]string `json:"tags,omitempty"`
	Restart    croft.Restart     `json:"restart,omitempty"`
	Networks   []string          `json:"networks,omitempty"`
	Open       []string          `json:"open,omitempty"` // in the syntax of croft.ParseOpenPort
	Ephemeral  bool              `json:"ephemeral,omitempty"`
	Affinities []croft.Affinity  `json:"affinities,omitempty"`
	In         []string          `json:"in,omitempty"`    // in the syntax of croft.ParseBound
	Where      []string          `json:"where,omitempty"` // in the syntax of objects.ParseFilter
	WhereNot   []string          `json:"where_not,omitempty"`
	Near       []string          `json:"near,omitempty"`     // in the syntax of croft.ParseNear
	Far        []string          `json:"far,omitempty"`      // in the syntax of croft.ParseFar
	Distance   string            `json:"distance,omitempty"` // the type of these distances
	Expires    int64             `json:"expires,omitempty"`  // seconds after the request; 0: never
	Policy     string            `json:"policy,omitempty"`
}

// Expiry is the body of keepInstance.
type Expiry struct {
	Expires int64 `json:"expires"` // seconds from now on; 0: never
}

// ClaimRequest asks for a held claim.
type ClaimRequest struct {
	InstanceRequest
	Image string `json:"image,omitempty"` // required for the use, if not given here
	Hold  int64  `json:"hold"`            // seconds after the request
}

// ClaimUse is the body of useClaim. For empty fields, the values of the claim's request apply.
type ClaimUse struct {
	Image    string            `json:"image,omitempty"`
	Keys     []string          `json:"keys,omitempty"`
	UserData []byte            `json:"user_data,omitempty"`
	Metadata croft.Metadata    `json:"metadata,omitempty"`
	IMDS     croft.IMDS        `json:"imds,omitempty"`
	Tags     map[string]string `json:"tags,omitempty"`
	Restart  croft.Restart     `json:"restart,omitempty"`
	Expires  int64             `json:"expires,omitempty"` // seconds after the use; 0: never
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

	Name string `json:"name"`
	Line string `json:"line"`
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

	User string      `json:"user"`
	Role access.Role `json:"role"`
	Note string      `json:"note,omitempty"`
	Life string      `json:"life"` // a duration, such as 30d or 12h
}

// LogFilter is the input of listActions.
type LogFilter struct {
	InProject

	Object string `query:"object" json:"-" maxLength:"256"`                          // KIND/NAME or KIND/ID, such as instance/web
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

	Image string `json:"image"` // as requests name it
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
