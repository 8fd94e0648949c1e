package croft

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// CrushPolicy is a policy by which CRUSH chooses hosts, in the four instructions of package crush/policy. An operator
// chose its name.
type CrushPolicy struct {
	Name string `json:"name"`
	Text string `json:"text"` // at most MaxPolicyText bytes
	// Generation is the version of the stored policy. 0: it is not stored.
	Generation int64 `json:"generation"`
}

// Limits of policies. An instance's record and its order contain the text.
const (
	MaxPolicyText = 4096
	MaxPolicies   = 1000
)

// CheckPolicyName validates the name of a policy. Invalid.
func CheckPolicyName(name string) error {
	if !aggregateForm.MatchString(name) {
		return Errorf(Invalid, "%.80q is not the name of a policy: use a to z, 0 to 9 and dashes in between, 63 "+
			"characters at most", name)
	}
	return nil
}

// Check validates a policy's name, and that its text is text. Invalid.
func (p CrushPolicy) Check() error {
	if err := CheckPolicyName(p.Name); err != nil {
		return err
	}
	switch bad := func(r rune) bool { return !unicode.IsPrint(r) && r != '\n' && r != '\t' }; {
	case len(p.Text) > MaxPolicyText:
		return Errorf(Invalid, "policy %s has %d bytes: it may have %d", p.Name, len(p.Text), MaxPolicyText)
	case !utf8.ValidString(p.Text) || strings.ContainsFunc(p.Text, bad):
		return Errorf(Invalid, "policy %s has characters that cannot be printed: leave them out", p.Name)
	}
	return nil
}

// CrushNumbers are the input of CRUSH: a number for each host and location, which stays the same while the host or the
// location is on record, independently of others.
type CrushNumbers struct {
	Hosts     map[HostID]int32
	Locations map[string]int32 // by the name of the location's bucket
}

// MaxCrushNumber is above all numbers of hosts and locations.
const MaxCrushNumber = 1<<17 - 1

// Refusal is a host that a policy chose before another and that was refused.
type Refusal struct {
	Host HostID `json:"host"`
	Why  string `json:"why"` // a phrase to follow the host's name, such as: is drained
}

// MaxRefusals is the maximum number of refusals in a record, which keeps the first ones.
const MaxRefusals = 16
