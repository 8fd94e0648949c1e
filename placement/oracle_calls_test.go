package placement_test

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

func (g *generator) provider() call {
	p := g.anyProvider()
	parent := ""
	if g.chance(45) {
		parent = `, "parent_provider_uuid": ` + one(g, []string{"null", strconv.Quote(g.anyProvider()),
			strconv.Quote(g.anyProvider())})
	}
	name := strconv.Quote(one(g, g.names))
	switch g.IntN(5) {
	case 0:
		id := ""
		if g.chance(90) {
			id = fmt.Sprintf(`, "uuid": %q`, p)
		}
		if id == "" {
			// server-generated IDs cannot be compared
			return call{method: "GET", path: "/resource_providers/" + p}
		}
		return call{method: "POST", path: "/resource_providers", body: `{"name": ` + name + id + parent + `}`}
	case 1:
		return call{method: "GET", path: "/resource_providers/" + p}
	case 2, 3:
		return call{method: "PUT", path: "/resource_providers/" + p, body: `{"name": ` + name + parent + `}`}
	}
	return call{method: "DELETE", path: "/resource_providers/" + p}
}

func (g *generator) resources() string {
	var items []string
	for range one(g, []int{1, 1, 1, 2, 2, 3}) {
		amount := strconv.Itoa(one(g, []int{1, 1, 1, 2, 2, 3, 4}))
		if g.chance(2) {
			amount = one(g, []string{"0", "-1", "x", "", "1:2", "99999999999999999999", " 2", "1.5"})
		}
		items = append(items, g.anyClass()+":"+amount)
	}
	if g.chance(2) {
		return one(g, []string{"", "VCPU", ",", "VCPU:1,", ":1"})
	}
	return strings.Join(items, ",")
}

func (g *generator) required() string {
	var items []string
	for range 1 + g.IntN(2) {
		t := g.anyTrait()
		if g.chance(25) {
			t = "!" + t
		}
		items = append(items, t)
	}
	value := strings.Join(items, ",")
	if g.chance(25) {
		value = "in:" + g.anyTrait() + "," + g.anyTrait()
	}
	if g.chance(3) {
		value = one(g, []string{"", "in:", ",", "!", "in:!CUSTOM_RED", "!!CUSTOM_RED", "CUSTOM_RED,,",
			"in:CUSTOM_RED,,"})
	}
	return value
}

func (g *generator) memberOf() string {
	a, b := one(g, g.aggregates), one(g, g.aggregates)
	if g.chance(4) {
		return one(g, []string{"x", "", a + "," + b, "in:x", "!in:" + a + ",y", "!" + strings.ReplaceAll(a, "-", ""),
			g.uuid()})
	}
	return one(g, []string{a, "in:" + a + "," + b, "!" + a, "!in:" + a + "," + b, a})
}

// parameters is an ordered query string.
type parameters []string

func (p *parameters) add(key, value string) {
	*p = append(*p, url.QueryEscape(key)+"="+url.QueryEscape(value))
}

func (p parameters) String() string {
	if len(p) == 0 {
		return ""
	}
	return "?" + strings.Join(p, "&")
}

func (g *generator) providerList() call {
	var p parameters
	add := func(percent int, key string, value func() string) {
		if g.chance(percent) {
			p.add(key, value())
		}
	}
	add(15, "name", func() string { return one(g, append(g.names, "p1", "")) })
	add(15, "uuid", g.anyProvider)
	add(25, "member_of", g.memberOf)
	add(8, "member_of", g.memberOf)
	add(30, "resources", g.resources)
	add(20, "in_tree", g.anyProvider)
	add(30, "required", g.required)
	add(8, "required", g.required)
	add(3, "unknown", func() string { return "1" })
	return call{method: "GET", path: "/resource_providers" + p.String()}
}

func (g *generator) candidates() call {
	var p parameters
	minor := max(g.minor(), 9+g.IntN(6))
	c := call{method: "GET", version: "placement 1." + strconv.Itoa(minor)}
	suffixes := []string{""}
	if minor >= 25 && g.chance(55) || g.chance(3) {
		for _, s := range one(g, [][]string{{"1"}, {"1", "2"}, {"1", "2", "3"}, {"_A"}, {"_A", "_B"},
			{"1", "_net-2"}}) {
			if minor >= 33 || g.chance(3) || s[0] != '_' {
				suffixes = append(suffixes, s)
			}
		}
		if g.chance(60) {
			suffixes = suffixes[1:]
		}
		if g.chance(95) {
			p.add("group_policy", one(g, []string{"none", "isolate"}))
		}
	}
	for _, s := range suffixes {
		g.candidateGroup(&p, s, minor)
	}
	if minor >= 35 && g.chance(12) || g.chance(1) {
		p.add("root_required", one(g, []string{g.anyTrait(), "!" + g.anyTrait(), g.anyTrait() + ",!" + g.anyTrait()}))
	}
	if minor >= 36 && len(suffixes) > 1 && g.chance(35) || g.chance(1) {
		p.add("same_subtree", strings.Join(g.some(suffixes, 3), ","))
	}
	if g.chance(2) {
		p.add(one(g, []string{"limit", "group_policy", "unknown", "resources-x", "required_A", "same_subtree",
			"root_required"}), one(g, []string{"0", "x", "", "CUSTOM_RED", "1,2"}))
	}
	c.path = "/allocation_candidates" + p.String()
	return c
}

