package ipam

import (
	"net/netip"
	"path"
	"strconv"
	"strings"

	"croft"
	"croft/grid/ipam/setexpr"
)

// Directories, and the extension of files.
const (
	poolDir    = "net/pools"
	setDir     = "net/sets"
	accessDir  = "net/access"
	yamlEnding = ".yaml"
)

// validName reports whether a text may name a pool, a set, a rule, a tag, or a part of a job's or node's path.
func validName(text string) bool { return setexpr.NameForm.MatchString(text) }

// CheckName checks that a text is a valid name. Invalid.
func CheckName(text string) error {
	if !validName(text) {
		return croft.Errorf(croft.Invalid, "%q is no name: write a to z, 0 to 9, and . _ - inside of it, at most 63",
			text)
	}
	return nil
}

// named returns the file's name without its extension. Invalid: it is not a valid name, or the extension differs.
func named(dir, file, ending string) (string, error) {
	name, ok := strings.CutSuffix(file, ending)
	if !ok {
		return "", croft.Errorf(croft.Invalid, "%s: files here end in %s", path.Join(dir, file), ending)
	}
	if !validName(name) {
		return "", croft.Errorf(croft.Invalid, "%s: %w", path.Join(dir, file), CheckName(name))
	}
	return name, nil
}

// family returns the directory name of an address's family, v4 or v6.
func family(a netip.Addr) string {
	if a.Is4() {
		return "v4"
	}
	return "v6"
}

// addrFile returns the file name of an address, with - in place of :.
func addrFile(a netip.Addr) string { return strings.ReplaceAll(a.String(), ":", "-") }

func leasePath(a netip.Addr) string { return path.Join("net/lease", family(a), addrFile(a)) }

// fileAddr parses a file name that addrFile made, in the directory of a family. Invalid.
func fileAddr(dir, name string) (netip.Addr, error) {
	a, err := setexpr.ParseAddr(strings.ReplaceAll(name, "-", ":"))
	switch {
	case err != nil:
		return a, croft.Errorf(croft.Invalid, "%s: the name is no address", path.Join(dir, name))
	case family(a) != path.Base(dir):
		return a, croft.Errorf(croft.Invalid, "%s belongs into %s", path.Join(dir, name),
			path.Join(path.Dir(dir), family(a)))
	case addrFile(a) != name:
		return a, croft.Errorf(croft.Invalid, "%s: %s is written %s", path.Join(dir, name), a, addrFile(a))
	}
	return a, nil
}

func metaPath(p netip.Prefix) string {
	name := addrFile(p.Addr())
	if !p.IsSingleIP() {
		name += "_" + strconv.Itoa(p.Bits())
	}
	return path.Join("net/meta", family(p.Addr()), name+yamlEnding)
}

// filePrefix parses the name of a file of facts, as metaPath makes it. Invalid.
func filePrefix(dir, file string) (netip.Prefix, error) {
	var none netip.Prefix
	name, ok := strings.CutSuffix(file, yamlEnding)
	if !ok {
		return none, croft.Errorf(croft.Invalid, "%s: files here end in %s", path.Join(dir, file), yamlEnding)
	}
	address, bits, isPrefix := strings.Cut(name, "_")
	a, err := fileAddr(dir, address)
	if err != nil {
		return none, croft.Errorf(croft.Invalid,
			"%s: the name is no address in this form: 10.0.0.5 or 2001-db8--5, in the "+
				"directory of its family, and for a prefix _ and its length", path.Join(dir, file))
	}
	if !isPrefix {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	n, err := strconv.Atoi(bits)
	p := netip.PrefixFrom(a, n)
	if err != nil || !p.IsValid() || p.Masked() != p || metaPath(p) != path.Join(dir, file) {
		return none, croft.Errorf(croft.Invalid,
			"%s: the name is no prefix such as 10.0.0.0_8, without bits beyond its "+
				"length, and an address alone has no length", path.Join(dir, file))
	}
	return p, nil
}
