// Package actions is the action log of the cloud: who did what to which thing, when, from where, and with what
// result. A Recorder takes entries without waiting, and writes many of them at once; the log is kept within Bounds, of
// which no project takes the share of another.
package actions

import (
	"context"
	"strings"
	"time"
	"unicode"

	"croft"
	"croft/access"
	"croft/internal/nearest"
)

// Entry is one action, done or refused.
type Entry struct {
	Time      time.Time     `json:"time"`      // when it was asked for
	Operation string        `json:"operation"` // as the API's document names it
	User      string        `json:"user"`
	Operator  bool          `json:"operator,omitempty"` // the user operates the cloud
	Via       string        `json:"via,omitempty"`      // how the user was recognized
	From      string        `json:"from,omitempty"`     // address or machine
	Project   croft.Project `json:"project,omitempty"`  // in whose log it is; empty: in that of the cloud, for operators
	Object    Object        `json:"object"`
	Result    string        `json:"result"`           // Done, or the code of the refusal
	Missed    int           `json:"missed,omitempty"` // entries of the project before this one that could not be kept
}

// InstanceLost is the operation of an entry about each instance that was lost with its host, in the log of its project.
// It is no operation of the API: forgetHost is, which is about the host.
const InstanceLost = "loseInstance"

// Done is the result of what was done, or ordered.
const Done = "done"

// Refused reports whether nothing was done, for a reason that the answer named. What a server could not find out, since
// etcd or another cloud did not answer, is no refusal.
func (e Entry) Refused() bool {
	return e.Result != Done && !strings.HasPrefix(e.Result, "backend") && !strings.HasPrefix(e.Result, "internal")
}

// Object is what an action is about. ID and name are empty where they are not known.
type Object struct {
	Kind Kind   `json:"kind"`
	ID   string `json:"id,omitempty"`
	Name string `json:"name,omitempty"`
	For  string `json:"for,omitempty"` // the user whom a token stands for
}

// Kind is a kind of object, in the singular.
type Kind string

// The kinds that more than one room names.
const (
	Instance   Kind = "instance"
	Host       Kind = "host"
	Aggregate  Kind = "aggregate"
	Distances  Kind = "distance" // by type
	Policy     Kind = "policy"   // of CRUSH
	Project    Kind = "project"
	Quota      Kind = "quota" // the default one
	Token      Kind = "token"
	Invitation Kind = "invitation" // for a machine that is to be a host
	Ticket     Kind = "ticket"     // its name is its number
	Cluster    Kind = "cluster"
	Site       Kind = "site" // where clusters are built
	Credential Kind = "credential"
	Appliance  Kind = "appliance"
	Image      Kind = "image" // for sites
)

// kinds are those that filters may name.
var kinds = []string{string(Instance), "key", string(Project), string(Quota), string(Token), string(Host),
	string(Aggregate), string(Distances), string(Policy), string(Invitation), string(Ticket),
	string(Cluster), string(Site), string(Credential), string(Appliance), string(Image)}

// DistancesOf are the distances of a type. What is no name of a type is left out.
func DistancesOf(kind string) Object {
	if croft.CheckDistanceType(kind) != nil {
		kind = ""
	}
	return Object{Kind: Distances, Name: kind}
}

// PolicyNamed is the policy of a name. What is no name of a policy is left out.
func PolicyNamed(name string) Object {
	if croft.CheckPolicyName(name) != nil {
		name = ""
	}
	return Object{Kind: Policy, Name: name}
}

// ParseObject reads KIND/NAME or KIND/ID; a name alone is that of an instance. Invalid.
func ParseObject(text string) (Object, error) {
	kind, name, ok := strings.Cut(text, "/")
	if !ok {
		kind, name = string(Instance), text
	}
	switch {
	case name == "" || len(name) > longest:
		return Object{}, croft.Errorf(croft.Invalid, "%.80q names no object: write KIND/NAME, such as instance/web", text)
	case kind == "" || strings.Trim(kind, "abcdefghijklmnopqrstuvwxyz-") != "":
		return Object{}, croft.Errorf(croft.Invalid, "%.80q is no kind of object: write KIND/NAME, such as instance/web%s",
			kind, nearest.Hint(kind, kinds))
	}
	return Object{Kind: Kind(kind), Name: name}, nil
}

// TokenNamed is the token with this ID. What is no ID may be a whole token, and is left out.
func TokenNamed(id string) Object {
	if access.TokenID(id).Check() != nil {
		id = ""
	}
	return Object{Kind: Token, ID: id}
}

// String is the form that ParseObject reads.
func (o Object) String() string {
	name := o.Name
	if name == "" {
		name = o.ID
	}
	return strings.TrimSuffix(string(o.Kind)+"/"+name, "/")
}

// is reports whether an object is the one that a filter names, by its ID or its name.
func (o Object) is(wanted Object) bool {
	return o.Kind == wanted.Kind && (o.ID == wanted.Name || o.Name == wanted.Name)
}

// longest bounds each word of an entry, in bytes: refused requests may name anything.
const longest = 128

// bounded returns an entry of bounded size, in printable characters. What a project cannot be called is in the log of
// the cloud.
func (e Entry) bounded() Entry {
	for _, word := range []*string{&e.Operation, &e.User, &e.Via, &e.From, (*string)(&e.Project),
		(*string)(&e.Object.Kind), &e.Object.ID, &e.Object.Name, &e.Object.For, &e.Result} {
		*word = clean(*word)
	}
	if e.Project.Check() != nil { // or is empty
		e.Project = ""
	}
	e.Time = e.Time.UTC()
	return e
}

func clean(word string) string {
	cut := len(word) > longest
	word = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(word[:min(len(word), longest)], "?"))
	if cut {
		word += "..."
	}
	return word
}

// Filter chooses entries.
type Filter struct {
	Project croft.Project // in whose log they are; empty: any that the caller sees
	Object  Object        // its name may be an ID; empty: any
	User    string        // empty: any
	Since   time.Time
	Limit   int    // the most to return; DefaultLimit by default
	After   string // Next of another page; empty: from the newest entry on
}

// How many entries a page has.
const (
	DefaultLimit = 500
	MostLimit    = 5000
)

// Has reports whether the filter chooses an entry, apart from its project.
func (f Filter) Has(e Entry) bool {
	return (f.Object == Object{} || e.Object.is(f.Object)) && (f.User == "" || e.User == f.User) &&
		!e.Time.Before(f.Since)
}

// Page is a part of the log, newest entries first.
type Page struct {
	Entries []Entry `json:"entries"`
	Next    string  `json:"next,omitempty"` // where the next page begins; empty: there is no older entry
}

// Store keeps the log.
type Store interface {
	// Append writes a batch. It may be repeated with the same batch, which is then in the log once. Unavailable.
	Append(ctx context.Context, b Batch) error
	// List returns a page of what is within a scope. The log of the cloud is within the scope of operators alone. What
	// was done before a project of the same name was removed is seen by operators alone too. Invalid: After is no
	// Next of a page.
	List(ctx context.Context, scope access.Scope, f Filter) (Page, error)
	// Trim removes what is over the bounds: in the logs of these projects, or in all and in their sum.
	Trim(ctx context.Context, now time.Time, projects ...croft.Project) error
}