func (g *generator) candidateGroup(p *parameters, s string, minor int) {
	resourceless := g.chance(one(g, []int{1, 1, 15}))
	if !resourceless || minor < 36 {
		p.add("resources"+s, g.resources())
	}
	may := func(percent int, since int) bool { return g.chance(percent) && (minor >= since || g.chance(5)) }
	if resourceless || may(25, 17) {
		p.add("required"+s, g.required())
	}
	if may(5, 39) {
		p.add("required"+s, g.required())
	}
	if may(15, 21) {
		p.add("member_of"+s, g.memberOf())
	}
	if may(4, 24) {
		p.add("member_of"+s, g.memberOf())
	}
	if may(10, 31) {
		p.add("in_tree"+s, g.anyProvider())
	}
}

// amounts usually requests classes that the provider offers.
func (g *generator) amounts(provider string) string {
	classes := g.some(g.offered(provider), 3)
	if len(classes) == 0 || g.chance(8) {
		classes = append(classes, g.anyClass())
	}
	var items []string
	for _, class := range classes {
		items = append(items, fmt.Sprintf("%q: %d", class, one(g, []int{1, 1, 1, 2, 2, 3, 9})))
	}
	return `{"resources": {` + strings.Join(items, ", ") + "}}"
}

func (g *generator) allocationSet() string {
	if g.chance(12) {
		return "{}"
	}
	var items []string
	for range one(g, []int{1, 1, 1, 2}) {
		p := g.anyProvider()
		items = append(items, fmt.Sprintf("%q: %s", p, g.amounts(p)))
	}
	return "{" + strings.Join(items, ", ") + "}"
}

func (g *generator) owner() string {
	return fmt.Sprintf(`"project_id": %q, "user_id": %q`, one(g, []string{"p1", "p2"}), one(g, []string{"u1", "u2"}))
}

// claimBody generates a body of PUT /allocations/{uuid} for a microversion.
func (g *generator) claimBody(minor int, consumer string) string {
	if minor < 12 {
		p := g.anyProvider()
		body := fmt.Sprintf(`{"allocations": [{"resource_provider": {"uuid": %q}, %s]`, p, g.amounts(p)[1:])
		if minor >= 8 || g.chance(5) {
			body += ", " + g.owner()
		}
		return body + "}"
	}
	body := `{"allocations": ` + g.allocationSet() + ", " + g.owner()
	if minor >= 28 {
		body += `, "consumer_generation": ` + g.consumerGeneration(consumer)
	}
	if minor >= 34 && g.chance(20) {
		body += fmt.Sprintf(`, "mappings": {"": [%q]}`, one(g, g.providers))
	}
	if minor >= 38 {
		body += fmt.Sprintf(`, "consumer_type": %q`, one(g, []string{"INSTANCE", "MIGRATION", "unknown"}))
	}
	return body + "}"
}

func (g *generator) claims() call {
	minor, consumer := g.minor(), one(g, g.consumers)
	path := consumer
	if g.chance(3) {
		path = one(g, []string{"abc", strings.ToUpper(consumer), strings.ReplaceAll(consumer, "-", "")})
	}
	return call{method: "PUT", path: "/allocations/" + path, version: "placement 1." + strconv.Itoa(minor),
		body: g.claimBody(minor, consumer)}
}

func (g *generator) claimMany() call {
	minor := max(g.minor(), 12+g.IntN(4))
	return call{method: "POST", path: "/allocations", version: "placement 1." + strconv.Itoa(minor),
		body: g.manyBodies(minor, 1)}
}

func (g *generator) manyBodies(minor, atLeast int) string {
	var items []string
	for _, c := range g.some(g.consumers, 3) {
		items = append(items, fmt.Sprintf("%q: %s", c, g.claimBody(max(minor, 12), c)))
	}
	if len(items) < atLeast {
		c := g.consumers[0]
		items = append(items, fmt.Sprintf("%q: %s", c, g.claimBody(max(minor, 12), c)))
	}
	return "{" + strings.Join(items, ", ") + "}"
}

func (g *generator) consumer() call {
	c := one(g, g.consumers)
	if g.chance(40) {
		return call{method: "DELETE", path: "/allocations/" + c}
	}
	return call{method: "GET", path: "/allocations/" + c}
}

func (g *generator) inventoryCall() call {
	p, class := g.anyProvider(), g.anyClass()
	base := "/resource_providers/" + p + "/inventories"
	switch g.IntN(9) {
	case 0:
		return call{method: "GET", path: base}
	case 1:
		return call{method: "GET", path: base + "/" + class}
	case 2, 3:
		return call{method: "POST", path: base, body: fmt.Sprintf(`{"resource_class": %q, %s}`, class, g.inventory())}
	case 4, 5:
		return call{method: "PUT", path: base,
			body: fmt.Sprintf(`{"resource_provider_generation": %d, "inventories": %s}`,
				g.generation(p), g.inventories())}
	case 6, 7:
		return call{method: "PUT", path: base + "/" + class,
			body: fmt.Sprintf(`{"resource_provider_generation": %d, %s}`,
				g.generation(p), g.inventory())}
	}
	if g.chance(50) {
		return call{method: "DELETE", path: base}
	}
	return call{method: "DELETE", path: base + "/" + class}
}

