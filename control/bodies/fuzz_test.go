package bodies_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"croft/control/api"
	"croft/control/bodies"
)

// FuzzBody checks that a body is either refused with a problem for the caller, or decoded as encoding/json decodes it.
func FuzzBody(f *testing.F) {
	for _, text := range []string{
		`{"query":"VCPU:1","image":"tiny"}`, `{"query":"VCPU:1","image":"tiny","tags":{"a":"b"}}`, `[]`, `{"a":`, ``,
		`{"query":1e999,"image":"x"}`, `{"query":"\ud800","image":"x"}`, `{"query":"a","query":"b"}`, `nul`,
		`{"query":"a","image":"b","affinities":[{"group":"x","rule":"affinity"}]}`, `{"Query":"a","IMAGE":"b"}`,
	} {
		f.Add(text)
	}
	body := bodies.Of(reflect.TypeFor[api.InstanceRequest]())
	f.Fuzz(func(t *testing.T, text string) {
		var got, want api.InstanceRequest
		err := body.Decode([]byte(text), &got)
		if err != nil {
			p, ok := err.(*api.Problem)
			if !ok || p.Status != 400 || p.Detail == "" {
				t.Fatalf("%q: %v is no answer for the caller", text, err)
			}
			return
		}
		err = json.Unmarshal([]byte(text), &want)
		if _, number := errors.AsType[*json.UnmarshalTypeError](err); number { // such as 60.0, which is an integer
			err = nil
		}
		if err != nil || got.Query != want.Query || got.Query == "" ||
			got.Image == "" {
			t.Errorf("%q is %+v, %v", text, got, err)
		}
	})
}
