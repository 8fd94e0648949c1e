package foreign

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"croft"
	"croft/grid/ipam/setexpr"
)

// A Record is what a list says of an address or a prefix.
type Record struct {
	Prefix netip.Prefix
	Owner  string // as it is written; empty: none
	Tags   []string
	Facts  map[string]string
	At     string // where it was: line 7, item 3
}

// newRecord reads an address, which may have the length of its network, or a prefix.
func newRecord(text, at string, isPrefix bool) (Record, error) {
	r := Record{Facts: map[string]string{}, At: at}
	if isPrefix && strings.Contains(text, "/") {
		p, err := setexpr.ParsePrefix(text)
		if err != nil {
			return r, croft.Errorf(croft.Invalid, "%s: %w", at, err)
		}
		r.Prefix = p
		return r, nil
	}
	address, _, _ := strings.Cut(text, "/")
	a, err := setexpr.ParseAddr(address)
	if err != nil {
		return r, croft.Errorf(croft.Invalid, "%s: %w", at, err)
	}
	r.Prefix = netip.PrefixFrom(a, a.BitLen())
	return r, nil
}

// meanings are the columns and keys that are not merely facts, in our form of keys.
var (
	addressNames = []string{"address", "ip", "ip_address", "ipaddress", "ipaddr", "ip_addr", "ipv4", "ipv6"}
	prefixNames  = []string{"prefix", "network", "cidr", "subnet"}
	ownerNames   = []string{"owner", "job"}
	tagNames     = []string{"tags", "tag"}
	droppedNames = []string{"id", "url", "display", "created", "last_updated", "reserved"} // of NetBox, and ours
)

var otherCharacters = regexp.MustCompile(`[^a-z0-9._-]+`)

// key makes a key of a column's name.
func key(name string) string {
	k := otherCharacters.ReplaceAllString(strings.ToLower(strings.TrimSpace(name)), "_")
	return k[:min(len(k), 63)]
}

// add adds one value to a record. Empty ones, and those of keys that cannot be, mean nothing.
func (r *Record) add(name, value string) error {
	k, value := key(name), strings.TrimSpace(value)
	switch {
	case value == "" || slices.Contains(droppedNames, k):
	case slices.Contains(ownerNames, k):
		r.Owner = value
	case slices.Contains(tagNames, k):
		for tag := range strings.FieldsFuncSeq(value, func(c rune) bool { return strings.ContainsRune(",; |", c) }) {
			if err := r.tag(tag); err != nil {
				return err
			}
		}
	case setexpr.NameForm.MatchString(k):
		r.Facts[k] = value
	}
	return nil
}

// tag adds a tag, in the form of tags.
func (r *Record) tag(text string) error {
	t := key(text)
	if !setexpr.NameForm.MatchString(t) {
		return croft.Errorf(croft.Invalid, "%s: %q cannot be a tag: a tag begins with a letter or digit", r.At, text)
	}
	if !slices.Contains(r.Tags, t) {
		r.Tags = append(r.Tags, t)
	}
	return nil
}
