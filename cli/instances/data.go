package instances

import (
	"time"

	"croft"
	"croft/internal/hostkey"
	"croft/schedule"
)

// listData is an instance in lists as JSON and YAML. Programs rely on it: keys never change, and new ones may be
// added.
type listData struct {
	Name       string            `json:"name"`
	State      string            `json:"state"`   // as shown to people
	Address    string            `json:"address"` // empty: none yet
	Host       string            `json:"host"`    // its name; empty: none yet
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

func listed(st croft.Status) listData {
	inst := st.Instance
	d := listData{
		Name: inst.Name, State: schedule.Describe(&st), Address: Address(st), HostID: inst.Host, ID: inst.ID,
		Project:   inst.Project,
		Resources: inst.Spec.Resources, Image: inst.Spec.Image, Tags: inst.Spec.Tags, Created: inst.Created,
		Generation: inst.Generation,
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

func allData(all []croft.Status) []listData {
	list := make([]listData, len(all))
	for i, st := range all {
		list[i] = listed(st)
	}
	return list
}

// Data is everything about an instance: its fields in lists, and the stored records.
type Data struct {
	Name    string `json:"name"`
	State   string `json:"state"`
	Address string `json:"address"`
	croft.Status
}

// Printable returns statuses without their secrets, with the fields shown to people.
func Printable(all []croft.Status) []Data {
	list := make([]Data, len(all))
	for i, st := range all {
		list[i] = Data{st.Instance.Name, schedule.Describe(&st), Address(st), printable(st)}
	}
	return list
}

// printable returns a status without its secrets: the public half of the host key replaces the private one.
func printable(st croft.Status) croft.Status {
	st.Instance.Spec = printableSpec(st.Instance.Spec)
	if st.Order != nil {
		o := *st.Order
		o.Spec = printableSpec(o.Spec)
		st.Order = &o
	}
	return st
}

func printableSpec(s croft.Spec) croft.Spec {
	public, err := hostkey.Public(s.HostKey)
	if err != nil {
		public = "" // missing or invalid: do not show it
	}
	s.HostKey = public
	return s
}
