package placement_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
)

// generator makes requests about a small world, so that they affect each other.
type generator struct {
	*rand.Rand
	providers  []string
	aggregates []string
	consumers  []string
	names      []string
	classes    []string
	traits     []string
	ask        func(call) reply // our server, for generations
}

func newGenerator(r *rand.Rand) *generator {
	g := &generator{Rand: r,
		names:   []string{"one", "two", "three", "four", "five", "größe", "<six>", "seven's \"7\""},
		classes: []string{"VCPU", "MEMORY_MB", "DISK_GB", "SRIOV_NET_VF", "CUSTOM_GOLD", "CUSTOM_SILVER"},
		traits: []string{"HW_CPU_X86_AVX", "HW_NUMA_ROOT", "COMPUTE_NODE", "MISC_SHARES_VIA_AGGREGATE", "CUSTOM_RED",
			"CUSTOM_BLUE", "CUSTOM_GREEN"},
	}
	for range 10 {
		g.providers = append(g.providers, g.uuid())
	}
	for range 4 {
		g.aggregates = append(g.aggregates, g.uuid())
	}
	g.freshConsumers()
	return g
}

func (g *generator) uuid() string {
	var b [16]byte
	for i := range b {
		b[i] = byte(g.IntN(256))
	}
	id, _ := uuid.FromBytes(b[:])
	return id.String()
}

func (g *generator) freshConsumers() {
	g.consumers = nil
	for range 5 {
		g.consumers = append(g.consumers, g.uuid())
	}
}

func one[T any](g *generator, list []T) T { return list[g.IntN(len(list))] }

// chance is true with a probability of n percent.
func (g *generator) chance(n int) bool { return g.IntN(100) < n }

func latest(method, path, body string) call {
	c := call{method: method, path: path, version: "placement 1.39", token: "admin", body: body}
	if body != "" {
		c.contentType = "application/json"
	}
	return c
}

// populate creates trees of providers with inventories, traits and aggregates.
func (g *generator) populate() []call {
	var out []call
	for _, name := range append(slices.Clone(g.classes), g.traits...) {
		if strings.HasPrefix(name, "CUSTOM_") && g.chance(93) {
			kind := "/traits/"
			if slices.Contains(g.classes, name) {
				kind = "/resource_classes/"
			}
			out = append(out, latest("PUT", kind+name, ""))
		}
	}
	nesting, sharing := g.chance(65), g.chance(50)
	for i, p := range g.providers[:8] {
		parent := ""
		if nesting && i > 1 && g.chance(60) {
			parent = fmt.Sprintf(`, "parent_provider_uuid": %q`, g.providers[g.IntN(i)])
		}
		out = append(out, latest("POST", "/resource_providers",
			fmt.Sprintf(`{"name": "p%d", "uuid": %q%s}`, i, p, parent)))
		generation := 0
		if g.chance(85) {
			out = append(out, latest("PUT", "/resource_providers/"+p+"/inventories",
				fmt.Sprintf(`{"resource_provider_generation": 0, "inventories": %s}`, g.inventories())))
			generation++
		}
		if g.chance(70) {
			out = append(out, latest("PUT", "/resource_providers/"+p+"/aggregates",
				fmt.Sprintf(`{"resource_provider_generation": %d, "aggregates": %s}`, generation,
					g.list(g.aggregates, 2))))
			generation++
		}
		traits := g.traits
		if !sharing {
			traits = slices.DeleteFunc(slices.Clone(traits),
				func(t string) bool { return t == "MISC_SHARES_VIA_AGGREGATE" })
		}
		if g.chance(80) {
			out = append(out, latest("PUT", "/resource_providers/"+p+"/traits",
				fmt.Sprintf(`{"resource_provider_generation": %d, "traits": %s}`, generation, g.list(traits, 3))))
		}
	}
	return out
}

// list returns a JSON list of up to n distinct elements.
func (g *generator) list(from []string, n int) string {
	b, _ := json.Marshal(g.some(from, n))
	return string(b)
}

func (g *generator) some(from []string, n int) []string {
	list := slices.Clone(from)
	g.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list[:min(g.IntN(n+1), len(list))]
}

