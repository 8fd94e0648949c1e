package local_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"croft"
	"croft/cluster"
)

func TestTextsAreReadStrictly(t *testing.T) {
	var prefix atomic.Pointer[string]
	prefix.Store(new(string))
	d := theWorld.driver(t, theWorld.view(), &prefix)
	const master = `master: {resources: "VCPU:1,MEMORY_MB:256,DISK_GB:1", image: tiny}` + "\n"
	const slave = `slave: {resources: "VCPU:1,MEMORY_MB:256,DISK_GB:1", image: tiny}` + "\n"
	for _, c := range []struct{ name, text, want string }{
		{"a master and a slave are enough", master + slave, ""},
		{"an empty text is none", "", "it needs a master and a slave"},
		{"a text that is no YAML says so", "master: [", "not YAML"},
		{"a list is no text", "- a\n", "line 1: the text is no mapping"},
		{"a slave is needed", master, "does not describe a slave"},
		{"an unknown key has its line and the nearest name", master + "\n" + "slaves: {}\n", `line 3: there is no "slaves" in ` +
			`the text; did you mean "slave"?`},
		{"so has one of a member", master + "slave:\n  resources: a\n  img: tiny\n", `line 4: there is no "img" in slave`},
		{"aliases are refused", "master: &m {resources: \"VCPU:1\", image: tiny}\nslave: *m\n", "line 1: anchors"},
		{"a wrong type has its line", master + slave + "checks: 7\n", "line 3: cannot unmarshal"},
		{"resources are read", master + "slave: {resources: \"VCPU:x\", image: tiny}\n", "line 2: slave.resources:"},
		{"resources have to boot", master + "slave: {resources: \"VCPU:1\", image: tiny}\n",
			"line 2: slave.resources:"},
		{"an image is needed", master + "slave: {resources: \"VCPU:1,MEMORY_MB:256,DISK_GB:1\"}\n",
			"line 2: slave has no image"},
		{"an image has to be one that may be named", master + strings.Replace(slave, "tiny", "/etc/shadow", 1),
			"line 2: slave.image: files of hosts are for operators"},
		{"traits are read", master + strings.Replace(slave, "image",
			"traits: [CUSTOM_X, \"!CUSTOM_Y\"], image", 1), ""},
		{"a wrong trait is refused", master + strings.Replace(slave, "image", "traits: [\"a b\"], image", 1), "line 2"},
		{"ready has three words", master + slave + "ready: shh\n",
			`line 3: ready is "shh": use address, ssh, phone-home; did you mean "ssh"?`},
		{"apart_by is a level", master + slave + "apart_by: rack:soft\n", ""},
		{"another level is refused", master + slave + "apart_by: planet\n", "line 3: apart_by:"},
		{"another softness is refused", master + slave + "apart_by: rack:hard\n", "line 3: apart_by:"},
		{"a policy has to be there", master + slave + "policy: nine\n", "line 3: policy:"},
		{"a name in user-data is replaced", master + strings.Replace(slave, "image", `user_data: "#!/bin/sh\n${name} ${role} `+
			`${index} ${cluster_id} ${cluster_size} ${master_ip} ${key} ${allowed_ip}", image`, 1), ""},
		{"an unknown one has its line", master + "slave:\n  resources: VCPU:1,MEMORY_MB:256,DISK_GB:1\n  image: tiny\n" +
			"  user_data: |\n    #!/bin/sh\n    echo\n    ${nam}\n", "line 8: ${nam} in slave.user_data is no name that is known " +
			"here; did you mean \"name\"?"},
		{"what the guest's shell is to replace has two dollars", master + strings.Replace(slave, "image",
			`user_data: "#!/bin/sh\necho $${HOME:-x} $HOME $(date)", image`, 1), ""},
		{"and without is refused", master + strings.Replace(slave, "image",
			`user_data: "#!/bin/sh\necho ${HOME:-x}", image`, 1),
			"write $${HOME:-x}"},
		{"the master does not know its own address", strings.Replace(master, "image",
			`user_data: "#!/bin/sh\n${master_ip}", image`, 1) + slave, "line 1: master.user_data uses ${master_ip}"},
		{"user-data is checked", master + strings.Replace(slave, "image", `user_data: "#cloud-config\na: [", image`, 1),
			"line 2: slave: the user-data"},
		{"a declared parameter can be used", "parameters: {size: {default: \"VCPU:1,MEMORY_MB:256,DISK_GB:1\"}}\n" + master +
			"slave: {resources: \"${size}\", image: tiny}\n", ""},
		{"a parameter has a type that there is", "parameters: {size: {type: text}}\n" + master + slave,
			`line 1: parameter size has the type "text"`},
		{"a parameter has no name that is taken", "parameters: {index: {}}\n" + master + slave,
			"line 1: the parameter index"},
		{"checks end with the set-up", master + slave + "ready: ssh\nchecks: [\"true\"]\n", "line 4: checks"},
		{"checks make it wait for the set-up", master + slave + "checks: [\"true\"]\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := d.Check(t.Context(), cluster.Implementation{Template: c.text})
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if croft.KindOf(err) != croft.Invalid || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q in it", err, c.want)
			}
		})
	}
}

func TestWhatATextDeclaresIsToldToWhoFillsIt(t *testing.T) {
	var prefix atomic.Pointer[string]
	prefix.Store(new(string))
	d := theWorld.driver(t, theWorld.view(), &prefix)
	c, err := d.Check(t.Context(), cluster.Implementation{Template: `
parameters:
  users: {type: number, default: 3}
  root_word: {hidden: true}
` + text})
	if err != nil || !c.RemoveNamed {
		t.Fatalf("got %+v, %v", c, err)
	}
	for name, want := range map[string]cluster.Declared{"users": {Type: "number", Default: true},
		"root_word": {Type: "string", Hidden: true}, "key_name": {Type: "string", Default: true},
		"allowed_ip": {Type: "string", Default: true}, "authorized_keys": {Type: "json", Default: true}} {
		if got := c.Declared[name]; got != want {
			t.Errorf("%s is declared as %+v, want %+v", name, got, want)
		}
	}
	if c, err = d.Check(t.Context(), cluster.Implementation{Image: "tiny"}); err != nil || len(c.Declared) != 4 {
		t.Errorf("of an image alone: got %+v, %v", c, err)
	}
}
