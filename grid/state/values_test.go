package state

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"croft"
	"croft/grid/unit"
)

// shown formats a value for comparison.
func shown(v *Value) string {
	switch {
	case v == nil:
		return "-"
	case v.Kind == List:
		var items []string
		for _, item := range v.Items {
			items = append(items, shown(item))
		}
		return "[" + strings.Join(items, " ") + "]"
	case v.Kind == Map:
		var items []string
		for _, key := range v.Keys {
			items = append(items, key+":"+shown(v.Fields[key]))
		}
		return "{" + strings.Join(items, " ") + "}"
	case v.Kind == String:
		return v.Text
	}
	return v.Text + "!"
}

func parsed(t *testing.T, text string) *Value {
	t.Helper()
	v, err := parse("f", text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestInheritance(t *testing.T) {
	for _, c := range []struct{ name, upper, own, want string }{
		{"maps merge", "a: {x: 1, y: 2}", "a: {y: 3, z: 4}", "{a:{x:1! y:3! z:4!}}"},
		{"scalars replace", "a: 1\nb: 2", "a: x", "{b:2! a:x}"},
		{"lists replace", "a: [1, 2]", "a: [3]", "{a:[3!]}"},
		{"a + appends", "a: [1, 2]", "a+: [3]", "{a:[1! 2! 3!]}"},
		{"a + in a map appends", "m: {a: [1]}", "m: {a+: [2]}", "{m:{a:[1! 2!]}}"},
		{"a + with nothing above is a list", "", "a+: [3]", "{a:[3!]}"},
		{"nothing deletes", "a: 1\nb: {c: 2, d: 3}", "a: ~\nb: {c: ~}", "{b:{d:3!}}"},
		{"a map replaces a scalar", "a: 1", "a: {b: 2}", "{a:{b:2!}}"},
		{"a scalar replaces a map", "a: {b: 2}", "a: 1", "{a:1!}"},
		{"maps in lists inherit nothing", "a: [{b: 1}]", "a+: [{c: ~, d+: [2]}]", "{a:[{b:1!} {d:[2!]}]}"},
		{"an empty file inherits all", "a: 1", "", "{a:1!}"},
	} {
		var p problems
		if got := shown(inherit(parsed(t, c.upper), parsed(t, c.own), &p)); got != c.want || len(p.list) > 0 {
			t.Errorf("%s: %s, want %s; %v", c.name, got, c.want, p.list)
		}
	}
}

func TestExpansion(t *testing.T) {
	s := &scope{names: map[string]*Value{"name": text("web"), "slot": {Kind: Int, Text: "3"},
		"node": {Kind: Map, Keys: []string{"name", "rack"}, Fields: map[string]*Value{"name": text("n1"),
			"rack": {Kind: Int, Text: "7"}}}},
		own: parsed(t, "var: {n: 5, t: 'x-${name}', on: true, l: [1, '${slot}'], e: '', deep: {er: '${var.t}!'}}")}
	for _, c := range []struct{ name, text, want string }{
		{"a name in a text", "a ${name} b", "a web b"},
		{"two names", "${name}-${slot}", "web-3"},
		{"a whole text keeps the type", "${slot}", "3!"},
		{"also true and false", "${var.on}", "true!"},
		{"also a list, expanded", "${var.l}", "[1! 3!]"},
		{"a path", "${var.deep.er}", "x-web!"},
		{"an item of a list", "${var.l.1}", "3!"},
		{"the node is its name", "${node}", "n1"},
		{"what the node has", "r${node.rack}", "r7"},
		{"a default", "${nope:-other}", "other"},
		{"a default that is a number", "${nope:-4}", "4!"},
		{"a default that has a name in it", "${nope:-${name}}", "web"},
		{"no default where there is something", "${name:-other}", "web"},
		{"a default for an empty text", "${var.e:-other}", "other"},
		{"an empty text", "a${var.e}b", "ab"},
		{"a dollar sign", "$$ $${name} 5$ $HOME", "$ ${name} 5$ $HOME"},
		{"a secret stays as it is", "age:${name}", "age:${name}"},
	} {
		got, problem := s.expand(text(c.text))
		if problem != nil || shown(got) != c.want {
			t.Errorf("%s: %v, want %s; %v", c.name, shown(got), c.want, problem)
		}
	}
}

func TestAmounts(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "4": 4000, "0.5": 500, "250m": 250, "1Ki": 1024_000,
		"2Gi": 2 << 30 * 1000, "1.5k": 1500_000, "3 M": 3_000_000_000,
		"": -1, "-1": -1, "x": -1, "1e3": -1, "0x10": -1, "NaN": -1,
		"9999Ti": -1, "1.2.3": -1, "Gi": -1} {
		got, ok := ParseAmount(text)
		if ok != (want >= 0) || ok && got != want {
			t.Errorf("%q: %d, %v, want %d", text, got, ok, want)
		}
	}
	for n, want := range map[int64]string{0: "0", 500: "0.5", 1250: "1.25", 4000: "4", 5: "0.005"} {
		if got := FormatAmount(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

// opens opens secrets by cutting off their prefix.
type opens struct{}

func (opens) Open(_ context.Context, sealed string) ([]byte, error) {
	if strings.Contains(sealed, "broken") {
		return nil, croft.Errorf(croft.Denied, "no key of yours opens it")
	}
	return []byte(strings.TrimPrefix(sealed, "age:")), nil
}

func TestSecrets(t *testing.T) {
	of := func(s *State, secrets Secrets) unit.Unit {
		t.Helper()
		nodes, err := s.Nodes(t.Context(), secrets)
		if err != nil {
			t.Fatal(err)
		}
		return nodes[2].Units[0]
	}
	s := loaded(t, small)
	closed, opened := of(s, nil), of(s, opens{})
	if opened.Files[1].Content != "YWdl" || closed.Files[1].Content != "" {
		t.Errorf("got %+v and %+v", opened.Files[1], closed.Files[1])
	}
	if opened.Hash() != closed.Hash() {
		t.Error("the hash tells whether somebody could open it")
	}
	other := loaded(t, strings.Replace(small, "age:YWdl", "age:b3RoZXI=", 1))
	if of(other, nil).Hash() == closed.Hash() {
		t.Error("another secret has the same hash")
	}
	broken := loaded(t, strings.Replace(small, "age:YWdl", "age:broken", 1))
	_, err := broken.Nodes(t.Context(), opens{})
	if !errors.Is(err, croft.Denied) || !strings.Contains(err.Error(), "jobs/db.yaml") ||
		strings.Contains(err.Error(), "broken") {
		t.Errorf("got %v", err)
	}
	shared := loaded(t, strings.Replace(small, `content: "age:YWdl"`,
		"content: ${var.key}\nvar: {key: \"age:YWdl\"}", 1))
	if got := of(shared, nil); got.Hash() != closed.Hash() {
		t.Errorf("a secret by its name is another one: %+v", got)
	}
	armored := loaded(t, strings.Replace(small, "content: \"age:YWdl\"", "from: key.age", 1)+
		"-- key.age --\n-----BEGIN AGE ENCRYPTED FILE-----\nYWdl\n-----END AGE ENCRYPTED FILE-----\n")
	if f := of(armored, opens{}).Files[1]; !f.Secret || !strings.Contains(f.Content, "YWdl") {
		t.Errorf("got %+v", f)
	}
}

// TestSecretsInTheEnvironment covers values that are secrets, texts that contain secrets, and texts that refer to such
// texts.
func TestSecretsInTheEnvironment(t *testing.T) {
	of := func(env string, secrets Secrets) unit.Unit {
		t.Helper()
		nodes, err := loaded(t, strings.Replace(small, "image: {rootfs: /srv/db}", "image: {rootfs: /srv/db}\n"+
			`var: {pw: "age:cHc=", url: "postgres://u:${var.pw}@${ip}:1"}`+"\n"+env, 1)).Nodes(t.Context(), secrets)
		if err != nil {
			t.Fatal(err)
		}
		return nodes[2].Units[0]
	}
	const env = `env: {B: "u:${var.pw}:${var.pw}", A: "age:cHc=", C: "${var.url}", D: "<${var.url}>", E: plain}`
	opened, closed := of(env, opens{}), of(env, nil)
	want := []string{"A=cHc=", "B=u:cHc=:cHc=", "C=postgres://u:cHc=@127.0.0.1:1", "D=<postgres://u:cHc=@127.0.0.1:1>"}
	var got []string
	for _, v := range opened.SecretEnv {
		got = append(got, v.Name+"="+v.Content)
	}
	if !slices.Equal(got, want) || opened.Env["E"] != "plain" {
		t.Errorf("got %q and %q, want %q", got, opened.Env, want)
	}
	if opened.Hash() != closed.Hash() || closed.SecretEnv[1].Content != "" {
		t.Errorf("closed, it is %+v", closed.SecretEnv)
	}
	if text, err := json.Marshal(opened); err != nil || strings.Contains(string(text), "cHc=") {
		t.Errorf("the unit shows a secret: %s, %v", text, err)
	}
	for _, other := range []string{`env: {A: "x${var.pw}"}`, `env: {A: "${var.pw}x"}`, `env: {A: "${var.pw}"}`} {
		if of(other, nil).Hash() == of(`env: {A: "y${var.pw}"}`, nil).Hash() {
			t.Errorf("%s has the hash of another text", other)
		}
	}
	nodes, err := loaded(t, strings.Replace(small, `content: "age:YWdl"`,
		"content: 'postgres://u:${var.pw}@h'\nvar: {pw: \"age:cHc=\"}", 1)).Nodes(t.Context(), opens{})
	if err != nil {
		t.Fatal(err)
	}
	if f := nodes[2].Units[0].Files[1]; !f.Secret || f.Content != "postgres://u:cHc=@h" {
		t.Errorf("a secret inside of a file is %+v", f)
	}
}

func TestAnAddressIsAskedFor(t *testing.T) {
	s := loaded(t, strings.Replace(small, "image: {rootfs: /srv/db}", "image: {rootfs: /srv/db}\naddress: pool-a", 1))
	if _, err := s.Nodes(t.Context(), nil); !errors.Is(err, croft.Invalid) {
		t.Errorf("nobody gives addresses: %v", err)
	}
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("a check asks for addresses: %v", err)
	}
	s.Addresses = func(_ context.Context, job string, slot int, pool string) (string, error) {
		if job != "db" || slot != 0 || pool != "pool-a" {
			t.Errorf("asked for %s, %d, %s", job, slot, pool)
		}
		return "10.0.0.9", nil
	}
	nodes, err := s.Nodes(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if u := nodes[2].Units[0]; u.Address != "10.0.0.9" || u.Files[0].Content != "listen 10.0.0.9" {
		t.Errorf("got %+v", u)
	}
}

// FuzzParse: for every file, parsing returns a value or a mistake, in a short time.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"a: 1\n", "a: &x [1]\nb: *x\n", "- 1\n", "a+: [b]\na: ~\n", "\t", "a: !!binary x",
		"? {a: b}\n: c\n", "a: |\n  x\n", "<<<<<<< x\n", "---\n---\n", "a: ${b}\n",
		"%YAML 1.1\n---\na: NO\n", "\"\\0\": 1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v, err := parse("f", text)
		if err != nil {
			if _, ok := errors.AsType[*mistake](err); !ok {
				t.Fatalf("%q: %v is no mistake", text, err)
			}
			return
		}
		var p problems
		merged := inherit(v, v, &p)
		s := &scope{names: map[string]*Value{"name": {Kind: String, Text: "n"}}, own: merged}
		_, _ = s.expand(merged)
		f := fields{merged, &p, ""}
		for _, key := range merged.Keys {
			f.text(key)
			f.number(key, 0, 9, 0)
			f.amounts(key)
			f.texts(key)
			f.textMap(key)
			f.mode(key, 0)
		}
	})
}

// FuzzExpand: expansion ends for every text.
func FuzzExpand(f *testing.F) {
	for _, seed := range []string{"${a}", "$${", "${a:-${b:-c}}", "${b}${b}", "${", "${}", "$", "${a.b.c}",
		"${l}", "}{$"} {
		f.Add(seed, seed)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		own := newMap(Position{}, 3)
		own.set("a", text(a))
		own.set("b", text(b))
		own.set("l", &Value{Kind: List, Items: []*Value{text(a), text(b), text(a), text(b)}})
		s := &scope{own: own}
		v, problem := s.expand(own)
		if problem != nil {
			return
		}
		if got := v.Fields["a"]; got == nil || got.Kind == String && len(got.Text) > len(a)+maxExpanded {
			t.Fatalf("%q becomes %v", a, got)
		}
	})
}

