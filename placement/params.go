package placement

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"croft/placement/internal/schema"
	"croft/placement/ledger"
)

// This file parses the parameters that filters and candidate requests share.

// parseResources reads a value such as VCPU:2,MEMORY_MB:1024. If a class is repeated, its last amount wins.
func parseResources(value string) ([]ledger.NamedAmount, error) {
	const form = "Badly formed resources parameter. Expected resources query string parameter in form: " +
		"?resources=VCPU:2,MEMORY_MB:1024. Got: "
	if strings.TrimSpace(value) == "" {
		return nil, badRequest(form + "empty string.")
	}
	var out []ledger.NamedAmount
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
			n = math.MaxInt64 // more than any provider has
		}
		if n < 1 {
			return nil, badRequest("Requested resource %s requires amount >= 1. Got: %d.", class, n)
		}
		at := slices.IndexFunc(out, func(w ledger.NamedAmount) bool { return w.Class == class })
		if at >= 0 {
			out[at].N = n
		} else {
			out = append(out, ledger.NamedAmount{Class: class, N: n})
		}
	}
	return out, nil
}

func digits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// parseTraits reads all values of a required parameter. 1.22 adds !, 1.39 adds in:. Up to 1.38 only the last value is
// used.
func parseTraits(v version, values []string) (ledger.TraitTest, error) {
	if v < 39 && len(values) > 1 {
		values = values[len(values)-1:]
	}
	var out ledger.TraitTest
	for _, value := range values {
		if err := addTraits(&out, value, v >= 22, v >= 39); err != nil {
			return out, err
		}
	}
	return out, nil
}

// addTraits reads one value of a required parameter.
func addTraits(t *ledger.TraitTest, value string, allowForbidden, allowAny bool) error {
	if rest, ok := strings.CutPrefix(value, "in:"); ok {
		return addAnyTrait(t, value, rest, allowAny)
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
	t.Required, t.Forbidden = append(t.Required, required...), append(t.Forbidden, forbidden...)
	return nil
}

func addAnyTrait(t *ledger.TraitTest, value, rest string, allowed bool) error {
	const begin = "Invalid query string parameters: "
	if !allowed {
		return badRequest(begin+"The format 'in:HW_CPU_X86_VMX,CUSTOM_MAGIC' only supported since microversion 1.39. "+
			"Got: %s", value)
	}
	var names []string
	for item := range strings.SplitSeq(rest, ",") {
		names = append(names, strings.TrimSpace(item))
	}
	if slices.Contains(names, "") {
		return badRequest(begin+"Expected 'required' parameter value of the form: in:HW_CPU_X86_VMX,CUSTOM_MAGIC. "+
			"Got an empty trait in: %s", value)
	}
	if slices.ContainsFunc(names, func(n string) bool { return n[0] == '!' }) {
		return badRequest(begin+"The format 'in:HW_CPU_X86_VMX,CUSTOM_MAGIC' does not support forbidden traits. "+
			"Got: %s", value)
	}
	slices.Sort(names)
	t.Required = append(t.Required, slices.Compact(names))
	return nil
}

// parseAggregates reads all values of a member_of parameter. 1.24 allows several, 1.32 adds ! and !in:.
func parseAggregates(v version, suffix string, values []string) (ledger.AggregateTest, error) {
	var out ledger.AggregateTest
	if v < 24 && len(values) > 1 {
		return out, badRequest("Multiple member_of%s parameters are not supported", suffix)
	}
	for _, value := range values {
		list, forbidden, err := parseMemberOf(value)
		switch {
		case err != nil:
			return out, err
		case !forbidden:
			out.Required = append(out.Required, list)
		case v < 32:
			return out, badRequest("Forbidden member_of%s parameters are not supported in the specified microversion",
				suffix)
		default:
			out.Forbidden = append(out.Forbidden, list...)
		}
	}
	return out, nil
}

func parseMemberOf(value string) (list []string, forbidden bool, err error) {
	rest, forbidden := strings.CutPrefix(value, "!")
	rest, several := strings.CutPrefix(rest, "in:")
	if strings.Contains(value, ",") && !several {
		return nil, false,
			badRequest("Multiple values for 'member_of' must be prefixed with the 'in:' or '!in:' keyword "+
				"using the valid microversion. Got: %s", value)
	}
	list = []string{rest}
	if several {
		list = strings.Split(rest, ",")
	}
	for _, a := range list {
		if !schema.IsUUID(a) {
			return nil, false, badRequest("Invalid query string parameters: Expected 'member_of' parameter to contain "+
				"valid UUID(s). Got: %s", a)
		}
	}
	return list, forbidden, nil
}
