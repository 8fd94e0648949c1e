package objects_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"croft"
	"croft/tenant/access"
	"croft/tenant/objects"
	"croft/tenant/objects/objectstest"
)

// world is a service with a store in memory.
type world struct {
	*testing.T
	*objects.Service
	memory *objectstest.Memory
	things int
}

func newWorld(t *testing.T) *world {
	m := &objectstest.Memory{}
	return &world{t, objects.New(m), m, 0}
}

func (w *world) add(kind objects.Kind, project croft.Project) objects.Ref {
	w.things++
	ref := objects.Ref{Kind: kind, ID: fmt.Sprintf("00000000-0000-4000-8000-%012d", w.things)}
	if kind.InProject() {
		ref.Project = project
	}
	w.memory.Add(ref)
	return ref
}

// define sets a definition for instances, in YAML.
func (w *world) define(text string) {
	w.Helper()
	w.defineAt(objects.Place{Level: objects.Partition, Kind: objects.Instance}, text)
}

func (w *world) defineAt(at objects.Place, text string) {
	w.Helper()
	d, err := objects.ParseDefinition("test", []byte(text))
	if err != nil {
		w.Fatal(err)
	}
	now, err := w.DefinitionAt(w.Context(), at)
	if err != nil && !errors.Is(err, croft.NotFound) {
		w.Fatal(err)
	}
	d.Place, d.Generation = at, now.Generation
	if _, err := w.SetDefinition(w.Context(), operator, d); err != nil {
		w.Fatal(err)
	}
}

var operator = objectstest.Operator

// as returns a caller of a project with roles.
func as(project croft.Project, roles ...access.Role) access.Caller {
	return access.Caller{Project: project, Roles: roles}
}

func scopeOf(c access.Caller) access.Scope {
	if c.Operator() {
		return access.Everything()
	}
	return access.Within(c.Project)
}

func (w *world) change(c access.Caller, ref objects.Ref, change objects.Change) (objects.Object, error) {
	return w.Change(w.Context(), c, scopeOf(c), ref, change)
}

func (w *world) mustChange(c access.Caller, ref objects.Ref, change objects.Change) objects.Object {
	w.Helper()
	o, err := w.change(c, ref, change)
	if err != nil {
		w.Fatal(err)
	}
	return o
}

func (w *world) read(c access.Caller, ref objects.Ref) objects.Object {
	w.Helper()
	o, err := w.Object(w.Context(), c, scopeOf(c), ref)
	if err != nil {
		w.Fatal(err)
	}
	return o
}

func (w *world) list(c access.Caller, filters ...string) []objects.Object {
	w.Helper()
	f, err := objects.ParseFilter(filters)
	if err != nil {
		w.Fatal(err)
	}
	all, err := w.List(w.Context(), c, scopeOf(c), objects.Instance, f)
	if err != nil {
		w.Fatal(err)
	}
	return all
}

func (w *world) wantError(err error, kind croft.Kind, contains string) {
	w.Helper()
	if !errors.Is(err, kind) || !strings.Contains(fmt.Sprint(err), contains) {
		w.Errorf("the error is %v, want one that is %s and says %q", err, kind, contains)
	}
}

// set returns a change of properties, given as JSON.
func set(text string) objects.Change {
	var c objects.Change
	if err := json.Unmarshal([]byte(text), &c.Set); err != nil {
		panic(err)
	}
	return c
}

func TestMemoryKeepsTheContract(t *testing.T) {
	objectstest.TestStore(t, func(t *testing.T) objectstest.Fixture {
		w := newWorld(t)
		return objectstest.Fixture{
			Store:  w.memory,
			Add:    func(_ *testing.T, k objects.Kind, p croft.Project) objects.Ref { return w.add(k, p) },
			Remove: func(_ *testing.T, ref objects.Ref) { w.memory.Remove(ref) },
			Has:    func(_ *testing.T, ref objects.Ref) bool { return w.memory.Has(ref) },
		}
	})
}