func (g *generator) inventories() string {
	var items []string
	classes := g.some(g.classes, 5)
	if len(classes) < 2 && g.chance(80) {
		classes = g.classes[:3]
	}
	for _, class := range classes {
		items = append(items, fmt.Sprintf("%q: {%s}", class, g.inventory()))
	}
	return "{" + strings.Join(items, ", ") + "}"
}

func (g *generator) inventory() string {
	fields := []string{`"total": ` + strconv.Itoa(2+g.IntN(20))}
	for _, f := range []string{
		`"reserved": ` + strconv.Itoa(g.IntN(4)), `"min_unit": ` + strconv.Itoa(1+g.IntN(2)),
		`"max_unit": ` + strconv.Itoa(1+g.IntN(12)),
		`"step_size": ` + strconv.Itoa(1+g.IntN(2)), `"allocation_ratio": ` + one(g, []string{"1.5", "2.0", "0.5", "16",
			"1"}),
	} {
		if g.chance(12) {
			fields = append(fields, f)
		}
	}
	return strings.Join(fields, ", ")
}

// next makes a request; ask reads the current state from our server.
func (g *generator) next(ask func(call) reply) call {
	g.ask = ask
	kinds := []struct {
		weight int
		make   func() call
	}{
		{18, g.candidates}, {12, g.claims}, {8, g.claimMany}, {4, g.consumer}, {10, g.provider}, {8, g.providerList},
		{10, g.inventoryCall}, {5, g.aggregateCall}, {6, g.traitCall}, {5, g.classCall}, {4, g.usageCall}, {5,
			g.reshaperCall}, {2, g.odd},
	}
	total := 0
	for _, k := range kinds {
		total += k.weight
	}
	n := g.IntN(total)
	var c call
	for _, k := range kinds {
		if n -= k.weight; n < 0 {
			c = k.make()
			break
		}
	}
	return g.dress(c)
}

// dress adds headers to a call, sometimes odd ones.
func (g *generator) dress(c call) call {
	if c.version == "" {
		c.version = "placement 1." + strconv.Itoa(g.minor())
	}
	c.token = "admin"
	if c.body != "" && c.contentType == "" {
		c.contentType = "application/json"
	}
	if c.body != "" && g.chance(9) {
		// A provider without a UUID gets one from the server, which differs.
		if spoilt := g.spoil(c.body); c.path != "/resource_providers" || strings.Contains(spoilt, `"uuid"`) {
			c.body = spoilt
		}
	}
	switch g.IntN(150) {
	case 0:
		c.version = one(g, []string{"placement 1.40", "placement 2.0", "placement latest", "placement 1",
			"placement x.y",
			"compute 2.1", "compute 2.1, placement 1.20", "Placement 1.5"})
	case 1:
		c.token = one(g, []string{"admin:admin", "user", "other:project"})
	case 2:
		c.accept = one(g, []string{"text/html", "text/plain", "application/json;q=0.5", "*/*", "application/*",
			"image/png",
			"text/html;q=0.1, application/json"})
	case 3:
		if c.body != "" {
			c.contentType = one(g, []string{"text/plain", "application/xml", "application/json; charset=utf-8"})
		}
	case 4:
		c.method = one(g, []string{"PATCH", "DELETE", "PUT", "POST", "GET", "OPTIONS"})
	}
	return c
}

// minor prefers the newest version and those with changes.
func (g *generator) minor() int {
	if g.chance(45) {
		return 39 - g.IntN(3)
	}
	return g.IntN(40)
}

// spoil changes one value of a JSON text, or cuts it.
func (g *generator) spoil(text string) string {
	if g.chance(10) {
		return text[:g.IntN(len(text))]
	}
	v, err := parseValue(json.NewDecoder(strings.NewReader(text)))
	if err != nil {
		return text
	}
	return render(g.spoilValue(v))
}

// object is a JSON object that keeps the order of its members.
type object []objectMember

type objectMember struct {
	name  string
	value any
}

