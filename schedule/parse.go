package schedule

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"croft"
	"croft/internal/lazyregexp"
	"croft/internal/nearest"
	"croft/internal/standard"
)

// maxAmount is the largest amount of one class that Placement can claim.
const maxAmount = 1<<31 - 1

// parameters are the keywords of a query.
var parameters = []string{"resources", "required", "member_of", "in_tree", "group_policy", "root_required",
	"same_subtree", "in", "where", "where_not", "near", "far", "distance"}

// suffixed are the parameters that may carry a group's suffix.
var suffixed = parameters[:4]

var (
	suffixForm = lazyregexp.New(`^[A-Za-z0-9_-]{1,64}$`)
	customForm = lazyregexp.New(`^CUSTOM_[A-Z0-9_]{1,248}$`)
)

// ParseQuery reads a query strictly, so that a typo is an error instead of an empty answer: Invalid, with the nearest
// valid word. "resources=" may be omitted if the amounts come first.
func ParseQuery(text string) (Query, error) {
	p := parser{groups: map[string]*RequestGroup{}}
	if text = strings.TrimSpace(text); text == "" {
		return Query{},
			croft.Errorf(croft.Invalid,
				"the query is empty: ask for something, such as resources=VCPU:1,MEMORY_MB:256,DISK_GB:1")
	}
	if first, _, _ := strings.Cut(text, "&"); !strings.Contains(first, "=") {
		text = "resources=" + text
	}
	for term := range strings.SplitSeq(text, "&") {
		if err := p.term(term); err != nil {
			return Query{}, croft.Errorf(croft.Invalid, "query: %w", err)
		}
	}
	if err := p.finish(); err != nil {
		return Query{}, croft.Errorf(croft.Invalid, "query: %w", err)
	}
	return p.query, p.query.bootable()
}

// LooksLikeQuery distinguishes a query from the name or UUID of an instance, which contains none of these characters.
func LooksLikeQuery(text string) bool { return strings.ContainsAny(text, "=:&") }

type parser struct {
	query  Query
	near   []string
	far    []string
	kind   string // of distances
	groups map[string]*RequestGroup
}

func (p *parser) group(suffix string) *RequestGroup {
	if p.groups[suffix] == nil {
		p.groups[suffix] = &RequestGroup{Suffix: suffix}
	}
	return p.groups[suffix]
}

// term reads one key=value.
func (p *parser) term(term string) error {
	key, value, found := strings.Cut(term, "=")
	if !found {
		return fmt.Errorf("%q is not of the form key=value", term)
	}
	value, err := url.QueryUnescape(value)
	if err != nil {
		return fmt.Errorf("%s: %q has a broken %% escape", key, value)
	}
	value = strings.TrimSpace(value)
	word, suffix, err := splitKey(strings.TrimSpace(key))
	if err != nil {
		return err
	}
	if value == "" {
		return fmt.Errorf("%s has no value", key)
	}
	if err := p.value(word, suffix, value); err != nil {
		return fmt.Errorf("%s: %w", word+suffix, err)
	}
	return nil
}

// splitKey splits a key into the parameter and the suffix of its group.
func splitKey(key string) (word, suffix string, err error) {
	for _, p := range parameters {
		if key == p {
			return p, "", nil
		}
	}
	for _, p := range suffixed {
		if suffix, ok := strings.CutPrefix(key, p); ok && plausibleSuffix(suffix) {
			return p, suffix, nil
		}
	}
	if key == "limit" {
		return "", "", fmt.Errorf("limit is the scheduler's own to say: leave it out")
	}
	if standard.IsClass(key) {
		return "", "", fmt.Errorf("%s is a resource class, not a parameter: write %s:AMOUNT", key, key)
	}
	return "", "", fmt.Errorf("unknown parameter %q%s", key, nearest.Hint(key, parameters))
}

// plausibleSuffix is stricter than Placement, which reads "requireds" as required of the group "s": here a suffix
// starts with a digit, an underscore or a dash, and anything else is a typo.
func plausibleSuffix(suffix string) bool {
	return suffixForm.MatchString(suffix) && strings.ContainsRune("0123456789_-", rune(suffix[0]))
}

