package state

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"croft"
)

// with replaces files of the small cluster: an empty text removes a file, and a text that starts with "-> " makes a
// link.
func with(t testing.TB, changed map[string]string) string {
	t.Helper()
	dir := directory(t, small)
	for name, text := range changed {
		file := filepath.Join(dir, name)
		if err := os.RemoveAll(file); err != nil {
			t.Fatal(err)
		}
		if text == "" {
			continue
		}
		err := os.MkdirAll(filepath.Dir(file), 0o755)
		if to, isLink := strings.CutPrefix(text, "-> "); isLink && err == nil {
			err = os.Symlink(to, file)
		} else if err == nil {
			err = os.WriteFile(file, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// bomb returns a YAML text whose aliases would expand to 10^9 values.
func bomb() string {
	text := "a0: &a0 [1,1,1,1,1,1,1,1,1,1]\n"
	for i := range 9 {
		a := string(rune('0' + i))
		text += "a" + string(rune('1'+i)) + ": &a" + string(rune('1'+i)) + " [" +
			strings.TrimSuffix(strings.Repeat("*a"+a+",", 10), ",") + "]\n"
	}
	return text
}

func TestMistakes(t *testing.T) {
	const db, web1, front = "jobs/db.yaml", "nodes/syd/r1/web1.yaml", "jobs/web/front@.yaml"
	for _, c := range []struct {
		name    string
		changed map[string]string
		want    string
	}{
		// YAML.
		{"no YAML", map[string]string{db: "a: [1\n"}, "jobs/db.yaml:1: no YAML"},
		{"a tab", map[string]string{db: "env:\n\tA: b\n"}, "jobs/db.yaml:2: a tab indents this line"},
		{"a key twice", map[string]string{db: "user: a\nenv: {}\nuser: b\n"},
			`jobs/db.yaml:3: the key "user" is given twice`},
		{"a bomb of aliases", map[string]string{db: bomb()}, "more than 50000 values"},
		{"an alias of what it is in", map[string]string{db: "a: &a [*a]\n"}, "jobs/db.yaml"},
		{"too deep", map[string]string{db: "var: " + strings.Repeat("[", 50) + strings.Repeat("]", 50) + "\n"},
			"more than 32 levels"},
		{"too long", map[string]string{db: strings.Repeat("# x\n", 300_000)}, "at most 1048576 are read"},
		{"no UTF-8", map[string]string{db: "user: a\nenv: {A: \xff}\n"}, "jobs/db.yaml:2: this is no UTF-8"},
		{"two documents", map[string]string{db: "user: a\n---\nuser: b\n"}, "jobs/db.yaml:2: a second YAML document"},
		{"a list", map[string]string{db: "- a\n"}, "jobs/db.yaml:1: the file is no map"},
		{"a merge that was not finished", map[string]string{db: "user: a\n<<<<<<< HEAD\nenv: {}\n=======\n>>>>>>> b\n"},
			"jobs/db.yaml:2: a merge was not finished here"},
		{"a merge key", map[string]string{db: "var: &v {a: b}\n<<: *v\n"}, "jobs/db.yaml:2: the key << is not read"},
		{"a tag", map[string]string{db: "user: !!binary YQ==\n"}, "jobs/db.yaml:1: the tag !!binary is not read"},
		{"NO as a text", map[string]string{db: "env: {COUNTRY: NO}\n"},
			`env.COUNTRY: NO is true or false to some readers`},
		{"true as a text", map[string]string{db: "env: {A: true}\n"},
			`env.A: want a text, and YAML reads true as true or false`},
		{"an octal number as a text", map[string]string{db: "env: {A: 0123}\n"}, `write it in quotes, "0123"`},
		{"a date is a text", map[string]string{db: "env: {A: 2024-01-01}\nruntime: 7\nuser: [a]\n"},
			"jobs/db.yaml:3: user: want a text, not a list"},
		{"yes as a truth value", map[string]string{db: "exclusive: yes\n"}, `exclusive: want true or false, not "yes"`},
		// Links.
		{"a dangling instance", map[string]string{"jobs/x@1.yaml": "-> x@.yaml"},
			"jobs/x@1.yaml: the link leads to x@.yaml, and there is no such template"},
		{"an absolute link", map[string]string{"jobs/x@1.yaml": "-> /etc/passwd"},
			"the link leads to /etc/passwd, an absolute path"},
		{"a link out of the directory", map[string]string{"jobs/x@1.yaml": "-> ../../x@.yaml"},
			"outside the cluster's directory"},
		{"a link to a directory", map[string]string{"jobs/x@1.yaml": "-> web"},
			"a directory: an instance leads to a template"},
		{"a link to itself", map[string]string{"jobs/x@1.yaml": "-> x@1.yaml"}, "which is a link too"},
		{"a template that is a link", map[string]string{"jobs/x@.yaml": "-> web/front@.yaml"},
			"a template is a file, and this is a symbolic link"},
		{"an instance of a link", map[string]string{"jobs/web/front@8.yaml": "-> front@7.yaml"}, "which is a link too"},
		{"an instance of a job", map[string]string{"jobs/x@1.yaml": "-> db.yaml"},
			"which is a job and no template"},
		{"a link that is no instance", map[string]string{"jobs/x.yaml": "-> web/front@.yaml"},
			"only instances of templates are symbolic links"},
		{"an instance that is a file", map[string]string{"jobs/x@1.yaml": "user: a\n"},
			"is a symbolic link to x@.yaml, and this is a file"},
		{"a link that was checked out as a file", map[string]string{"jobs/web/front@8.yaml": "front@.yaml"},
			"git config core.symlinks true, fossil settings allow-symlinks on"},
		{"a link among the nodes", map[string]string{"nodes/x.yaml": "-> syd/db1.yaml"},
			"a symbolic link has no place among the nodes"},
		{"a directory that is a link", map[string]string{"nodes/mel": "-> syd"},
			"a symbolic link has no place among the nodes"},
		{"all nodes behind a link", map[string]string{"nodes": "-> /etc"}, "nodes: this is no directory"},
		{"an .yml", map[string]string{"jobs/x.yml": "user: a\n"}, "rename it to x.yaml"},
		{"a slot on a job", map[string]string{"alloc/db/0": "-> ../../jobs/db.yaml"},
			"alloc/db/0: the link leads to a job"},
		{"a slot on a directory", map[string]string{"alloc/db/0": "-> ../../nodes/syd"},
			"a directory: a slot leads to the file of a node"},
		{"a slot outside", map[string]string{"alloc/db/0": "-> ../../../nodes/syd/db1.yaml"},
			"outside the cluster's directory"},
		{"a slot on a slot", map[string]string{"alloc/db/1": "-> 0"}, "which is a link too"},
		{"a slot on something else", map[string]string{"alloc/db/1": "-> ../../cluster.yaml"}, "which is no node"},
		{"a slot that is no number", map[string]string{"alloc/db/x": "-> ../../nodes/syd/db1.yaml"},
			`"x" is no slot of a job`},
		{"a slot that is a file", map[string]string{"alloc/db/0": "../../nodes/syd/db1.yaml"},
			"this is a file with the text of a symbolic link"},
		{"a slot of no job", map[string]string{"alloc/0": "-> ../nodes/syd/db1.yaml"}, `"0" is no slot of a job`},
		// Names.
		{"a space in a node's name", map[string]string{"nodes/a b.yaml": "id: 9\n"}, `"a b" is no name of a node`},
		{"a capital in a job's name", map[string]string{"jobs/Web.yaml": "user: a\n"}, `"Web" is no name of a job`},
		{"a letter with an accent", map[string]string{"nodes/é/_.yaml": "id: -9\n"},
			`"é" is no name of a directory`},
		{"a line break", map[string]string{"jobs/a\nb.yaml": "user: a\n"}, `jobs/a b.yaml: "a\nb" is no name of a job`},
		{"a name of 64", map[string]string{"jobs/" + strings.Repeat("a", 64) + ".yaml": "user: a\n"},
			"is no name of a job"},
		{"one node twice", map[string]string{"nodes/web1.yaml": "id: 9\naddress: b\n"},
			"the node web1 is also in nodes/syd/r1/web1.yaml"},
		{"two nodes of one address", map[string]string{"nodes/x.yaml": "id: 9\naddress: web1.example.org:2222\n"},
			"has the address of"},
		{"this machine twice", map[string]string{"nodes/x.yaml": "id: 9\nlocal: true\n"}, "this machine"},
		{"a directory with a node's name", map[string]string{"nodes/web1/_.yaml": "id: -8\n"},
			"the directory has the name web1"},
		{"a job with the name of a slot", map[string]string{"jobs/db/0.yaml": "user: a\n"},
			"the job db has slots with this name"},
		{"two jobs of one name on nodes", map[string]string{"jobs/web/front.7.yaml": "user: a\n"},
			"the jobs web/front@7 and web/front.7 would have the same unit name on nodes, f-01234567-web.front.7"},
		// Ids and the tree.
		{"no id", map[string]string{web1: "user: a\n"}, "web1.yaml: this needs an id: grid node renumber"},
		{"an inherited id", map[string]string{"nodes/syd/r1/_.yaml": "type: rack\n"},
			"nodes/syd/r1/_.yaml: this needs an id"},
		{"one id twice", map[string]string{web1: "id: 1\naddress: x\n"}, "the id 1 is also the id of"},
		{"a wrong id", map[string]string{web1: "id: -4\n"}, "id: -4 is not from 0 to"},
		{"a type that is none", map[string]string{"nodes/syd/_.yaml": "id: -2\ntype: town\n"},
			`type: "town" is none of host, rack, site, root`},
		{"a site in a rack", map[string]string{"nodes/syd/r1/_.yaml": "id: -3\ntype: site\n"},
			"nodes/syd/r1/_.yaml:2: a site has no place in a site"},
		{"too deep for a type", map[string]string{"nodes/syd/r1/h/i/_.yaml": "id: -9\n",
			"nodes/syd/r1/h/_.yaml": "id: -8\n"},
			"the directory needs a type in its"},
		// Values of nodes.
		{"a negative weight", map[string]string{web1: "id: 0\nweight: -1\n"},
			"nodes/syd/r1/web1.yaml:2: weight: want a number from 0 to 10000, not -1"},
		{"a weight that is no number", map[string]string{web1: "id: 0\nweight: .nan\n"},
			"weight: want a number from 0 to 10000"},
		{"a weight too small to count", map[string]string{web1: "id: 0\nweight: 0.00001\n"}, "less than 1/65536"},
		{"too much weight", map[string]string{web1: "id: 0\nweight: 10001\n"}, "weight: want a number from 0 to 10000"},
		{"a weight in words", map[string]string{web1: "id: 0\nweight: much\n"},
			`weight: want a number from 0 to 10000, not "much"`},
		{"a state that is none", map[string]string{web1: "id: 0\nstate: drian\n"},
			`state: "drian" is none of up, out, drain, maintenance; did you mean "drain"?`},
		{"an address that is an option", map[string]string{web1: "id: 0\naddress: -oProxyCommand=x\n"}, "is no host"},
		{"a host key that is none", map[string]string{web1: "id: 0\nhost_key: abc\n"}, "want the key's fingerprint"},
		{"a negative capacity", map[string]string{web1: "id: 0\ncapacity: {cpu: -1}\n"},
			"capacity.cpu: want an amount from 0"},
		{"facts in a text", map[string]string{web1: "id: 0\nfacts: ssd\n"}, "facts: want a list of facts"},
		{"a list that is added to a map", map[string]string{"nodes/syd/r1/web2.yaml": "id: 1\nvar+: [a]\n"},
			"this adds to a list, and a map is inherited from nodes/syd/_.yaml:2"},
		{"something added that is no list", map[string]string{web1: "id: 0\nfacts+: ssd\n"},
			"facts+ adds to a list, and this is a text"},
		{"set and added to", map[string]string{web1: "id: 0\nfacts+: [a]\nfacts: [b]\n"},
			"both facts and facts+ are given"},
		// Values of jobs.
		{"fewer wanted than needed", map[string]string{db: "replicas: {want: 1, min: 2}\n"},
			"jobs/db.yaml:1: replicas: 1 are wanted, fewer than the least of 2"},
		{"too many replicas", map[string]string{db: "replicas: 10001\n"}, "replicas: 10001 is not from 0 to 1024"},
		{"replicas in words", map[string]string{db: "replicas: two\n"},
			`replicas: want a whole number, or {want: 3, min: 2}, not "two"`},
		{"replicas of every", map[string]string{db: "policy: every\nreplicas: 2\n"}, "leave them out"},
		{"required and avoided", map[string]string{db: "require: [a]\navoid: [a]\n"}, "both required and avoided"},
		{"a command in one text", map[string]string{db: "command: serve it\n"},
			`command: want a list of texts, such as [one, two], not "serve it"`},
		{"two images", map[string]string{db: "image: {rootfs: /a, registry: b}\n"}, "image: give one of rootfs"},
		{"a relative rootfs", map[string]string{db: "image: {rootfs: a}\n"}, "is no absolute path"},
		{"an archive that is not there", map[string]string{db: "image: {archive: a.tar}\n"},
			"image.archive: a.tar: no such file"},
		{"an archive outside", map[string]string{db: "image: {archive: ../../etc/passwd}\n"}, "path escapes"},
		{"a file outside", map[string]string{db: "files: [{path: /a, from: ../../etc/passwd}]\n"},
			"files.0.from: ../../etc/passwd: path escapes"},
		{"a file through a link that leads out", map[string]string{"x": "-> /etc",
			db: "files: [{path: /a, from: x/passwd}]\n"},
			"path escapes"},
		{"a file without content", map[string]string{db: "files: [{path: /a}]\n"},
			"files.0: give one of content and from"},
		{"a file twice", map[string]string{db: "files: [{path: /a, content: b}, {path: /a, content: c}]\n"},
			"/a is given twice"},
		{"a mode that is none", map[string]string{db: "files: [{path: /a, content: b, mode: 999}]\n"},
			"mode: want permission bits in octal"},
		{"a mount of relative paths", map[string]string{db: "mounts: ['a:/b']\n"}, "is not /from:/to"},
		{"a port that is none", map[string]string{db: "ports: ['80:99999']\n"}, "is not [ADDRESS:]NODE:UNIT[/udp]"},
		{"a port twice", map[string]string{db: "ports: ['80:1', '80:2']\n"},
			"the port 80/tcp of the node is given twice"},
		{"a network that is none", map[string]string{db: "network: brigde\n"}, `did you mean "bridge"?`},
		{"two ways to be ready", map[string]string{db: "ready: {command: [a], url: 'http://b'}\n"},
			"ready: give one of command"},
		{"a url of a file", map[string]string{db: "ready: {url: 'file:///etc/passwd'}\n"},
			"starts with neither http:// nor https://"},
		{"a virtual machine without a disk", map[string]string{db: "vm: {memory: 1Gi, image: /a}\n"}, "has no disk"},
		{"a secret in a variable of another form", map[string]string{db: "env: {a-b: 'age:YQ=='}\n"},
			"env.a-b: the name of a variable with a secret"},
		{"a secret in an option", map[string]string{db: "options: {a: 'age:YQ=='}\n"},
			"options.a: a secret has no place here"},
		{"a secret through a name", map[string]string{db: "var: {a: 'age:YQ=='}\nuser: '${var.a}'\n"},
			"user: a secret has no place here"},
		{"a secret in a text", map[string]string{db: "var: {a: 'age:YQ=='}\nuser: 'x${var.a}'\n"},
			"user: a secret has no place here"},
		{"a secret in a text of an argument", map[string]string{
			db: "var: {a: 'age:YQ=='}\ncommand: [x, '--pw=${var.a}']\n"},
			"a secret has no place here"},
		// Expansion.
		{"an unknown name", map[string]string{db: "user: a\nenv:\n  A: x${nope}\n"},
			"jobs/db.yaml:3: ${nope} is not known"},
		{"a name that leads to itself", map[string]string{db: "var: {a: '${var.b}', b: '${var.a}'}\nuser: ${var.a}\n"},
			"refers to itself: var.a -> var.b -> var.a"},
		{"too many names in a row", map[string]string{db: "var: {a: '${var.b}', b: '${var.c}', c: '${var.d}', d: '${var.e}', e: '${var.f}', f: '${var.g}', g: '${var.h}', h: '${var.i}', i: '${var.j}', j: x}\nuser: ${var.a}\n"},
			"more than 8 values lead to each other"},
		{"a name without an end", map[string]string{db: "user: ${var\n"}, "${ has no end"},
		{"a map in a text", map[string]string{db: "var: {a: {}}\nuser: x${var.a}\n"},
			"${var.a} is a map, which has no place inside of a text"},
		{"a number that becomes a text", map[string]string{db: "var: {n: two}\nreplicas: ${var.n}\n"}, `not "two"`},
		{"a slot where there is none yet", map[string]string{db: "replicas: ${slot}\n"}, "is known for a slot alone"},
		{"an instance of nothing", map[string]string{db: "user: ${instance}\n"}, "this is no instance of a template"},
		// reported by Check
		{"what the node of a slot has not", map[string]string{front: "user: ${node.nope}\n"}, ""},
		// The cluster.
		{"no id of the cluster", map[string]string{"cluster.yaml": "runtime: podman\n"},
			"id: want the 32 hexadecimal digits"},
		{"a cluster that is a link out", map[string]string{"cluster.yaml": "-> /etc/passwd"},
			"cluster.yaml: path escapes"},
		{"types twice", map[string]string{"cluster.yaml": "id: '0123456789abcdef0123456789abcdef'\ntypes: [node, host, host, site, rack, root]\n"},
			"is given twice"},
		{"a policy that is a link", map[string]string{"policies/a.rule": "-> ../cluster.yaml"},
			"a symbolic link has no place among the policies"},
		{"ids that were not merged", map[string]string{"ids.yaml": "<<<<<<< HEAD\nnext_node: 7\n=======\nnext_node: 8\n>>>>>>> other\n"},
			"ids.yaml:1: a merge was not finished"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Load(t.Context(), with(t, c.changed))
			if c.want == "" {
				if err != nil {
					t.Errorf("got %v", err)
				}
				return
			}
			if err == nil || !errors.Is(err, croft.Invalid) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestWhatSeveralNodesInheritIsToldOnce(t *testing.T) {
	dir := with(t, map[string]string{"nodes/_.yaml": "id: -1\nnote: ${node.name}\n"})
	_, err := Load(t.Context(), dir)
	const want = "nodes/_.yaml:2: ${node.name} is for jobs; the name of the node is ${name} here"
	if err == nil || strings.Count(err.Error(), want) != 1 {
		t.Errorf("got %v", err)
	}
}

func TestOddThings(t *testing.T) {
	for _, c := range []struct {
		name    string
		changed map[string]string
		want    string
	}{
		{"an empty directory", map[string]string{"nodes/mel/_.yaml": "id: -8\n"},
			"nodes/mel: the directory has no nodes"},
		{"a weight of 0 everywhere", map[string]string{"nodes/_.yaml": "id: -1\nweight: 0\nvar: {}\nfacts: [linux]\n"},
			"every node has the weight 0"},
		{"a gap in the slots", map[string]string{"alloc/db/2": "-> ../../nodes/syd/r1/web2.yaml"},
			"none of the number 1: grid place fills the gap"},
		{"a slot of a job that is gone", map[string]string{"alloc/gone/0": "-> ../../nodes/syd/db1.yaml"},
			"there is no job gone any more"},
		{"a slot on a node that is gone", map[string]string{"alloc/db/0": "-> ../../nodes/syd/old.yaml"},
			"the node old was removed"},
		{"a slot on a node that has moved", map[string]string{"alloc/db/0": "-> ../../nodes/mel/db1.yaml"},
			"the node db1 is in nodes/syd now"},
		{"a fact that nobody has", map[string]string{"jobs/db.yaml": "user: a\nrequire: [gpu]\n"},
			"jobs/db.yaml:2: no node has the fact gpu"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := Load(t.Context(), with(t, c.changed))
			if err != nil {
				t.Fatal(err)
			}
			if len(s.Warnings) != 1 || !strings.Contains(s.Warnings[0].String(), c.want) {
				t.Errorf("got %v, want %q", s.Warnings, c.want)
			}
		})
	}
}

func TestCheckFindsWhatOnlyASlotKnows(t *testing.T) {
	s, err := Load(t.Context(), with(t, map[string]string{
		"jobs/web/front@.yaml": "user: root\nenv: {A: '${node.nope}'}\n",
	}))
	if err != nil {
		t.Fatal(err)
	}
	const want = "jobs/web/front@.yaml:2: ${node.nope} is not known"
	if err := s.Check(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v", err)
	}
}

func TestTwoSlotsWithOnePort(t *testing.T) {
	s, err := Load(t.Context(), with(t, map[string]string{"jobs/db.yaml": "image: {rootfs: /a}\nports: ['807:1']\n",
		"alloc/db/0": "-> ../../nodes/syd/r1/web1.yaml"}))
	if err != nil {
		t.Fatal(err)
	}
	const want = "the port 807/tcp of web1, which slot 0 of web/front@7 has, is also taken by slot 0 of db"
	if err := s.Check(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v", err)
	}
	s.Addresses = func(context.Context, string, int, string) (string, error) { return "10.0.0.1", nil }
	if _, err := s.Nodes(t.Context(), nil); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("what applies says %v", err)
	}
}

func TestNoDirectoryOfACluster(t *testing.T) {
	for _, dir := range []string{t.TempDir(), filepath.Join(t.TempDir(), "none")} {
		if _, err := Load(t.Context(), dir); !errors.Is(err, croft.NotFound) {
			t.Errorf("got %v", err)
		}
	}
}

func TestUnknownKeys(t *testing.T) {
	s, err := Load(t.Context(), with(t, map[string]string{
		"nodes/syd/r1/web1.yaml": "id: 0\nwieght: 2\nvar: {anything: 1}\n",
		"jobs/db.yaml":           "ready: {comand: [a], command: [b]}\nfiles: [{path: /a, content: b, mod: 1}]\n",
		"jobs/_.yaml":            "owner: me\n",
	}))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range s.Unknown() {
		got = append(got, p.String())
	}
	want := []string{"jobs/_.yaml:1: owner is not read",
		`jobs/db.yaml:1: ready.comand is not read; did you mean "command"?`,
		`jobs/db.yaml:2: files.mod is not read; did you mean "mode"?`,
		`nodes/syd/r1/web1.yaml:2: wieght is not read; did you mean "weight"?`}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got %q", got)
	}
}
