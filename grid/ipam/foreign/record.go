package foreign

import (
	"net/netip"
	"slices"
	"strings"

	"croft"
	"croft/grid/ipam/setexpr"
	"croft/internal/lazyregexp"
)

// A Record is an entry of a list about an address or a prefix.
type Record struct {
	Prefix netip.Prefix
	Owner  string // the owner as written; empty: none
	Tags   []string
	Facts  map[string]string
	At     string // position in the list, such as "line 7" or "item 3"
}

// newRecord parses a prefix, or an address with or without the length of its network. Invalid.
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

// Columns and keys with a special meaning, in the form that key returns. All others become facts.
var (
	addressNames = []string{"address", "ip", "ip_address", "ipaddress", "ipaddr", "ip_addr", "ipv4", "ipv6"}
	prefixNames  = []string{"prefix", "network", "cidr", "subnet"}
	ownerNames   = []string{"owner", "job"}
	tagNames     = []string{"tags", "tag"}
	// keys that are ignored: internal keys of NetBox, and reserved, which has a meaning in croft
	droppedNames = []string{"id", "url", "display", "created", "last_updated", "reserved"}
)

var otherCharacters = lazyregexp.New(`[^a-z0-9._-]+`)

// key converts a column's name to a key.
func key(name string) string {
	k := otherCharacters.Get().ReplaceAllString(strings.ToLower(strings.TrimSpace(name)), "_")
	return k[:min(len(k), 63)]
}

// add adds one value to a record. It ignores empty values, and values whose key is not a valid name.
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

// tag converts a text to a valid tag, and adds it. Invalid: it cannot be converted.
func (r *Record) tag(text string) error {
	t := key(text)
	if !setexpr.NameForm.MatchString(t) {
		return croft.Errorf(croft.Invalid, "%s: %q cannot be a tag: a tag starts with a letter or digit", r.At, text)
	}
	if !slices.Contains(r.Tags, t) {
		r.Tags = append(r.Tags, t)
	}
	return nil
}
