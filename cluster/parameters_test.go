package cluster_test

import (
	"encoding/json"
	"testing"

	"croft/cluster"
)

const limited = `heat_template_version: 2021-04-16
parameters:
  cluster_size: {type: number}
  flavor: {type: string, description: of all members}
  home: {type: string, default: shared, constraints: [{allowed_values: [shared, local]}]}
  idle: {type: number, default: 600, constraints: [{range: {min: 60, max: 3600}}]}
  label: {type: string, default: "", constraints: [{length: {max: 20}}, {allowed_pattern: "[a-z]*"}]}
  nodes: {type: number, default: 0, constraints: [{range: {min: 0}}]}
  password: {type: string, default: geheim, hidden: true}
`

func TestParametersOfARequestHaveTypeDefaultLimitsAndDescription(t *testing.T) {
	all := []cluster.Implementation{
		{Site: "lab", Revision: 1, Enabled: true, Template: "parameters: {old: {type: string}}"},
		{Site: "lab", Revision: 2, Enabled: true, Template: limited},
		{Site: "lab", Revision: 3, Template: "parameters: {disabled: {type: string}}"},
		{Site: "local", Revision: 1, Enabled: true, Parameters: map[string]any{"idle": 5},
			Template: "parameters: {flavor: {description: of all members}, idle: {type: number}}"},
		{Site: "other", Revision: 1, Enabled: true,
			Template: "appliance: slurm\nparameters: {flavor: {}, label: {required: true}}"},
	}
	want := []string{
		`{"name":"flavor","type":"string","required":false,"default":"m1","description":"of all members","sites":["lab"]}`,
		`{"name":"flavor","type":"string","required":true,"description":"of all members","sites":["local"]}`,
		`{"name":"flavor","type":"string","required":false,"sites":["other"]}`,
		`{"name":"home","type":"string","required":false,"default":"shared","allowed":"shared, local","sites":["lab"]}`,
		`{"name":"idle","type":"number","required":false,"default":600,"allowed":"60 to 3600","sites":["lab"]}`,
		`{"name":"idle","type":"number","required":false,"default":5,"sites":["local"]}`,
		`{"name":"label","type":"string","required":false,"default":"",` +
			`"allowed":"length at most 20; matches [a-z]*","sites":["lab"]}`,
		`{"name":"label","type":"string","required":true,"sites":["other"]}`,
		`{"name":"nodes","type":"number","required":false,"default":0,"allowed":"0 or more","sites":["lab"]}`,
		`{"name":"password","type":"string","required":false,"hidden":true,"sites":["lab"]}`,
	}
	got := cluster.RequestParameters(all, []cluster.Site{{Name: "lab", Defaults: map[string]any{"flavor": "m1"}}})
	if len(got) != len(want) {
		t.Fatalf("got %d parameters, want %d: %+v", len(got), len(want), got)
	}
	for n, p := range got {
		if text, err := json.Marshal(p); err != nil || string(text) != want[n] {
			t.Errorf("got  %s, %v\nwant %s", text, err, want[n])
		}
	}
}

func TestParametersDeclaredAlikeAreListedOnce(t *testing.T) {
	got := cluster.RequestParameters([]cluster.Implementation{
		{Site: "east", Revision: 1, Enabled: true, Template: "parameters: {home: {type: string, default: shared}}"},
		{Site: "west", Revision: 1, Enabled: true, Template: "parameters: {home: {type: string, default: shared}}"},
	}, nil)
	if len(got) != 1 || len(got[0].Sites) != 2 {
		t.Errorf("got %+v", got)
	}
}
