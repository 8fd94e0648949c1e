// Package state loads the directory of a cluster: its nodes, its jobs, and the assignment of jobs to nodes. A State is
// read once and does not change. Load reports all mistakes in the files at once, each with file and line.
//
// It reads through an os.Root, so no link leads out of the directory. It starts no program and writes nothing.
package state

import (
	"context"
	"time"

	"croft/crush"
	"croft/grid/unit"
)

// State is the loaded directory of a cluster. It does not change.
type State struct {
	Dir      string // as given to Load
	Cluster  Cluster
	Settings *Value          // the values of cluster.yaml
	Root     *Bucket         // the directory nodes/
	Buckets  []*Bucket       // all buckets, parents before their children, by path
	Leaves   []*Node         // all nodes, by name
	Jobs     []*Job          // all jobs, by name, without templates
	Policies map[string]File // the rules in policies/, by name
	Orphans  []Slot          // links below alloc/ of jobs that no longer exist
	Warnings []Problem       // problems that only lint reports
	IDs      IDs
	Roster   []unit.Node // the nodes that have had slots, by name, with the connection data of roster.yaml

	// Addresses returns the address of a slot whose job asks for one; nil: a job that asks for one is an error.
	Addresses func(ctx context.Context, job string, slot int, pool string) (string, error)
}

// Cluster is the content of cluster.yaml.
type Cluster struct {
	ID       string        // 32 hexadecimal digits; never changes
	VCS      string        // git, hg or fossil; the name of a hard point
	Runtime  string        // the hard point that runs jobs which name none
	IP       string        // the hard point that allocates addresses; empty: itabot
	StateDir string        // the state directory of nodes that name none; empty: each node's own default
	Upstream string        // required or optional
	Types    []string      // of buckets, lowest first; the first is the type of nodes
	Dial     time.Duration // timeout of connecting to a node; 0: the caller's default
	// Certificate is a program that reads a public key and prints a short-lived SSH certificate. Empty: SSH keys are
	// used.
	Certificate []string
	Parallel    int // number of nodes to work on at once; 0: the caller's default
}

// defaultTypes are the default types of buckets, lowest first.
var defaultTypes = []string{"node", "host", "rack", "site", "root"}

// Bucket is a directory below nodes/.
type Bucket struct {
	Name    string // in the CRUSH map: the directory's name, or its path with dots if the name is not unique
	Path    string // relative to the cluster's directory: nodes, nodes/syd
	ID      int    // less than 0; 0: no id was given yet
	Type    string
	Parent  *Bucket // nil: the root
	Buckets []*Bucket
	Nodes   []*Node
	Values  *Value // inherited and own values
}

// The states of a node.
const (
	Up  = "up"
	Out = "out" // the node is lost: its slots move to other nodes
	// the node is being emptied: its slots move to other nodes, and changes are still applied to it
	Drain       = "drain"
	Maintenance = "maintenance" // the node keeps its slots, gets no new ones, and no changes are applied to it
)

// Node is a leaf below nodes/.
type Node struct {
	Name     string // unique in the cluster
	Path     string // of its file, relative to the cluster's directory: nodes/syd/r1/web1.yaml
	ID       int    // 0 or more; -1: no id was given yet
	State    string
	Weight   crush.Weight
	Local    bool
	Address  string
	IP       string // of the machine, if Address is a name; empty: not configured
	User     string
	HostKey  string
	StateDir string
	Facts    map[string]string // a fact without a value has the value true
	Capacity Amounts
	Parent   *Bucket
	Values   *Value // inherited and own values, expanded
}

// Amounts maps the names of counted resources to amounts in thousandths: of processors for cpu, of bytes for memory.
type Amounts map[string]int64

// Job is a job to run: a file below jobs/, or an instance of a template.
type Job struct {
	Name           string // the path below jobs/, such as web/front@7
	Path           string // of its file or link: jobs/web/front@7.yaml
	Instance       string // such as 7; empty: the job is no instance
	Want           int    // number of replicas; unused with Every
	Min            int    // if fewer can be placed, none is
	Every          bool   // one slot on each node that the job admits
	Policy         string // as written; empty: none
	PolicyAt       Position
	Require, Avoid []string
	Uses           Amounts // of each slot
	Balance        int     // the number of candidates from which the least loaded is taken; 1: the rule's choice
	Priority       int     // jobs with a greater priority are placed first
	Exclusive      bool
	MaxUnavailable int // replicas that may be missing while the job is changed; 0: the default of grid apply
	Canary         int // number of nodes that are changed first; 0: none
	Confirm        int // seconds within which the operator's machine must confirm a change; 0: no confirmation
	Gate           unit.Check
	Slots          []Slot // by number
	Values         *Value // inherited and own values, not expanded
}

// Slot is the assignment of a replica of a job to a node: a link below alloc/.
type Slot struct {
	Job    string
	Number int    // 0 or more
	Link   string // alloc/web/front@7/0
	Target string // the link's target, relative to the cluster's directory: nodes/syd/r1/web1.yaml
	Node   *Node  // nil: the node is gone
}

// Secrets opens the sealed values in files of jobs.
type Secrets interface {
	// Open returns the content of a sealed value. Denied: no identity here is one of its recipients.
	Open(ctx context.Context, sealed string) ([]byte, error)
}
