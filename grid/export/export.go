// Package export converts a cluster's jobs and nodes to the formats of other systems: manifests for Kubernetes, the
// cluster file of k0sctl, the inventory of k3s-ansible. Properties that these formats cannot express are listed, not
// silently dropped.
//
// It only reads the cluster's files and has no other side effects. It writes no contents of secrets.
package export

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"croft"
	"croft/grid/state"
	"croft/grid/unit"
)

// Object is one object of an API, as a YAML map.
type Object map[string]any

// A File is one file of an export.
type File struct {
	Name    string // the file name, without a directory
	Objects []Object
}

// Unsaid is a property that the other system cannot express, or a value that its operators must supply.
type Unsaid struct {
	About string `json:"about"` // the job or the node
	What  string `json:"what"`
}

// Options configures an export for Kubernetes.
type Options struct {
	Namespace string   // the namespace of all namespaced objects; empty: none is written
	Access    []Access // the access rules
}

// Access is a rule that allows some addresses and jobs to reach jobs.
type Access struct {
	Name     string   // the name of the rule's file
	From     []string // prefixes
	FromJobs []string // names of jobs
	To       []string // names of jobs
	Proto    string   // tcp, udp, icmp, or empty: any
	Ports    []Ports  // empty: all ports
}

// Ports is a range of ports, including both ends.
type Ports struct{ First, Last int }

// group is the prefix of croft's own labels.
const group = "grid.croft"

// Kubernetes returns one file for each job, one for the nodes, one for each access rule, and one for the priorities.
// Errors: Invalid if an option or a file of the cluster is not valid.
func Kubernetes(ctx context.Context, s *state.State, o Options) ([]File, []Unsaid, error) {
	if o.Namespace != "" && label(o.Namespace) != o.Namespace {
		return nil, nil, croft.Errorf(croft.Invalid, "export: %q is no namespace: use a to z, 0 to 9 and dashes, 63 "+
			"characters at most", o.Namespace)
	}
	k := &kubernetes{state: s, options: o, priorities: map[int]bool{}}
	files := []File{{"nodes.yaml", k.nodes()}}
	for _, j := range s.Jobs {
		objects, err := k.job(ctx, j)
		if err != nil {
			return nil, nil, fmt.Errorf("export %s: %w", j.Path, err)
		}
		if len(objects) > 0 {
			files = append(files, File{"job-" + k8sName(j.Name) + ".yaml", objects})
		}
	}
	for _, a := range o.Access {
		if policies := k.access(a); len(policies) > 0 {
			files = append(files, File{"access-" + k8sName(a.Name) + ".yaml", policies})
		}
	}
	if len(k.priorities) > 0 {
		files = append(files, File{"priorities.yaml", k.classes()})
	}
	if len(files[0].Objects) == 0 {
		files = files[1:]
	}
	slices.SortStableFunc(k.unsaid, func(a, b Unsaid) int { return cmp.Compare(a.About, b.About) })
	return files, k.unsaid, nil
}

// kubernetes is the state of one export.
type kubernetes struct {
	state      *state.State
	options    Options
	unsaid     []Unsaid
	priorities map[int]bool
}

func (k *kubernetes) cannot(about, format string, args ...any) {
	k.unsaid = append(k.unsaid, Unsaid{about, fmt.Sprintf(format, args...)})
}

// object returns an object without a spec; spaced means that its kind is namespaced.
func (k *kubernetes) object(version, kind, name string, labels map[string]string, spaced bool) Object {
	meta := Object{"name": name}
	if len(labels) > 0 {
		meta["labels"] = texts(labels)
	}
	if spaced && k.options.Namespace != "" {
		meta["namespace"] = k.options.Namespace
	}
	return Object{"apiVersion": version, "kind": kind, "metadata": meta}
}

func texts(m map[string]string) Object {
	o := Object{}
	for key, v := range m {
		o[key] = v
	}
	return o
}

// sample returns the unit of a job's first slot and the number of slots with a node, and records how the units of other
// slots differ. For a job without slots, it returns the unit that slot 0 would have on the first node.
func (k *kubernetes) sample(ctx context.Context, j *state.Job) (u unit.Unit, slots int, err error) {
	first := true
	for _, slot := range j.Slots {
		if slot.Node == nil {
			continue
		}
		slots++
		one, err := k.state.Unit(ctx, j, slot.Number, slot.Node)
		if err != nil {
			return u, slots, err
		}
		one.Slot = 0
		if first {
			u, first = one, false
			continue
		}
		if fields := differ(u, one); len(fields) > 0 {
			k.cannot(j.Name, "slot %d has another %s than the first one, whose is exported", slot.Number,
				strings.Join(fields, ", "))
		}
	}
	if !first || len(k.state.Leaves) == 0 {
		return u, slots, nil
	}
	u, err = k.state.Unit(ctx, j, 0, k.state.Leaves[0])
	u.Slot = 0
	return u, 0, err
}

// k8sName converts a job's name to a Kubernetes name of at most 52 characters, which leaves room for the suffixes of a
// StatefulSet's pods. Names that Kubernetes does not accept unchanged get a hash, so that the results stay distinct.
func k8sName(job string) string {
	name := label(job)
	if len(name) <= 52 && name != "" && plain(job) {
		return name
	}
	sum := sha256.Sum256([]byte(job))
	return strings.Trim(fmt.Sprintf("%.44s", cmp.Or(name, "job")), "-") + "-" + hex.EncodeToString(sum[:3])
}

// plain reports whether Kubernetes accepts a name unchanged. Several other names may convert to the same label.
func plain(job string) bool { return label(job) == job }

// label converts s to a DNS label: at most 63 lower-case letters, digits and inner dashes.
func label(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, s)
	return strings.Trim(s[:min(len(s), 63)], "-")
}

// value converts s to a label value: at most 63 letters, digits, dashes, underscores and dots.
func value(s string) string {
	s = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.", r) {
			return r
		}
		return '-'
	}, s)
	return strings.Trim(s[:min(len(s), 63)], "-_.")
}
