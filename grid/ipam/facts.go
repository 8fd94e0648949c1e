package ipam

import (
	"maps"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"

	"go4.org/netipx"
	"golang.org/x/sync/errgroup"
	"gopkg.in/yaml.v3"

	"croft"
)

// Facts are tags and other values that files and pools state about prefixes and addresses. A prefix inherits the facts
// of the shorter prefixes that contain it, and its own facts override them: mappings merge, other values replace, key+
// appends to a list, and a null value (~) removes the key.
type Facts struct {
	dir     *Dir
	pools   map[netip.Prefix][]string // tags
	stated  []netip.Prefix            // prefixes with facts, sorted: each one precedes the prefixes inside it
	files   map[netip.Prefix]bool
	lengths map[string][]int // the lengths of the stated prefixes of each family, ascending
	mu      sync.Mutex
	read    map[netip.Prefix]map[string]any
}

// Keys with a special meaning.
const (
	tagsKey     = "tags"
	reservedKey = "reserved" // true: no pool gives these addresses
	adds        = "+"
)

// Covering returns the prefixes with facts that contain p or equal it, shortest first.
func (f *Facts) Covering(p netip.Prefix) []netip.Prefix {
	var all []netip.Prefix
	for _, bits := range f.lengths[family(p.Addr())] {
		if bits > p.Bits() {
			break
		}
		if q := netip.PrefixFrom(p.Addr(), bits).Masked(); f.files[q] || f.pools[q] != nil {
			all = append(all, q)
		}
	}
	return all
}

// Of merges the facts of all prefixes that contain p or equal it.
func (f *Facts) Of(p netip.Prefix) (map[string]any, error) {
	merged := map[string]any{}
	for _, q := range f.Covering(p) {
		var err error
		if merged, err = f.over(merged, q); err != nil {
			return nil, err
		}
	}
	return merged, nil
}

// over overlays the facts that a pool and a file state about p itself.
func (f *Facts) over(merged map[string]any, p netip.Prefix) (map[string]any, error) {
	if tags := f.pools[p]; tags != nil {
		list := make([]any, len(tags))
		for i, t := range tags {
			list[i] = t
		}
		merged = overlay(merged, map[string]any{tagsKey + adds: list})
	}
	if !f.files[p] {
		return merged, nil
	}
	own, err := f.own(p)
	if err != nil {
		return nil, err
	}
	return overlay(merged, own), nil
}

// own reads the facts in the file of a prefix, once per Facts.
func (f *Facts) own(p netip.Prefix) (map[string]any, error) {
	f.mu.Lock()
	own, ok := f.read[p]
	f.mu.Unlock()
	if ok {
		return own, nil
	}
	r, err := f.dir.reader(metaPath(p))
	if croft.KindOf(err) == croft.NotFound {
		return nil, nil // the file was removed since it was listed
	} else if err != nil {
		return nil, err
	}
	r.names(tagsKey)
	r.names(tagsKey + adds)
	r.flag(reservedKey)
	if r.err != nil {
		return nil, r.err
	}
	own, err = mapping(r.file, r.root)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.read[p] = own
	return own, nil
}

// mapping converts a YAML mapping to values of the types that encoding/json uses. It wraps a single value of key+ in a
// list.
func mapping(file string, n *yaml.Node) (map[string]any, error) {
	m := map[string]any{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		v, err := plainValue(file, n.Content[i+1])
		if err != nil {
			return nil, err
		}
		if _, isList := v.([]any); strings.HasSuffix(n.Content[i].Value, adds) && !isList && v != nil {
			v = []any{v}
		}
		m[n.Content[i].Value] = v
	}
	return m, nil
}

