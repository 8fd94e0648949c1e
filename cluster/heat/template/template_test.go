package template_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"croft"
	"croft/cluster"
	"croft/cluster/heat/template"
)

// least is the shortest valid template.
const least = `heat_template_version: 2016-10-14
resources:
  master: {type: "OS::Nova::Server", properties: {flavor: small}}
outputs:
  master_ip: {value: {get_attr: [master, first_address]}}
`

// whole is a template of a cluster whose slaves can be removed by name.
const whole = `heat_template_version: 2016-10-14
description: get_file and http://example.org/ may be written in text
parameters:
  cluster_size: {type: number, default: 1}
  removed: {type: json, default: []}
  key_name: {type: string}
  admin_password: {type: string, hidden: true}
  login: {type: string, hidden: "yes", default: ""}
  db_token: {type: string}
resources:
  master: {type: "OS::Nova::Server", properties: {key_name: {get_param: key_name}}}
  slaves:
    type: OS::Heat::ResourceGroup
    properties:
      count: {get_param: cluster_size}
      removal_policies: [{resource_list: {get_param: removed}}]
      resource_def: {type: "OS::Nova::Server", properties: {}}
outputs:
  master_ip: {value: {get_attr: [master, first_address]}}
  worker_ips: {value: {get_attr: [slaves, first_address]}}
`

func TestWhatATemplateDeclares(t *testing.T) {
	want := cluster.Contract{RemoveNamed: true, Declared: map[string]cluster.Declared{
		"cluster_size":   {Type: "number", Default: true},
		"removed":        {Type: "json", Default: true},
		"key_name":       {Type: "string"},
		"admin_password": {Type: "string", Hidden: true},
		"login":          {Type: "string", Default: true, Hidden: true},
		"db_token":       {Type: "string", Hidden: true},
	}}
	got, err := template.Check(whole)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v, (-want +got):\n%s", err, diff)
	}
}

func TestRemovalByName(t *testing.T) {
	for _, c := range []struct {
		name, old, new string
		want           bool
	}{
		{"the parameter is declared and used", "", "", true},
		{"as a path", "{get_param: removed}", "{get_param: [removed]}", true},
		{"below a function", "{get_param: removed}", "{list_concat: [[], {get_param: removed}]}", true},
		{"declared alone", "      removal_policies: [{resource_list: {get_param: removed}}]\n", "", false},
		{"another parameter is used", "{get_param: removed}", "{get_param: key_name}", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := template.Check(strings.Replace(whole, c.old, c.new, 1))
			if err != nil || got.RemoveNamed != c.want {
				t.Errorf("%v, %v", got.RemoveNamed, err)
			}
		})
	}
}

