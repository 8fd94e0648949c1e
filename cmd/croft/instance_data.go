package main

import (
	"time"

	"croft"
	"croft/schedule"
)

// instanceData is an instance as lists in JSON and YAML have it. Programs rely on it:
// keys stay what they are, and new ones may come.
type instanceData struct {
	Name       string            `json:"name"`
	State      string            `json:"state"`   // the word that people see
	Address    string            `json:"address"` // empty while there is none
	Host       string            `json:"host"`    // its name, empty while there is none
	HostID     croft.HostID      `json:"host_id"`
	ID         croft.InstanceID  `json:"id"`
	Project    croft.Project     `json:"project"`
	Resources  croft.Resources   `json:"resources"`
	Image      string            `json:"image"`
	Tags       map[string]string `json:"tags"`
	Created    time.Time         `json:"created"`
	Generation int64             `json:"generation"`
	Error      string            `json:"error"` // why it failed
}

func listed(st croft.Status) instanceData {
	inst := st.Instance
	d := instanceData{
		Name: inst.Name, State: schedule.Describe(&st), Address: address(st), HostID: inst.Host, ID: inst.ID, Project: inst.Project,
		Resources: inst.Spec.Resources, Image: inst.Spec.Image, Tags: inst.Spec.Tags, Created: inst.Created, Generation: inst.Generation,
	}
	if d.Tags == nil {
		d.Tags = map[string]string{}
	}
	if st.Host != nil {
		d.Host = st.Host.Name
	}
	if st.Observation != nil {
		d.Error = st.Observation.Error
	}
	return d
}

func allData(all []croft.Status) []instanceData {
	list := make([]instanceData, len(all))
	for i, st := range all {
		list[i] = listed(st)
	}
	return list
}

// statusData is all about an instance: what a list has of it, and what is stored.
type statusData struct {
	Name    string `json:"name"`
	State   string `json:"state"`
	Address string `json:"address"`
	croft.Status
}

// allPrintable are statuses without their secrets, with what people see of them.
func allPrintable(all []croft.Status) []statusData {
	list := make([]statusData, len(all))
	for i, st := range all {
		list[i] = statusData{st.Instance.Name, schedule.Describe(&st), address(st), printable(st)}
	}
	return list
}
