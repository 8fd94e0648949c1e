// Package actions is the action log of the cloud: which user did what to which object, when, from where, and with which
// result. A Recorder accepts entries without blocking, and writes them in batches; the log is kept within bounds, in
// which no project takes the share of another.
package actions

import (
	"context"
	"strings"
	"time"
	"unicode"

	"croft"
	"croft/internal/nearest"
	"croft/tenant/access"
)

// Entry is one action, completed or refused.
type Entry struct {
	Time      time.Time `json:"time"`               // time of the request
	Operation string    `json:"operation"`          // operationId in the API's document
	User      string    `json:"user"`               // who did it
	Operator  bool      `json:"operator,omitempty"` // the user is an operator
	Via       string    `json:"via,omitempty"`      // the user's credentials
	From      string    `json:"from,omitempty"`     // address or machine
	// project of the log that it belongs to; empty: the log of the cloud, for operators
	Project croft.Project `json:"project,omitempty"`
	Object  Object        `json:"object"` // what it was done to
	Result  string        `json:"result"` // Done, or the code of the refusal
	// number of earlier entries of the project that were dropped just before this one
	Missed int `json:"missed,omitempty"`
}

// InstanceLost is the operation of an entry about an instance that was lost with its host, in the log of its project.
// It is not an operation of the API; those are forgetHost and fenceHost, which concern the host.
const InstanceLost = "loseInstance"

// SignerAdded is the operation of an entry about a key with which a server of the API signs for peers. The root of the
// server's machine made the key in its state directory, so the entry has the machine's name as its source.
const SignerAdded = "addSigner"

// Done is the result of an action that was completed, or ordered.
const Done = "done"

// Refused reports whether nothing was done, for a reason that the answer named. A failure of the server, because etcd
// or another cloud did not answer, is not a refusal.
func (e Entry) Refused() bool {
	return e.Result != Done && !strings.HasPrefix(e.Result, "backend") && !strings.HasPrefix(e.Result, "internal")
}

// Object is the object of an action. Unknown IDs and names are empty.
type Object struct {
	// Such as instance, key, project or token.
	Kind Kind   `json:"kind"`
	ID   string `json:"id,omitempty"`   // its UUID, if it has one
	Name string `json:"name,omitempty"` // its name, if it has one
	For  string `json:"for,omitempty"`  // the user that a token stands for
}

// Kind is a kind of object, in the singular.
type Kind string

// The kinds that several packages use.
const (
	Instance   Kind = "instance"
	Host       Kind = "host"
	Aggregate  Kind = "aggregate"
	Distances  Kind = "distance" // all distances of a type
	Policy     Kind = "policy"   // of CRUSH
	Size       Kind = "size"     // of instances
	Project    Kind = "project"
	Quota      Kind = "quota" // the default one
	Token      Kind = "token"
	Invitation Kind = "invitation" // for a machine that is to become a host
	Ticket     Kind = "ticket"     // named by its number
	Pool       Kind = "pool"
	Cluster    Kind = "cluster"
	Site       Kind = "site" // site of clusters
	Credential Kind = "credential"
	Appliance  Kind = "appliance"
	Volume     Kind = "volume"
	Backup     Kind = "backup"
	// where backups are kept, and when they are made
	BackupStore    Kind = "backup-store"
	BackupSchedule Kind = "backup-schedule"
	Image          Kind = "image" // for sites, or with properties
	Group          Kind = "group"
	Definition     Kind = "definition" // named by the kind whose properties it governs
	Partition      Kind = "partition"
	Signer         Kind = "signer" // a key with which this cloud signs for its peers
)

// kinds lists the kinds for filters.
var kinds = []string{string(Instance), "key", string(Project), string(Quota), string(Token), string(Host),
	string(Aggregate), string(Distances), string(Policy), string(Size), string(Invitation), string(Ticket),
	string(Pool),
	string(Cluster), string(Site), string(Credential), string(Appliance), string(Image), string(Volume), string(Backup),
	string(BackupStore), string(BackupSchedule), string(Group),
	string(Definition), string(Partition), string(Signer)}