func TestTemplates(t *testing.T) {
	nested := strings.Repeat("[", 80) + strings.Repeat("]", 80)
	for _, c := range []struct{ name, text, wrong string }{
		{"the shortest one", least, ""},
		{"a byte order mark", "\ufeff" + least, ""},
		{"a version in quotes", strings.Replace(least, "2016-10-14", `"rocky"`, 1), ""},
		{"no parameters", least + "parameters:\n", ""},
		{"JSON", `{"heat_template_version": "2016-10-14", "resources": {"a": {"type": "OS::Heat::Value"}},
			"outputs": {"master_ip": {"value": "10.0.0.1"}}}`, ""},

		{"nothing", "", "is empty"},
		{"comments alone", "# nothing\n", "is empty"},
		{"too long", least + "# " + strings.Repeat("x", cluster.MaxTemplate), "at most 512 are permitted"},
		{"no text", "\xff\xfe", "not text in UTF-8"},
		{"a list", "- a\n", "line 1: a template is a mapping"},
		{"a word", "hello", "line 1: a template is a mapping"},
		{"no YAML", "a: [\n", "not YAML"},
		{"a tab", "resources:\n\ta: b\n", "not YAML"},
		{"two documents", least + "---\n" + least, "line 6: a second YAML document"},
		{"an anchor", strings.Replace(least, "{value: {get_attr", "{value: &a {get_attr", 1), "line 5: anchors"},
		{"an alias", "a: &x [1]\nb: *x\n", "anchors and aliases"},
		{"a bomb of aliases", "a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\n", "line 1: anchors and aliases"},
		{"a merge", "<<: {a: b}\n", "line 1: merging"},
		{"a merge with a tag", "!!merge x: {a: b}\n", "line 1: "},
		{"a tag of Python", least + "description: !!python/object/apply:os.system [id]\n", "line 6: the tag"},
		{"a key in binary", least + "description: {!!binary Z2V0X2ZpbGU=: /etc/passwd}\n", "line 6: the tag"},
		{"a key that is a list", least + "description: {[a]: b}\n", "line 6: a key is not plain text"},
		{"nested too deep", least + "description: " + nested + "\n", "line 6: the template is nested deeper"},
		{"too many values", least + "description: [" + strings.Repeat("a,", 50000) + "]\n",
			"line 6: the template has more"},

		{"no version", strings.Replace(least, "heat_template_version: 2016-10-14\n", "", 1),
			"line 1: heat_template_version"},
		{"a version that is a list", strings.Replace(least, "2016-10-14", "[2016]", 1),
			"line 1: heat_template_version"},
		{"of CloudFormation", "AWSTemplateFormatVersion: 2010-09-09\n", "line 1: \"AWSTemplateFormatVersion\" is not"},
		{"another section", least + "extra: 1\n", "line 6: \"extra\" is not a section"},
		{"a registry of types", least + "resource_registry: {}\n", "line 6: resource_registry"},
		{"a section twice", least + "outputs: {}\n", "line 6: \"outputs\" is there twice"},
		{"no resources", "heat_template_version: rocky\noutputs: {master_ip: {value: 1}}\n", "resources is missing"},
		{"no outputs", "heat_template_version: rocky\nresources: {}\n", "outputs is missing"},
		{"no address of the master", strings.Replace(least, "master_ip", "ip", 1), "line 5: outputs has no master_ip"},
		{"an output without value", strings.Replace(least, "{value: {get_attr", "{valeu: {get_attr", 1),
			"line 5: output \"master_ip\" has no value"},
		{"a master without address", "heat_template_version: rocky\nresources: {}\noutputs: {master_ip: {value: null}}\n",
			"line 3: output \"master_ip\" has no value"},
		{"outputs in a list", "heat_template_version: rocky\nresources: {}\noutputs: [master_ip]\n", "line 3: outputs"},
		{"a resource that is a word", strings.Replace(least, "outputs:", "  b: c\noutputs:", 1),
			"line 4: resource \"b\""},
		{"a resource without type", strings.Replace(least, "outputs:", "  b: {}\noutputs:", 1),
			"line 4: \"b\" has no type"},
		{"a parameter without type", least + "parameters:\n  a: {default: 1}\n", "line 7: parameter \"a\" has no type"},
		{"a parameter of an unknown type", least + "parameters:\n  a: {type: text}\n", "line 7: parameter \"a\""},
		{"a size that is a list", least + "parameters:\n  cluster_size: {type: json}\n", "cluster_size is a number"},

		{"a file in a property", strings.Replace(least, "small}", "{get_file: /etc/passwd}}", 1), "line 3: get_file"},
		{"a file in quotes", strings.Replace(least, "small}", "{\"get_\\x66ile\": /etc/passwd}}", 1),
			"line 3: get_file"},
		{"a file in an output", least + "  other: {value: {get_file: 'file:///etc/passwd'}}\n", "line 6: get_file"},
		{"a file in a default", least + "parameters: {a: {type: json, default: {get_file: x}}}\n", "line 6: get_file"},
		{"a file in JSON", "{\"heat_template_version\": \"rocky\",\n\"a\": [{\n\"get_\\u0066ile\": 1}]}",
			"line 3: get_file"},
		{"a key twice in JSON", "{\"a\": 1,\n\"a\": 2}", "line 2: \"a\" is there twice"},
		{"text after JSON", "{}\n{}", "line 2: text follows"},
		{"broken JSON", "{\"a\": 1,\n b: 2}", "line 2: the template starts with { but is not JSON"},
		{"JSON that ends", "{\"a\": [1", "middle of its JSON"},
		{"JSON nested too deep", `{"a": ` + nested + "}", "nested deeper"},
	} {
		t.Run(c.name, func(t *testing.T) { expect(t, c.text, c.wrong) })
	}
}

// TestReferences checks the references between the parts of a template.
func TestReferences(t *testing.T) {
	at := func(old, new string) string { return strings.Replace(whole, old, new, 1) }
	for _, c := range []struct{ name, text, wrong string }{
		{"all are there", whole, ""},
		{"a parameter", at("{get_param: key_name}", "{get_param: keyname}"),
			"line 11: get_param names the parameter \"keyname\", which the template does not have; did you mean \"key_name\"?"},
		{"a parameter in a path", at("{get_param: key_name}", "{get_param: [keyname, 0]}"), "line 11: get_param names"},
		{"a parameter in a group", at("count: {get_param: cluster_size}", "count: {get_param: clustersize}"),
			"line 15: get_param names the parameter \"clustersize\""},
		{"the removed ones, which are not declared", at("  removed: {type: json, default: []}\n", ""),
			"line 15: get_param names the parameter \"removed\""},
		{"a parameter of Heat itself", at("{get_param: key_name}", `{get_param: "OS::stack_name"}`), ""},
		{"a parameter in a condition", whole + "conditions:\n  a: {equals: [{get_param: nothing}, 1]}\n",
			"line 22: get_param names the parameter \"nothing\""},
		{"a resource", at("properties: {}}", "properties: {networks: [{port: {get_resource: port}}]}}"),
			"line 17: get_resource names the resource \"port\""},
		{"a resource of an output", at("[master, first_address]", "[mster, first_address]"),
			"line 19: get_attr names the resource \"mster\", which the template does not have; did you mean \"master\"?"},
		{"a resource that is waited for", at("    type: OS::Heat::ResourceGroup\n",
			"    type: OS::Heat::ResourceGroup\n    depends_on: [master, zz]\n"),
			"line 14: depends_on names the resource \"zz\""},
		{"one resource that is waited for", at("    type: OS::Heat::ResourceGroup\n",
			"    type: OS::Heat::ResourceGroup\n    depends_on: mastr\n"), "did you mean \"master\"?"},
		{"a key of a resource", at("    properties:\n      count", "    propertys:\n      count"),
			"line 14: \"propertys\" is no key of a resource; did you mean \"properties\"?"},
		{"a name that is computed", at("{get_param: key_name}", "{get_param: [{get_param: key_name}, a]}"), ""},
		{"a name that a group completes", at("{get_param: key_name}", `{get_param: "key_%index%"}`), ""},
		{"a property that is no function", at("properties: {}}", "properties: {metadata: {get_param: a, b: c}}}"), ""},
	} {
		t.Run(c.name, func(t *testing.T) { expect(t, c.text, c.wrong) })
	}
}

