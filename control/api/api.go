// Package api is the contract of the cloud's API: the Go types of requests and answers, which the server and its
// clients share. Their tags and comments are the schemas and descriptions of the OpenAPI document.
package api

import (
	"time"

	"croft"
	"croft/hosts"
	"croft/schedule"
	"croft/tenant/access"
)

// Cloud is the answer of GET /v1.
type Cloud struct {
	Version  string `json:"version"`         // version of croft
	Document string `json:"document"`        // SHA-256 of /openapi.json in hexadecimal digits
	Login    *Login `json:"login,omitempty"` // how users log in; left out without an OpenID Connect issuer
}

// Login is the OpenID Connect issuer whose tokens a cloud accepts.
type Login struct {
	// Its URL.
	Issuer string `json:"issuer"`
	Client string `json:"client"` // the audience that tokens must have
}

// InProject is the input of operations on a project as a whole.
type InProject struct {
	// Project is the project. Default: the caller's own; for operators who have none, all projects where that makes
	// sense, else the project default.
	Project croft.Project `query:"project" json:"-"`
}

// Page chooses a page of a list.
type Page struct {
	Limit int    `query:"limit" json:"-" minimum:"1" maximum:"5000" default:"500"` // maximum number of entries
	After string `query:"after" json:"-"`                                          // field next of the page before, or a name
}

// KeyNamed names a key.
type KeyNamed struct {
	InProject

	Name string `path:"name" json:"-"` // name of the key
}

// NewKey is the input of addKey.
type NewKey struct {
	InProject

	Name string `json:"name" maxLength:"63" minLength:"1"` // unique in the project
	// The key as a line of authorized_keys.
	Line string `json:"line" maxLength:"16384" minLength:"1"`
}

// KeyList has the keys of a project.
type KeyList struct {
	Keys []schedule.Key `json:"keys"` // by name
	More
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
	User string      `json:"user" maxLength:"255" minLength:"1" pattern:"^[^\\p{C}\\p{Zl}\\p{Zp}]*$"`
	Role access.Role `json:"role" enum:"reader,member,project-admin,partition-admin"`             // what the token permits
	Note string      `json:"note,omitempty" maxLength:"200" pattern:"^[^\\p{C}\\p{Zl}\\p{Zp}]*$"` // for people
	Life string      `json:"life" maxLength:"32"`                                                 // a duration, such as 30d or 12h
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

// AccessToken is an access token as its creator sees it.
type AccessToken struct {
	ID     access.TokenID `json:"id"`              // its UUID, which is not the token itself
	Secret string         `json:"token,omitempty"` // text to send; known only when the token is created
	User   string         `json:"user"`            // whom its requests are logged for
	// Left out for operators who have none.
	Project   croft.Project `json:"project,omitempty"`
	Roles     []access.Role `json:"roles"`          // what it permits
	Note      string        `json:"note,omitempty"` // for people
	Created   time.Time     `json:"created"`        // when it was made
	CreatedBy string        `json:"created_by"`     // who made it
	Expires   time.Time     `json:"expires"`        // left out: never
}

// TokenList has access tokens without their secrets.
type TokenList struct {
	Tokens []AccessToken `json:"tokens"` // the oldest first
	More
}

// NewImage is the input of pullImage.
type NewImage struct {
	HostNamed
	InProject // whose names of images Image may be

	Image string `json:"image" maxLength:"4096" minLength:"1"` // as requests name it
}

// HostOf returns a host as the API shows it.
func HostOf(h hosts.Host) Host { return Host{Host: h, State: h.State()} }

// Host is a host with its load, for operators.
type Host struct {
	hosts.Host
	State    string     `json:"state"`              // ready, drained or silent
	Statuses []Instance `json:"statuses,omitempty"` // of its instances; only in the answer about one host
}

// HostList has all hosts.
type HostList struct {
	Hosts    []Host   `json:"hosts"`              // by name
	Problems []string `json:"problems,omitempty"` // of the cloud's store, one sentence each
	Error    string   `json:"error,omitempty"`    // the reason why the list is incomplete
	More
}

// Incomplete returns the error for a list that lacks data; nil: it is complete.
func (l HostList) Incomplete() error {
	if l.Error == "" {
		return nil
	}
	return croft.Errorf(croft.Unavailable, "%s", l.Error)
}
