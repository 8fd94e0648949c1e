package export

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"croft/grid/state"
)

// Labels that Kubernetes defines.
const (
	regionLabel = "topology.kubernetes.io/region"
	zoneLabel   = "topology.kubernetes.io/zone"
	hostLabel   = "kubernetes.io/hostname"
)

// typeLabel returns the label key for a type of bucket. A node's label with this key names the bucket of that type that
// contains the node. For the type of the nodes themselves it is the host name label.
func (k *kubernetes) typeLabel(kind string) string {
	types := k.state.Cluster.Types
	if len(types) > 0 && kind == types[0] {
		return hostLabel
	}
	return group + "/" + kind
}

// nodes returns an object with the labels of each node: its buckets and its facts.
func (k *kubernetes) nodes() []Object {
	var all []Object
	for _, n := range k.state.Leaves {
		o := k.object("v1", "Node", label(n.Name), k.labelsOf(n), false)
		if n.State != state.Up {
			o["spec"] = Object{"unschedulable": true}
		}
		if label(n.Name) != n.Name {
			k.cannot(n.Name, "the node is called %s: so must its kubelet be", label(n.Name))
		}
		all = append(all, o)
	}
	return all
}

// labelsOf returns the labels of a node: its buckets, its facts, its region, which is the directory directly below
// nodes/, and its zone, which is the directory that contains the node, if that is not the region.
func (k *kubernetes) labelsOf(n *state.Node) map[string]string {
	labels := map[string]string{}
	var path []*state.Bucket // from the node upwards, without the root
	for b := n.Parent; b != nil && b.Parent != nil; b = b.Parent {
		path = append(path, b)
		labels[k.typeLabel(b.Type)] = value(b.Name)
	}
	if len(path) > 0 {
		labels[regionLabel] = value(path[len(path)-1].Name)
	}
	if len(path) > 1 {
		labels[zoneLabel] = value(path[0].Name)
	}
	for _, fact := range slices.Sorted(maps.Keys(n.Facts)) {
		name := factLabel(fact)
		if n.Facts[fact] == "false" {
			continue
		}
		if _, twice := labels[name]; twice {
			k.cannot(n.Name, "the fact %s has the label %s, as another fact has", fact, name)
		}
		if v := n.Facts[fact]; value(v) != v {
			k.cannot(n.Name, "the value of the fact %s is no value of a label: %s is", fact, value(v))
		}
		labels[name] = value(n.Facts[fact])
	}
	return labels
}

func factLabel(fact string) string { return group + "/fact-" + value(fact) }

// demand returns a match expression for a node's labels; a fact is NAME or NAME=VALUE. A fact with the value false has
// no label.
func (k *kubernetes) demand(job, fact string, has bool) Object {
	name, v, given := strings.Cut(fact, "=")
	if given && v == "false" {
		k.cannot(job, "that the fact %s is false: nodes have no label for that", name)
		given = false
		has = !has
	}
	o := Object{"key": factLabel(name)}
	switch {
	case given && has:
		o["operator"], o["values"] = "In", []any{value(v)}
	case given:
		o["operator"], o["values"] = "NotIn", []any{value(v)}
	case has:
		o["operator"] = "Exists"
	default:
		o["operator"] = "DoesNotExist"
	}
	return o
}

// classes returns a PriorityClass for each priority in use.
func (k *kubernetes) classes() []Object {
	var all []Object
	for _, p := range slices.Sorted(maps.Keys(k.priorities)) {
		o := k.object("scheduling.k8s.io/v1", "PriorityClass", className(p), nil, false)
		o["value"] = p
		all = append(all, o)
	}
	return all
}

func className(priority int) string {
	return strings.ReplaceAll(fmt.Sprintf("grid-%d", priority), "--", "-minus-")
}
