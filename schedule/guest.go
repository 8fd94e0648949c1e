package schedule

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"croft"
	"croft/internal/lazyregexp"
	"croft/internal/nearest"
	"croft/internal/userdata"
)

// Valid metadata sources, restart policies and modes of the metadata server.
var (
	Metadata = []string{string(croft.MetadataAuto), string(croft.MetadataServer), string(croft.MetadataNoCloud),
		string(croft.MetadataConfigDrive)}
	Restarts = []string{string(croft.RestartAlways), string(croft.RestartOnFailure), string(croft.RestartNever),
		string(croft.RestartElsewhere), string(croft.RestartElsewhereDisk), string(croft.RestartElsewhereImage),
		string(croft.RestartElsewhereBackup)}
	IMDS = []string{string(croft.IMDSOptional), string(croft.IMDSRequired), string(croft.IMDSOff)}
)

// Limits of an instance's tags: their number, and sizes in bytes.
const (
	maxTags    = 50
	maxTagKey  = 128
	maxTagText = 256
)

// CheckGuest checks the settings of a guest. Invalid.
func CheckGuest(s croft.GuestSettings) error {
	if s.Restart != "" && !slices.Contains(Restarts, string(s.Restart)) {
		return croft.Errorf(croft.Invalid, "restart is %q: use %s%s", s.Restart, oneOf(Restarts),
			nearest.Hint(string(s.Restart), Restarts))
	}
	if s.Metadata != "" && !slices.Contains(Metadata, string(s.Metadata)) {
		return croft.Errorf(croft.Invalid, "metadata is %q: use %s%s", s.Metadata, oneOf(Metadata),
			nearest.Hint(string(s.Metadata), Metadata))
	}
	if s.IMDS != "" && !slices.Contains(IMDS, string(s.IMDS)) {
		return croft.Errorf(croft.Invalid, "imds is %q: use %s%s", s.IMDS, oneOf(IMDS),
			nearest.Hint(string(s.IMDS), IMDS))
	}
	if s.Metadata == croft.MetadataServer && s.IMDS == croft.IMDSOff {
		return croft.Errorf(croft.Invalid, "imds is off, so the server has no metadata: choose another source, or another imds")
	}
	if err := checkTags(s.Tags); err != nil {
		return err
	}
	return userdata.Check(s.UserData)
}

func oneOf(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

func checkTags(tags map[string]string) error {
	if len(tags) > maxTags {
		return croft.Errorf(croft.Invalid, "%d tags are too many: at most %d", len(tags), maxTags)
	}
	for key, text := range tags {
		switch {
		case key == "" || len(key) > maxTagKey || !isPrintable(key):
			return croft.Errorf(croft.Invalid, "the tag %q: a key has 1 to %d bytes that can be printed", key,
				maxTagKey)
		case len(text) > maxTagText || !isPrintable(text):
			return croft.Errorf(croft.Invalid, "the tag %s: a value has at most %d bytes that can be printed", key,
				maxTagText)
		}
	}
	return nil
}

func isPrintable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
}

var nameForm = lazyregexp.New(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// CheckName accepts a host name of one label (RFC 1123) in lower case that cannot be mistaken for a UUID. Anything else
// is Invalid.
func CheckName(name string) error {
	switch {
	case len(name) > 63:
		return croft.Errorf(croft.Invalid, "the name %.20q... has %d characters: a host name has at most 63", name,
			len(name))
	case !nameForm.MatchString(name):
		return croft.Errorf(croft.Invalid, "the name %q is not a host name: use a to z, 0 to 9 and dashes in between",
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
