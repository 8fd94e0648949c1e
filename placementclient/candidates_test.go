package placementclient

import (
	"cmp"
	"encoding/json"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"croft"
)

// byReflection decodes an answer through encoding/json.
func byReflection(text []byte) ([]croft.Candidate, error) {
	var body struct {
		Requests []struct {
			Allocations map[croft.HostID]resourcesBody `json:"allocations"`
		} `json:"allocation_requests"`
		Summaries map[croft.HostID]struct {
			Resources map[croft.ResourceClass]struct{ Capacity, Used int64 } `json:"resources"`
			Root      croft.HostID                                           `json:"root_provider_uuid"`
		} `json:"provider_summaries"`
	}
	if err := json.Unmarshal(text, &body); err != nil {
		return nil, err
	}
	list := make([]croft.Candidate, len(body.Requests))
	for i, r := range body.Requests {
		list[i] = croft.Candidate{Allocations: map[croft.HostID]croft.Resources{},
			Summaries: map[croft.HostID]croft.Summary{}}
		for id, a := range r.Allocations {
			s, told := body.Summaries[id]
			sum := croft.Summary{Capacity: croft.Resources{}, Used: croft.Resources{}, Root: cmp.Or(s.Root, id)}
			for class, r := range s.Resources {
				sum.Capacity[class], sum.Used[class] = r.Capacity, r.Used
			}
			if !told {
				sum = croft.Summary{}
			}
			if a.Resources == nil {
				a.Resources = croft.Resources{}
			}
			list[i].Allocations[id], list[i].Summaries[id] = a.Resources, sum
		}
	}
	return list, nil
}

var answers = map[string]string{
	"none":    `{"allocation_requests": [], "provider_summaries": {}}`,
	"nothing": `{}`,
	"nulls":   `{"allocation_requests": null, "provider_summaries": null}`,
	"minimal": `{"allocation_requests": [{"allocations": {"a": {"resources": {"VCPU": 1, "DISK_GB": 4}}}}, {"allocations": {"b": {"resources": {"VCPU": 1, "DISK_GB": 4}}}},
		{"allocations": {"a": {"resources": {"VCPU": 1}}, "c": {"resources": {"DISK_GB": 4}}}}],
		"provider_summaries": {"a": {"resources": {"VCPU": {"capacity": 64, "used": 3}, "DISK_GB": {"capacity": 100, "used": 0}}},
		"b": {"resources": {"VCPU": {"capacity": 64, "used": 5}, "DISK_GB": {"capacity": 100, "used": 9}}},
		"c": {"resources": {"DISK_GB": {"capacity": 9000000000, "used": -1}}, "root_provider_uuid": "a"}}}`,
	"full": `{"provider_summaries":{"a":{"traits":["X","Y"],"parent_provider_uuid":null,"root_provider_uuid":"a","resources":{"VCPU":{"used":3,"capacity":64,"more":{"x":[1.5e3,true]}}}},
		"not asked for":{"resources":{}}},"allocation_requests":[{"mappings":{"":["a"],"_1":[]},"allocations":{"a":{"generation":7,"resources":{"VCPU":1}}}}],"else":[{}, [], "", null, -0.5]}`,
	"escapes":    `{"allocation_requests": [{"allocations": {"\u0061\"b\\": {"resources": {"CUSTOM\u005fX": 2}}}}], "provider_summaries": {"a\"b\\": {"resources": {"CUSTOM_X": {"capacity": 4, "used": 2}}}}}`,
	"no summary": `{"allocation_requests": [{"allocations": {"a": {"resources": {"VCPU": 1}}}}, {"allocations": {"b": {}}}]}`,
}

// The decoder agrees with encoding/json, and a truncated text is an error.
func TestCandidatesAreDecodedAsByReflection(t *testing.T) {
	for name, text := range answers {
		t.Run(name, func(t *testing.T) {
			want, err := byReflection([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			var got candidates
			if err := got.decode([]byte(" " + text + "\n")); err != nil {
				t.Fatal(err)
			}
			if diff := gocmp.Diff(want, got.list()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			for end := range len(text) {
				if err := got.decode([]byte(text[:end])); err == nil {
					t.Errorf("no error after %s", text[:end])
				}
			}
		})
	}
	for _, wrong := range []string{`[]`, `{"allocation_requests": {}}`,
		`{"provider_summaries": {"a": {"resources": {"VCPU": {"used": 1.5}}}}}`, `{} {}`, `{"else": ?}`} {
		var got candidates
		if err := got.decode([]byte(wrong)); err == nil {
			t.Errorf("%s is no error", wrong)
		}
	}
}

func FuzzCandidatesAreDecodedAsByReflection(f *testing.F) {
	for _, text := range answers {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var got candidates
		if err := got.decode([]byte(text)); err != nil || !json.Valid([]byte(text)) {
			return
		}
		want, err := byReflection([]byte(text))
		if err != nil {
			return // skipped values and nulls are not checked
		}
		if again, _ := json.Marshal(want); len(again) > 0 && len(want) != len(got.list()) {
			t.Errorf("%d candidates instead of %d in %s", len(got.list()), len(want), text)
		}
	})
}
