package cluster

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unicode"

	"croft"
	"croft/internal/wording"
)

// The bounds of a request.
const (
	// MaxParameters is the maximum number of parameters of a request.
	MaxParameters = 100
	// MaxParameterBytes bounds the sum of all parameters, as JSON.
	MaxParameterBytes = 64 << 10
	maxHints          = 100
	maxKeys           = 100
	maxKeyBytes       = 16 << 10 // of one key
	maxPeriod         = 10 * 365 * 24 * time.Hour
	minPeriod         = time.Minute
)

// hintNames are the names of the hints in requests: the hard ones, then the preference.
var hintNames = []string{"sites", "exclude_sites", "credentials", "implementations", "prefer_sites"}

// Check validates a request without looking at stored records. Invalid.
func (r Request) Check() error {
	if r.ID != "" {
		if id, err := croft.ParseClusterID(string(r.ID)); err != nil || id != r.ID {
			return croft.Errorf(croft.Invalid, "%.80q is not an ID for a cluster: use a UUID in small letters",
				string(r.ID))
		}
	}
	if err := CheckName("a cluster", r.Name); err != nil {
		return err
	}
	if err := CheckName("an appliance", r.Appliance); err != nil {
		return err
	}
	if r.Project == "" || r.User == "" {
		return croft.Errorf(croft.Invalid, "a cluster needs a project and a user")
	}
	if err := CheckSlaves(r.Slaves, 0); err != nil {
		return err
	}
	if r.Reuse != ReuseAuto && r.Reuse != ReuseNever {
		return croft.Errorf(croft.Invalid, "reuse %.80q: use %q, or leave it out", string(r.Reuse), string(ReuseNever))
	}
	if err := CheckPeriods(r.KeepIdle, r.Expires); err != nil {
		return err
	}
	if err := r.Hints.Check(); err != nil {
		return err
	}
	if err := checkKeys(r.Keys); err != nil {
		return err
	}
	return checkParameters(r.Parameters)
}

// checkKeys rejects keys that cannot be a line of authorized_keys. It does not parse them: the consumer of a key does.
func checkKeys(keys []string) error {
	if len(keys) > maxKeys {
		return croft.Errorf(croft.Invalid, "%d keys are given, at most %d are read", len(keys), maxKeys)
	}
	for _, key := range keys {
		if key == "" || len(key) > maxKeyBytes || strings.ContainsFunc(key, unicode.IsControl) {
			return croft.Errorf(croft.Invalid, "key %.40q is not one line of 1 to %d bytes", key, maxKeyBytes)
		}
	}
	return nil
}

// CheckSlaves validates the number of slaves of a cluster whose appliance needs at least least. Invalid.
func CheckSlaves(n, least int) error {
	if n < 0 || n > MaxSlaves {
		return croft.Errorf(croft.Invalid, "%d slaves: a cluster has 0 to %d", n, MaxSlaves)
	}
	if n < least {
		return croft.Errorf(croft.Invalid, "%d slaves: this appliance needs at least %d (--slaves)", n, least)
	}
	return nil
}

// CheckPeriods validates the periods after which a cluster ends. Invalid.
func CheckPeriods(keepIdle, expires time.Duration) error {
	for what, d := range map[string]time.Duration{"keep_idle": keepIdle, "expires": expires} {
		if d < 0 || d > maxPeriod {
			return croft.Errorf(croft.Invalid, "%s is %s: use 0 to %s", what, wording.Duration(d),
				wording.Duration(maxPeriod))
		}
		if d > 0 && d < minPeriod {
			return croft.Errorf(croft.Invalid, "%s is %s: the end of a cluster is announced at least %s before it, so "+
				"use that or more, or 0 for never", what, wording.Duration(d), wording.Duration(minPeriod))
		}
	}
	return nil
}

// Check validates hints without looking at stored records. Invalid.
func (h Hints) Check() error {
	for i, list := range [][]string{h.Sites, h.ExcludeSites, h.Credentials, h.implementations(), h.PreferSites} {
		if len(list) > maxHints {
			return croft.Errorf(croft.Invalid, "hint %s has %d values, at most %d are read", hintNames[i], len(list),
				maxHints)
		}
		for at, value := range list {
			if slices.Contains(list[:at], value) {
				return croft.Errorf(croft.Invalid, "hint %s names %.80q twice", hintNames[i], value)
			}
		}
	}
	for _, site := range h.Sites {
		if slices.Contains(h.ExcludeSites, site) {
			return croft.Errorf(croft.Invalid, "the hints ask for site %.80q, and exclude it", site)
		}
	}
	return nil
}

func (h Hints) implementations() []string {
	var all []string
	for _, id := range h.Implementations {
		all = append(all, string(id))
	}
	return all
}

func checkParameters(p map[string]any) error {
	if len(p) > MaxParameters {
		return croft.Errorf(croft.Invalid, "%d parameters are given, at most %d are read", len(p), MaxParameters)
	}
	text, err := json.Marshal(p)
	if err != nil {
		return croft.Errorf(croft.Invalid, "the parameters cannot be written as JSON")
	}
	if len(text) > MaxParameterBytes {
		return croft.Errorf(croft.Invalid, "the parameters have %d bytes, at most %d are read", len(text),
			MaxParameterBytes)
	}
	return nil
}
