// Package federation exchanges records between partitions. An export is one consistent snapshot of the home partition,
// without tokens, user-data, private keys and other secrets. An import makes another partition's export visible here:
// completely or not at all, only the newest one, and read-only. Nothing is scheduled on imported hosts, and imported
// names and IDs never conflict with names and IDs of home, since they are stored under the key of their own partition.
// Home exchanges requests with peers: it knows their endpoints, their keys, and the rights of their users here.
package federation

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"croft"
	"croft/internal/lazyregexp"
	"croft/internal/redact"
)

// Partition is a known partition: home, an imported one, or a peer.
type Partition struct {
	ID    croft.PartitionID `json:"id" format:"uuid"` // its UUID
	Alias string            `json:"alias"`            // its unique name here; other clouds may use another one
	// This cloud.
	Home     bool      `json:"home"`
	Imported *Imported `json:"imported,omitempty"` // nil: nothing was imported
	Peer     *Peer     `json:"peer,omitempty"`     // nil: it is not a peer
}

// Imported describes the visible export of a partition.
type Imported struct {
	Revision int64        `json:"revision"` // of the partition's etcd
	Exported time.Time    `json:"exported"` // when the export was made
	At       time.Time    `json:"at"`       // when it was imported
	Rows     map[Kind]int `json:"rows"`     // number of rows of each kind
}

// HomeAlias is the alias of the home partition.
const HomeAlias = "home"

// aliasForm matches aliases, which are safe on terminals and in URLs.
var aliasForm = lazyregexp.New(`^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$`)

// CheckAlias validates an alias. Invalid.
func CheckAlias(alias string) error {
	if !aliasForm.MatchString(alias) {
		return croft.Errorf(croft.Invalid, "%.80q is not an alias of a partition: use 1 to 63 lower-case letters, digits, "+
			"dots and dashes, beginning and ending with a letter or digit", alias)
	}
	if alias == HomeAlias {
		return croft.Errorf(croft.Invalid, "the alias %s is this installation's own partition: choose another", alias)
	}
	if _, err := uuid.Parse(alias); err == nil {
		return croft.Errorf(croft.Invalid, "%s is a UUID, which cannot be an alias: choose another", alias)
	}
	return nil
}

// Called returns a partition by ID or alias. NotFound.
func Called(all []Partition, idOrAlias string) (Partition, error) {
	i := slices.IndexFunc(all, func(p Partition) bool { return string(p.ID) == idOrAlias || p.Alias == idOrAlias })
	if i < 0 {
		return Partition{}, croft.Errorf(croft.NotFound, "there is no partition %.80q; `croft partition list` shows all",
			idOrAlias)
	}
	return all[i], nil
}

// settle returns the record of a partition after an import. current is nil if nothing was imported yet. Conflict:
// something newer is visible, or the alias is taken.
func settle(h Header, rows map[Kind]int, alias string, others []Partition, current *Partition) (Partition, error) {
	p := Partition{ID: h.Partition, Imported: &Imported{Revision: h.Revision, Exported: h.Time,
		At: time.Now().UTC().Truncate(time.Second), Rows: rows}}
	if current != nil {
		p.Alias, p.Peer = current.Alias, current.Peer
		if err := newer(h, current.Imported); err != nil {
			return p, err
		}
	}
	taken := func(name string) bool {
		return name == HomeAlias || slices.ContainsFunc(others, func(o Partition) bool { return o.Alias == name })
	}
	switch {
	case p.Peer != nil && alias != "" && alias != p.Alias: // users address the peer by its alias
		return p, croft.Errorf(croft.Conflict,
			"the partition is the peer %s here: change its alias by `croft partition "+
				"peer add --alias`", p.Alias)
	case alias != "" && taken(alias):
		return p, croft.Errorf(croft.Conflict, "another partition has the alias %s here: give one that is free with --as",
			alias)
	case alias != "":
		p.Alias = alias
	case p.Alias == "":
		p.Alias = free(h.alias(), taken)
	}
	return p, nil
}

