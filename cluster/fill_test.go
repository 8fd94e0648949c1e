package cluster

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"croft"
)

func declare(kinds ...string) Contract {
	c := Contract{Declared: map[string]Declared{}}
	for _, kind := range kinds {
		name, rest, _ := strings.Cut(kind, ":")
		kind, optional := strings.CutSuffix(rest, "?")
		c.Declared[name] = Declared{Type: kind, Default: optional}
	}
	return c
}

func TestFill(t *testing.T) {
	all := Filling{Cluster: "id", Slaves: 3, Removed: []int{1}, AllowedIP: "10.0.0.0/8",
		Site: Site{Defaults: map[string]any{"network_name": "net", "flavor_name": "small", "key_name": "site",
			"allowed_ip": "0.0.0.0/0"}},
		Implementation: Implementation{Parameters: map[string]any{"flavor_name": "large", "cluster_size": 99,
			"key_name": "i"}},
		Given: map[string]any{"key_name": "ann"}}
	for _, c := range []struct {
		name     string
		contract Contract
		change   func(*Filling)
		want     map[string]any
	}{
		{"what is not declared is left out", declare("key_name:string"), nil, map[string]any{"key_name": "ann"}},
		{"the size is that without the master, whatever the implementation says",
			declare("cluster_size:number", "key_name:string"), nil, map[string]any{"cluster_size": 3,
				"key_name": "ann"}},
		{"the manager comes before the request, the implementation before the site",
			declare("allowed_ip:string", "network_name:string", "flavor_name:string", "key_name:string"), nil,
			map[string]any{"allowed_ip": "10.0.0.0/8", "network_name": "net", "flavor_name": "large",
				"key_name": "ann"}},
		{"without an address of its own the manager takes the site's", declare("allowed_ip:string", "key_name:string"),
			func(f *Filling) { f.AllowedIP = "" }, map[string]any{"allowed_ip": "0.0.0.0/0", "key_name": "ann"}},
		{"the cluster and what was removed", declare("cluster_id:string", "removed:json", "key_name:string"), nil,
			map[string]any{"cluster_id": "id", "removed": []any{1}, "key_name": "ann"}},
		{"the keys of those who may log in", declare("authorized_keys:json", "key_name:string"),
			func(f *Filling) { f.Keys = []string{"ssh-ed25519 AAAA ann"} },
			map[string]any{"authorized_keys": []any{"ssh-ed25519 AAAA ann"}, "key_name": "ann"}},
		{"without keys the list is empty", declare("authorized_keys:json"),
			func(f *Filling) { f.Given = nil }, map[string]any{"authorized_keys": []any{}}},
		{"nothing was removed", declare("removed:json"),
			func(f *Filling) { f.Removed, f.Given = nil, nil }, map[string]any{"removed": []any{}}},
		{"the image at the site", declare("image:string"), func(f *Filling) { f.Image, f.Given = "glance-1", nil },
			map[string]any{"image": "glance-1"}},
		{"the machines are named after the cluster", declare("cluster_name:string"),
			func(f *Filling) { f.Name, f.Given = "web", nil }, map[string]any{"cluster_name": "web"}},
		{"unless somebody gives another name", declare("cluster_name:string"),
			func(f *Filling) { f.Name, f.Given = "web", map[string]any{"cluster_name": "mine"} },
			map[string]any{"cluster_name": "mine"}},
		{"a long name leaves room for what the names of machines end with", declare("cluster_name:string"),
			func(f *Filling) {
				f.Cluster, f.Name, f.Given = "7c0e6d0e-5a7e", strings.Repeat("x", 60), nil
			}, map[string]any{"cluster_name": strings.Repeat("x", 42) + "-7c0e6d0e"}},
		{"a default of the template stays", declare("disk:number?", "key_name:string"), nil,
			map[string]any{"key_name": "ann"}},
		{"a default of the template is replaced", declare("disk:number?"),
			func(f *Filling) { f.Given = map[string]any{"disk": 5.0} }, map[string]any{"disk": 5}},
		{"null is as if it were not given", declare("disk:number?"),
			func(f *Filling) { f.Given = map[string]any{"disk": nil} }, map[string]any{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := all
			if c.change != nil {
				c.change(&f)
			}
			got, hidden, err := Fill(c.contract, f)
			if err != nil || !reflect.DeepEqual(got, c.want) || len(hidden) > 0 {
				t.Errorf("got %v, %v, %v, want %v", got, hidden, err, c.want)
			}
		})
	}
}