// TestAnIPv6AddressBeforeAPortIsInBrackets: ${ip}:80 works for both address families.
func TestAnIPv6AddressBeforeAPortIsInBrackets(t *testing.T) {
	for _, c := range []struct{ ip, text, want string }{
		{"10.0.0.2", "${ip}:80", "10.0.0.2:80"},
		{"fd00::2", "${ip}:80", "[fd00::2]:80"},
		{"fd00::2", "http://${ip}:80/x", "http://[fd00::2]:80/x"},
		{"fd00::2", "http://${ip}/x", "http://[fd00::2]/x"},
		{"fd00::2", "redis://u@${ip}/x", "redis://u@[fd00::2]/x"},
		{"fd00::2", "u@${ip}", "u@fd00::2"},
		{"fd00::2", "[${ip}]:80", "[fd00::2]:80"},
		{"fd00::2", "listen on ${ip}", "listen on fd00::2"},
		{"fd00::2", "${ip}", "fd00::2"},
		{"host", "${ip}:80", "host:80"},
		{"fd00::2", "${other}:80", "fd00::2:80"},
	} {
		s := scope{names: map[string]*Value{"ip": text(c.ip), "other": text(c.ip)}, own: newMap(Position{}, 0)}
		got, problem := s.expand(text(c.text))
		if problem != nil || got.Text != c.want {
			t.Errorf("%s with %s is %v, %v; want %s", c.text, c.ip, got, problem, c.want)
		}
	}
}
