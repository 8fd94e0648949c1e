package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	"croft/grid/unit"
)

// A Desired is the desired state in one revision.
type Desired struct {
	Cluster  string         // the cluster's id
	Revision string         // as in revlock.VCS
	Nodes    []unit.Node    // all nodes of the cluster, in any state
	Jobs     map[string]Job // by path below jobs/
}

// A Job defines how the units of a job are changed.
type Job struct {
	Want, Min      int        // replicas; Min 0: Want - MaxUnavailable
	MaxUnavailable int        // units of the job that may be unavailable at once; 0: 1
	Canary         int        // units that are changed in a first batch of their own; 0: none
	Gate           unit.Check // the check after each batch
}

// Floor returns how many units of a job must be running at any time during a change. The only unit of a job with one
// replica may be unavailable while it is replaced.
func (j Job) Floor() int {
	floor := j.Want - max(1, j.MaxUnavailable)
	if j.MaxUnavailable == 0 && j.Min > 0 && j.Min < j.Want {
		floor = j.Min
	}
	return max(0, floor)
}

// Batch returns how many units may be replaced at once.
func (j Job) Batch() int { return max(1, j.Want-j.Floor()) }

// Document returns the record that a node stores when a change is done: the node with its units, without the contents
// of secrets.
func Document(n unit.Node) []byte {
	n.Units = slices.Clone(n.Units)
	for i := range n.Units {
		files := slices.Clone(n.Units[i].Files)
		for k := range files {
			if files[k].Secret {
				files[k].Content = ""
			}
		}
		n.Units[i].Files = files
	}
	text, err := json.Marshal(n)
	if err != nil {
		panic(err) // every field can be encoded
	}
	return text
}

// An Observed is the observed state of a node.
type Observed struct {
	Node     string     `json:"node"`
	Error    string     `json:"error,omitempty"` // why the node was not observed, such as a failed connection
	Revision string     `json:"revision,omitempty"`
	Epoch    int64      `json:"epoch"`
	Phase    string     `json:"phase,omitempty"` // as in revlock.Phase
	With     []string   `json:"with,omitempty"`  // the nodes of an interrupted change
	Applied  *unit.Node `json:"-"`               // the stored Document; nil: none
	Firewall string     `json:"-"`               // the listing of the node's table
	Units    []Actual   `json:"units"`           // sorted by name
	Holders  []string   `json:"holders,omitempty"`
	Boot     string     `json:"boot,omitempty"`
	// Unwatched lists changes that were not confirmed, and that the node no longer reverts itself because it restarted.
	Unwatched []string `json:"unwatched,omitempty"`
}

// Digest returns a hash that is equal for two observations if both lead to the same change.
func (o Observed) Digest() string {
	o.Holders, o.Boot = nil, ""
	o.Units = slices.Clone(o.Units)
	for i := range o.Units {
		o.Units[i].Status = "" // may contain a time, such as "up 3 hours"
	}
	h := sha256.New()
	e := json.NewEncoder(h)
	_ = e.Encode(o)
	_ = e.Encode(o.Applied)
	_ = e.Encode(o.Firewall)
	return hex.EncodeToString(h.Sum(nil))
}

// whole reports whether the last change of the node was completed.
func (o Observed) whole() bool { return o.Phase == "done" }

func (o Observed) unit(name string) *Actual {
	for i := range o.Units {
		if o.Units[i].Name == name {
			return &o.Units[i]
		}
	}
	return nil
}

// applied returns the unit in the stored Document, or nil.
func (o Observed) applied(name string) *unit.Unit {
	if o.Applied != nil {
		for i := range o.Applied.Units {
			if o.Applied.Units[i].Name() == name {
				return &o.Applied.Units[i]
			}
		}
	}
	return nil
}