// DistancesOf returns the object for the distances of a type. An invalid type is left out.
func DistancesOf(kind string) Object {
	if croft.CheckDistanceType(kind) != nil {
		kind = ""
	}
	return Object{Kind: Distances, Name: kind}
}

// PolicyNamed returns the object for a policy. An invalid name is left out.
func PolicyNamed(name string) Object {
	if croft.CheckPolicyName(name) != nil {
		name = ""
	}
	return Object{Kind: Policy, Name: name}
}

// ParseObject parses KIND/NAME or KIND/ID; a name alone means an instance. Invalid.
func ParseObject(text string) (Object, error) {
	kind, name, ok := strings.Cut(text, "/")
	if !ok {
		kind, name = string(Instance), text
	}
	switch {
	case name == "" || len(name) > longest:
		return Object{}, croft.Errorf(croft.Invalid, "%.80q names no object: write KIND/NAME, such as instance/web",
			text)
	case kind == "" || strings.Trim(kind, "abcdefghijklmnopqrstuvwxyz-") != "":
		return Object{}, croft.Errorf(croft.Invalid, "%.80q is no kind of object: write KIND/NAME, such as "+
			"instance/web%s",
			kind, nearest.Hint(kind, kinds))
	}
	return Object{Kind: Kind(kind), Name: name}, nil
}

// TokenNamed returns the object for the token with an ID. An invalid ID may be a complete token, and is left out.
func TokenNamed(id string) Object {
	if access.TokenID(id).Check() != nil {
		id = ""
	}
	return Object{Kind: Token, ID: id}
}

// String returns the form that ParseObject parses.
func (o Object) String() string {
	name := o.Name
	if name == "" {
		name = o.ID
	}
	return strings.TrimSuffix(string(o.Kind)+"/"+name, "/")
}

// is reports whether an object is the one that a filter names, by ID or name.
func (o Object) is(wanted Object) bool {
	return o.Kind == wanted.Kind && (o.ID == wanted.Name || o.Name == wanted.Name)
}

// longest bounds each word of an entry, in bytes: refused requests may contain anything.
const longest = 128

// bounded returns an entry of bounded size, in printable characters. An entry with an invalid project goes to the log
// of the cloud.
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

// Filter selects entries.
type Filter struct {
	Project croft.Project // project of their log; empty: any that the caller sees
	Object  Object        // its name may be an ID; empty: any
	User    string        // empty: any
	Since   time.Time
	Limit   int    // maximum number of entries; DefaultLimit by default
	After   string // Next of the previous page; empty: start at the newest entry
}

// Bounds of the size of a page.
const (
	DefaultLimit = 500
	MostLimit    = 5000
)

// Has reports whether the filter selects an entry, without regard to its project.
func (f Filter) Has(e Entry) bool {
	return (f.Object == Object{} || e.Object.is(f.Object)) && (f.User == "" || e.User == f.User) &&
		!e.Time.Before(f.Since)
}

// Page is a part of the log, newest entries first.
type Page struct {
	Entries []Entry `json:"entries"`        // the newest first
	Next    string  `json:"next,omitempty"` // start of the next page; empty: there are no older entries
}

// Store stores the log.
type Store interface {
	// Append writes a batch. It may be repeated with the same batch, which is then in the log once. Unavailable.
	Append(ctx context.Context, b Batch) error
	// List returns a page of the entries within a scope. Only the scope of operators includes the log of the cloud, and
	// entries from before a project of the same name was removed. Invalid: After is not the Next of a page.
	List(ctx context.Context, scope access.Scope, f Filter) (Page, error)
	// Trim removes entries beyond the bounds: in the logs of these projects, or, if none is given, in all logs and in
	// total.
	Trim(ctx context.Context, now time.Time, projects ...croft.Project) error
}
