package registry

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode"

	"croft"
	"croft/cluster"
	"croft/cluster/outbound"
	"croft/internal/lazyregexp"
	"croft/internal/wording"
)

// Bounds of stored values.
const (
	maxText       = 255       // of a site's name for something, in bytes
	maxNote       = 1 << 10   // of a description
	maxParameters = 16 << 10  // of all parameters of a site or an implementation, as JSON
	maxSecret     = 4 << 10   // of a secret
	maxCA         = 256 << 10 // of a site's certificates
	maxPriority   = 1000      // the minimum is its negative
	maxBuild      = 24 * time.Hour
)

var parameterForm = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_-]{0,63}$`)

// checkText validates a site's name for something. Invalid.
func checkText(what, text string) error {
	if len(text) > maxText {
		return croft.Errorf(croft.Invalid, "the %s has %d bytes, at most %d are stored", what, len(text), maxText)
	}
	if strings.ContainsFunc(text, unicode.IsControl) || strings.TrimSpace(text) != text {
		return croft.Errorf(croft.Invalid, "the %s may not start or end with a blank or contain control "+
			"characters", what)
	}
	return nil
}

// checkParameters validates values for templates. They are not secret: every user who may see the site or the
// implementation sees them. Invalid.
func checkParameters(of string, all map[string]any) error {
	for name, value := range all {
		switch {
		case !parameterForm.MatchString(name):
			return croft.Errorf(croft.Invalid, "%.80q is not the name of a parameter of %s", name, of)
		case cluster.Hidden(name):
			return croft.Errorf(croft.Invalid, "parameter %s of %s would be a secret that every user can read: give "+
				"it with the request for a cluster", name, of)
		case value == nil:
			return croft.Errorf(croft.Invalid, "parameter %s of %s has no value: leave it out", name, of)
		case name == "allowed_ip":
			if err := checkAllowed(value); err != nil {
				return croft.Errorf(croft.Invalid, "allowed_ip of %s: %w", of, err)
			}
		}
	}
	text, err := json.Marshal(all)
	if err != nil {
		return croft.Errorf(croft.Invalid, "the parameters of %s are no JSON: %w", of, err)
	}
	if len(text) > maxParameters {
		return croft.Errorf(croft.Invalid, "the parameters of %s have %d bytes as JSON, at most %d are stored", of, len(text),
			maxParameters)
	}
	return nil
}

func checkAllowed(value any) error {
	text, _ := value.(string)
	if _, err := netip.ParsePrefix(text); err == nil {
		return nil
	}
	if _, err := netip.ParseAddr(text); err == nil {
		return nil
	}
	return croft.Errorf(croft.Invalid, "%v is no address, and no network such as 192.0.2.0/24", value)
}

// checkSite validates a site. Invalid.
func checkSite(s cluster.Site) error {
	if err := cluster.CheckName("a site", s.Name); err != nil {
		return err
	}
	if !slices.Contains(cluster.SiteTypes, s.Type) {
		return croft.Errorf(croft.Invalid, "%.80q is no type of a site: use %s", string(s.Type), cluster.OpenStack)
	}
	if err := checkReach(s); err != nil {
		return err
	}
	build := time.Duration(s.BuildTimeout)
	switch {
	case s.Priority < -maxPriority || s.Priority > maxPriority:
		return croft.Errorf(croft.Invalid, "a priority of %d: it is from %d to %d", s.Priority, -maxPriority,
			maxPriority)
	case s.MaxClusters < 0:
		return croft.Errorf(croft.Invalid, "site %s cannot have %d clusters at most: 0 is no limit", s.Name,
			s.MaxClusters)
	case s.BuildTimeout != 0 && (build < time.Minute || build > maxBuild):
		return croft.Errorf(croft.Invalid, "a build may take from 1m to 24h, not %s", wording.Duration(build))
	}
	return checkParameters("site "+s.Name, s.Defaults)
}

// checkReach validates the address of a site.
func checkReach(s cluster.Site) error {
	if s.Type == cluster.Local || s.Type == cluster.Sim {
		if s.AuthURL != "" || s.Region != "" || s.Interface != "" || s.CACert != "" {
			return croft.Errorf(croft.Invalid, "site %s of type %s has no URL, region, interface or certificates", s.Name,
				s.Type)
		}
		return nil
	}
	if s.AuthURL == "" {
		return croft.Errorf(croft.Invalid, "site %s of type %s needs a URL", s.Name, s.Type)
	}
	if err := outbound.CheckURL("site "+s.Name, s.AuthURL); err != nil {
		return err
	}
	if err := checkText("region", s.Region); err != nil {
		return err
	}
	if !slices.Contains([]string{"", "public", "internal", "admin"}, s.Interface) {
		return croft.Errorf(croft.Invalid, "%.80q is no interface of a catalogue: use public, internal or admin", s.Interface)
	}
	if len(s.CACert) > maxCA {
		return croft.Errorf(croft.Invalid, "the certificates have %d bytes, at most %d are stored", len(s.CACert),
			maxCA)
	}
	return outbound.CheckCA(s.CACert)
}

// checkCredential validates a credential for a site, and sets defaults. Invalid.
func checkCredential(c *cluster.Credential, at cluster.Site) error {
	kind, err := at.CredentialKind()
	if err != nil {
		return err
	}
	if c.Kind == "" {
		c.Kind = kind
	}
	if c.Kind != kind {
		return croft.Errorf(croft.Invalid, "site %s of type %s needs a credential of kind %s, not %.40q", at.Name, at.Type,
			kind, string(c.Kind))
	}
	if err := cluster.CheckName("a credential", c.Name); err != nil {
		return err
	}
	if err := c.Project.Check(); err != nil {
		return err
	}
	if c.User == "" {
		return croft.Errorf(croft.Invalid, "a credential needs a user")
	}
	for what, text := range map[string]string{"user": c.User, "user name": c.Username,
		"domain of the user": c.UserDomain, "project name": c.ProjectName, "project ID": c.ProjectID,
		"domain of the project": c.ProjectDomain} {
		if err := checkText(what, text); err != nil {
			return err
		}
	}
	if c.Kind == cluster.Token {
		return nil
	}
	return checkPassword(c)
}

func checkPassword(c *cluster.Credential) error {
	if c.Username == "" {
		return croft.Errorf(croft.Invalid, "credential %s needs a user name", c.Name)
	}
	if (c.ProjectName == "") == (c.ProjectID == "") {
		return croft.Errorf(croft.Invalid, "credential %s needs either the name or the ID of a project at the site", c.Name)
	}
	if c.UserDomain == "" {
		c.UserDomain = "Default"
	}
	if c.ProjectName == "" {
		c.ProjectDomain = "" // a project given by ID needs no domain
	} else if c.ProjectDomain == "" {
		c.ProjectDomain = "Default"
	}
	return nil
}

func checkSecret(s cluster.Secret) error {
	if n := len(s.Reveal()); n == 0 || n > maxSecret {
		return croft.Errorf(croft.Invalid, "a credential needs a secret of 1 to %d bytes; this one has %d", maxSecret, n)
	}
	return nil
}

// checkAppliance validates an appliance, and sets defaults. Invalid.
func checkAppliance(a *cluster.Appliance) error {
	if err := cluster.CheckAppliance(a.Name); err != nil {
		return err
	}
	if a.Project != "" {
		if err := a.Project.Check(); err != nil {
			return err
		}
	}
	if err := checkText("owner", a.Owner); err != nil {
		return err
	}
	switch {
	case a.Owner == "":
		return croft.Errorf(croft.Invalid, "an appliance needs an owner")
	case len(a.Description) > maxNote:
		return croft.Errorf(croft.Invalid, "the description of appliance %s has %d bytes, at most %d are stored", a.Name,
			len(a.Description), maxNote)
	case a.MinSlaves < 0 || a.MinSlaves > cluster.MaxSlaves:
		return croft.Errorf(croft.Invalid, "a cluster has 0 to %d slaves, so %d cannot be the least", cluster.MaxSlaves,
			a.MinSlaves)
	case a.Agent == nil:
		return nil
	}
	agent := *a.Agent // the caller's copy stays unchanged
	a.Agent = &agent
	return checkAgent(&agent)
}

var agentPath = lazyregexp.New(`^(/[A-Za-z0-9._~-]+)+/?$|^/$`)

func checkAgent(a *cluster.Agent) error {
	if a.Port == 0 {
		a.Port = 80
	}
	if a.Path == "" {
		a.Path = "/new_account/"
	}
	if a.Port < 1 || a.Port > 65535 {
		return croft.Errorf(croft.Invalid, "%d is no port of an agent", a.Port)
	}
	if len(a.Path) > maxText || !agentPath.MatchString(a.Path) {
		return croft.Errorf(croft.Invalid, "%.80q is no path of an agent: it begins with a slash, and has letters, digits, "+
			"slashes and . _ ~ -", a.Path)
	}
	return nil
}
