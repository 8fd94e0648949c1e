package api

import (
	"croft"
	"croft/schedule"
)

// Discovery is the input of discoverTargets.
type Discovery struct {
	InProject
	Filtered
	Terms

	Port int `query:"port" json:"-" minimum:"1" maximum:"65535" default:"9100"` // port of the targets, 1 to 65535
}

// TargetGroup is a target of Prometheus, as its HTTP service discovery reads it.
type TargetGroup struct {
	Targets []string `json:"targets"` // one: the address of the instance, and the port
	// Metadata for relabelling: __meta_croft_id, _name, _project, _state, _image, _cluster, _tag_KEY and
	// _label_KEY, and for operators _host. A character of KEY that a label of Prometheus cannot have is an
	// underscore here.
	Labels map[string]string `json:"labels"`
}

// Target returns the instance as a target of Prometheus.
func (i Instance) Target(address string) TargetGroup {
	labels := map[string]string{"id": string(i.ID), "name": i.Name, "project": string(i.Project), "state": i.State,
		"image": i.Image}
	if i.Host != "" {
		labels["host"] = i.Host
	}
	if i.Cluster != "" {
		labels["cluster"] = string(i.Cluster)
	}
	for k, v := range i.Tags {
		labels["tag_"+k] = v
	}
	for k, v := range i.Labels {
		labels["label_"+k] = v.String()
	}
	meta := make(map[string]string, len(labels))
	for k, v := range labels {
		meta["__meta_croft_"+labelName(k)] = v
	}
	return TargetGroup{Targets: []string{address}, Labels: meta}
}

// MayRun reports whether the guest runs, as far as is known: one on a silent host may.
func (i Instance) MayRun() bool {
	return i.State == string(croft.StateRunning) || i.State == schedule.Unknown
}

// labelName replaces each character that the name of a label of Prometheus cannot have by an underscore.
func labelName(s string) string {
	name := []byte(s)
	for n, c := range name {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') {
			name[n] = '_'
		}
	}
	return string(name)
}
