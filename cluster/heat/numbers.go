package heat

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/gophercloud/gophercloud/v2/openstack/orchestration/v1/stacks"

	"croft"
	"croft/cluster/heat/template"
)

// numbering maps the indexes of slaves to the numbers of Heat's group. Heat assigns the numbers itself: it uses the
// lowest numbers from 0 that were not removed. It skips a number only if a request names it while the group has a
// member of that number. So an index for which no member was ever created, such as one whose resize was refused, has no
// number: it is a gap. Gaps are kept in the parameter "removed" of the stack, as texts that Heat ignores.
type numbering struct {
	size    int
	skipped []int // numbers that Heat skips
	gaps    []int // indexes without a number, ascending
}

// gapMark is the prefix of a gap in the parameter "removed".
const gapMark = "gap-"

// numberingOf reads the numbering from the parameters of a stack.
func numberingOf(st *stacks.RetrievedStack) numbering {
	g := numbering{}
	size, _ := strconv.ParseFloat(st.Parameters[template.ClusterSize], 64)
	g.size = int(size)
	for _, item := range listOf(st.Parameters[template.Removed]) {
		text, isGap := strings.CutPrefix(item, gapMark)
		i, err := strconv.Atoi(text)
		switch {
		case err != nil:
		case isGap:
			g.gaps = append(g.gaps, i)
		default:
			g.skipped = append(g.skipped, i)
		}
	}
	slices.Sort(g.gaps)
	slices.Sort(g.skipped)
	return g
}

// listOf parses a list as Heat shows it: JSON, or texts separated by commas.
func listOf(text string) []string {
	var items []any
	if json.Unmarshal([]byte(text), &items) != nil {
		return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
	}
	var all []string
	for _, item := range items {
		switch v := item.(type) {
		case float64:
			all = append(all, strconv.Itoa(int(v)))
		case string:
			all = append(all, v)
		}
	}
	return all
}

// numbers returns the numbers of the members of the group.
func (g numbering) numbers() []int {
	var all []int
	for n := 0; len(all) < g.size; n++ {
		if !slices.Contains(g.skipped, n) {
			all = append(all, n)
		}
	}
	return all
}

// number converts an index to a number.
func (g numbering) number(index int) int {
	below := 0
	for _, gap := range g.gaps {
		if gap < index {
			below++
		}
	}
	return index - below
}

// index converts a number to an index.
func (g numbering) index(number int) int {
	i := number
	for _, gap := range g.gaps { // ascending
		if gap <= i {
			i++
		}
	}
	return i
}

// indexes returns the indexes of the members of the group.
func (g numbering) indexes() []int {
	all := g.numbers()
	for i, n := range all {
		all[i] = g.index(n)
	}
	return all
}

// resized returns the numbering that gives the group the wanted indexes. present are the numbers of its current
// members. Invalid: one of the indexes was removed before.
func (g numbering) resized(wanted, present []int) (numbering, error) {
	next := numbering{size: len(wanted), skipped: slices.Clone(g.skipped), gaps: slices.Clone(g.gaps)}
	var added []int
	for _, i := range wanted {
		if slices.Contains(g.gaps, i) || !slices.Contains(present, g.number(i)) {
			added = append(added, i)
		}
	}
	for _, n := range present {
		if !slices.Contains(wanted, g.index(n)) && !slices.Contains(next.skipped, n) {
			next.skipped = append(next.skipped, n)
		}
	}
	free := 0
	for _, i := range added {
		for slices.Contains(next.skipped, free) || slices.Contains(present, free) {
			free++
		}
		if slices.Contains(next.gaps, i) || next.number(i) < free {
			return numbering{}, croft.Errorf(croft.Invalid,
				"slave %d was taken out before, and its number is not used again", i)
		}
		for next.number(i) > free {
			next.gaps = append(next.gaps, next.index(free))
			slices.Sort(next.gaps)
		}
		free++
	}
	slices.Sort(next.skipped)
	return next, nil
}

// removed returns the value of the parameter "removed".
func (g numbering) removed() []any {
	all := []any{}
	for _, n := range g.skipped {
		all = append(all, n)
	}
	for _, i := range g.gaps {
		all = append(all, gapMark+strconv.Itoa(i))
	}
	return all
}