// newer rejects an export that is older than the visible one. Conflict.
func newer(h Header, shown *Imported) error {
	if shown != nil && h.Revision < shown.Revision {
		return croft.Errorf(croft.Conflict, "the file is of revision %d of partition %s, and revision %d was imported "+
			"already: export again; if that partition was restored from a backup, `croft partition remove` it first",
			h.Revision, h.Partition, shown.Revision)
	}
	return nil
}

// free returns a name that is not taken: name itself, or name with a number.
func free(name string, taken func(string) bool) string {
	candidate := name
	for n := 2; taken(candidate); n++ {
		candidate = fmt.Sprintf("%.58s-%d", name, n)
	}
	return candidate
}

// Kind is a kind of row in an export.
type Kind string

// The kinds, in the order of an export.
const (
	KindHost       Kind = "host"
	KindProvider   Kind = "provider"
	KindAggregate  Kind = "aggregate"
	KindDistance   Kind = "distance"
	KindQuota      Kind = "quota"
	KindProject    Kind = "project"
	KindDefinition Kind = "definition"
	KindObject     Kind = "object"
	KindInstance   Kind = "instance"
)

// Kinds lists all kinds.
var Kinds = []Kind{KindHost, KindProvider, KindAggregate, KindDistance, KindQuota, KindProject, KindDefinition,
	KindObject, KindInstance}

// Row is one record in an export.
type Row struct {
	Kind Kind            `json:"kind"`
	Row  json.RawMessage `json:"row"`
}

// Host is a host, without its addresses and its token.
type Host struct {
	ID       croft.HostID `json:"id"`
	Name     string       `json:"name"`
	Location string       `json:"location,omitempty"`
	Version  string       `json:"version,omitempty"`
	VirtType string       `json:"virt_type,omitempty"`
	Drained  bool         `json:"drained,omitempty"`
}

// HostOf returns the exported fields of a host.
func HostOf(h croft.Host) Host {
	return Host{ID: h.ID, Name: h.Name, Location: h.Location, Version: h.Version, VirtType: h.VirtType,
		Drained: h.Drained}
}

// Provider is a resource provider of Placement.
type Provider struct {
	ID          croft.HostID                            `json:"id"`
	Name        string                                  `json:"name"`
	Root        croft.HostID                            `json:"root,omitempty"` // empty: itself
	Inventories map[croft.ResourceClass]croft.Inventory `json:"inventories,omitempty"`
	Traits      []croft.Trait                           `json:"traits,omitempty"`
	Aggregates  []string                                `json:"aggregates,omitempty"` // UUIDs
}

// Distance is a distance that an operator set.
type Distance struct {
	Type string `json:"type"`
	croft.Distance
}

// Instance is an instance, without the data for its guest: user-data, keys and tags.
type Instance struct {
	ID         croft.InstanceID `json:"id"`
	Project    croft.Project    `json:"project"`
	Name       string           `json:"name"`
	State      croft.State      `json:"state"`
	Host       croft.HostID     `json:"host,omitempty"`
	Generation int64            `json:"generation"`
	Resources  croft.Resources  `json:"resources,omitempty"`
	Image      string           `json:"image,omitempty"` // without credentials
	Ephemeral  bool             `json:"ephemeral,omitempty"`
	Affinities []croft.Affinity `json:"affinities,omitempty"`
	Created    time.Time        `json:"created"`
	Expires    time.Time        `json:"expires,omitzero"`
}

// InstanceOf returns the exported fields of an instance.
func InstanceOf(i croft.Instance) Instance {
	return Instance{ID: i.ID, Project: i.Project, Name: i.Name, State: i.State, Host: i.Host, Generation: i.Generation,
		Resources: i.Spec.Resources, Image: redact.Image(i.Spec.Image), Ephemeral: i.Spec.Ephemeral,
		Affinities: i.Spec.Affinities, Created: i.Created, Expires: i.Expires}
}