// parseValue reads a JSON value: objects as object, numbers as json.Number.
func parseValue(d *json.Decoder) (any, error) {
	d.UseNumber()
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('['):
		list := []any{}
		for d.More() {
			v, err := parseValue(d)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err = d.Token()
		return list, err
	case json.Delim('{'):
		var o object
		for d.More() {
			name, err := d.Token()
			if err != nil {
				return nil, err
			}
			v, err := parseValue(d)
			if err != nil {
				return nil, err
			}
			o = append(o, objectMember{name.(string), v})
		}
		_, err = d.Token()
		return o, err
	}
	return token, nil
}

func (g *generator) spoilValue(v any) any {
	switch v := v.(type) {
	case object:
		if len(v) > 0 && g.chance(75) {
			return g.spoilObject(v)
		}
	case []any:
		if len(v) > 0 && g.chance(60) {
			i := g.IntN(len(v))
			if g.chance(25) {
				return append(v, v[i])
			}
			v[i] = g.spoilValue(v[i])
			return v
		}
	}
	return one(g, []any{nil, true, int64(-1), int64(0), int64(1) << 40, 1.5, "", "x", "CUSTOM_lower",
		strings.Repeat("A",
			260),
		[]any{}, []any{"a", "a"}, object{}, int64(7), "it's", "tab\there"})
}

func (g *generator) spoilObject(o object) any {
	at := g.IntN(len(o))
	var out object
	how := g.IntN(10)
	for i, m := range o {
		switch {
		case i != at:
		case how == 0:
			continue // omitted
		case how == 1:
			m.name = one(g, []string{"unknown", "lower case", "", "ß", m.name + "x", "a'b"})
		default:
			m.value = g.spoilValue(m.value)
		}
		out = append(out, m)
	}
	if how == 2 {
		out = append(out, objectMember{"unexpected", int64(1)})
		if g.chance(50) {
			out = append(out, objectMember{"another", "two words"})
		}
	}
	return out
}

func render(v any) string {
	switch v := v.(type) {
	case object:
		var items []string
		for _, m := range v {
			items = append(items, render(m.name)+": "+render(m.value))
		}
		return "{" + strings.Join(items, ", ") + "}"
	case []any:
		var items []string
		for _, inner := range v {
			items = append(items, render(inner))
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	b, _ := json.Marshal(v)
	return string(b)
}

// anyProvider returns the UUID of a provider that usually exists.
func (g *generator) anyProvider() string {
	if g.chance(3) {
		return one(g, []string{"abc", strings.ToUpper(g.providers[0]), strings.ReplaceAll(g.providers[1], "-", ""),
			g.uuid()})
	}
	return one(g, g.providers)
}

func (g *generator) anyClass() string {
	if g.chance(4) {
		return one(g, []string{"NO_CLASS", "CUSTOM_NONE", "vcpu"})
	}
	return one(g, g.classes)
}

func (g *generator) anyTrait() string {
	if g.chance(3) {
		return one(g, []string{"NO_TRAIT", "CUSTOM_NONE"})
	}
	return one(g, g.traits)
}

// generation returns a provider's generation, sometimes a wrong one.
func (g *generator) generation(provider string) int {
	var v struct{ Generation int }
	r := g.ask(latest("GET", "/resource_providers/"+url.PathEscape(provider), ""))
	if r.status == 200 {
		_ = json.Unmarshal([]byte(r.body), &v)
	}
	if g.chance(7) {
		v.Generation += g.IntN(3) - 1
	}
	return v.Generation
}

// consumerGeneration returns a consumer's generation as JSON, null if it has none.
func (g *generator) consumerGeneration(consumer string) string {
	var v struct {
		Generation *int `json:"consumer_generation"`
	}
	r := g.ask(latest("GET", "/allocations/"+consumer, ""))
	_ = json.Unmarshal([]byte(r.body), &v)
	switch {
	case g.chance(7):
		return one(g, []string{"null", "0", "1", "7"})
	case v.Generation == nil:
		return "null"
	}
	return strconv.Itoa(*v.Generation)
}

// offered returns the classes in a provider's inventory.
func (g *generator) offered(provider string) []string {
	var v struct{ Inventories map[string]any }
	r := g.ask(latest("GET", "/resource_providers/"+url.PathEscape(provider)+"/inventories", ""))
	if r.status == 200 {
		_ = json.Unmarshal([]byte(r.body), &v)
	}
	return slices.Sorted(maps.Keys(v.Inventories))
}