func TestTypesThatAreFetched(t *testing.T) {
	for _, c := range []struct{ name, kind, wrong string }{
		{"a type of the site", `"OS::Nova::Server"`, ""},
		{"a type of the site's operators", `My::Own.Thing`, ""},
		{"an address", `http://169.254.169.254/latest`, "path or an address"},
		{"a file", `file:///etc/passwd`, "path or an address"},
		{"a file in capitals", `FILE:passwd`, "path or an address"},
		{"a path", `../server`, "path or an address"},
		{"a file beside", `server.yaml`, "path or an address"},
		{"a template", `server.Template`, "path or an address"},
		{"what is computed", `{get_param: kind}`, "no type in plain text"},
		{"nothing", `""`, "no type in plain text"},
	} {
		for where, text := range map[string]string{
			"a resource": "  b: {type: KIND}\n",
			"a group": `  b: {type: "OS::Heat::ResourceGroup", properties: {resource_def: {type: KIND}}}
`,
			"a group in a group": `  b: {type: "OS::Heat::ResourceGroup", properties: {resource_def: {type: "OS::Heat::ResourceGroup",
    properties: {resource_def: {type: KIND}}}}}
`,
			"a group that scales": `  b: {type: "OS::Heat::AutoScalingGroup", properties: {resource: {type: KIND}}}
`,
		} {
			t.Run(c.name+" in "+where, func(t *testing.T) {
				expect(t, strings.Replace(least, "outputs:", strings.Replace(text, "KIND", c.kind, 1)+"outputs:", 1),
					c.wrong)
			})
		}
	}
	t.Run("in a chain", func(t *testing.T) {
		expect(t, strings.Replace(least, "outputs:",
			"  b: {type: \"OS::Heat::ResourceChain\", properties: {resources:\n"+
				"    [\"OS::Heat::Value\", http://example.org/x]}}\noutputs:", 1),
			"line 5: \"http://example.org/x\" is not a type")
	})
	t.Run("a property named type is free", func(t *testing.T) {
		expect(t, strings.Replace(least, "outputs:",
			"  b: {type: \"OS::Heat::Value\", properties: {value: {type: a/b}}}\n"+
				"outputs:", 1), "")
	})
}

// expect checks a text, and compares the error.
func expect(t *testing.T, text, wrong string) {
	t.Helper()
	_, err := template.Check(text)
	switch {
	case wrong == "" && err != nil:
		t.Errorf("refused: %v\n%s", err, text)
	case wrong != "" && (!errors.Is(err, croft.Invalid) || !strings.Contains(err.Error(), wrong)):
		t.Errorf("said %v, want %q", err, wrong)
	case wrong != "" && strings.Contains(err.Error(), "\n"):
		t.Errorf("several lines: %q", err)
	}
}

// FuzzCheck checks that no text makes the parser panic, and that no accepted text names a file.
func FuzzCheck(f *testing.F) {
	for _, text := range []string{least, whole, "{}", `{"a": [1, {"get_file": 2}]}`, "a: &a [*a]", "? [a]\n: b",
		"--- |\n x"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := template.Check(text)
		if err != nil {
			if !errors.Is(err, croft.Invalid) || strings.ContainsAny(err.Error(), "\n\r\x1b") {
				t.Errorf("error %q", err)
			}
			return
		}
		if c.Declared == nil || !strings.Contains(text, "master_ip") && !strings.ContainsAny(text, `\`) {
			t.Errorf("accepted: %q", text)
		}
	})
}

func TestTheMinimalTemplate(t *testing.T) {
	got, err := template.Check(template.Minimal)
	if err != nil || !got.RemoveNamed || got.Declared["image"] != (cluster.Declared{Type: "string"}) {
		t.Errorf("%+v, %v", got, err)
	}
}
