package bodies_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"croft/control/api"
	"croft/control/bodies"
)

func TestIntegersAreThoseOfJSONSchema(t *testing.T) {
	body := bodies.Of(reflect.TypeFor[api.NewInstance]())
	for text, want := range map[string]int64{"60": 60, "60.0": 60, "6e1": 60, "1E3": 1000, "1200e-1": 120} {
		var got api.NewInstance
		err := body.Decode([]byte(`{"name":"x","query":"VCPU:1","image":"tiny","expires":`+text+`}`), &got)
		if err != nil || got.Expires != want {
			t.Errorf("%s is %d, %v, want %d", text, got.Expires, err, want)
		}
	}
}

// TestEveryWrongFieldIsNamed: what the decoder would refuse, the schema refuses, and names the field.
func TestEveryWrongFieldIsNamed(t *testing.T) {
	body := bodies.Of(reflect.TypeFor[api.NewInstance]())
	for _, c := range []struct{ name, fields, pointer, detail string }{
		{"a fraction", `"expires":60.5`, "/expires", "is number, not integer"},
		{"a number too large for the field", `"expires":1e30`, "/expires", "is more than "},
		{"a number too small for the field", `"expires":-1e30`, "/expires", "is less than "},
		{"what is not base64", `"user_data":"***"`, "/user_data", "is not base64"},
		{"a text for a number", `"expires":"60"`, "/expires", "is string, not integer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var into api.NewInstance
			err := body.Decode([]byte(`{"name":"x","query":"VCPU:1","image":"tiny",`+c.fields+`}`), &into)
			p, ok := errors.AsType[*api.Problem](err)
			if !ok || p.Code != api.SchemaViolation || len(p.Errors) != 1 || p.Errors[0].Pointer != c.pointer ||
				!strings.HasPrefix(p.Errors[0].Detail, c.detail) {
				t.Errorf("got %+v", p)
			}
		})
	}
}

// TestAProblemRepeatsLittleOfTheBody: a long key or value of a caller is not answered several times.
func TestAProblemRepeatsLittleOfTheBody(t *testing.T) {
	body := bodies.Of(reflect.TypeFor[api.NewInstance]())
	long := strings.Repeat("<", 500_000)
	for _, fields := range []string{`"labels":{"` + long + `":[]}`, `"tags":{"` + long + `":1}`, `"` + long + `":1`,
		`"name":"` + long + `"`, `"metadata":"` + long + `"`} {
		var into api.NewInstance
		err := body.Decode([]byte(`{"query":"VCPU:1","image":"tiny",`+fields+`}`), &into)
		p, ok := errors.AsType[*api.Problem](err)
		if !ok {
			if err != nil {
				t.Errorf("%.40s: %v", fields, err)
			}
			continue
		}
		if text, _ := json.Marshal(p.Bounded()); len(text) > 2000 {
			t.Errorf("%.40s is answered with %d bytes", fields, len(text))
		}
	}
}
