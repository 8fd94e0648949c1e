package instances

import (
	"github.com/spf13/pflag"

	"croft"
	"croft/schedule"
)

// locationRule holds the flags of a group with a rule about locations.
type locationRule struct {
	group         string
	apartBy, same string
	atMost        int
	per           string
}

func (r *locationRule) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&r.group, "group", "", "`group` for --apart-by, --same and --at-most; with group:soft they are "+
		"ignored if there is no room")
	flags.StringVar(&r.apartBy, "apart-by", "",
		"run in a location of this `level` (site, row, rack or host) without other members of the group")
	flags.StringVar(&r.same, "same", "", "run in the location of this `level` where the other members of the group are")
	flags.IntVar(&r.atMost, "at-most", 0, "with --per: run where fewer than this `number` of members of the group are")
	flags.StringVar(&r.per, "per", "", "`level` of the locations for which --at-most counts members")
}

// affinity returns the group; nil: the flags name no group. Invalid.
func (r *locationRule) affinity() (*croft.Affinity, error) {
	clauses, err := r.clauses()
	switch {
	case err != nil:
		return nil, err
	case r.group == "" && len(clauses) == 0:
		return nil, nil
	case r.group == "":
		return nil, croft.Errorf(croft.Invalid,
			"--apart-by, --same and --at-most need a group: name it with --group")
	case len(clauses) == 0:
		return nil, croft.Errorf(croft.Invalid,
			"--group %s: give a rule for its members: --apart-by, --same, or --at-most and --per", r.group)
	}
	a, err := croft.ParseAffinity(croft.RuleOf(clauses...), r.group)
	return &a, err
}

func (r *locationRule) clauses() (clauses []croft.Clause, err error) {
	add := func(flag, level string, atMost int) {
		l, wrong := croft.ParseLevel(level)
		if wrong != nil && err == nil {
			err = croft.Errorf(croft.Invalid, "--%s: %w", flag, wrong)
		}
		clauses = append(clauses, croft.Clause{AtMost: atMost, Level: l})
	}
	switch {
	case r.apartBy != "" && (r.atMost != 0 || r.per != ""):
		return nil, croft.Errorf(croft.Invalid, "--apart-by is --at-most 1 --per: give one of them")
	case (r.atMost != 0) != (r.per != ""):
		return nil, croft.Errorf(croft.Invalid, "--at-most and --per belong together: --at-most 2 --per rack")
	case r.atMost < 0 || r.atMost > croft.MaxPerLocation:
		return nil, croft.Errorf(croft.Invalid, "--at-most %d: write 1 to %d", r.atMost, croft.MaxPerLocation)
	case r.apartBy != "":
		add("apart-by", r.apartBy, 1)
	case r.per != "":
		add("per", r.per, r.atMost)
	}
	if r.same != "" {
		add("same", r.same, 0)
	}
	return clauses, err
}

// affinities returns the groups that the flags name.
func (a *asking) affinities() ([]croft.Affinity, error) {
	var all []croft.Affinity
	for _, flag := range []struct {
		rule   croft.AffinityRule
		groups []string
	}{{croft.Together, a.together}, {croft.Apart, a.apart}} {
		for _, text := range flag.groups {
			one, err := croft.ParseAffinity(flag.rule, text)
			if err != nil {
				return nil, err
			}
			all = append(all, one)
		}
	}
	one, err := a.locations.affinity()
	if err != nil {
		return nil, err
	}
	if one != nil {
		all = append(all, *one)
	}
	return all, schedule.CheckAffinities(all)
}