func (g *generator) aggregateCall() call {
	p := g.anyProvider()
	path := "/resource_providers/" + p + "/aggregates"
	minor := g.minor()
	c := call{method: "GET", path: path, version: "placement 1." + strconv.Itoa(minor)}
	if g.chance(60) {
		c.method, c.body = "PUT", g.list(g.aggregates, 3)
		if minor >= 19 {
			c.body = fmt.Sprintf(`{"aggregates": %s, "resource_provider_generation": %d}`, c.body, g.generation(p))
		}
	}
	return c
}

func (g *generator) traitCall() call {
	p, name := g.anyProvider(), g.anyTrait()
	if g.chance(5) {
		name = one(g, []string{"lower", "CUSTOM_", "CUSTOM_a", "CUSTOM_" + strings.Repeat("X", 250)})
	}
	switch g.IntN(9) {
	case 0:
		var q parameters
		if g.chance(60) {
			q.add("name", one(g, []string{"in:" + name + "," + g.anyTrait(), "startswith:CUSTOM", "CUSTOM_RED",
				"startswith:HW_CPU_X86_A", "like:x"}))
		}
		if g.chance(50) || len(q) == 0 {
			q.add("associated", one(g, []string{"true", "false", "TRUE", "maybe"}))
		}
		return call{method: "GET", path: "/traits" + q.String()}
	case 1:
		return call{method: "GET", path: "/traits/" + name}
	case 2, 3:
		return call{method: "PUT", path: "/traits/" + name}
	case 4:
		return call{method: "DELETE", path: "/traits/" + name}
	case 5:
		return call{method: "GET", path: "/resource_providers/" + p + "/traits"}
	case 6:
		return call{method: "DELETE", path: "/resource_providers/" + p + "/traits"}
	}
	return call{method: "PUT", path: "/resource_providers/" + p + "/traits",
		body: fmt.Sprintf(`{"resource_provider_generation": %d, "traits": %s}`, g.generation(p), g.list(append(g.traits,
			name), 4))}
}

func (g *generator) classCall() call {
	name := g.anyClass()
	switch g.IntN(7) {
	case 0:
		return call{method: "GET", path: "/resource_classes"}
	case 1:
		return call{method: "GET", path: "/resource_classes/" + name}
	case 2:
		return call{method: "POST", path: "/resource_classes", body: fmt.Sprintf(`{"name": %q}`, name)}
	case 3:
		return call{method: "DELETE", path: "/resource_classes/" + name}
	case 4:
		return call{method: "PUT", path: "/resource_classes/" + name,
			version: "placement 1." + strconv.Itoa(2+g.IntN(5)),
			body:    fmt.Sprintf(`{"name": %q}`, one(g, []string{"CUSTOM_GOLD", "CUSTOM_SILVER", "CUSTOM_TIN"}))}
	}
	return call{method: "PUT", path: "/resource_classes/" + name, version: "placement 1." + strconv.Itoa(7+g.IntN(33))}
}

func (g *generator) usageCall() call {
	if g.chance(40) {
		return call{method: "GET", path: "/resource_providers/" + g.anyProvider() + one(g, []string{"/usages",
			"/allocations"})}
	}
	var q parameters
	if g.chance(95) {
		q.add("project_id", one(g, []string{"p1", "p2", "none", "", "00000000-0000-0000-0000-000000000000"}))
	}
	if g.chance(40) {
		q.add("user_id", one(g, []string{"u1", "u2", ""}))
	}
	if g.chance(50) {
		q.add("consumer_type", one(g, []string{"INSTANCE", "MIGRATION", "all", "unknown", "ALL", "lower"}))
	}
	return call{method: "GET", path: "/usages" + q.String()}
}

func (g *generator) reshaperCall() call {
	minor := max(g.minor(), 28+g.IntN(5))
	var items []string
	for range 1 + g.IntN(2) {
		p := g.anyProvider()
		items = append(items, fmt.Sprintf(`%q: {"resource_provider_generation": %d, "inventories": %s}`, p,
			g.generation(p),
			g.inventories()))
	}
	return call{method: "POST", path: "/reshaper", version: "placement 1." + strconv.Itoa(minor),
		body: `{"inventories": {` + strings.Join(items, ", ") + `}, "allocations": ` + g.manyBodies(max(minor, 28), 0) +
			`}`}
}

// odd requests something that does not exist.
func (g *generator) odd() call {
	return call{method: one(g, []string{"GET", "PUT", "POST", "DELETE"}), path: one(g, []string{"/", "/nothing",
		"/resource_providers/", "/resource_providers/a/b",
		"/resource_providers/a/inventories/b/c", "/allocations", "/usages/x", "/traits/", "/reshaper",
		"/allocation_candidates/x"})}
}
