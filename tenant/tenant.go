// Package tenant keeps projects: a tree of names, each with members and limits. It decides whether a project may take
// more: what a project uses counts against its own limits and against those of every project above it. The amounts
// themselves are counted by the store, in the transactions that write and remove records.
package tenant

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"croft"
	"croft/access"
	"croft/internal/nearest"
	"croft/internal/standard"
)

// Measure is something that is limited: a resource class as in Placement, or a count of records.
type Measure string

// Counts are measures of records. What nothing counts cannot be limited either.
const (
	CountInstances Measure = "instances" // stopped ones as well
	CountTokens    Measure = "tokens"    // expired ones as well, while they are listed
	CountTickets   Measure = "tickets"   // open ones, of pools
	CountPools     Measure = "pools"     // while anything is left of them
	CountClusters  Measure = "clusters"  // until they are deleted, failed ones as well

	// The following are counted apart, as Account.Stored.
	CountProjects        Measure = "projects"        // below the project, at any depth
	CountMembers         Measure = "members"         // of the projects below it
	CountKeys            Measure = "keys"            // SSH keys
	CountAppliances      Measure = "appliances"      // of clusters
	CountImplementations Measure = "implementations" // of those appliances
	CountCredentials     Measure = "credentials"     // for sites
	CountDescribed       Measure = "described"       // images that have properties or tags
	StoredBytes          Measure = "bytes"           // of the records that are counted apart
)

var counts = []Measure{CountInstances, CountTokens, CountTickets, CountPools, CountClusters, CountProjects,
	CountMembers, CountKeys, CountAppliances, CountImplementations, CountCredentials, CountDescribed, StoredBytes}

// bounds are the limits on what is stored where neither a project nor the partition has one. They apply to each
// project with all projects below it, so that no tenant can fill the store. Instances have none: they need room of
// hosts.
var bounds = Limits{CountTokens: 5_000, CountTickets: 10_000, CountPools: 1_000, CountClusters: 2_000,
	CountProjects: 100, CountMembers: 2_000, CountKeys: 1_000, CountAppliances: 100, CountImplementations: 400,
	CountCredentials: 1_000, CountDescribed: 2_000, StoredBytes: 32 << 20}

// Bounded lists the measures that have a bound where no limit is set.
func Bounded() []Measure { return slices.Sorted(maps.Keys(bounds)) }

// Check validates a measure. Invalid.
func (m Measure) Check() error {
	if m.exists() {
		return nil
	}
	var words []string
	for _, c := range counts {
		words = append(words, string(c))
	}
	return croft.Errorf(croft.Invalid, "%.80q is nothing that can be limited: use %s, or a resource class such as %s%s",
		string(m), strings.Join(words, ", "), croft.VCPU, m.hint(words))
}

// exists reports whether something is counted by this measure.
func (m Measure) exists() bool { return slices.Contains(counts, m) || standard.IsClass(string(m)) }

// hint proposes the measure that is probably meant, in whatever case m is written.
func (m Measure) hint(words []string) string {
	upper, lower := strings.ToUpper(string(m)), strings.ToLower(string(m))
	if slices.Contains(words, lower) {
		return nearest.Hint(lower, words)
	}
	host := []string{string(croft.VCPU), string(croft.MemoryMB), string(croft.DiskGB)}
	for _, known := range [][]string{host, standard.Classes()} {
		if hint := nearest.Hint(upper, known); hint != "" {
			return hint
		}
	}
	return nearest.Hint(lower, words)
}

// Amounts are what a project uses, or asks for, by measure.
type Amounts map[Measure]int64

// AmountsOf is what an instance is charged with from the first write of its record to its removal, wherever it runs
// and whether or not it does.
func AmountsOf(inst croft.Instance) Amounts {
	a := Amounts{CountInstances: 1}
	for class, n := range inst.Spec.Resources {
		a[Measure(class)] = n
	}
	return a
}

// Plus returns the sum, without measures of which nothing is left. It changes neither.
func (a Amounts) Plus(b Amounts) Amounts { return a.add(b, 1) }

// Minus returns the difference, without measures of which nothing is left. It changes neither.
func (a Amounts) Minus(b Amounts) Amounts { return a.add(b, -1) }

func (a Amounts) add(b Amounts, sign int64) Amounts {
	sum := maps.Clone(a)
	if sum == nil {
		sum = Amounts{}
	}
	for m, n := range b {
		if sum[m] += sign * n; sum[m] == 0 {
			delete(sum, m)
		}
	}
	return sum
}

// String lists the amounts in order: VCPU:2,instances:1.
func (a Amounts) String() string {
	var parts []string
	for _, m := range a.sorted() {
		parts = append(parts, fmt.Sprintf("%s:%d", m, a[m]))
	}
	return strings.Join(parts, ",")
}

