package cluster

import (
	"cmp"
	"fmt"
	"slices"

	"croft"
	"croft/internal/nearest"
)

// CheckHints rejects hints that name something that does not exist: an empty list of candidates would not explain the
// error. Invalid.
func CheckHints(h Hints, w World) error {
	var sites, credentials, implementations []string
	for _, s := range w.Sites {
		sites = append(sites, s.Name)
	}
	for _, c := range w.Credentials {
		credentials = append(credentials, c.Name, string(c.ID))
	}
	for _, i := range w.Implementations {
		implementations = append(implementations, string(i.ID))
	}
	for _, check := range []struct {
		hint, noun     string
		named, present []string
	}{
		{"sites", "site", h.Sites, sites},
		{"exclude_sites", "site", h.ExcludeSites, sites},
		{"prefer_sites", "site", h.PreferSites, sites},
		{"credentials", "credential of yours", h.Credentials, credentials},
		{"implementations", "implementation of this appliance", h.implementations(), implementations},
	} {
		for _, name := range check.named {
			if !slices.Contains(check.present, name) {
				return croft.Errorf(croft.Invalid, "hint %s: there is no %s %.80q%s", check.hint, check.noun, name,
					nearest.Hint(name, check.present))
			}
		}
	}
	return nil
}

// NeedsCredential reports whether a site of this type builds clusters only with a credential.
func (t SiteType) NeedsCredential() bool { return t == OpenStack || t == Croft }

// credential returns the credential to use at a site: the first one in the order of the hints, else the one that was
// verified last, else the oldest one. Credentials that the site has refused since their verification come after all
// others.
func (w World) credential(h Hints, s Site) (Credential, string) {
	var own []Credential
	for _, c := range w.Credentials {
		if c.Site == s.Name {
			own = append(own, c)
		}
	}
	var hinted []Credential
	for _, c := range own {
		if rank(h, c) < len(h.Credentials) {
			hinted = append(hinted, c)
		}
	}
	switch {
	case len(h.Credentials) > 0 && len(hinted) == 0:
		return Credential{}, "none of the credentials that the request asks for is for this site"
	case len(h.Credentials) > 0:
		own = hinted
	case len(own) == 0 && s.Type.NeedsCredential():
		return Credential{}, "you have no credential for this site"
	case len(own) == 0:
		return Credential{}, ""
	}
	return slices.MinFunc(own, func(a, b Credential) int {
		return cmp.Or(cmp.Compare(rank(h, a), rank(h, b)), cmp.Compare(min(1, len(a.LastError)), min(1,
			len(b.LastError))),
			b.VerifiedAt.Compare(a.VerifiedAt), a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	}), ""
}

// rank returns the position of a credential in the hints, or the number of hints if they do not name it.
func rank(h Hints, c Credential) int {
	at := slices.IndexFunc(h.Credentials, func(s string) bool { return s == c.Name || s == string(c.ID) })
	if at < 0 {
		return len(h.Credentials)
	}
	return at
}

// Choices converts candidates to the form that users see.
func Choices(all []Candidate) []Choice {
	choices := []Choice{}
	for _, c := range all {
		choices = append(choices, Choice{Site: c.Site.Name, Implementation: c.Implementation.ID,
			Revision: c.Implementation.Revision, Credential: c.Credential.Name, Capacity: capacity(c.Room), Why: c.Why})
	}
	return choices
}

func capacity(r Room) string {
	if !r.Known {
		return "it is not known whether it has room"
	}
	return fmt.Sprintf("it has room, and leaves %.0f %% of its scarcest resource free", r.Free*100)
}
