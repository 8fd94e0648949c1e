package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"croft"
	"croft/internal/wording"
)

// Created is the answer to a request for a cluster.
type Created struct {
	Cluster Cluster
	Reused  bool // the cluster existed before: the request joined it, or repeated an earlier request
}

// Change changes the fields of a cluster that a user may change. Omitted fields stay unchanged.
type Change struct {
	_ struct{} `minProperties:"1"`

	Name   *string `json:"name,omitempty" maxLength:"63" minLength:"1"` // the new name
	Slaves *int    `json:"slaves,omitempty" maximum:"1000" minimum:"0"` // wanted number of slaves
	// Indexes names the wanted slaves. It is for a cloud that uses this cloud as a site: the two then count slaves
	// alike after a resize that one of them refused. Slaves, if given, is the number of Indexes.
	Indexes  *[]int   `json:"indexes,omitempty" maxItems:"1000" maximum:"1000000" minimum:"0"`
	KeepIdle *Seconds `json:"keep_idle,omitempty" maximum:"315360000" minimum:"0"` // seconds
	Expires  *Seconds `json:"expires,omitempty" maximum:"315360000" minimum:"0"`   // seconds from now on
}

// Seconds is a duration, in JSON a whole number of seconds. A positive one is never 0 there.
type Seconds time.Duration

// MarshalJSON rounds up to seconds.
func (s Seconds) MarshalJSON() ([]byte, error) {
	return strconv.AppendInt(nil, int64((time.Duration(s)+time.Second-1)/time.Second), 10), nil
}

// UnmarshalJSON reads a number of seconds.
func (s *Seconds) UnmarshalJSON(text []byte) error {
	var n int64
	err := json.Unmarshal(text, &n)
	*s = Seconds(time.Duration(n) * time.Second)
	return err
}

// Removal is a request to delete a cluster.
type Removal struct {
	User    string // the user who asks
	Force   bool   // delete it even while other users have uses of it
	Abandon bool   // do not wait for the site: its remains of the cluster stay
}

// Filter selects clusters; an empty field selects all.
type Filter struct {
	State           State
	Appliance, Site string
}

// Explanation says where a cluster would be built.
type Explanation struct {
	Candidates []Choice  `json:"candidates"`      // best first
	Dropped    []Dropped `json:"dropped"`         // what cannot build it, and why
	Reuse      string    `json:"reuse,omitempty"` // the name of the cluster that the request would join
	Quota      string    `json:"quota,omitempty"` // why the quota of the project permits no further cluster
}

// Choice is a candidate as users see it.
type Choice struct {
	Site           string           `json:"site"`                 // its name
	Implementation ImplementationID `json:"implementation"`       // its UUID
	Revision       int              `json:"revision"`             // of the implementation
	Credential     string           `json:"credential,omitempty"` // name of the credential
	Capacity       string           `json:"capacity"`             // one sentence
	Why            string           `json:"why"`                  // why it ranks before the next choice
}

// ChoiceError says that no site can build a cluster. Its kind is NoCapacity.
type ChoiceError struct{ Dropped []Dropped }

// Error implements error.
func (e *ChoiceError) Error() string {
	text := "no site can build this cluster"
	for i, d := range e.Dropped {
		sep := "; "
		if i == 0 {
			sep = ": "
		}
		text += sep + d.Site + ": " + d.Reason
	}
	return text
}

// Unwrap returns its kind.
func (e *ChoiceError) Unwrap() error { return croft.NoCapacity }

// NewCredential describes a credential to create.
type NewCredential struct {
	Credential // without ID, Secret and times
	Plain      Secret
	Unverified bool // do not try to log in before storing it
}

// CredentialChange changes a credential. Omitted fields stay unchanged.
type CredentialChange struct {
	_ struct{} `minProperties:"1"`

	// Lower-case letters, digits and dashes; starts with a letter. Unique for the user in the project.
	Name     *string `json:"name,omitempty" maxLength:"63" minLength:"1"`
	Username *string `json:"username,omitempty" maxLength:"255"` // at the site
	// Default by default.
	UserDomain *string `json:"user_domain,omitempty" maxLength:"255"`
	// At the site; or project_id.
	ProjectName   *string `json:"project_name,omitempty" maxLength:"255"`
	ProjectID     *string `json:"project_id,omitempty" maxLength:"255"`     // UUID of the project at the site
	ProjectDomain *string `json:"project_domain,omitempty" maxLength:"255"` // domain of the project at the site
	Plain         *Secret `json:"-"`                                        // the new password or token
	Unverified    bool    `json:"-"`                                        // do not try to log in before storing it
}

