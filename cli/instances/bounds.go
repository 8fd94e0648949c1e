package instances

import (
	"cmp"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"croft"
	"croft/tenant/objects"
)

// bounds are the flags for aggregates and locations that the host must or must not be in, and for filters of the host's
// properties and tags.
type bounds struct{ in, inAny, notIn, where, whereNot []string }

func (b *bounds) addFlags(flags *pflag.FlagSet) {
	flags.StringArrayVar(&b.in, "in", nil, "run on a host in this `aggregate` (croft aggregate list), site, row or "+
		"rack; repeat for one that is in all of them")
	flags.StringArrayVar(&b.inAny, "in-any", nil, "run on a host in at least one of these `aggregates` or locations, "+
		"separated by commas; repeat for more such sets")
	flags.StringArrayVar(&b.notIn, "not-in", nil,
		"run on a host that is not in this `aggregate` or location; repeat for more")
	flags.StringArrayVar(&b.where, "where", nil, "run on a host with these properties and tags, by a `filter`: "+
		"'tier=gold rack=r* tag:new'; repeat for alternatives")
	flags.StringArrayVar(&b.whereNot, "where-not", nil,
		"run on a host that this `filter` does not match; repeat for more")
}

// checkFilters returns Invalid if a text is not a filter.
func (b *bounds) checkFilters() error {
	_, wanted := objects.ParseFilter(b.where)
	_, barred := objects.ParseFilter(b.whereNot)
	return cmp.Or(wanted, barred)
}

// all returns the bounds. Invalid.
func (b *bounds) all() (all []string, err error) {
	for _, flag := range []struct {
		name  string
		texts []string
	}{{"in", b.in}, {"in-any", b.inAny}, {"not-in", b.notIn}} {
		for _, text := range flag.texts {
			names := strings.Split(text, ",")
			if flag.name == "in" && len(names) > 1 {
				return nil, croft.Errorf(croft.Invalid, "--in %q: repeat --in for a host that is in all of them, or write "+
					"--in-any for one of them", text)
			}
			bound, err := croft.NewBound(flag.name == "not-in", names...)
			if err != nil {
				return nil, croft.Errorf(croft.Invalid, "--%s: %w", flag.name, err)
			}
			all = append(all, string(bound))
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}
