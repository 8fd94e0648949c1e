package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	"croft/grid/unit"
)

// A Desired is what one revision says.
type Desired struct {
	Cluster  string         // its id
	Revision string         // as of revlock.VCS
	Nodes    []unit.Node    // every node of the cluster, whatever its state
	Jobs     map[string]Job // by path below jobs/
}

// A Job says how the units of a job are changed.
type Job struct {
	Want, Min      int        // replicas; Min 0: Want - MaxUnavailable
	MaxUnavailable int        // units of the job that may be away at once; 0: 1
	Canary         int        // units that are changed first and alone; 0: none
	Gate           unit.Check // asked after each batch
}

// Floor is how many units of a job must be running at any time of a change. A job of one replica may be away while it
// is replaced.
func (j Job) Floor() int {
	floor := j.Want - max(1, j.MaxUnavailable)
	if j.MaxUnavailable == 0 && j.Min > 0 && j.Min < j.Want {
		floor = j.Min
	}
	return max(0, floor)
}

// Batch is how many units may be replaced at once.
func (j Job) Batch() int { return max(1, j.Want-j.Floor()) }

// Document is what a node stores once a change is done: what it runs, without the contents of secrets.
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
		panic(err) // every field has a form
	}
	return text
}

// An Observed is what was found on a node.
type Observed struct {
	Node     string     `json:"node"`
	Error    string     `json:"error,omitempty"` // why nothing was found: the node does not answer, say
	Revision string     `json:"revision,omitempty"`
	Epoch    int64      `json:"epoch"`
	Phase    string     `json:"phase,omitempty"` // as revlock.Phase
	With     []string   `json:"with,omitempty"`  // the nodes of an interrupted change
	Applied  *unit.Node `json:"-"`               // its stored Document; nil: none
	Firewall string     `json:"-"`               // the listing of its table
	Units    []Actual   `json:"units"`           // sorted by name
	Holders  []string   `json:"holders,omitempty"`
	Boot     string     `json:"boot,omitempty"`
	// Unwatched are changes that nobody confirmed and the node does not take back by itself any more: it restarted.
	Unwatched []string `json:"unwatched,omitempty"`
}

// Digest says whether two observations would lead to the same change.
func (o Observed) Digest() string {
	o.Holders, o.Boot = nil, ""
	o.Units = slices.Clone(o.Units)
	for i := range o.Units {
		o.Units[i].Status = "" // a runtime may say since when
	}
	h := sha256.New()
	e := json.NewEncoder(h)
	_ = e.Encode(o)
	_ = e.Encode(o.Applied)
	_ = e.Encode(o.Firewall)
	return hex.EncodeToString(h.Sum(nil))
}

// whole says that the last change of the node ended as it should.
func (o Observed) whole() bool { return o.Phase == "done" }

func (o Observed) unit(name string) *Actual {
	for i := range o.Units {
		if o.Units[i].Name == name {
			return &o.Units[i]
		}
	}
	return nil
}

// applied is the unit as it was applied; nil: not known.
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
