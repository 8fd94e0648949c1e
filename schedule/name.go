package schedule

import (
	"regexp"

	"croft"
)

var nameForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// CheckName accepts a host name of one label (RFC 1123) in lower case that cannot be mistaken for a UUID. Anything else
// is Invalid.
func CheckName(name string) error {
	switch {
	case len(name) > 63:
		return croft.Errorf(croft.Invalid, "the name %.20q... has %d characters: a host name has at most 63", name,
			len(name))
	case !nameForm.MatchString(name):
		return croft.Errorf(croft.Invalid, "the name %q is no host name: use a to z, 0 to 9 and dashes in between",
			name)
	}
	if _, err := croft.ParseInstanceID(name); err == nil {
		return croft.Errorf(croft.Invalid, "the name %q looks like a UUID: choose another one", name)
	}
	return nil
}

// DefaultName names an instance that was requested without a name, with enough digits of its UUID to keep the names of
// a hundred thousand instances distinct.
func DefaultName(id croft.InstanceID) string {
	return "vm-" + string(id)[:min(13, len(id))]
}