func TestTheMostExplicitDefinitionReplacesAllOthers(t *testing.T) {
	w := newWorld(t)
	ref := w.add(objects.Instance, "lab")
	places := objects.Places(objects.Instance)
	slices.Reverse(places) // least specific first
	for i, place := range places {
		w.defineAt(place, fmt.Sprintf("properties: {level: {enum: [%d]}, only%d: {type: string}}", i, i))
		d, err := w.Definition(t.Context(), objects.Instance)
		if err != nil || d.Place != place {
			t.Errorf("%v governs, %v, want %v", d.Place, err, place)
		}
		w.mustChange(operator, ref, set(fmt.Sprintf(`{"level": %d}`, i)))
		_, err = w.change(operator, ref, set(`{"level": 9}`))
		w.wantError(err, croft.Invalid, fmt.Sprintf(`the property level must be one of "%d";`, i))
		if i > 0 { // nothing is merged: a less specific definition has no effect
			w.mustChange(operator, ref, set(fmt.Sprintf(`{"only%d": 5}`, i-1)))
		}
	}
	slices.Reverse(places)
	for _, place := range places {
		if err := w.RemoveDefinition(t.Context(), operator, place); err != nil {
			t.Error(err)
		}
	}
	w.mustChange(operator, ref, set(`{"level": 9}`)) // the built-in one permits everything
	d, err := w.Definition(t.Context(), objects.Instance)
	if err != nil || d.Generation != 0 || d.Unknown != objects.Allow {
		t.Errorf("%+v governs, %v", d, err)
	}
	w.wantError(w.RemoveDefinition(t.Context(), operator, places[0]), croft.NotFound, "")
}

func TestADefinitionOfAnotherKindDoesNotCount(t *testing.T) {
	w := newWorld(t)
	w.defineAt(objects.Place{Level: objects.Partition, Kind: objects.Host}, "unknown: refuse")
	w.mustChange(operator, w.add(objects.Instance, "lab"), set(`{"k": "v"}`))
	_, err := w.change(operator, w.add(objects.Host, ""), set(`{"k": "v"}`))
	w.wantError(err, croft.Invalid, "the property k is not defined;")
}