func TestFillRefuses(t *testing.T) {
	for _, c := range []struct {
		name     string
		contract Contract
		given    map[string]any
		want     string
	}{
		{"what nobody gives", declare("flavor_name:string"), nil,
			"parameter flavor_name of the template is required, and nothing sets it"},
		{"what is not declared", declare("flavor_name:string"), map[string]any{"flavour_name": "x"},
			`the template declares no parameter "flavour_name"; did you mean "flavor_name"?`},
		{"what the manager fills", declare("cluster_size:number"), map[string]any{"cluster_size": 4},
			"parameter cluster_size is filled by the manager, and cannot be given"},
		{"another type", declare("disk:number"), map[string]any{"disk": "big"},
			`parameter disk of the template is a number, which "big" is not`},
		{"another type of a secret, which is not shown", declare("admin_token:json"),
			map[string]any{"admin_token": "hunter2"},
			"parameter admin_token of the template is a json, which [secret] is not"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := Fill(c.contract, Filling{Given: c.given})
			if !errors.Is(err, croft.Invalid) || err.Error() != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

func TestTypes(t *testing.T) {
	for _, c := range []struct {
		kind      string
		value     any
		want      any
		different bool
	}{
		{"string", "a", "a", false}, {"string", 5.0, "5", false}, {"string", true, "true", false},
		{"string", []any{}, nil, true}, {"string", map[string]any{}, nil, true},
		{"number", 5.0, 5, false}, {"number", "5", 5, false}, {"number", "1.5", 1.5, false}, {"number", "", nil, true},
		{"number", "NaN", nil, true}, {"number", true, nil, true}, {"number", "1e400", nil, true},
		{"boolean", true, true, false}, {"boolean", "No", false, false}, {"boolean", 1.0, true, false},
		{"boolean", "maybe", nil, true},
		{"json", map[string]any{"a": 1}, map[string]any{"a": 1}, false}, {"json", "[1]", []any{1.0}, false},
		{"json", "5", nil, true}, {"json", "{", nil, true}, {"json", 5, nil, true},
		{"comma_delimited_list", "a,b", "a,b", false}, {"comma_delimited_list", []any{"a", 1.0}, "a,1", false},
		{"comma_delimited_list", []any{"a,b"}, nil, true}, {"comma_delimited_list", 5, nil, true},
		{"anything", 5, 5, false},
	} {
		got, ok := convert(c.kind, c.value)
		if ok == c.different || ok && !reflect.DeepEqual(got, c.want) {
			t.Errorf("%v as %s: got %v, %v, want %v", c.value, c.kind, got, ok, c.want)
		}
	}
}

func TestHiddenNames(t *testing.T) {
	contract := Contract{Declared: map[string]Declared{"db_password": {Type: "string"}, "pin": {Type: "string",
		Hidden: true},
		"size": {Type: "number"}}}
	given := map[string]any{"db_password": "a", "pin": "b", "size": 1}
	_, hidden, err := Fill(contract, Filling{Given: given})
	if want := []string{"db_password", "pin"}; err != nil || !slices.Equal(hidden, want) {
		t.Errorf("got %v, %v, want %v", hidden, err, want)
	}
	if got, want := HiddenIn(given, contract), hidden; !slices.Equal(got, want) {
		t.Errorf("given: got %v, want %v", got, want)
	}
	if got, want := HiddenIn(given), []string{"db_password"}; !slices.Equal(got, want) {
		t.Errorf("given, without a contract: got %v, want %v", got, want)
	}
}

// vault seals a value by prefixing it with the last characters of about.
type vault struct{}

func (vault) Seal(s Secret, about string) (Sealed, error) {
	return Sealed(`"` + about[len(about)-3:] + strings.ReplaceAll(s.Reveal(), `"`, `'`) + `"`), nil
}

func (vault) Open(v Sealed, about string) (Secret, error) {
	text, ok := strings.CutPrefix(strings.Trim(string(v), `"`), about[len(about)-3:])
	if !ok {
		return Secret{}, croft.Errorf(croft.Invalid, "moved")
	}
	return NewSecret(strings.ReplaceAll(text, `'`, `"`)), nil
}

func TestGivenParametersAreSealedAndOpened(t *testing.T) {
	given := map[string]any{"pin": "b", "size": 1.0}
	c := Cluster{ID: "id", Sealed: map[string]Sealed{"pin": Sealed(`"an output"`)}}
	sealed, err := SealParameters(vault{}, "p", c, given, []string{"pin"})
	if err != nil {
		t.Fatal(err)
	}
	if _, open := sealed.Parameters["pin"]; open || len(sealed.Sealed) != 2 || len(c.Sealed) != 1 || len(given) != 2 {
		t.Errorf("got %+v from %+v and %v", sealed, c, given)
	}
	got, err := GivenParameters(vault{}, "p", sealed)
	if err != nil || !SameParameters(got, given) {
		t.Errorf("got %v, %v, want %v", got, err, given)
	}
	if _, err := GivenParameters(nil, "p", sealed); !errors.Is(err, croft.Unavailable) {
		t.Errorf("without a vault: got %v, want Unavailable", err)
	}
}

func TestSameParameters(t *testing.T) {
	for _, c := range []struct {
		name string
		a, b map[string]any
		want bool
	}{
		{"none is none", nil, map[string]any{}, true},
		{"numbers of any type of Go", map[string]any{"n": 1}, map[string]any{"n": 1.0}, true},
		{"another value", map[string]any{"n": 1}, map[string]any{"n": 2}, false},
		{"text is no number", map[string]any{"n": 1}, map[string]any{"n": "1"}, false},
		{"one more", map[string]any{"n": 1}, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := SameParameters(c.a, c.b); got != c.want {
				t.Errorf("got %v", got)
			}
		})
	}
}
