package gate

import (
	"croft"
	"croft/internal/plain"
)

// Texts from hosts are shown on terminals and stored together with the data of others. So their length is limited, and
// terminal control sequences are removed.

// longest limits a text, in bytes.
const longest = plain.Longest

// mostEntries limits a list.
const mostEntries = 64

func clean(text string) string { return plain.Cut(text, longest) }

func cleanAll(texts []string) []string {
	var all []string
	for _, text := range texts[:min(len(texts), mostEntries)] {
		all = append(all, clean(text))
	}
	return all
}

func cleanHost(h *croft.Host) error {
	for _, text := range []*string{&h.Name, &h.API, &h.Token, &h.Location, &h.Version, &h.VirtType, &h.FormerName,
		&h.Place, &h.Boot} {
		*text = clean(*text)
	}
	h.Addresses, h.Problems = cleanAll(h.Addresses), cleanAll(h.Problems)
	h.Networks = cleanNetworks(h.Networks)
	return checkAPI(h.API)
}

// cleanNetworks drops entries that cannot be networks or projects, and entries beyond mostEntries.
func cleanNetworks(networks map[string][]croft.Project) map[string][]croft.Project {
	var cleaned map[string][]croft.Project
	for name, projects := range networks {
		if croft.CheckNetworkName(name) != nil || len(cleaned) == mostEntries {
			continue
		}
		if cleaned == nil {
			cleaned = map[string][]croft.Project{}
		}
		valid := func(p croft.Project) bool { return p == croft.EveryProject || p.Check() == nil }
		kept := []croft.Project{}
		for _, p := range projects[:min(len(projects), mostEntries)] {
			if valid(p) {
				kept = append(kept, p)
			}
		}
		cleaned[name] = kept
	}
	return cleaned
}

func cleanAgent(a *croft.Agent) {
	a.Place, a.Name, a.API = clean(a.Place), clean(a.Name), clean(a.API)
}

// states is the set of states that an agent observes.
var states = map[croft.State]bool{
	croft.StatePending: true, croft.StateFetching: true, croft.StateDefining: true, croft.StateBooting: true,
	croft.StateRunning: true, croft.StateStopped: true, croft.StateFailed: true, croft.StateRemoving: true,
}

func cleanObservation(o *croft.Observation) error {
	if !states[o.State] {
		return croft.Errorf(croft.Invalid, "%q is not a state of an instance", o.State)
	}
	if o.Ended != "" && o.Ended != croft.EndGuest && o.Ended != croft.EndFailure {
		return croft.Errorf(croft.Invalid, "%q is not an end of a guest", string(o.Ended))
	}
	if len(o.Addresses) > mostEntries || len(o.Events) > mostEntries {
		return croft.Errorf(croft.Invalid, "the observation has too many addresses or events")
	}
	o.Error, o.MAC, o.Password, o.ErrorKind = clean(o.Error), clean(o.MAC), clean(o.Password),
		croft.Kind(clean(string(o.ErrorKind)))
	for i := range o.Events {
		o.Events[i].Name = croft.EventName(clean(string(o.Events[i].Name)))
	}
	if o.CloudInit != nil {
		o.CloudInit.Error, o.CloudInit.State = clean(o.CloudInit.Error),
			croft.CloudInitState(clean(string(o.CloudInit.State)))
	}
	return nil
}
