package sshca

import (
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"croft"
	"croft/internal/lazyregexp"
	"croft/internal/nearest"
	"croft/internal/settings"
	"croft/internal/wording"
)

// Limits of certificates.
const (
	ttlDefault     = time.Hour
	ttlMax         = 16 * time.Hour // for users' certificates
	hostTTLDefault = 90 * 24 * time.Hour
	hostTTLMax     = 366 * 24 * time.Hour
	backdated      = time.Minute // certificates start earlier by this time, for hosts whose clock is slow
)

// A Role is what a certificate allows. The zero Role allows nothing: it has no principals.
type Role struct {
	Users      []string `yaml:"users"`      // users who may have the role
	Principals []string `yaml:"principals"` // principals of a certificate; ${user} stands for the requesting user
	// TTL is the default validity of a certificate, MaxTTL the longest that a user may request. At most 16h.
	TTL    time.Duration `yaml:"ttl"`
	MaxTTL time.Duration `yaml:"max_ttl"`
	// Extensions lists the features that sshd allows besides running a program. All others are forbidden.
	Extensions    []string `yaml:"extensions"`
	SourceAddress []string `yaml:"source_address"` // addresses and prefixes from which a login is allowed; empty: all
	ForceCommand  string   `yaml:"force_command"`  // runs instead of the requested command; empty: no forced command
}

// Roles are the rules of an authority.
type Roles struct {
	Roles map[string]Role `yaml:"roles"`
}

// firstRoles is the file that Init writes.
const firstRoles = `# Rules for certificates, signed here (sign) or over ssh (serve).
#
# roles:
#   ops:
#     users: [eva, tom]              # users who may request it
#     principals: [ops]              # principals of a certificate; ${user} is the requesting user
#     ttl: 1h                        # at most max_ttl, and that at most 16h
#     max_ttl: 8h
#     extensions: [permit-pty]       # all others are forbidden
#     source_address: [10.0.0.0/8]   # addresses to log in from
#     force_command: /usr/bin/uptime # runs instead of the requested command
roles: {}
`

var (
	// nameForm is the form of the names of users and roles, which occur in certificates, logs and command lines.
	nameForm = lazyregexp.New(`^[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,62}$`)
	// principalForm excludes the characters that separate principals, and those that a line cannot contain.
	principalForm = lazyregexp.New(`^[a-zA-Z0-9_][a-zA-Z0-9_.:@/+-]{0,255}$`)
)

var extensions = []string{"no-touch-required", "permit-agent-forwarding", "permit-port-forwarding", "permit-pty",
	"permit-user-rc", "permit-X11-forwarding"}

func (a *CA) rolesFile() string { return filepath.Join(a.Dir, "roles.yaml") }

// Roles reads roles.yaml. Invalid: the file is wrong or missing.
func (a *CA) Roles() (Roles, error) {
	none := func(string) (string, bool) { return "", false }
	r, _, err := settings.Load(Roles{}, settings.Source{File: a.rolesFile(), Env: none})
	if err != nil {
		return r, err
	}
	for _, name := range slices.Sorted(maps.Keys(r.Roles)) {
		if err := r.Roles[name].check(name); err != nil {
			return r, croft.Errorf(croft.Invalid, "%s: role %s: %w", a.rolesFile(), name, err)
		}
	}
	return r, nil
}

func (r Role) check(name string) error {
	if !nameForm.MatchString(name) {
		return fmt.Errorf("%q is not a name: use letters, digits, dots, dashes and underscores", name)
	}
	if len(r.Principals) == 0 {
		return fmt.Errorf("no principals: to sshd that would mean any user")
	}
	for _, p := range r.Principals {
		if !principalForm.MatchString(strings.ReplaceAll(p, "${user}", "user")) {
			return fmt.Errorf("%q is not a principal: use letters, digits and _.:@/+-, and ${user}", p)
		}
	}
	for _, u := range r.Users {
		if !nameForm.MatchString(u) {
			return fmt.Errorf("%q is not a user's name: use letters, digits, dots, dashes and underscores", u)
		}
	}
	for _, e := range r.Extensions {
		if !slices.Contains(extensions, e) {
			return fmt.Errorf("sshd has no extension %q%s", e, nearest.Hint(e, extensions))
		}
	}
	for _, s := range r.SourceAddress {
		_, notAddress := netip.ParseAddr(s)
		if prefix, err := netip.ParsePrefix(s); notAddress != nil && (err != nil || prefix.Masked() != prefix) {
			return fmt.Errorf("source_address %q: give an address, or a prefix such as 10.0.0.0/8", s)
		}
	}
	if strings.ContainsAny(r.ForceCommand, "\x00\n") {
		return fmt.Errorf("force_command: give one line")
	}
	if r.TTL < 0 || r.MaxTTL < 0 || r.TTL > ttlMax || r.MaxTTL > ttlMax {
		return fmt.Errorf("ttl and max_ttl: give a positive time of at most %s", wording.Duration(ttlMax))
	}
	if most := r.longest(); r.TTL > most {
		return fmt.Errorf("ttl %s is longer than max_ttl %s", wording.Duration(r.TTL), wording.Duration(most))
	}
	return nil
}

// longest returns the longest time that a certificate of the role may be valid.
func (r Role) longest() time.Duration {
	if r.MaxTTL == 0 {
		return max(r.TTL, ttlDefault)
	}
	return r.MaxTTL
}

// usual returns how long a certificate of the role is valid if the request gives no time.
func (r Role) usual() time.Duration {
	if r.TTL == 0 {
		return min(ttlDefault, r.longest())
	}
	return r.TTL
}

// allowed returns a role that a user may have. An empty name selects the user's only role. Denied: the user may not
// have the role. Invalid: the name is empty, and the user has several roles.
func (r Roles) allowed(user, name string) (string, Role, error) {
	var his []string
	for _, n := range slices.Sorted(maps.Keys(r.Roles)) {
		if slices.Contains(r.Roles[n].Users, user) {
			his = append(his, n)
		}
	}
	switch {
	case name == "" && len(his) == 1:
		name = his[0]
	case name == "" && len(his) > 1:
		return "", Role{}, croft.Errorf(croft.Invalid, "%s has several roles: ask for one of %s", user,
			strings.Join(his, ", "))
	case name == "":
		return "", Role{}, croft.Errorf(croft.Denied, "%s has no role", user)
	}
	role, is := r.Roles[name]
	if !slices.Contains(his, name) {
		if !is {
			return "", Role{}, croft.Errorf(croft.Denied, "%s may not have the role %q%s", user, name,
				nearest.Hint(name, his))
		}
		return "", Role{}, croft.Errorf(croft.Denied, "%s may not have the role %q", user, name)
	}
	return name, role, nil
}
