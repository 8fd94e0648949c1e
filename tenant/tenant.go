// Package tenant manages projects: a tree of names, each with members and limits. It decides whether a project may use
// more: its usage counts against its own limits and against the limits of every ancestor. The store counts the usage,
// in the transactions that write and remove records.
package tenant

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"croft"
	"croft/internal/nearest"
	"croft/internal/standard"
	"croft/tenant/access"
)

// Measure is a limited quantity: a resource class of Placement, or a count of records.
type Measure string

// Counts are measures of records. A measure that is not counted cannot be limited.
const (
	CountInstances Measure = "instances" // including stopped ones
	CountTokens    Measure = "tokens"    // including expired ones, while they are listed
	CountTickets   Measure = "tickets"   // open tickets of pools
	CountPools     Measure = "pools"     // until all their resources are deleted
	CountClusters  Measure = "clusters"  // until they are deleted, including failed ones
	CountVolumes   Measure = "volumes"   // until their files are removed
	CountSnapshots Measure = "snapshots" // likewise
	CountImages    Measure = "images"    // of the cloud's catalog, including failed ones
	ImageGB        Measure = "IMAGE_GB"  // sizes of their files, in GiB, each rounded up

	// The following are counted separately, in Account.Stored.
	CountProjects        Measure = "projects"        // below the project, at any depth
	CountMembers         Measure = "members"         // of the projects below the project
	CountKeys            Measure = "keys"            // SSH keys
	CountAppliances      Measure = "appliances"      // of clusters
	CountImplementations Measure = "implementations" // of those appliances
	CountCredentials     Measure = "credentials"     // for sites
	CountDescribed       Measure = "described"       // images that have properties or tags
	CountBackups         Measure = "backups"         // until they are removed from their store
	BackupGB             Measure = "BACKUP_GB"       // the sizes of the disks of backups, in GiB
	CountBackupSchedules Measure = "backup_schedules"
	StoredBytes          Measure = "bytes" // size of the separately counted records
)

var counts = []Measure{CountInstances, CountTokens, CountTickets, CountPools, CountClusters, CountVolumes,
	CountSnapshots, CountImages, ImageGB, CountProjects, CountMembers, CountKeys, CountAppliances,
	CountImplementations, CountCredentials, CountDescribed, CountBackups, BackupGB,
	CountBackupSchedules, StoredBytes}

// bounds are the limits on stored records that apply if neither the project nor the partition sets one. They apply to
// each project together with all projects below it, so that no tenant can fill the store. Instances have no bound,
// because they need room on hosts.
var bounds = Limits{CountTokens: 5_000, CountTickets: 10_000, CountPools: 1_000, CountClusters: 2_000,
	CountVolumes: 2_000, CountSnapshots: 2_000, CountImages: 500, ImageGB: 1_000, CountProjects: 100,
	CountMembers: 2_000, CountKeys: 1_000, CountAppliances: 100, CountImplementations: 400, CountCredentials: 1_000,
	CountDescribed: 2_000, CountBackups: 5_000, BackupGB: 100_000, CountBackupSchedules: 200,
	StoredBytes: 32 << 20}

// Bounded lists the measures that have a bound if no limit is set.
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
	return croft.Errorf(croft.Invalid, "%.80q cannot be limited: use %s, or a resource class such as %s%s",
		string(m), strings.Join(words, ", "), croft.VCPU, m.hint(words))
}

// exists reports whether the measure is counted.
func (m Measure) exists() bool { return slices.Contains(counts, m) || standard.IsClass(string(m)) }

// hint suggests the measure that is probably meant, ignoring case.
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

// Amounts is the usage, or the requested increase, of a project by measure.
type Amounts map[Measure]int64

// AmountsOf returns the amounts that an instance is charged from the first write of its record to its removal, whatever
// its host, and whether it runs or not.
func AmountsOf(inst croft.Instance) Amounts {
	a := Amounts{CountInstances: 1}
	for class, n := range inst.Charged() {
		a[Measure(class)] = n
	}
	return a
}

// Plus returns the sum, without measures that are 0. It changes neither operand.
func (a Amounts) Plus(b Amounts) Amounts { return a.add(b, 1) }

// Minus returns the difference, without measures that are 0. It changes neither operand.
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

// Unlimited is the limit of a project that has no limit, even if the partition has one.
const Unlimited int64 = -1

// Limits are the most that a project and all projects below it may use together, by measure. For a missing measure, the
// limit of the partition applies, if it has one. A limit below the present usage removes nothing, but refuses growth.
type Limits map[Measure]int64

// Check validates limits. Invalid.
func (l Limits) Check() error {
	for _, m := range slices.Sorted(maps.Keys(l)) {
		if err := m.Check(); err != nil {
			return err
		}
		if l[m] < Unlimited {
			return croft.Errorf(
				croft.Invalid,
				"a limit of %d for %s: limits are whole numbers from 0, or unlimited",
				l[m],
				m,
			)
		}
	}
	return nil
}

// Known returns the limits of measures that exist. Programs before 1.8 also stored limits of other measures, such as
// VCPUS, which have no effect.
func (l Limits) Known() Limits {
	l = maps.Clone(l)
	maps.DeleteFunc(l, func(m Measure, _ int64) bool { return !m.exists() })
	return l
}

// of returns the limit for a measure: the project's, else the partition's, else the bound. False: there is no
// limit.
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

// startLimits are the limits of new projects if neither the project nor the partition sets one: enough to start with,
// and low enough to limit the cost of a typing mistake. Other counts have bounds in all projects.
var startLimits = Limits{CountInstances: 100, Measure(croft.VCPU): 200, Measure(croft.MemoryMB): 400 << 10,
	Measure(croft.DiskGB): 10_000}

// Own returns the limits of the project itself: its explicit limits, and the limits of new projects.
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

// NoLimits returns limits of a project that may have as many instances as the hosts have room for.
func NoLimits() Limits {
	return Limits{CountInstances: Unlimited, Measure(croft.VCPU): Unlimited, Measure(croft.MemoryMB): Unlimited,
		Measure(croft.DiskGB): Unlimited}
}

// Tenant is the record of a project. Operators may use a project name without a record; it has the limits of the
// partition and no parent.
type Tenant struct {
	ID      croft.ProjectID        `json:"id,omitempty" format:"uuid"` // derived from the stored record, not stored
	Name    croft.Project          `json:"name"`                       // with the names of its parents
	Parent  croft.Project          `json:"parent,omitempty"`           // empty: none
	Note    string                 `json:"note,omitempty"`             // for people
	Members map[string]access.Role `json:"members,omitempty"`          // by user name
	// The most that may be used, by resource class or count (`instances`, `tokens`, `tickets`, `pools`, `clusters`,
	// `volumes`, `snapshots`): whole numbers from 0, or -1 for no limit, whatever the default is.
	Limits Limits `json:"limits,omitempty" maxProperties:"100" minimum:"-1"`
	// Started says that the limits of new projects apply to measures that neither Limits nor the partition limits.
	Started bool      `json:"started,omitempty"`
	Created time.Time `json:"created"` // when it was created

	// Generation is the version of the stored record; a change names the version that it is based on. 0: not stored
	// yet.
	Generation int64 `json:"generation"`
	// Born is the store's revision at which the record was created: earlier events belong to a former project of this
	// name. 0: the record was not read from the store.
	Born int64 `json:"-"`
}

// Bounds of a project's record.
const (
	maxNote    = 256
	maxMembers = 500
	// MaxDepth is the maximum number of projects in a chain from a project to its root.
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
