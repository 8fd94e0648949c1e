package image

import (
	"net/url"
	"path"
	"strings"

	"croft/internal/lazyregexp"
)

// sumEntry is one checksum of a publisher's list.
type sumEntry struct {
	name string // as written; empty: the checksum has no name
	digest
}

// findSum returns the checksum of an image from the list of checksums at an address. It selects the entry with the
// image's path relative to the list, else the entry with the image's file name. If the list is named after the image
// ("disk.raw.sha256") and has one entry, or is one bare checksum, it belongs to the image, whatever name the entry has:
// publishers write the name of the build that an alias refers to. Of several algorithms the strongest is used. Not
// found: no entry matches, or several entries of the name differ.
func findSum(text []byte, image, list string) (digest, bool) {
	entries := parseSums(string(text), path.Base(pathOf(list)))
	beside, dir := pathOf(image), path.Dir(pathOf(list))
	// choose returns the checksum of the entries that match; it is zero if they differ. any: an entry matches.
	choose := func(is func(sumEntry) bool) (_ digest, any bool) {
		var found digest
		several := false
		for _, e := range entries {
			switch {
			case !is(e) || len(e.hex) < len(found.hex):
			case len(e.hex) == len(found.hex) && e.hex != found.hex:
				several = true
			case len(e.hex) > len(found.hex):
				found, several = e.digest, false
			}
		}
		if several {
			return digest{}, true
		}
		return found, found.hex != ""
	}
	if d, any := choose(func(e sumEntry) bool {
		return e.name != "" && path.Join(dir, e.name) == beside
	}); any {
		return d, d.hex != ""
	}
	nearest := 1
	for _, e := range entries {
		nearest = max(nearest, commonEnd(e.name, beside))
	}
	if d, any := choose(func(e sumEntry) bool { return commonEnd(e.name, beside) == nearest }); any {
		return d, d.hex != ""
	}
	names := map[string]bool{}
	for _, e := range entries {
		names[e.name] = true
	}
	if len(names) != 1 {
		return digest{}, false
	}
	own := strings.HasPrefix(path.Base(pathOf(list)), path.Base(beside)+".")
	d, _ := choose(func(e sumEntry) bool { return own || e.name == "" || e.name == "-" || e.name == "stdin" })
	return d, d.hex != ""
}

// commonEnd returns the number of equal trailing elements of two paths.
func commonEnd(a, b string) (n int) {
	as, bs := strings.Split(path.Clean(a), "/"), strings.Split(path.Clean(b), "/")
	for n < len(as) && n < len(bs) && as[len(as)-1-n] == bs[len(bs)-1-n] {
		n++
	}
	return n
}

// pathOf returns the path of an address.
func pathOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Path
}

var (
	// tagged is a line of BSD's md5, of sha256sum --tag or of openssl dgst: ALGORITHM (NAME) = HEX.
	tagged = lazyregexp.New(`^([A-Za-z][A-Za-z0-9/-]*) ?\((.*)\) ?= ?([0-9A-Fa-f]+)$`)
	// plainSum is a line of sha256sum: HEX, a space, and a space or an asterisk; publishers also use tabs.
	plainSum = lazyregexp.New(`^(\\?)(?:([A-Za-z0-9-]+):)?([0-9A-Fa-f]{32,})(?:[ \t]+\*?(.*))?$`)
	// section is a comment that names the algorithm of the lines below, as Gentoo writes it.
	section = lazyregexp.New(
		`(?i)^#\s*([A-Za-z][A-Za-z0-9/_-]*)(?:\s+(?:hash|hashes|sum|sums|checksum|checksums))?:?$`,
	)
	// inName finds algorithms in the name of a list, such as SHA256SUMS or disk.raw.sha512.
	inName = lazyregexp.New(
		`(?i)sha-?512[/_-]?256|sha-?512[/_-]?224|sha-?2-?(?:256|512)|sha3-?\d*|sha-?(?:512|384|256|224|1)|blake\d*[bs]?\d*|b[23]sum|md5|whirlpool`,
	)
)

// parseSums parses a list of checksums, which may be inside a PGP signature. The algorithm of an entry is named by its
// line, else by its section, else by the name of the list; only if none of them names it, it follows from the length.
// Entries with algorithms other than SHA-256 and SHA-512 are left out.
func parseSums(text, list string) (all []sumEntry) {
	named := ""
	if found := inName.Get().FindAllString(list, -1); len(found) == 1 {
		named = found[0]
	}
	lines := 0
	signed, below := false, ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		switch {
		case strings.HasPrefix(line, "-----BEGIN PGP SIGNED MESSAGE-----"):
			signed = true
			continue
		case strings.HasPrefix(line, "-----BEGIN PGP SIGNATURE-----"):
			return all
		case signed:
			line = strings.TrimPrefix(line, "- ") // RFC 4880, 7.1
		}
		line = strings.TrimSpace(line)
		if signed && strings.HasPrefix(line, "Hash: ") {
			continue
		}
		if m := section.FindStringSubmatch(line); m != nil && inName.Get().FindString(m[1]) != "" {
			below = m[1]
			continue
		}
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		lines++
		if m := tagged.FindStringSubmatch(line); m != nil {
			if d, ok := digestBy(m[1], m[3]); ok {
				all = append(all, sumEntry{m[2], d})
			}
			continue
		}
		m := plainSum.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		name := m[4]
		if m[1] != "" {
			name = unescaped(name)
		}
		algorithm := named
		for _, nearer := range []string{below, m[2]} {
			if nearer != "" {
				algorithm = nearer
			}
		}
		d, ok := digestOf(m[3])
		if algorithm != "" {
			d, ok = digestBy(algorithm, m[3])
		}
		if ok {
			all = append(all, sumEntry{name, d})
		}
	}
	if lines > 1 { // a bare checksum belongs to no file then
		kept := all[:0]
		for _, e := range all {
			if e.name != "" {
				kept = append(kept, e)
			}
		}
		return kept
	}
	return all
}

// digestBy returns a checksum by the name of its algorithm; false: the algorithm is another one, or the length is
// wrong.
func digestBy(algorithm, hex string) (digest, bool) {
	word := strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(algorithm))
	want, known := map[string]string{"sha256": "sha256", "sha2256": "sha256",
		"sha512": "sha512", "sha2512": "sha512"}[word]
	d, ok := digestOf(hex)
	return d, ok && known && d.algo == want
}

// unescaped returns a name that sha256sum has escaped, as in lines that start with a backslash.
func unescaped(name string) string {
	return strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\r`, "\r").Replace(name)
}
