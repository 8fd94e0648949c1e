package placement

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"croft/internal/lazyregexp"
	"croft/placement/internal/schema"
	"croft/placement/ledger"
)

// Microversions of the parameters of /allocation_candidates: 1.16 adds limit, 1.17 required, 1.21 member_of, 1.25
// numeric suffixes and group_policy, 1.31 in_tree, 1.33 suffixes of letters, 1.35 root_required, 1.36 same_subtree. For
// the values see params.go.
var candidateSchemas = []versioned{
	{36, suffixedSchema(namePattern, 31, `, "root_required": {"type": ["string"]},
		"same_subtree": {"type": ["string"]}`)},
	{35, suffixedSchema(namePattern, 31, `, "root_required": {"type": ["string"]}`)},
	{33, suffixedSchema(namePattern, 31, "")},
	{31, suffixedSchema(numberPattern, 31, "")},
	{25, suffixedSchema(numberPattern, 25, "")},
	{21, plainSchema(limitProperty + `, "required": {"type": ["string"]}, "member_of": {"type": ["string"]}`)},
	{17, plainSchema(limitProperty + `, "required": {"type": ["string"]}`)},
	{16, plainSchema(limitProperty)},
	{10, plainSchema("")},
}

const (
	numberPattern = `[1-9][0-9]*`
	namePattern   = `[a-zA-Z0-9_-]{1,64}`
	limitProperty = `, "limit": {"type": ["integer", "string"], "pattern": "^[1-9][0-9]*$", "minimum": 1,
		"minLength": 1}`
)

func plainSchema(more string) *schema.Schema {
	return schema.Must(`{"type": "object", "properties": {"resources": {"type": "string"}` + more +
		`}, "required": ["resources"], "additionalProperties": false}`)
}

func suffixedSchema(suffix string, v version, more string) *schema.Schema {
	names := []string{"resources", "required", "member_of"}
	if v >= 31 {
		names = append(names, "in_tree")
	}
	var patterns []string
	for _, name := range names {
		patterns = append(patterns, fmt.Sprintf(`"^%s(%s)?$": {"type": "string"}`, name, suffix))
	}
	return schema.Must(`{"type": "object", "properties": {` + limitProperty[2:] + `,
		"group_policy": {"type": "string", "enum": ["none", "isolate"]}` + more + `}, "additionalProperties": false,
		"patternProperties": {` + strings.Join(patterns, ", ") + `}}`)
}

var (
	numberedKey = lazyregexp.New(`^(resources|required|member_of|in_tree)(` + numberPattern + `)?$`)
	namedKey    = lazyregexp.New(`^(resources|required|member_of|in_tree)(` + namePattern + `)?$`)
)

// candidateReader builds a candidate request.
type candidateReader struct{ *ledger.CandidateRequest }

// readCandidateRequest reads the parameters of GET /allocation_candidates.
func readCandidateRequest(q *request) (*ledger.CandidateRequest, error) {
	if err := q.query.validate(pick(q.version, candidateSchemas)); err != nil {
		return nil, err
	}
	req := &candidateReader{&ledger.CandidateRequest{Nested: q.version >= 29}}
	if err := req.readShared(q.query); err != nil {
		return nil, err
	}
	if err := req.readGroups(q); err != nil {
		return nil, err
	}
	check := req.checkOrphans
	if q.version >= 36 {
		check = req.checkSubtrees
	}
	if err := check(); err != nil {
		return nil, err
	}
	if q.version >= 22 {
		if err := req.checkForbidden(); err != nil {
			return nil, err
		}
	}
	singles := 0
	for i := range req.Groups {
		if req.Groups[i].Single() {
			singles++
		}
	}
	if _, given := q.query.last("group_policy"); !given && singles > 1 {
		return nil, badRequest(`The "group_policy" parameter is required when specifying more than one ` +
			`"resources{N}" parameter.`)
	}
	return req.CandidateRequest, nil
}

// readShared reads the parameters that apply to all groups.
func (req candidateReader) readShared(params query) error {
	if all := params.all("limit"); len(all) > 0 {
		n, err := strconv.Atoi(all[0])
		if err != nil || n < 1 {
			return badRequest("Invalid query string parameters: '%s' does not match '^[1-9][0-9]*$'", all[0])
		}
		req.Limit = n
	}
	if all := params.all("group_policy"); len(all) > 0 {
		req.Isolate = all[0] == "isolate"
	}
	if all := params.all("root_required"); len(all) > 1 {
		return badValue(codeDuplicateKey, "Query parameter 'root_required' may be specified only once.")
	} else if len(all) == 1 {
		if err := addTraits(&req.RootTraits, all[0], true, false); err != nil {
			return err
		}
		if both := slices.Compact(conflicts(&req.RootTraits)); len(both) > 0 {
			return badValue(codeBadValue, "Conflicting required and forbidden traits found in root_required: %s",
				strings.Join(both, ", "))
		}
	}
	for _, value := range params.all("same_subtree") {
		var suffixes []string
		for item := range strings.SplitSeq(value, ",") {
			suffixes = append(suffixes, strings.TrimSpace(item))
		}
		if slices.Contains(suffixes, "") {
			return badValue(codeBadValue, "Empty string (unsuffixed group) can not be specified in `same_subtree` ")
		}
		req.Subtrees = append(req.Subtrees, suffixes)
	}
	return nil
}

