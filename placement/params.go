package placement

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"croft/placement/internal/schema"
)

// These read the values of the parameters that filters and candidate requests share.

// want is an amount of a class, by name.
type want struct {
	class string
	n     int64
}

// readResources reads VCPU:2,MEMORY_MB:1024. Of a class given twice the last counts.
func readResources(value string) ([]want, error) {
	const form = "Badly formed resources parameter. Expected resources query string parameter in form: ?resources=VCPU:2,MEMORY_MB:1024. Got: "
	if strings.TrimSpace(value) == "" {
		return nil, badRequest(form + "empty string.")
	}
	var out []want
	for item := range strings.SplitSeq(value, ",") {
		class, text, ok := strings.Cut(item, ":")
		if !ok || strings.Contains(text, ":") {
			return nil, badRequest(form+"%s.", item)
		}
		n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
		if err != nil {
			if !digits(strings.TrimSpace(text)) {
				return nil, badRequest("Requested resource %s expected positive integer amount. Got: %s.", class, text)
			}
			n = math.MaxInt64 // more than anybody has
		}
		if n < 1 {
			return nil, badRequest("Requested resource %s requires amount >= 1. Got: %d.", class, n)
		}
		at := slices.IndexFunc(out, func(w want) bool { return w.class == class })
		if at >= 0 {
			out[at].n = n
		} else {
			out = append(out, want{class, n})
		}
	}
	return out, nil
}

func digits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// traitTest asks for one trait at least of each set, and for none of those forbidden.
type traitTest struct {
	required  [][]string
	forbidden []string
}

func (t *traitTest) empty() bool { return len(t.required)+len(t.forbidden) == 0 }

// readTraits reads all values of a required parameter. 1.22 brings !, 1.39 in: and
// that all values count and not the last one only.
func readTraits(v version, values []string) (traitTest, error) {
	if v < 39 && len(values) > 1 {
		values = values[len(values)-1:]
	}
	var out traitTest
	for _, value := range values {
		if err := out.add(value, v >= 22, v >= 39); err != nil {
			return out, err
		}
	}
	return out, nil
}

func (t *traitTest) add(value string, allowForbidden, allowAny bool) error {
	if rest, ok := strings.CutPrefix(value, "in:"); ok {
		return t.addAny(value, rest, allowAny)
	}
	form := "HW_CPU_X86_VMX,CUSTOM_MAGIC"
	if allowForbidden {
		form = "HW_CPU_X86_VMX,!CUSTOM_MAGIC"
	}
	const begin = "Invalid query string parameters: Expected 'required' parameter value of the form: "
	var required [][]string
	var forbidden []string
	for item := range strings.SplitSeq(value, ",") {
		item = strings.TrimSpace(item)
		name := strings.TrimLeft(item, "!")
		switch {
		case name == "":
			return badRequest(begin+"%s. Got an empty trait in: %s", form, value)
		case name == item:
			required = append(required, []string{name})
		default:
			forbidden = append(forbidden, name)
		}
	}
	if len(forbidden) > 0 && !allowForbidden {
		return badRequest(begin+"HW_CPU_X86_VMX,CUSTOM_MAGIC. Got: %s", value)
	}
	t.required, t.forbidden = append(t.required, required...), append(t.forbidden, forbidden...)
	return nil
}

func (t *traitTest) addAny(value, rest string, allowed bool) error {
	const begin = "Invalid query string parameters: "
	if !allowed {
		return badRequest(begin+"The format 'in:HW_CPU_X86_VMX,CUSTOM_MAGIC' only supported since microversion 1.39. Got: %s", value)
	}
	var names []string
	for item := range strings.SplitSeq(rest, ",") {
		names = append(names, strings.TrimSpace(item))
	}
	if slices.Contains(names, "") {
		return badRequest(begin+"Expected 'required' parameter value of the form: in:HW_CPU_X86_VMX,CUSTOM_MAGIC. Got an empty trait in: %s", value)
	}
	if slices.ContainsFunc(names, func(n string) bool { return n[0] == '!' }) {
		return badRequest(begin+"The format 'in:HW_CPU_X86_VMX,CUSTOM_MAGIC' does not support forbidden traits. Got: %s", value)
	}
	slices.Sort(names)
	t.required = append(t.required, slices.Compact(names))
	return nil
}

// aggregateTest asks for membership in one aggregate at least of each set, and in
// none of those forbidden.
type aggregateTest struct {
	required  [][]string
	forbidden []string
}

func (t *aggregateTest) empty() bool { return len(t.required)+len(t.forbidden) == 0 }

// readAggregates reads all values of a member_of parameter. 1.24 allows several,
// 1.32 brings ! and !in:.
func readAggregates(v version, suffix string, values []string) (aggregateTest, error) {
	var out aggregateTest
	if v < 24 && len(values) > 1 {
		return out, badRequest("Multiple member_of%s parameters are not supported", suffix)
	}
	for _, value := range values {
		list, forbidden, err := readMemberOf(value)
		switch {
		case err != nil:
			return out, err
		case !forbidden:
			out.required = append(out.required, list)
		case v < 32:
			return out, badRequest("Forbidden member_of%s parameters are not supported in the specified microversion", suffix)
		default:
			out.forbidden = append(out.forbidden, list...)
		}
	}
	return out, nil
}

func readMemberOf(value string) (list []string, forbidden bool, err error) {
	rest, forbidden := strings.CutPrefix(value, "!")
	rest, several := strings.CutPrefix(rest, "in:")
	if strings.Contains(value, ",") && !several {
		return nil, false, badRequest("Multiple values for 'member_of' must be prefixed with the 'in:' or '!in:' keyword using the valid microversion. Got: %s", value)
	}
	list = []string{rest}
	if several {
		list = strings.Split(rest, ",")
	}
	for _, a := range list {
		if !schema.IsUUID(a) {
			return nil, false, badRequest("Invalid query string parameters: Expected 'member_of' parameter to contain valid UUID(s). Got: %s", a)
		}
	}
	return list, forbidden, nil
}

// member tells whether a provider is in any of the aggregates.
func (p *providerData) member(of []string) bool {
	return slices.ContainsFunc(p.aggregates, func(a string) bool { return slices.Contains(of, a) })
}

// memberOfAll tells whether it is in one at least of each set.
func (p *providerData) memberOfAll(sets [][]string) bool {
	return !slices.ContainsFunc(sets, func(set []string) bool { return !p.member(set) })
}

// traitSets is a traitTest with the traits found.
type traitSets struct {
	required  [][]id
	forbidden []id
}

// find looks the traits up; the name is of one that does not exist.
func (t *traitTest) find(traits *names) (sets traitSets, unknown string) {
	for _, any := range t.required {
		var ids []id
		for _, name := range any {
			x := traits.byName[name]
			if x == nil {
				return sets, name
			}
			ids = append(ids, x.id)
		}
		sets.required = append(sets.required, ids)
	}
	for _, name := range t.forbidden {
		x := traits.byName[name]
		if x == nil {
			return sets, name
		}
		sets.forbidden = append(sets.forbidden, x.id)
	}
	return sets, ""
}

// met tells whether traits have one at least of each required set.
func (t *traitSets) met(traits []id) bool {
	return !slices.ContainsFunc(t.required, func(any []id) bool { return !hasAny(traits, any) })
}

// broken tells whether traits have one that is forbidden.
func (t *traitSets) broken(traits []id) bool { return hasAny(traits, t.forbidden) }

func hasAny(traits, any []id) bool {
	return slices.ContainsFunc(any, func(i id) bool { return hasID(traits, i) })
}
