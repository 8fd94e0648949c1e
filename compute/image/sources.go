package image

import (
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"

	"croft"
)

// Sources are prefixes of the addresses from which users' images may come. The zero Sources permit none.
type Sources struct{ prefixes []*url.URL }

// ParseSources reads prefixes: https:// or http:// for every server, or an address that ends with a slash. Invalid.
func ParseSources(texts []string) (Sources, error) {
	var s Sources
	for _, text := range texts {
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" ||
			u.Fragment != "" || u.Host == "" && u.Path != "" || !plainPath(u) || !strings.HasSuffix(text, "/") {
			return Sources{}, croft.Errorf(croft.Invalid, "%q is not the beginning of addresses: write https://SERVER/, "+
				"https://SERVER/DIRECTORY/, or https:// for every server", text)
		}
		s.prefixes = append(s.prefixes, u)
	}
	return s, nil
}

// Prefixes lists the prefixes.
func (s Sources) Prefixes() []string {
	all := []string{}
	for _, p := range s.prefixes {
		all = append(all, p.String())
	}
	return all
}

// Check rejects a reference that names an address outside of the sources: of the image, of the list that verifies it,
// or of that list's signature. Denied.
func (s Sources) Check(reference string) error {
	ref, err := ParseReference(reference)
	if err != nil {
		return err
	}
	permitted := ref.Path == ""
	for _, address := range []string{ref.URL, ref.Sums, ref.Signature} {
		permitted = permitted && (address == "" || s.has(address))
	}
	if !permitted {
		return croft.Errorf(croft.Denied, "the cloud takes no image from there: use a name of its catalog%s", s.words())
	}
	return nil
}

// Public reports whether a reference that Check permits may lead only to the internet. It is true if only sources
// without a server name permit it.
func (s Sources) Public(reference string) bool {
	ref, err := ParseReference(reference)
	if err != nil {
		return true
	}
	named := Sources{slices.DeleteFunc(slices.Clone(s.prefixes), func(p *url.URL) bool { return p.Host == "" })}
	return slices.ContainsFunc(ref.urls(), func(address string) bool { return !named.has(address) })
}

// words lists the prefixes for a message.
func (s Sources) words() string {
	all := s.Prefixes()
	if len(all) == 0 {
		return ""
	}
	return ", or an address that begins with " + strings.Join(all, " or ")
}

func (s Sources) has(address string) bool {
	u, err := url.Parse(address)
	if err != nil || !plainPath(u) {
		return false
	}
	for _, p := range s.prefixes {
		here := ofTheInternet(u)
		if p.Host != "" {
			here = serverOf(p) == serverOf(u) && strings.HasPrefix(u.Path, p.Path)
		}
		if p.Scheme == u.Scheme && here {
			return true
		}
	}
	return false
}

// ofTheInternet reports whether a URL names neither this machine nor a non-public address. Hosts can reach such
// addresses, and tenants cannot. An operator who wants to permit such a server for tenants' images lists it.
func ofTheInternet(u *url.URL) bool {
	name := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	a, err := netip.ParseAddr(name)
	if err != nil {
		return name != "localhost" && !strings.HasSuffix(name, ".localhost")
	}
	return zoneOf(a, nil) == internet
}

// serverOf returns host name and port of a URL.
func serverOf(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return strings.ToLower(strings.TrimSuffix(u.Hostname(), ".")) + ":" + port
}

// plainPath reports whether every program reads a path the same way: it has no dot segments and no escaped separators.
func plainPath(u *url.URL) bool {
	clean := path.Clean("/" + u.Path)
	if strings.HasSuffix(u.Path, "/") && clean != "/" {
		clean += "/"
	}
	return (u.Path == "" || u.Path == clean) && !strings.ContainsAny(u.Path, `\`) && u.RawPath == ""
}