func TestEveryKeywordConstrains(t *testing.T) {
	for _, c := range []struct{ property, good, bad, problem string }{
		{"type: string", `"5"`, `5`, "must be a string"},
		{"type: integer", `5`, `5.5`, "must be an integer"},
		{"type: integer", `5.0`, `"5"`, "must be an integer"},
		{"type: number", `5`, `true`, "must be a number"},
		{"type: boolean", `false`, `"false"`, "must be a boolean"},
		{"type: [string, boolean]", `true`, `1`, "must be a string or boolean"},
		{"enum: [a, 2, true, 0.5]", `0.5`, `"2"`, `must be one of "a", "2", "true", "0.5"`},
		{"enum: [2026-01-02]", `"2026-01-02"`, `"2026-01-03"`, `must be one of "2026-01-02"`},
		{"multipleOf: 4", `8`, `6`, "must be a multiple of 4"},
		{"multipleOf: 0.1", `0.3`, `0.35`, "must be a multiple of 0.1"},
		{"minimum: 2", `2`, `1.9`, "must be 2 or more"},
		{"maximum: 2", `2`, `2.1`, "must be 2 or less"},
		{"maximum: -1.5", `-2`, `0`, "must be -1.5 or less"},
		{"minLength: 2", `"éé"`, `"é"`, "must have 2 characters or more"},
		{"maxLength: 2", `"éé"`, `"ééé"`, "must have 2 characters or less"},
		{`pattern: "^[a-z]+$"`, `"ab"`, `"a1"`, "must match ^[a-z]+$"},
		{`pattern: b`, `"abc"`, `"ac"`, "must match b"},
		{`pattern: '\pL\.'`, `"é."`, `"1."`, `must match \pL\.`},
		{"format: date", `"2026-02-28"`, `"2026-02-30"`, "must have the format date"},
		{"format: date-time", `"2026-02-28T10:00:00Z"`, `"2026-02-28"`, "must have the format date-time"},
		{"format: time", `"10:00:00Z"`, `"25:00:00Z"`, "must have the format time"},
		{"format: duration", `"P1D"`, `"1 day"`, "must have the format duration"},
		{"format: email", `"a@b.example"`, `"a"`, "must have the format email"},
		{"format: hostname", `"a.example"`, `"-a"`, "must have the format hostname"},
		{"format: ipv4", `"10.0.0.1"`, `"10.0.0.256"`, "must have the format ipv4"},
		{"format: ipv6", `"::1"`, `"10.0.0.1"`, "must have the format ipv6"},
		{"format: uri", `"https://a.example/b"`, `"/b"`, "must have the format uri"},
		{"format: uri-reference", `"/b"`, `"\\b"`, "must have the format uri-reference"},
		{"format: uuid", `"b8756be5-a30d-4311-920c-0ad996367a8e"`, `"b8756be5"`, "must have the format uuid"},
		{"minimum: 2", `"a string is no number"`, `1`, "must be 2 or more"},
		{"pattern: b", `7`, `"a"`, "must match b"},
	} {
		t.Run(c.property+" "+c.bad, func(t *testing.T) {
			w := newWorld(t)
			w.define("properties: {k: {" + c.property + "}}")
			ref := w.add(objects.Instance, "lab")
			w.mustChange(operator, ref, set(`{"k": `+c.good+`}`))
			_, err := w.change(operator, ref, set(`{"k": `+c.bad+`}`))
			w.wantError(err, croft.Invalid,
				ref.String()+": the property k "+c.problem+"; `croft property definition get instance`")
			if broken, is := errors.AsType[*objects.ViolationsError](err); !is || len(broken.Violations) != 1 ||
				broken.Violations[0].Key != "k" {
				t.Errorf("the violations are %+v", broken)
			}
			if got := w.read(operator, ref); got.Properties["k"] != set(`{"k": ` + c.good + `}`).Set["k"] {
				t.Errorf("bad input changed %+v", got)
			}
		})
	}
}

func TestWhatIsRequiredHasToStay(t *testing.T) {
	w := newWorld(t)
	w.define("properties: {owner: {required: true}, site: {required: true}}")
	ref := w.add(objects.Instance, "lab")
	_, err := w.change(operator, ref, set(`{"note": "x"}`))
	w.wantError(err, croft.Invalid, "the property owner is required, the property site is required;")
	w.mustChange(operator, ref, objects.Change{AddTags: []string{"tags are governed by no definition"}})
	w.mustChange(operator, ref, set(`{"owner": "jo", "site": "a", "note": "x"}`))
	_, err = w.change(operator, ref, objects.Change{Remove: []string{"owner"}})
	w.wantError(err, croft.Invalid, "the property owner is required;")
	w.mustChange(operator, ref, objects.Change{Remove: []string{"note"}})
	got := w.mustChange(operator, ref, objects.Change{Remove: []string{"owner", "site"}})
	if len(got.Properties) != 0 || len(got.Tags) != 1 {
		t.Errorf("left %+v", got)
	}
}

