package objects_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"croft"
	"croft/tenant/objects"
)

func TestFiltersChoose(t *testing.T) {
	w := newWorld(t)
	ids := map[string]string{}
	for name, properties := range map[string]string{
		"web": `{"role": "web", "cores": 4, "owner": "jo ann"}`,
		"db":  `{"role": "db", "cores": 4.5, "spare": true}`,
		"old": `{"role": "web*", "release": "1.10", "empty": "", "place": "Caf\u00e9"}`,
	} {
		ref := w.add(objects.Instance, "lab")
		ids[ref.ID] = name
		w.mustChange(operator, ref, objects.Change{Set: set(properties).Set, AddTags: []string{name, "all of them"}})
	}
	for _, c := range []struct{ filters, want string }{
		{"", "db old web"},
		{"role=web", "web"},
		{"role=web*", "old web"},
		{`role="web*"`, "old"},
		{`role="web"*`, "old web"},
		{"role=w cores", ""},
		{"cores", "db web"},
		{"cores=4", "web"},
		{"cores=4.0", "web"},
		{"cores=4*", "db web"},
		{"cores=4.5", "db"},
		{"spare=true", "db"},
		{"release=1.1", ""},
		{"release=1.1*", "old"},
		{"empty=", "old"},
		{"owner=", ""},
		{"place=Caf\u00e9", "old"},
		{"place=Cafe\u0301", "old"},
		{"place=Cafe\u0301*", "old"},
		{"place=Cafe", ""},
		{`owner="jo ann"  role=web`, "web"},
		{"role=db|role=web", "db web"},
		{"role=db cores|tag:old", "db old"},
		{"role=db role=web", ""},
		{"nothing", ""},
		{"Role=db", ""},
		{"tag:web", "web"},
		{"tag:w*", "web"},
		{"tag:*", "db old web"},
		{`tag:"all of them" cores`, "db web"},
		{"tag:we", ""},
	} {
		t.Run(c.filters, func(t *testing.T) {
			var got []string
			filters := strings.FieldsFunc(c.filters, func(r rune) bool { return r == '|' })
			for _, o := range w.list(operator, filters...) {
				got = append(got, ids[o.ID])
			}
			slices.Sort(got)
			if strings.Join(got, " ") != c.want {
				t.Errorf("chose %q, want %q", got, c.want)
			}
		})
	}
}

func TestAFaultInAFilterIsNamed(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 "a filter is empty: write key=value",
		"  \t":                             "a filter is empty",
		"=v":                               `the filter "=v": "" is not a key of a property`,
		"a/b=v":                            `"a/b" is not a key`,
		"a b/c":                            `the filter "b/c": "b/c" is not a key`,
		`a="b`:                             "the quote does not end",
		`a="\q"`:                           "the quote does not end, or has an unknown escape",
		`a="b"c`:                           "after a quote stands a blank",
		`a="b"*c`:                          "after a quote stands a blank",
		"tag:":                             "the filter tag: names no tag",
		`tag:""`:                           "the filter tag: names no tag",
		"tags:a":                           `"tags:a" is not a key`,
		strings.Repeat("a ", 33):           "has more than 32 terms",
		"a=" + strings.Repeat("x", 5000):   "has 5002 bytes: it may have 4096",
		strings.Repeat("k", 65) + " other": "is not a key",
	} {
		_, err := objects.ParseFilter([]string{text})
		if !errors.Is(err, croft.Invalid) || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%.80q: got %v, want %s", text, err, want)
		}
	}
	if _, err := objects.ParseFilter(slices.Repeat([]string{"a"}, 17)); !errors.Is(err, croft.Invalid) {
		t.Errorf("17 filters: %v", err)
	}
}

func FuzzFilter(f *testing.F) {
	for _, text := range []string{"k=v k2=v* k3", `k="a b"* tag:"x\n"`, "tag:* k=", `k="`, "tag:", "k==*", "k=**"} {
		f.Add(text)
	}
	o := objects.Object{Properties: set(`{"k": "v", "k2": 5, "k3": true}`).Set, Tags: []string{"a", "b*"}}
	f.Fuzz(func(t *testing.T, text string) {
		filter, err := objects.ParseFilter([]string{text})
		if err != nil {
			if !errors.Is(err, croft.Invalid) || strings.Contains(err.Error(), "\n") {
				t.Fatalf("the error is %q", err)
			}
			return
		}
		chosen := filter.Match(o)
		if len(filter[0].String()) > 4096 {
			return
		}
		again, err := objects.ParseFilter([]string{filter[0].String()})
		if err != nil || !slices.Equal(again[0], filter[0]) || again.Match(o) != chosen {
			t.Fatalf("%q is written as %q, which is read as %q, %v", text, filter[0], again, err)
		}
	})
}