func (a Amounts) sorted() []Measure { return slices.Sorted(maps.Keys(a)) }

// Unlimited in Limits says that a project has no limit of its own, whatever the default is.
const Unlimited int64 = -1

// Limits are the most that a project and all projects below it may use together, by measure. What is not named has
// the default of the partition, or no limit if that names none. A limit below what is used removes nothing: it
// refuses growth.
type Limits map[Measure]int64

// Check validates limits. Invalid.
func (l Limits) Check() error {
	for _, m := range slices.Sorted(maps.Keys(l)) {
		if err := m.Check(); err != nil {
			return err
		}
		if l[m] < Unlimited {
			return croft.Errorf(croft.Invalid, "a limit of %d for %s: limits are whole numbers from 0, or unlimited", l[m],
				m)
		}
	}
	return nil
}

// Known returns the limits of measures that exist. Programs before 1.8 stored others, such as VCPUS, which limit
// nothing.
func (l Limits) Known() Limits {
	l = maps.Clone(l)
	maps.DeleteFunc(l, func(m Measure, _ int64) bool { return !m.exists() })
	return l
}

// of returns the limit for a measure: the project's, else that of the partition, else the bound. False: there is none.
func (l Limits) of(m Measure, defaults Limits) (int64, bool) {
	n, set := l[m]
	if !set {
		n, set = defaults[m]
	}
	if !set {
		n, set = bounds[m]
	}
	return n, set && n != Unlimited
}

// startLimits are the limits of new projects where neither the project nor the partition has one: enough to begin with,
// and no more than a typing mistake may cost. Other counts have bounds in all projects.
var startLimits = Limits{CountInstances: 100, Measure(croft.VCPU): 200, Measure(croft.MemoryMB): 400 << 10,
	Measure(croft.DiskGB): 10_000}

// Own returns the limits of the project itself: its own, and those of new projects.
func (p Tenant) Own(defaults Limits) Limits {
	if !p.Started {
		return p.Limits
	}
	own := Limits{}
	for m, n := range startLimits {
		if _, set := defaults[m]; !set {
			own[m] = n
		}
	}
	maps.Copy(own, p.Limits)
	return own
}

// NoLimits are limits of a project that may have as many instances as there is room for.
func NoLimits() Limits {
	return Limits{CountInstances: Unlimited, Measure(croft.VCPU): Unlimited, Measure(croft.MemoryMB): Unlimited,
		Measure(croft.DiskGB): Unlimited}
}

// Tenant is the record of a project. A name that has no record may be used by operators; it has the limits of the
// partition and nothing above it.
type Tenant struct {
	ID      croft.ProjectID        `json:"id,omitempty"` // derived from the stored record, never stored
	Name    croft.Project          `json:"name"`
	Parent  croft.Project          `json:"parent,omitempty"`
	Note    string                 `json:"note,omitempty"`
	Members map[string]access.Role `json:"members,omitempty"` // by the name of the user
	Limits  Limits                 `json:"limits,omitempty"`
	// Started: the limits of new projects apply to what neither Limits nor the partition limits.
	Started bool      `json:"started,omitempty"`
	Created time.Time `json:"created"`

	// Generation is the version of the stored record; a change names the one that it builds on. 0: not stored yet.
	Generation int64 `json:"generation"`
	// Born is the store's revision at which the record was created: what happened before it happened to a former
	// project of this name. 0: it was not read from the store.
	Born int64 `json:"-"`
}

// Bounds of a project's record.
const (
	maxNote    = 256
	maxMembers = 500
	// MaxDepth is the most projects that a chain from a project to its root may have.
	MaxDepth = 8
)

// Check validates a project's record. Invalid.
func (p Tenant) Check() error {
	if err := p.Name.Check(); err != nil {
		return err
	}
	if p.Parent == p.Name {
		return croft.Errorf(croft.Invalid, "project %s cannot be its own parent", p.Name)
	}
	if len(p.Note) > maxNote {
		return croft.Errorf(croft.Invalid, "the note of project %s has %d bytes, at most %d are kept", p.Name,
			len(p.Note), maxNote)
	}
	if len(p.Members) > maxMembers {
		return croft.Errorf(croft.Invalid, "project %s cannot have %d members: at most %d", p.Name, len(p.Members),
			maxMembers)
	}
	for user, role := range p.Members {
		if err := access.CheckUser(user); err != nil {
			return err
		}
		if err := role.CheckAmong(access.MemberRoles); err != nil {
			return err
		}
	}
	return p.Limits.Check()
}
