package image

import (
	"net/url"
	"path"
	"path/filepath"
	"strings"

	"croft"
	"croft/internal/nearest"
)

// Reference names an image and says how it is verified. Exactly one of URL and
// Path is set; at most one of SHA256, SHA512 and Sums.
type Reference struct {
	URL    string // http or https, without fragment
	Path   string // absolute path on the host that fetches
	SHA256 string // hex, lower case
	SHA512 string // hex, lower case
	Sums   string // URL of the publisher's list of checksums
}

// referenceKeys are the words a fragment may have.
var referenceKeys = []string{"sha256", "sha512", "sums"}

// ParseReference reads http(s)://..., file:///abs/path or /abs/path, each with an
// optional fragment: #sha256=HEX, #sha512=HEX or #sums=URL, which may be relative
// to the image's own address. Anything else is Invalid.
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

// splitFragment leaves a # that belongs to a file's name where it is: in a path,
// unless it reads like a check; a URL writes it %23.
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
		return Reference{}, croft.Errorf(croft.Invalid, "image %q is no address that can be read: give an http or https URL or an absolute path", s)
	}
	switch u.Scheme {
	case "http", "https":
		if u.Hostname() == "" {
			return Reference{}, croft.Errorf(croft.Invalid, "image %q names no server: write %s://SERVER/PATH", s, u.Scheme)
		}
		return Reference{URL: u.String()}, nil
	case "file":
		if u.Host != "" && u.Host != "localhost" || !strings.HasPrefix(u.Path, "/") || u.RawQuery != "" {
			return Reference{}, croft.Errorf(croft.Invalid, "image %q is no file on the host: write file:///ABSOLUTE/PATH, with three slashes", s)
		}
		return Reference{Path: filepath.Clean(u.Path)}, nil
	case "":
		return Reference{}, croft.Errorf(croft.Invalid, "image %q is neither a URL nor an absolute path", s)
	}
	return Reference{}, croft.Errorf(croft.Invalid, "image %q: %s addresses cannot be fetched; give an http, https or file URL", s, u.Scheme)
}

func (r *Reference) parseFragment(fragment string) error {
	values, err := url.ParseQuery(fragment)
	if err != nil {
		return croft.Errorf(croft.Invalid, "image %s: %q after the # cannot be read: write sha256=HEX, sha512=HEX or sums=URL", r.Name(), fragment)
	}
	if len(values) != 1 {
		return croft.Errorf(croft.Invalid, "image %s: give one of sha256=, sha512= and sums= after the #, not several", r.Name())
	}
	for key, vs := range values {
		return r.setCheck(key, vs[len(vs)-1])
	}
	return nil
}

func (r *Reference) setCheck(key, value string) error {
	switch key {
	case "sha256":
		r.SHA256 = strings.ToLower(value)
		return checkHex(r, key, value, 64)
	case "sha512":
		r.SHA512 = strings.ToLower(value)
		return checkHex(r, key, value, 128)
	case "sums":
		return r.setSums(value)
	}
	return croft.Errorf(croft.Invalid, "image %s: %q after the # is none of %s%s",
		r.Name(), key, strings.Join(referenceKeys, ", "), nearest.Hint(key, referenceKeys))
}

func checkHex(r *Reference, key, value string, digits int) error {
	if len(value) != digits || !isHex(value) {
		return croft.Errorf(croft.Invalid, "image %s: %s=%s is not a checksum: it needs %d hexadecimal digits", r.Name(), key, value, digits)
	}
	return nil
}

func isHex(s string) bool {
	return strings.Trim(s, "0123456789abcdefABCDEF") == ""
}

func (r *Reference) setSums(value string) error {
	if r.URL == "" {
		return croft.Errorf(croft.Invalid, "image %s: sums= goes with http and https images only; write sha256=HEX", r.Name())
	}
	base, err := url.Parse(r.URL)
	if err != nil {
		return croft.Errorf(croft.Invalid, "image %s: %w", r.Name(), err)
	}
	list, err := base.Parse(value)
	if err != nil || value == "" || list.Scheme != "http" && list.Scheme != "https" || list.Hostname() == "" {
		return croft.Errorf(croft.Invalid, "image %s: sums=%s is no http or https address of a list of checksums", r.Name(), value)
	}
	r.Sums = list.String()
	return nil
}

// String is the reference as an order carries it; ParseReference reads it back.
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
		return address + "#sums=" + url.QueryEscape(r.relativeSums())
	}
	return address
}

// relativeSums shortens the list's address where it lies beside the image.
func (r Reference) relativeSums() string {
	dir := r.URL[:strings.LastIndexByte(r.URL, '/')+1]
	name, beside := strings.CutPrefix(r.Sums, dir)
	if !beside || name == "" || strings.ContainsAny(name, "/:?") || strings.HasSuffix(dir, "//") {
		return r.Sums
	}
	return name
}

// Name is the address as people may read it: no fragment, no password.
func (r Reference) Name() string {
	if r.Path != "" {
		return r.Path
	}
	u, err := url.Parse(r.URL)
	if err != nil {
		return r.URL
	}
	return u.Redacted()
}

// file is the name that a list of checksums has for the image.
func (r Reference) file() string {
	u, err := url.Parse(r.URL)
	if err != nil {
		return ""
	}
	return path.Base(u.Path)
}

// want is the checksum that the reference itself gives, if any.
func (r Reference) want() digest {
	switch {
	case r.SHA256 != "":
		return digest{"sha256", r.SHA256}
	case r.SHA512 != "":
		return digest{"sha512", r.SHA512}
	}
	return digest{}
}