// conflicts returns the traits that are both required and forbidden, in order, repeated as often as they are required.
func conflicts(t *ledger.TraitTest) []string {
	var out []string
	for _, any := range t.Required {
		if !slices.ContainsFunc(any, func(name string) bool { return !slices.Contains(t.Forbidden, name) }) {
			out = append(out, strings.Join(any, ", "))
		}
	}
	slices.Sort(out)
	return out
}

// readGroups reads the parameters of groups, in query order.
func (req candidateReader) readGroups(q *request) error {
	pattern := numberedKey
	if q.version >= 33 {
		pattern = namedKey
	}
	for _, p := range q.query {
		m := pattern.FindStringSubmatch(p.key)
		if m == nil {
			continue
		}
		g := req.group(m[2])
		var err error
		switch m[1] {
		case "resources":
			g.Resources, err = parseResources(p.value)
		case "required":
			g.Traits, err = parseTraits(q.version, q.query.all(p.key))
		case "member_of":
			g.Aggregates, err = parseAggregates(q.version, m[2], q.query.all(p.key))
		case "in_tree":
			if g.Tree = strings.TrimSpace(p.value); !schema.IsUUID(g.Tree) {
				err = badRequest(
					"Invalid query string parameters: Expected 'in_tree' parameter to be a format of uuid. "+
						"Got: %s", p.value)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// group returns the group of a suffix, creating it if necessary.
func (req candidateReader) group(suffix string) *ledger.RequestGroup {
	at := slices.IndexFunc(req.Groups, func(g ledger.RequestGroup) bool { return g.Suffix == suffix })
	if at < 0 {
		at = len(req.Groups)
		req.Groups = append(req.Groups, ledger.RequestGroup{Suffix: suffix})
	}
	return &req.Groups[at]
}

// checkOrphans refuses groups without resources, before 1.36.
func (req candidateReader) checkOrphans() error {
	var traits, aggregates []string
	without := false
	for _, g := range req.Groups {
		if len(g.Resources) > 0 {
			continue
		}
		without = true
		if len(g.Traits.Required) > 0 {
			traits = append(traits, "required"+g.Suffix)
		}
		if !g.Aggregates.Empty() {
			aggregates = append(aggregates, "member_of"+g.Suffix)
		}
	}
	switch {
	case len(traits) > 0:
		return badRequest("All traits parameters must be associated with resources.  "+
			"Found the following orphaned traits keys: %s", strings.Join(traits, ", "))
	case len(aggregates) > 0:
		return badRequest("All member_of parameters must be associated with resources. "+
			"Found the following orphaned member_of keys: %s", strings.Join(aggregates, ", "))
	case without:
		return badRequest("All request groups must specify resources.")
	case len(req.Groups) == 0:
		return badRequest("At least one request group (`resources` or `resources{$S}`) is required.")
	}
	return nil
}

// checkSubtrees refuses groups without resources that same_subtree does not name, and suffixes in it that match no
// group.
func (req candidateReader) checkSubtrees() error {
	named := map[string]bool{}
	var unreal, stray, suffixes []string
	for _, list := range req.Subtrees {
		for _, suffix := range list {
			known := slices.ContainsFunc(req.Groups, func(g ledger.RequestGroup) bool { return g.Suffix == suffix })
			if !known && !named[suffix] {
				unreal = append(unreal, suffix)
			}
			named[suffix] = true
		}
	}
	resourceless := 0
	for _, g := range req.Groups {
		suffixes = append(suffixes, g.Suffix)
		if len(g.Resources) == 0 {
			resourceless++
			if !named[g.Suffix] {
				stray = append(stray, g.Suffix)
			}
		}
	}
	switch {
	case resourceless == len(req.Groups):
		return badValue(codeMissingValue, "There must be at least one resources or resources[$S] parameter.")
	case len(stray) > 0:
		return badValue(codeBadValue, "Resourceless suffixed group request should be specified in `same_subtree` "+
			"query param: bad group(s) - %s.", listed(stray))
	case len(unreal) > 0:
		return badValue(codeBadValue, "Real suffixes should be specified in `same_subtree`: %s not found in %s.",
			listed(unreal), listed(suffixes))
	}
	return nil
}

// listed formats suffixes: ['_A', '_B'].
func listed(suffixes []string) string {
	if len(suffixes) == 0 {
		return "[]"
	}
	return "['" + strings.Join(suffixes, "', '") + "']"
}

// checkForbidden refuses groups whose traits no provider can match.
func (req candidateReader) checkForbidden() error {
	var out []string
	for i := range req.Groups {
		g := &req.Groups[i]
		for _, names := range conflicts(&g.Traits) {
			out = append(out, fmt.Sprintf("required%s: (%s)", g.Suffix, names))
		}
	}
	if len(out) == 0 {
		return nil
	}
	slices.Sort(out)
	return badRequest("Conflicting required and forbidden traits found in the following traits keys: %s",
		strings.Join(out, ", "))
}
