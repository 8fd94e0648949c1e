// Package hardpoint runs the programs by which the grid does what differs from machine to machine: a hard point is a
// name, such as the runtime podman, and a verb of it is a program with arguments.
//
// A hard point is a YAML file: hardpoints/KIND/NAME.yaml of the repository, else the one of that name that croft
// brings.
// Arguments are a list that no shell reads; values stand in it as ${name}. Where a verb says shell: true, values reach
// the script as variables, so that no value can become a part of the script. A secret value may be input of a program,
// and is never an argument.
package hardpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"time"
)

// A Point is one hard point: its verbs, and what they share.
type Point struct {
	Kind  string // runtime, vcs, secret, ...
	Name  string
	About string // one line for people
	From  string // the file that it was read from, for messages

	// Cannot has the features that it lacks, each with the reason, for whoever asks before running a verb.
	Cannot map[string]string

	variables map[string]variable
	functions string // shell text before each script
	verbs     map[string]*Verb
	changes   []map[string]string // of each file of the repository, the most special first: as document.keys
}

// Digest is the SHA-256, in hexadecimal, of what the repository's files define, except some of their keys; "" if they
// define nothing else. Comments, order and layout do not count, and neither does what croft ships: an upgrade of croft
// changes no digest.
func (p *Point) Digest(except ...string) string {
	var counted []map[string]string
	for _, keys := range p.changes {
		keys = maps.Clone(keys)
		for _, key := range except {
			delete(keys, key)
		}
		if keys["extends"] == strconv.Quote(p.Name) {
			delete(keys, "extends")
		}
		if len(keys) > 0 {
			counted = append(counted, keys)
		}
	}
	if counted == nil {
		return ""
	}
	text, err := json.Marshal(counted)
	if err != nil {
		panic(err) // texts have a form
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// A Verb is one thing that a hard point does.
type Verb struct {
	argv    []argument
	script  string // instead of argv
	ok      []int
	absent  []int
	no      []int
	unknown []int
	timeout time.Duration
	stdin   template
	output  string // lines, json or text
	at      string // file:line, for messages
}

const (
	defaultTimeout = time.Minute
	maxTimeout     = 24 * time.Hour
)

// Has tells whether the hard point has the verb.
func (p *Point) Has(verb string) bool { return p.verbs[verb] != nil }

// Verbs lists the verbs, sorted.
func (p *Point) Verbs() []string { return slices.Sorted(maps.Keys(p.verbs)) }

// Timeout is how long the verb may take; 0: it has no such verb.
func (p *Point) Timeout(verb string) time.Duration {
	if v := p.verbs[verb]; v != nil {
		return v.timeout
	}
	return 0
}

// A variable is what a file defines under variables: a text, or a list of arguments.
type variable struct {
	text template
	list []argument
	many bool
}

// An argument is a text, or arguments that depend on a value.
type argument struct {
	text       template
	each       string // once for each of the list of this name, with ${item}
	when       string // if NAME or NAME=TEXT holds
	unless     string
	then       []argument // of each, when and unless
	structured bool
	at         string
}