// SiteChange changes a site. Omitted fields stay unchanged.
type SiteChange struct {
	_ struct{} `minProperties:"1"`

	AuthURL *string `json:"auth_url,omitempty" maxLength:"2048"` // URL of its Keystone
	Region  *string `json:"region,omitempty" maxLength:"255"`    // of its services
	// of its services: public, internal or admin
	Interface *string `json:"interface,omitempty" maxLength:"32"`
	// certificates of the authority of its services, in PEM
	CACert *string `json:"ca_cert,omitempty" maxLength:"65536"`
	// whether new clusters are built there
	Enabled      *bool          `json:"enabled,omitempty"`
	Priority     *int           `json:"priority,omitempty" maximum:"1000" minimum:"-1000"`    // higher priorities are chosen first
	Defaults     map[string]any `json:"defaults,omitzero" maxProperties:"64"`                 // replaces all of them
	BuildTimeout *Seconds       `json:"build_timeout,omitempty" maximum:"604800" minimum:"1"` // seconds
	MaxClusters  *int           `json:"max_clusters,omitempty" maximum:"1000000" minimum:"0"` // at once; 0: no limit
}

// SiteHealth is the answer of a site to a probe made now.
type SiteHealth struct {
	Site      string `json:"site"`      // its name
	Reachable bool   `json:"reachable"` // whether it answers
	// Why it is not.
	Error string `json:"error,omitempty"`
	Probe
}

// ApplianceChange changes an appliance. Omitted fields stay unchanged.
type ApplianceChange struct {
	_ struct{} `minProperties:"1"`

	Description *string `json:"description,omitempty" maxLength:"1024" pattern:"^[^\\p{C}\\p{Zl}\\p{Zp}]*$"` // for people
	// Operators alone change it.
	Public    *bool  `json:"public,omitempty"`
	MinSlaves *int   `json:"min_slaves,omitempty" maximum:"1000" minimum:"0"` // the smallest number of slaves
	Agent     *Agent `json:"agent,omitempty"`                                 // what runs on the hosts
}

// Login is an account as its user sees it.
type Login struct {
	Username string
	Password Secret
	Made     bool // the account was created by this request
}

// AwayError says that something outside of the cloud's own store does not answer now: a site, a service that runs
// there, or the vault. Its kind is Unavailable. Users see its text, unlike the text of internal errors.
type AwayError struct{ Text string }

// Away makes an AwayError.
func Away(format string, args ...any) error { return &AwayError{fmt.Sprintf(format, args...)} }

// Error implements error.
func (e *AwayError) Error() string { return e.Text }

// Unwrap returns its kind.
func (e *AwayError) Unwrap() error { return croft.Unavailable }

// SilentError is the error of a driver whose site sent no HTTP response at all. Its kind is Unavailable.
type SilentError struct{ Err error }

// Silent wraps err in a SilentError.
func Silent(err error) error { return &SilentError{err} }

// Error implements error.
func (e *SilentError) Error() string { return e.Err.Error() }

// Unwrap returns the cause and the kind.
func (e *SilentError) Unwrap() []error { return []error{e.Err, croft.Unavailable} }

// FaultError is the error of a driver whose site answered a request, but could not serve it: with a 5xx status, or with
// a page of a proxy. Its kind is Unavailable. It counts against the stack or the credential of the request, and never
// closes the site for other requests.
type FaultError struct{ Err error }

// Faulty wraps err in a FaultError.
func Faulty(err error) error { return &FaultError{err} }

// Error implements error.
func (e *FaultError) Error() string { return e.Err.Error() }

// Unwrap returns the cause and the kind.
func (e *FaultError) Unwrap() []error { return []error{e.Err, croft.Unavailable} }

// ImageError is the error of a driver whose site does not have the requested image. It has the kind of its cause.
type ImageError struct{ Err error }

// Error implements error.
func (e *ImageError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *ImageError) Unwrap() error { return e.Err }

// Output is an output of a cluster as its user reads it.
type Output struct {
	Name   string
	Value  any
	Secret bool // the value is stored sealed
}

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
	if r.Reuse != "" && r.Reuse != ReuseAuto && r.Reuse != ReuseNever {
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
func CheckPeriods(keepIdle, expires Seconds) error {
	for what, period := range map[string]Seconds{"keep_idle": keepIdle, "expires": expires} {
		d := time.Duration(period)
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

// Digest returns a hash of a request, which identifies a repeated request. It leaves out the parameters, which may be
// secret and easy to guess; the stored parameters of the cluster are compared instead. Digests are stored, so all
// versions hash the same text.
func (r Request) Digest() string {
	if r.Reuse == ReuseAuto {
		r.Reuse = ""
	}
	text, err := json.Marshal(struct {
		Name      string        `json:"name"`
		Project   croft.Project `json:"project"`
		User      string        `json:"user"`
		Appliance string        `json:"appliance"`
		Slaves    int           `json:"slaves"`
		Hints     Hints         `json:"hints"`
		Keys      []string      `json:"keys,omitempty"`
		Reuse     Reuse         `json:"reuse,omitempty"`
		KeepIdle  time.Duration `json:"keep_idle,omitempty"`
		Expires   time.Duration `json:"expires,omitempty"`
	}{r.Name, r.Project, r.User, r.Appliance, r.Slaves, r.Hints, r.Keys, r.Reuse, time.Duration(r.KeepIdle),
		time.Duration(r.Expires)})
	if err != nil {
		// a struct of our own, without the parameters of unknown types: cannot fail
		panic("cluster: encode a request: " + err.Error())
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