func (p *parser) value(word, suffix, value string) error {
	switch word {
	case "resources":
		return p.group(suffix).addResources(value)
	case "required":
		return p.group(suffix).addRequired(value)
	case "member_of":
		return p.group(suffix).addMemberOf(value)
	case "in_tree":
		return p.group(suffix).setInTree(value)
	case "group_policy":
		if value != "none" && value != "isolate" {
			return fmt.Errorf("%q is neither none nor isolate%s", value,
				nearest.Hint(value, []string{"none", "isolate"}))
		}
		p.query.GroupPolicy = value
	case "root_required":
		return p.addRootRequired(value)
	case "in":
		b, err := croft.ParseBound(value)
		p.query.In = append(p.query.In, b)
		return err
	case "where":
		p.query.Where = append(p.query.Where, value)
	case "where_not":
		p.query.WhereNot = append(p.query.WhereNot, value)
	case "near":
		p.near = append(p.near, value)
	case "far":
		p.far = append(p.far, value)
	case "distance":
		if p.kind != "" && p.kind != value {
			return fmt.Errorf("named twice, and a query has one type of distances")
		}
		p.kind = value
	case "same_subtree":
		p.query.SameSubtree = append(p.query.SameSubtree, strings.Split(value, ","))
	}
	return nil
}

func (g *RequestGroup) addResources(value string) error {
	if g.Resources != nil {
		return fmt.Errorf("said twice: put all amounts into one list")
	}
	g.Resources = croft.Resources{}
	for part := range strings.SplitSeq(value, ",") {
		name, amount, found := strings.Cut(strings.TrimSpace(part), ":")
		if !found {
			return fmt.Errorf("%q is no CLASS:AMOUNT, such as VCPU:1", part)
		}
		class, err := parseClass(name)
		if err != nil {
			return err
		}
		n, err := parseAmount(class, strings.TrimSpace(amount))
		if err != nil {
			return err
		}
		if _, twice := g.Resources[class]; twice {
			return fmt.Errorf("%s is said twice", class)
		}
		g.Resources[class] = n
	}
	return nil
}

// ParseAmounts parses amounts by resource class: VCPU:2,MEMORY_MB:2048. Invalid.
func ParseAmounts(text string) (croft.Resources, error) {
	var g RequestGroup
	if err := g.addResources(text); err != nil {
		return nil, croft.Errorf(croft.Invalid, "amounts %q: %w", text, err)
	}
	return g.Resources, nil
}

// parseClass accepts the name of a class also in lower case.
func parseClass(name string) (croft.ResourceClass, error) {
	for _, name := range []string{name, strings.ToUpper(name)} {
		if standard.IsClass(name) {
			return croft.ResourceClass(name), nil
		}
	}
	return "", fmt.Errorf("unknown resource class %q%s", name, nearest.Hint(name, standard.Classes()))
}

func parseAmount(class croft.ResourceClass, text string) (int64, error) {
	n, err := parseUnits(class, text)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%s: %q is not a whole number%s", class, text, unitHint(class))
	case n < 1:
		return 0, fmt.Errorf("%s: ask for at least 1, or leave it out", class)
	case n > maxAmount:
		return 0, fmt.Errorf("%s: %s is more than the most that can be claimed, %d", class, text, maxAmount)
	}
	return int64(n), nil
}

// unitLetters are the powers of 1024 that a unit stands for, and the end of the name of a class that is counted in it.
var unitLetters = []struct{ letter, class string }{{"m", "_MB"}, {"g", "_GB"}, {"t", "_TB"}}

// parseUnits parses a number, which may have a unit behind it if the class is counted in units: 2G of MEMORY_MB are
// 2048. The result saturates.
func parseUnits(class croft.ResourceClass, text string) (uint64, error) {
	own := unitOf(class)
	for i, u := range unitLetters {
		if number, found := strings.CutSuffix(strings.ToLower(text), u.letter); found && own >= 0 {
			n, err := strconv.ParseUint(number, 10, 64)
			switch bits := 10 * (i - own); {
			case err != nil:
				return 0, err
			case bits >= 0:
				return scale(n, bits), nil
			case n%(1<<-bits) != 0:
				return 0, strconv.ErrSyntax
			default:
				return n >> -bits, nil
			}
		}
	}
	return strconv.ParseUint(text, 10, 64)
}

// scale returns n * 2^bits, or more than maxAmount if that is larger.
func scale(n uint64, bits int) uint64 {
	if n > maxAmount {
		return n
	}
	return n << bits
}

// unitOf returns the index of the unit in which a class is counted; -1: it has none.
func unitOf(class croft.ResourceClass) int {
	for i, u := range unitLetters {
		if strings.HasSuffix(string(class), u.class) {
			return i
		}
	}
	return -1
}

func unitHint(class croft.ResourceClass) string {
	if own := unitOf(class); own >= 0 {
		return fmt.Sprintf(" of %siB, such as 20, or 20G", strings.ToUpper(unitLetters[own].letter))
	}
	return ""
}

