// Package hardpoint runs the programs for tasks that differ from machine to machine. A hard point has a kind and a
// name, such as the runtime podman; each of its verbs is a program with arguments.
//
// A hard point is defined in a YAML file: hardpoints/KIND/NAME.yaml of the repository, else the file of that name
// shipped with croft. Arguments are a list that no shell interprets; ${name} in them is replaced by a value. In a verb
// with shell: true, values are passed to the script as variables, so that no value can become code. A secret value may
// be input of a program, and is never an argument.
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

// A Point is one hard point: its verbs, and the variables and functions that they share.
type Point struct {
	Kind  string // runtime, vcs, secret, ...
	Name  string
	About string // a description in one line
	From  string // the file that defines the hard point, for messages

	// Cannot maps the features that the hard point lacks to the reasons. Callers check it before they run a verb.
	Cannot map[string]string

	variables map[string]variable
	functions string // shell code inserted before each script
	verbs     map[string]*Verb
	changes   []map[string]string // document.keys of each file of the repository; extending files precede extended ones
}

// Digest returns the SHA-256, in hexadecimal, of the definitions in the repository's files without the keys in except,
// or "" if nothing remains. Comments, order and layout do not affect it, and neither do the files shipped with croft:
// an upgrade of croft changes no digest.
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
		panic(err) // strings can always be encoded
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// A Verb is one operation of a hard point.
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

// Has reports whether the hard point has the verb.
func (p *Point) Has(verb string) bool { return p.verbs[verb] != nil }

// Verbs lists the verbs, sorted.
func (p *Point) Verbs() []string { return slices.Sorted(maps.Keys(p.verbs)) }

// Timeout returns the time limit of a verb, or 0 if the hard point does not have the verb.
func (p *Point) Timeout(verb string) time.Duration {
	if v := p.verbs[verb]; v != nil {
		return v.timeout
	}
	return 0
}

// A variable is an entry of a file's variables: a text, or a list of arguments.
type variable struct {
	text template
	list []argument
	many bool
}

// An argument is a text, or a list of arguments that depends on a value.
type argument struct {
	text       template
	each       string // the name of a list; then is repeated for each item, with ${item}
	when       string // a condition: NAME or NAME=TEXT
	unless     string
	then       []argument // the arguments of each, when and unless
	structured bool
	at         string
}