func plainValue(file string, n *yaml.Node) (any, error) {
	switch {
	case n.Kind == yaml.MappingNode:
		return mapping(file, n)
	case n.Kind == yaml.SequenceNode:
		list := []any{}
		for _, item := range n.Content {
			v, err := plainValue(file, item)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, nil
	case n.Tag == "!!int" || n.Tag == "!!bool" || n.Tag == "!!null":
		var v any
		if err := n.Decode(&v); err != nil {
			return nil, wrongAt(file, n, "%s: %w", n.Value, err)
		}
		return v, nil
	}
	return n.Value, nil // floats stay strings too, so that 10.0 and 1.10 keep their spelling
}

// overlay merges the facts of a longer prefix (over) into the facts of a shorter one (base).
func overlay(base, over map[string]any) map[string]any {
	merged := maps.Clone(base)
	for _, key := range slices.Sorted(maps.Keys(over)) { // key comes before key+
		switch v := over[key].(type) {
		case nil:
			delete(merged, key)
		case map[string]any:
			below, _ := merged[key].(map[string]any)
			if below == nil {
				below = map[string]any{}
			}
			merged[key] = overlay(below, v)
		case []any:
			if list, is := strings.CutSuffix(key, adds); is {
				merged[list] = append(slices.Clip(asList(merged[list])), v...)
			} else {
				merged[key] = v
			}
		default:
			merged[key] = v
		}
	}
	return merged
}

// asList returns v if it is a list, else a list with the one value v. nil: an empty list.
func asList(v any) []any {
	switch v := v.(type) {
	case nil:
		return nil
	case []any:
		return v
	}
	return []any{v}
}

// TagsIn returns the tags in merged facts, sorted and without duplicates.
func TagsIn(facts map[string]any) []string {
	tags := []string{}
	for _, t := range asList(facts[tagsKey]) {
		if text, ok := t.(string); ok {
			tags = append(tags, text)
		}
	}
	slices.Sort(tags)
	return slices.Compact(tags)
}

// load reads the files of many prefixes in parallel on all processors.
func (f *Facts) load(all []netip.Prefix) error {
	if len(all) < 64 {
		return nil // so few files are read one by one when they are needed
	}
	var g errgroup.Group
	parts := runtime.GOMAXPROCS(0)
	for i := range parts {
		g.Go(func() error {
			for j := i; j < len(all); j += parts {
				if f.files[all[j]] {
					if _, err := f.own(all[j]); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// areas splits the addresses that have facts into ranges with equal facts, and calls each with every range and its
// merged facts. The ranges do not overlap. It considers only prefixes that overlap within; the zero Prefix: all.
func (f *Facts) areas(within netip.Prefix, each func(r netipx.IPRange, facts map[string]any)) error {
	var all []netip.Prefix
	for _, p := range f.stated {
		if !within.IsValid() || p.Overlaps(within) {
			all = append(all, p)
		}
	}
	if err := f.load(all); err != nil {
		return err
	}
	type area struct {
		last  netip.Addr
		facts map[string]any
	}
	var around []area // a stack: each area contains the next one
	var next netip.Addr
	emit := func(to netip.Addr) {
		if next.IsValid() && !to.Less(next) {
			each(netipx.IPRangeFrom(next, to), around[len(around)-1].facts)
		}
	}
	leave := func() {
		inner := around[len(around)-1].last
		emit(inner)
		next = inner.Next()
		around = around[:len(around)-1]
	}
	for _, p := range all {
		r := netipx.RangeOfPrefix(p)
		for len(around) > 0 && !netipx.IPRangeFrom(r.From(), around[len(around)-1].last).IsValid() {
			leave()
		}
		facts := map[string]any{}
		if len(around) > 0 {
			facts = around[len(around)-1].facts
			emit(r.From().Prev())
		}
		facts, err := f.over(facts, p)
		if err != nil {
			return err
		}
		around, next = append(around, area{r.To(), facts}), r.From()
	}
	for len(around) > 0 {
		leave()
	}
	return nil
}

// layout maps each tag to the set of addresses that have it.
type layout struct{ tags map[string]*netipx.IPSet }
