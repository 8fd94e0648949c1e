package image

import (
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"croft"
	"croft/internal/redact"
)

// Reference names an image and says how it is verified. Exactly one of URL and Path is set; at most one of
// SHA256, SHA512 and Sums; SignedBy only with Sums, and Signature only with SignedBy.
type Reference struct {
	URL       string // http or https, without fragment
	Path      string // absolute path on the fetching host
	SHA256    string // hex, lower case
	SHA512    string // hex, lower case
	Sums      string // URL of the publisher's list of checksums
	SignedBy  string // absolute path, on the fetching host, of the keyring with the list's signing key
	Signature string // URL of the list's signature; empty: inside the list
	Public    bool   // whether its URLs may lead only to the internet; String leaves it out
}

const publicPrefix = "public:"

// key identifies the reference in the index and among downloads. A public reference has separate entries, since those
// of others may come from servers that it must not be fetched from.
func (r Reference) key() string {
	if r.Public {
		return publicPrefix + r.String()
	}
	return r.String()
}

// urls returns the URLs that are requested for the reference.
func (r Reference) urls() []string {
	return slices.DeleteFunc([]string{r.URL, r.Sums, r.Signature}, func(u string) bool { return u == "" })
}

// ParseReference parses http(s)://..., file:///abs/path or /abs/path, each with an optional fragment:
// #sha256=HEX,
// #sha512=HEX or #sums=URL, which may be relative to the image's own address and be followed by &signed-by=KEYRING and
// &signature=URL. Anything else is Invalid.
func ParseReference(s string) (Reference, error) {
	address, fragment := splitFragment(s)
	ref, err := parseAddress(address)
	if err != nil {
		return Reference{}, err
	}
	if fragment == "" {
		return ref, nil
	}
	return ref, ref.parseFragment(fragment)
}

// splitFragment keeps a # that belongs to a file's name: in a path, unless it reads like a check; a URL
// encodes it as %23.
func splitFragment(s string) (address, fragment string) {
	if !strings.HasPrefix(s, "/") {
		address, fragment, _ = strings.Cut(s, "#")
		return address, fragment
	}
	i := strings.LastIndexByte(s, '#')
	if i < 0 || !strings.Contains(s[i:], "=") {
		return s, ""
	}
	return s[:i], s[i+1:]
}

func parseAddress(s string) (Reference, error) {
	if strings.HasPrefix(s, "/") {
		return Reference{Path: filepath.Clean(s)}, nil
	}
	u, err := url.Parse(s)
	if err != nil {
		return Reference{},
			croft.Errorf(croft.Invalid,
				"image %q is not a valid address: give an http or https URL or an absolute path", s)
	}
	switch u.Scheme {
	case "http", "https":
		if u.Hostname() == "" {
			return Reference{}, croft.Errorf(croft.Invalid, "image %q names no server: write %s://SERVER/PATH", s,
				u.Scheme)
		}
		return Reference{URL: u.String()}, nil
	case "file":
		if u.Host != "" && u.Host != "localhost" || !strings.HasPrefix(u.Path, "/") || u.RawQuery != "" {
			return Reference{},
				croft.Errorf(croft.Invalid,
					"image %q is not a file on the host: write file:///ABSOLUTE/PATH, with three slashes", s)
		}
		return Reference{Path: filepath.Clean(u.Path)}, nil
	case "":
		return Reference{}, croft.Errorf(croft.Invalid, "image %q is neither a URL nor an absolute path", s)
	}
	return Reference{},
		croft.Errorf(croft.Invalid, "image %q: %s addresses cannot be fetched; give an http, https or file URL", s,
			u.Scheme)
}

// String returns the reference as in an order; ParseReference parses it.
func (r Reference) String() string {
	address := r.URL
	if r.Path != "" {
		address = (&url.URL{Scheme: "file", Path: r.Path}).String()
	}
	switch {
	case r.SHA256 != "":
		return address + "#sha256=" + r.SHA256
	case r.SHA512 != "":
		return address + "#sha512=" + r.SHA512
	case r.Sums != "":
		return address + "#" + r.sumsFragment()
	}
	return address
}

// Name returns the address for display, without fragment and secrets.
func (r Reference) Name() string {
	if r.Path != "" {
		return r.Path
	}
	u, err := url.Parse(r.URL)
	if err != nil {
		return r.URL
	}
	return redact.URL(u)
}

// file returns the image's name in a list of checksums.
func (r Reference) file() string {
	u, err := url.Parse(r.URL)
	if err != nil {
		return ""
	}
	return path.Base(u.Path)
}

// want returns the checksum in the reference itself, if any.
func (r Reference) want() digest {
	switch {
	case r.SHA256 != "":
		return digest{"sha256", r.SHA256}
	case r.SHA512 != "":
		return digest{"sha512", r.SHA512}
	}
	return digest{}
}

// digest is the checksum that a file must have; zero: any content.
type digest struct {
	algo string // sha256 or sha512
	hex  string // lower case
}

// digestOf derives the algorithm from the number of digits.
func digestOf(hex string) (digest, bool) {
	if !isHex(hex) {
		return digest{}, false
	}
	switch len(hex) {
	case 64:
		return digest{"sha256", strings.ToLower(hex)}, true
	case 128:
		return digest{"sha512", strings.ToLower(hex)}, true
	}
	return digest{}, false
}

func isHex(s string) bool {
	return strings.Trim(s, "0123456789abcdefABCDEF") == ""
}