func TestADefinitionBindsAtTheNextChange(t *testing.T) {
	w := newWorld(t)
	ref, other := w.add(objects.Instance, "lab"), w.add(objects.Instance, "lab")
	w.mustChange(operator, ref, set(`{"cores": 7, "colour": "red"}`))
	w.mustChange(operator, other, set(`{"cores": 2}`))
	w.define("unknown: refuse\nproperties: {cores: {maximum: 4}, note: {}, color: {}}")
	if got := w.read(operator, ref); len(got.Properties) != 2 {
		t.Errorf("the definition changed %+v", got)
	}
	breaches, err := w.Check(t.Context(), operator, access.Everything(), objects.Instance)
	if err != nil || len(breaches) != 1 || breaches[0].Ref != ref || !slices.Equal(breaches[0].Violations,
		[]objects.Violation{{Key: "colour", Problem: `is not defined (did you mean "color"?)`},
			{Key: "cores", Problem: "must be 4 or less"}}) {
		t.Errorf("breaches %+v, %v", breaches, err)
	}
	_, err = w.change(operator, ref, set(`{"note": "x"}`))
	w.wantError(err, croft.Invalid, "the property cores must be 4 or less;")
	fix := set(`{"note": "x", "cores": 4}`)
	fix.Remove = []string{"colour"}
	w.mustChange(operator, ref, fix)
	breaches, err = w.Check(t.Context(), operator, access.Everything(), objects.Instance)
	if err != nil || len(breaches) != 0 {
		t.Errorf("breaches %+v, %v", breaches, err)
	}
}

func TestBadInputChangesNothing(t *testing.T) {
	many := map[string]objects.Value{}
	for i := range objects.MaxProperties {
		many[fmt.Sprintf("key%d", i)] = objects.Text("v")
	}
	tags := []string{}
	for i := range objects.MaxTags {
		tags = append(tags, fmt.Sprintf("tag%02d", i))
	}
	long := strings.Repeat("x", objects.MaxText+1)
	for _, c := range []struct {
		name   string
		change objects.Change
		says   string
	}{
		{"nothing", objects.Change{}, "there is nothing to change: name properties or tags"},
		{"an empty key", set(`{"": 1}`), `"" is not a key of a property: use 1 to 64 letters`},
		{"a key with a slash", set(`{"a/b": 1}`), `"a/b" is not a key`},
		{"a key with a colon", set(`{"tag:b": 1}`), `"tag:b" is not a key`},
		{"a long key", set(`{"` + strings.Repeat("k", 65) + `": 1}`), "is not a key"},
		{"one key too many", set(`{"more": 1}`), "would have 65 properties: it may have 64; remove some first"},
		{"one tag too many", objects.Change{AddTags: []string{"more"}}, "would have 33 tags: it may have 32"},
		{"a long value", set(`{"key1": "` + long + `"}`),
			"the property key1: the value \"xxxxxxxxxxxxxxxxxxxx\"... has 2049 bytes"},
		{"a value with a control character", set(`{"key1": "\u001b[2J"}`), "the property key1: the value"},
		{"a value with an accent apart from its letter", set(`{"key1": "Cafe\u0301"}`),
			`the property key1: the value "Cafe\u0301" has letters apart from their accents`},
		{"a tag with an accent apart from its letter", objects.Change{AddTags: []string{"Cafe\u0301"}},
			`write it as "Caf\u00e9"`},
		{"a value that is none", objects.Change{Set: map[string]objects.Value{"key1": {}}}, "there is no value"},
		{"an empty tag", objects.Change{AddTags: []string{""}}, "a tag is empty: use 1 to 64 characters"},
		{"a long tag", objects.Change{AddTags: []string{strings.Repeat("é", 65)}},
			"has 65 characters: a tag has at most 64"},
		{"a tag with a line break", objects.Change{AddTags: []string{"a\nb"}}, "has characters that cannot be printed"},
		{"a tag that is no text", objects.Change{AddTags: []string{"a\xff"}}, "has characters that cannot be printed"},
		{"a tag with a blank at its end", objects.Change{AddTags: []string{"a "}}, "begins or ends with a blank"},
		{"a key set and removed", objects.Change{Set: many, Remove: []string{"key1"}}, "is to be set and removed"},
		{"a tag added and removed", objects.Change{AddTags: tags, RemoveTags: tags}, "is to be added and removed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			ref := w.add(objects.Instance, "lab")
			before := w.mustChange(operator, ref, objects.Change{Set: many, AddTags: tags})
			_, err := w.change(operator, ref, c.change)
			w.wantError(err, croft.Invalid, c.says)
			if strings.Contains(fmt.Sprint(err), "\n") {
				t.Errorf("more than one sentence: %v", err)
			}
			if after := w.read(operator, ref); after.Generation != before.Generation ||
				!maps.Equal(after.Properties, before.Properties) {
				t.Errorf("changed to %+v", after)
			}
		})
	}
}

