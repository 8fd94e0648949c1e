package state

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// directory creates the directory of a txtar archive. A file whose only line is "-> target" becomes a symbolic link.
func directory(t testing.TB, archive string) string {
	t.Helper()
	dir := t.TempDir()
	for _, f := range txtar.Parse([]byte(archive)).Files {
		name := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if to, link := strings.CutPrefix(string(f.Data), "-> "); link {
			err = os.Symlink(strings.TrimSpace(to), name)
		} else {
			err = os.WriteFile(name, f.Data, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// small is a cluster without mistakes.
const small = `
-- cluster.yaml --
id: "0123456789abcdef0123456789abcdef"
vcs: git
runtime: podman
-- ids.yaml --
next_node: 3
next_bucket: -4
-- nodes/_.yaml --
id: -1
user: root
var: {zone: eu}
facts: [linux]
-- nodes/syd/_.yaml --
id: -2
var: {colour: blue}
-- nodes/syd/r1/_.yaml --
id: -3
facts+: [ssd]
-- nodes/syd/r1/web1.yaml --
id: 0
address: ${name}.example.org:2222
capacity: {cpu: 4, memory: 8Gi}
-- nodes/syd/r1/web2.yaml --
id: 1
user: ~
facts: {rack: 7}
-- nodes/syd/db1.yaml --
id: 2
local: true
state: drain
-- jobs/_.yaml --
runtime: docker
env: {ZONE: "${node.var.zone:-none}"}
-- jobs/web/_.yaml --
env: {TEAM: web}
-- jobs/web/front@.yaml --
image: {registry: "example.org/front:${instance}"}
command: [serve, --slot, "${slot}", --on, "${node.name}", "$${HOME}", "$HOME"]
replicas: {want: 2, min: 1}
require: [linux]
ports: ["80${instance}:80"]
-- jobs/web/front@7.yaml --
-> front@.yaml
-- jobs/db.yaml --
image: {rootfs: /srv/db}
files:
- path: /etc/db.conf
  content: listen ${ip}
- path: /etc/key
  mode: 0600
  content: "age:YWdl"
uses: {cpu: 0.5, memory: 1Gi}
-- alloc/web/front@7/0 --
-> ../../../nodes/syd/r1/web1.yaml
-- alloc/db/0 --
-> ../../nodes/syd/db1.yaml
`

func loaded(t testing.TB, archive string) *State {
	t.Helper()
	s, err := Load(t.Context(), directory(t, archive))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestNodesOfASmallCluster(t *testing.T) {
	s := loaded(t, small)
	for _, w := range s.Warnings {
		t.Errorf("warning: %s", w)
	}
	nodes, err := s.Nodes(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(nodes) != 3 || nodes[0].Name != "web1" || nodes[2].Name != "db1" {
		t.Fatalf("the nodes are %+v", nodes)
	}
	n := nodes[0]
	if n.Address != "web1.example.org:2222" || n.User != "root" || nodes[1].User != "" || !nodes[2].Local ||
		nodes[2].State != Drain {
		t.Errorf("got %+v", nodes)
	}
	u := n.Units[0]
	if got := strings.Join(u.Command, " "); got != "serve --slot 0 --on web1 ${HOME} $HOME" {
		t.Errorf("the command is %q", got)
	}
	if u.Image.Registry != "example.org/front:7" || u.Env["ZONE"] != "eu" || u.Env["TEAM"] != "web" ||
		u.Runtime != "docker" || u.Ports[0].Node != 807 || u.Name() != "f-01234567-web.front.7-0" {
		t.Errorf("the unit is %+v", u)
	}
	db := nodes[2].Units[0]
	if !db.Files[1].Secret || db.Files[1].Content != "" || db.Files[1].Mode != 0o600 || db.Files[1].Digest == "" {
		t.Errorf("the secret is %+v", db.Files[1])
	}
	if s.Job("db").Uses["cpu"] != 500 || s.Node("web1").Capacity["memory"] != 8<<30*1000 {
		t.Errorf("got %v, %v", s.Job("db").Uses, s.Node("web1").Capacity)
	}
}

// TestAnInstanceInheritsWhereItIs: an instance has the body of its template, and inherits from the directory of its
// link.
func TestAnInstanceInheritsWhereItIs(t *testing.T) {
	s, err := Load(t.Context(), with(t, map[string]string{"jobs/other/x@9.yaml": "-> ../web/front@.yaml",
		"jobs/other/_.yaml": "env: {TEAM: other}\nuser: me\n"}))
	if err != nil {
		t.Fatal(err)
	}
	u, err := s.Unit(t.Context(), s.Job("other/x@9"), 3, s.Node("web2"))
	if err != nil {
		t.Fatal(err)
	}
	if u.Env["TEAM"] != "other" || u.User != "me" || u.Image.Registry != "example.org/front:9" || u.Slot != 3 ||
		u.Command[4] != "web2" {
		t.Errorf("got %+v", u)
	}
	if at := s.Job("other/x@9").Values.Get("command", "0").At; at.String() != "jobs/web/front@.yaml:2" {
		t.Errorf("the command is from %s", at)
	}
	if at := s.Job("other/x@9").Values.Get("env", "TEAM").At; at.String() != "jobs/other/_.yaml:1" {
		t.Errorf("the team is from %s", at)
	}
}
