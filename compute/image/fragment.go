package image

import (
	"net/url"
	"path/filepath"
	"strings"

	"croft"
	"croft/internal/nearest"
)

// referenceKeys are the allowed keys of a fragment.
var referenceKeys = []string{"sha256", "sha512", "sums", "signed-by", "signature"}

func (r *Reference) parseFragment(fragment string) error {
	values, err := url.ParseQuery(fragment)
	if err != nil {
		return croft.Errorf(croft.Invalid,
			"image %s: %q after the # cannot be read: write sha256=HEX, sha512=HEX or sums=URL", r.Name(), fragment)
	}
	checks := 0
	for key, all := range values {
		if len(all) > 1 {
			return croft.Errorf(croft.Invalid, "image %s: %s= is given %d times after the #: give it once", r.Name(),
				key, len(all))
		}
		if key == "signed-by" || key == "signature" {
			continue
		}
		checks++
		if err := r.setCheck(key, all[0]); err != nil {
			return err
		}
	}
	if checks > 1 {
		return croft.Errorf(croft.Invalid, "image %s: give one of sha256=, sha512= and sums= after the #, not several",
			r.Name())
	}
	return r.setSignature(values.Get("signed-by"), values.Get("signature"))
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
	return croft.Errorf(croft.Invalid, "image %s: %q after the # is not one of %s%s",
		r.Name(), key, strings.Join(referenceKeys, ", "), nearest.Hint(key, referenceKeys))
}

func checkHex(r *Reference, key, value string, digits int) error {
	if len(value) != digits || !isHex(value) {
		return croft.Errorf(croft.Invalid, "image %s: %s=%s is not a checksum: it needs %d hexadecimal digits",
			r.Name(), key, value, digits)
	}
	return nil
}

func (r *Reference) setSums(value string) error {
	if r.URL == "" {
		return croft.Errorf(croft.Invalid, "image %s: sums= is only for http and https images; write sha256=HEX",
			r.Name())
	}
	list, ok := r.resolve(value)
	if !ok {
		return croft.Errorf(croft.Invalid, "image %s: sums=%s is not an http or https address of a list of checksums",
			r.Name(), value)
	}
	r.Sums = list
	return nil
}

// setSignature sets the keyring and the address of the list's signature.
func (r *Reference) setSignature(keyring, signature string) error {
	switch {
	case keyring == "" && signature == "":
		return nil
	case keyring == "":
		return croft.Errorf(croft.Invalid, "image %s: a signature is worth nothing without signed-by=KEYRING", r.Name())
	case r.Sums == "":
		return croft.Errorf(croft.Invalid,
			"image %s: signed-by= needs sums=, because the signature covers the list of checksums", r.Name())
	case !filepath.IsAbs(keyring):
		return croft.Errorf(croft.Invalid, "image %s: signed-by=%s is not the absolute path of a keyring", r.Name(), keyring)
	}
	r.SignedBy = filepath.Clean(keyring)
	if signature == "" {
		return nil
	}
	address, ok := r.resolve(signature)
	if !ok {
		return croft.Errorf(croft.Invalid, "image %s: signature=%s is not an http or https address of a signature",
			r.Name(), signature)
	}
	r.Signature = address
	return nil
}

// resolve makes an address absolute; it may be relative to the image's.
func (r Reference) resolve(address string) (string, bool) {
	base, err := url.Parse(r.URL)
	if err != nil || address == "" {
		return "", false
	}
	u, err := base.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return "", false
	}
	return u.String(), true
}

// sumsFragment returns the fragment of a reference that a list verifies.
func (r Reference) sumsFragment() string {
	fragment := "sums=" + url.QueryEscape(r.relative(r.Sums))
	if r.SignedBy != "" {
		fragment += "&signed-by=" + strings.ReplaceAll(url.QueryEscape(r.SignedBy), "%2F", "/")
	}
	if r.Signature != "" {
		fragment += "&signature=" + url.QueryEscape(r.relative(r.Signature))
	}
	return fragment
}

// relative shortens an address relative to the image's.
func (r Reference) relative(address string) string {
	dir := r.URL[:strings.LastIndexByte(r.URL, '/')+1]
	name, beside := strings.CutPrefix(address, dir)
	if !beside || name == "" || strings.ContainsAny(name, "/:?") || strings.HasSuffix(dir, "//") {
		return address
	}
	return name
}