func TestValuesAreScalarsAndKeepTheirType(t *testing.T) {
	for text, want := range map[string]string{
		`"5"`: `"5"`, `5`: `5`, `5.0`: `5`, `1e3`: `1000`, `0.1`: `0.1`, `-0`: `0`, `true`: `true`, `""`: `""`,
		`9223372036854775807`: `9223372036854775807`, `1e300`: `1e+300`,
		`9223372036854775808`: "", `1e400`: "", `null`: "", `[]`: "", `{"a": 1}`: "",
	} {
		var v objects.Value
		err := json.Unmarshal([]byte(text), &v)
		if want == "" {
			if !errors.Is(err, croft.Invalid) {
				t.Errorf("%s: read as %v, %v, want a refusal", text, v, err)
			}
			continue
		}
		got, _ := json.Marshal(v)
		if err != nil || string(got) != want {
			t.Errorf("%s: read as %s, %v, want %s", text, got, err, want)
		}
	}
}

func TestAChangeMayNameTheGenerationThatItBuildsOn(t *testing.T) {
	w := newWorld(t)
	ref := w.add(objects.Instance, "lab")
	none := int64(0)
	first := set(`{"k": 1}`)
	first.Generation = &none
	o := w.mustChange(operator, ref, first)
	_, err := w.change(operator, ref, first)
	w.wantError(err, croft.Conflict, "was changed by another request")
	second := set(`{"k": 2}`)
	second.Generation = &o.Generation
	w.mustChange(operator, ref, second)
	_, err = w.change(operator, ref, second)
	w.wantError(err, croft.Conflict, "read it again")
}

func TestWhatIsNotThereIsNotRemoved(t *testing.T) {
	w := newWorld(t)
	ref := w.add(objects.Instance, "lab")
	w.mustChange(operator, ref, objects.Change{Set: set(`{"owner": "jo"}`).Set, AddTags: []string{"blue"}})
	_, err := w.change(operator, ref, objects.Change{Remove: []string{"owners"}})
	w.wantError(err, croft.NotFound, `has no property owners; did you mean "owner"?`)
	_, err = w.change(operator, ref, objects.Change{RemoveTags: []string{"bluf"}})
	w.wantError(err, croft.NotFound, `has no tag "bluf"; did you mean "blue"?`)
}

func TestReferencesAreChecked(t *testing.T) {
	id := string(croft.NewInstanceID())
	for name, ref := range map[string]objects.Ref{
		"a kind that is none":      {Kind: "instances", Project: "lab", ID: id},
		"any kind":                 {Kind: objects.Any, Project: "lab", ID: id},
		"no project":               {Kind: objects.Instance, ID: id},
		"a project of a host":      {Kind: objects.Host, Project: "lab", ID: id},
		"a name of a host":         {Kind: objects.Host, ID: "host1"},
		"a UUID in capitals":       {Kind: objects.Instance, Project: "lab", ID: strings.ToUpper("a" + id[1:])},
		"a slash":                  {Kind: objects.Image, Project: "lab", ID: "a/b"},
		"a project that is a path": {Kind: objects.Group, Project: "../lab", ID: "a"},
		"a long name":              {Kind: objects.Group, Project: "lab", ID: strings.Repeat("a", 129)},
	} {
		if err := ref.Check(); !errors.Is(err, croft.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