func (g *RequestGroup) addRequired(value string) error {
	if rest, ok := strings.CutPrefix(value, "in:"); ok {
		set, err := parseTraits(rest)
		if err != nil {
			return err
		}
		g.Required = append(g.Required, set)
		return nil
	}
	for word := range strings.SplitSeq(value, ",") {
		word, forbidden := strings.CutPrefix(strings.TrimSpace(word), "!")
		trait, err := parseTrait(word)
		switch {
		case err != nil:
			return err
		case forbidden:
			g.Forbidden = append(g.Forbidden, trait)
		default:
			g.Required = append(g.Required, []croft.Trait{trait})
		}
	}
	return nil
}

func parseTrait(name string) (croft.Trait, error) {
	if customForm.MatchString(name) || slices.Contains(standard.Traits(), name) {
		return croft.Trait(name), nil
	}
	return "", fmt.Errorf("unknown trait %q%s", name, nearest.Hint(name, standard.Traits()))
}

// ParseTrait returns the trait with a name. Invalid: it is neither a standard nor a custom trait.
func ParseTrait(name string) (croft.Trait, error) {
	trait, err := parseTrait(name)
	if err != nil {
		return "", croft.Errorf(croft.Invalid, "%w; traits of your own are CUSTOM_ and capitals, digits and _", err)
	}
	return trait, nil
}

func parseTraits(list string) ([]croft.Trait, error) {
	var traits []croft.Trait
	for word := range strings.SplitSeq(list, ",") {
		trait, err := parseTrait(strings.TrimSpace(word))
		if err != nil {
			return nil, err
		}
		traits = append(traits, trait)
	}
	return traits, nil
}

// addMemberOf reads UUID, in:UUID,UUID, !UUID or !in:UUID,UUID.
func (g *RequestGroup) addMemberOf(value string) error {
	value, forbidden := strings.CutPrefix(value, "!")
	list, several := strings.CutPrefix(value, "in:")
	var set []string
	for word := range strings.SplitSeq(list, ",") {
		id, err := croft.ParseHostID(strings.TrimSpace(word)) // aggregates are identified by UUIDs, like hosts
		if err != nil {
			return err
		}
		set = append(set, string(id))
	}
	if len(set) > 1 && !several {
		return fmt.Errorf("several aggregates are written in:UUID,UUID")
	}
	if forbidden {
		g.NotIn = append(g.NotIn, set...)
	} else {
		g.MemberOf = append(g.MemberOf, set)
	}
	return nil
}

func (g *RequestGroup) setInTree(value string) error {
	id, err := croft.ParseHostID(value)
	if err != nil {
		return err
	}
	if g.InTree != "" && g.InTree != id {
		return fmt.Errorf("names two hosts, and an instance runs on one")
	}
	g.InTree = id
	return nil
}

func (p *parser) addRootRequired(value string) error {
	for word := range strings.SplitSeq(value, ",") {
		word = strings.TrimSpace(word)
		if _, err := parseTrait(strings.TrimPrefix(word, "!")); err != nil {
			return err
		}
		p.query.RootRequired = append(p.query.RootRequired, word)
	}
	return nil
}

// finish checks the query as a whole and sorts it.
func (p *parser) finish() error {
	named := 0
	for _, suffix := range slices.Sorted(maps.Keys(p.groups)) {
		g := p.groups[suffix]
		if suffix != "" {
			named++
		}
		if g.Resources == nil && !p.inSubtree(suffix) {
			return fmt.Errorf("resources%s is missing: required, member_of and in_tree say where resources come from",
				suffix)
		}
		if err := g.contradiction(); err != nil {
			return err
		}
		p.query.Groups = append(p.query.Groups, *g)
	}
	if named > 1 && p.query.GroupPolicy == "" {
		return fmt.Errorf(
			"several numbered groups need group_policy=none (they may share a provider) or group_policy=isolate")
	}
	for _, suffix := range slices.Concat(p.query.SameSubtree...) {
		if suffix == "" || p.groups[suffix] == nil {
			return fmt.Errorf("same_subtree: there is no group %q", suffix)
		}
	}
	p.query.sort()
	var err error
	p.query.Near, err = croft.ParseNears(p.near, p.far, p.kind)
	return err
}

func (p *parser) inSubtree(suffix string) bool {
	return suffix != "" && slices.Contains(slices.Concat(p.query.SameSubtree...), suffix)
}

func (g *RequestGroup) contradiction() error {
	for _, set := range g.Required {
		if len(set) == 1 && slices.Contains(g.Forbidden, set[0]) {
			return fmt.Errorf("required%s: %s is required and forbidden at once", g.Suffix, set[0])
		}
	}
	return nil
}
