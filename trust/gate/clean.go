package gate

import (
	"net/netip"
	"reflect"
	"slices"

	"croft"
	"croft/internal/plain"
)

// Texts from hosts are shown on terminals and stored together with the data of others. So their length is limited, and
// terminal control sequences are removed.

// longest limits a text, in bytes.
const longest = plain.Longest

// mostEntries limits a list that is stored.
const mostEntries = 64

// clean returns a text without terminal control sequences, of limited length.
func clean(text string) string { return plain.Cut(text, longest) }

// cleanTexts cleans every text in what a host sent, before any method sees it: strings of any type, keys and values of
// maps, and addresses, whose zone is a text too and means nothing outside of the host. Bytes stay as they are.
func cleanTexts(sent any) { cleanValue(reflect.ValueOf(sent).Elem()) }

func cleanValue(v reflect.Value) {
	if address, ok := reflect.TypeAssert[netip.Addr](v); ok {
		v.Set(reflect.ValueOf(address.WithZone("")))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(clean(v.String()))
	case reflect.Pointer:
		if !v.IsNil() {
			cleanValue(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				cleanValue(v.Field(i))
			}
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			cleanValue(v.Index(i))
		}
	case reflect.Map:
		cleanMap(v)
	}
}

// cleanMap replaces the entries, since those of a map cannot be changed in place.
func cleanMap(v reflect.Value) {
	if v.IsNil() {
		return
	}
	cleaned := reflect.MakeMapWithSize(v.Type(), v.Len())
	for entry := v.MapRange(); entry.Next(); {
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		key.Set(entry.Key())
		value.Set(entry.Value())
		cleanValue(key)
		cleanValue(value)
		cleaned.SetMapIndex(key, value)
	}
	v.Set(cleaned)
}

func first[E any](entries []E) []E { return entries[:min(len(entries), mostEntries)] }

// checkHost limits the lists in the record of a host and checks its address.
func checkHost(h *croft.Host) error {
	h.Addresses, h.Problems = first(h.Addresses), first(h.Problems)
	if len(h.Findings) > croft.MaxFindings {
		h.Findings = h.Findings[:croft.MaxFindings]
	}
	for i := range h.Findings {
		if h.Findings[i].Level != croft.FindingFail {
			h.Findings[i].Level = croft.FindingWarn
		}
	}
	h.Networks, h.GuestAddresses = validNetworks(h.Networks), first(h.GuestAddresses)
	h.GuestAddresses = slices.DeleteFunc(h.GuestAddresses, func(r string) bool { return len(r) > longestRange })
	said := h.Arch
	h.Arch = slices.DeleteFunc(croft.Archs(), func(a croft.Arch) bool { return !slices.Contains(said, a) })
	if len(said) > 0 && len(h.Arch) == 0 { // an empty list would mean x86_64
		return croft.Errorf(croft.Invalid, "the host runs no machines of an architecture that is known here")
	}
	if len(h.Arch) == 0 {
		h.Arch = nil
	}
	if len(h.BackupKey) > 100 {
		return croft.Errorf(croft.Invalid, "the public key of the host is too long")
	}
	return checkAPI(h.API)
}

// longestRange limits a range of IPv4 addresses.
const longestRange = len("255.255.255.255-255.255.255.255")

// validNetworks drops entries that cannot be networks or projects, and entries beyond mostEntries.
func validNetworks(networks map[string][]croft.Project) map[string][]croft.Project {
	var valid map[string][]croft.Project
	for name, projects := range networks {
		if croft.CheckNetworkName(name) != nil || len(valid) == mostEntries {
			continue
		}
		if valid == nil {
			valid = map[string][]croft.Project{}
		}
		kept := []croft.Project{}
		for _, p := range first(projects) {
			if p == croft.EveryProject || p.Check() == nil {
				kept = append(kept, p)
			}
		}
		valid[name] = kept
	}
	return valid
}

// longestEvent limits the name of an event. Agents of newer versions may have events that this one does not know.
const longestEvent = 32

// checkObservation refuses an observation that no agent makes.
func checkObservation(o croft.Observation) error {
	if !slices.Contains(croft.ObservedStates, o.State) {
		return croft.Errorf(croft.Invalid, "%q is not a state of an instance", o.State)
	}
	if o.Ended != "" && o.Ended != croft.EndGuest && o.Ended != croft.EndFailure {
		return croft.Errorf(croft.Invalid, "%q is not an end of a guest", string(o.Ended))
	}
	if len(o.Addresses) > mostEntries || len(o.Events) > mostEntries {
		return croft.Errorf(croft.Invalid, "the observation has too many addresses or events")
	}
	for _, event := range o.Events {
		if len(event.Name) > longestEvent {
			return croft.Errorf(croft.Invalid, "%.80q is not the name of an event", string(event.Name))
		}
	}
	return nil
}
