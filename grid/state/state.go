// Package state loads the directory of a cluster: its nodes, its jobs, and which job has which nodes. A State is read
// once and is then only looked at; everything that is wrong in the files is said at once, each with file and line.
//
// It reads through an os.Root, so that no link leads out of the directory, and it starts no program and writes nothing.
package state

import (
	"context"
	"time"

	"croft/crush"
	"croft/grid/unit"
)

// State is the directory of a cluster, loaded. It does not change.
type State struct {
	Dir      string // as given to Load
	Cluster  Cluster
	Settings *Value          // cluster.yaml
	Root     *Bucket         // the directory nodes/
	Buckets  []*Bucket       // all, parents before their children, by path
	Leaves   []*Node         // all, by name
	Jobs     []*Job          // all, by name; templates are not among them
	Policies map[string]File // the rules in policies/, by name
	Orphans  []Slot          // links below alloc/ of jobs that are not there any more
	Warnings []Problem       // what lint tells and nothing else minds
	IDs      IDs
	Roster   []unit.Node // the nodes that have had slots, by name, as roster.yaml says how to reach them

	// Addresses gives the address of a slot whose job asks for one; nil: jobs that ask are errors.
	Addresses func(ctx context.Context, job string, slot int, pool string) (string, error)
}

// Cluster is what cluster.yaml says.
type Cluster struct {
	ID       string        // 32 hexadecimal digits, for ever
	VCS      string        // git, hg or fossil; the name of a hard point
	Runtime  string        // the hard point that runs jobs that name none
	IP       string        // the hard point that gives addresses; empty: itabot
	StateDir string        // of nodes that name none; empty: the node's own default
	Upstream string        // required or optional
	Types    []string      // of buckets, lowest first; the first is that of nodes
	Dial     time.Duration // how long a node may take to answer; 0: the default of who asks
	// Certificate is the program that gets a short-lived ssh certificate: it reads a public key. None: keys do.
	Certificate []string
	Parallel    int // nodes that are worked on at once; 0: the default of who asks
}

// defaultTypes are those of buckets, lowest first.
var defaultTypes = []string{"node", "host", "rack", "site", "root"}

// Bucket is a directory below nodes/.
type Bucket struct {
	Name    string // in the CRUSH map: the directory's, or its path with dots where that is not unique
	Path    string // below the cluster's directory: nodes, nodes/syd
	ID      int    // below 0; 0: none is given yet
	Type    string
	Parent  *Bucket // nil: the root
	Buckets []*Bucket
	Nodes   []*Node
	Values  *Value // inherited, and its own
}

// The states of a node.
const (
	Up          = "up"
	Out         = "out"         // lost: its slots go elsewhere
	Drain       = "drain"       // to be emptied: its slots go elsewhere, and it is still applied to
	Maintenance = "maintenance" // keeps its slots, gets no others, and is not applied to
)

// Node is a leaf below nodes/.
type Node struct {
	Name     string // unique in the cluster
	Path     string // of its file below the cluster's directory: nodes/syd/r1/web1.yaml
	ID       int    // from 0; -1: none is given yet
	State    string
	Weight   crush.Weight
	Local    bool
	Address  string
	IP       string // of the machine, where Address is a name; empty: not given
	User     string
	HostKey  string
	StateDir string
	Facts    map[string]string // a fact that is only named has the value true
	Capacity Amounts
	Parent   *Bucket
	Values   *Value // inherited, and its own, expanded
}

// Amounts are amounts of counted things, in thousandths: of processors for cpu, of bytes for memory.
type Amounts map[string]int64

// Job is what is to run: a file below jobs/, or an instance of a template.
type Job struct {
	Name           string // the path below jobs/, such as web/front@7
	Path           string // of its file or link: jobs/web/front@7.yaml
	Instance       string // 7; empty: no instance
	Want           int    // replicas; with Every it is unused
	Min            int    // at least so many, or nothing is placed
	Every          bool   // one on each node that may have one
	Policy         string // as written; empty: none is
	PolicyAt       Position
	Require, Avoid []string
	Uses           Amounts // of each slot
	Balance        int     // how many candidates are drawn of which the least loaded is taken; 1: the rule's
	Priority       int     // the greatest is placed first
	Exclusive      bool
	MaxUnavailable int // replicas that may be missing while the job is changed; 0: the default of apply
	Canary         int // nodes that are changed first; 0: none
	Confirm        int // seconds in which the operator's machine confirms a change; 0: none is asked for
	Gate           unit.Check
	Slots          []Slot // by number
	Values         *Value // inherited, and its own, not expanded
}

// Slot is a place of a job on a node: a link below alloc/.
type Slot struct {
	Job    string
	Number int    // from 0
	Link   string // alloc/web/front@7/0
	Target string // of the link, below the cluster's directory: nodes/syd/r1/web1.yaml
	Node   *Node  // nil: it is gone
}

// Secrets opens what files of jobs have sealed.
type Secrets interface {
	// Open returns the content of a value that begins with age:, given as it is written. Denied: nobody here may read
	// it.
	Open(ctx context.Context, sealed string) ([]byte, error)
}
