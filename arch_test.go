package croft_test

import (
	"encoding/json"
	"errors"
	"go/parser"
	"go/scanner"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

// A rule bans imports from packages. Patterns match package paths: "/..." at the end stands for the package and all
// below it, "std" for the standard library, "outside" for every other module.
type rule struct {
	packages []string
	except   []string // packages
	may      []string // if set, only these may be imported
	mayNot   []string // these may not
	reason   string
}

// rooms that decide; adapters implement the interfaces they declare.
var (
	deciding = []string{
		"croft/compute",
		"croft/compute/computetest",
		"croft/schedule/...",
		"croft/mdserver/...",
		"croft/placement/...",
		"croft/hosts/...",
		"croft/hosts/audit/...",
		"croft/pool",
		"croft/pool/pooltest/...",
		"croft/pool/server/...",
		"croft/pool/vm/...",
		"croft/pool/runner",
		"croft/trust",
		"croft/trust/pki/...",
		"croft/trust/invitation/...",
		"croft/grid/state/...",
		"croft/grid/place/...",
		"croft/grid/export/...",
		"croft/grid/edit/...",
		"croft/grid/plan/...",
		"croft/grid/apply/...",
		"croft/grid/revlock/...",
		"croft/grid/unit",
		"croft/cluster/...",
		"croft/control",
		"croft/control/api",
		"croft/control/bodies",
		"croft/control/forwarding",
		"croft/control/page/...",
		"croft/tenant/access/...",
		"croft/control/actions/...",
		"croft/tenant/...",
		"croft/tenant/usage/...",
		"croft/schedule/topology/...",
		"croft/tenant/objects/...",
		"croft/control/federation/...",
		"croft/grid/ipam",
		"croft/grid/ipam/setexpr",
		"croft/grid/ipam/foreign",
	}
	adapters = []string{
		"croft/etcdstore/...",
		"croft/placementclient/...",
		"croft/compute/hypervisor/...",
		"croft/compute/image/...",
		"croft/compute/restic",
		"croft/pool/shell/...",
		"croft/trust/gate/...",
		"croft/grid/ssh/...",
		"croft/grid/runtime/...",
		"croft/grid/hardpoint/...",
		"croft/grid/vcs/...",
		"croft/grid/watch/upstream",
		"croft/grid/watch/probe",
		"croft/grid/watch/fencer",
		"croft/grid/secret/...",
		"croft/cluster/heat",
	}
)

var rules = []rule{
	{
		packages: []string{"croft"},
		may:      []string{"std", "croft/internal/lazyregexp", "github.com/google/uuid"},
		reason:   "every room imports the nouns, so they may draw nothing in",
	},
	{
		packages: deciding,
		mayNot:   adapters,
		reason:   "rooms that decide declare the interfaces they need; node and control/cloud/direct join them with what implements those",
	},
	{
		packages: deciding,
		mayNot:   []string{"os/exec"},
		reason:   "a room that decides starts no programs",
	},
	{
		packages: []string{"croft/schedule/topology/..."},
		may:      []string{"std", "croft", "croft/internal/lazyregexp"},
		reason:   "whoever places anything imports the tree of locations, so it draws nothing in",
	},
	{
		packages: []string{"croft/grid/ipam/..."},
		may: []string{"std", "croft", "croft/grid/ipam/...", "croft/internal/...", "go4.org/netipx", "gopkg.in/yaml.v3",
			"golang.org/x/sync/..."},
		reason: "addresses are managed in an empty directory too, without a cloud or a grid",
	},
	{
		packages: []string{"croft/..."},
		except:   []string{"croft/etcdstore/..."},
		mayNot:   []string{"go.etcd.io/..."},
		reason:   "one room knows etcd, so that keys, transactions and retries are in one place",
	},
	{
		packages: []string{"croft/..."},
		except:   []string{"croft/compute/hypervisor/libvirt/...", "croft/internal/testing/libvirttest"},
		mayNot:   []string{"libvirt.org/..."},
		reason:   "one room knows libvirt; everything else runs where there is none",
	},
	{
		packages: []string{"croft/..."},
		except:   []string{"croft/placementclient/...", "croft/cluster/heat"},
		mayNot:   []string{"github.com/gophercloud/..."},
		reason:   "two rooms speak to OpenStack: one to Placement, and one to sites with Heat",
	},
	{
		packages: []string{"croft/..."},
		except: []string{"croft/cli/...", "croft/grid/cli/...", "croft/cmd/...", "croft/pool/resalloc",
			"croft/internal/command", "croft/internal/out"},
		mayNot: []string{"github.com/spf13/cobra/...", "github.com/spf13/pflag", "github.com/vbauerster/mpb/...",
			"golang.org/x/term", "croft/internal/command", "croft/internal/out"},
		reason: "only the command line talks to people, under croft's names or resalloc's",
	},
	{
		packages: []string{"croft/..."},
		except:   []string{"croft/cli/...", "croft/grid/cli/...", "croft/cmd/...", "croft/pool/resalloc"},
		mayNot:   []string{"croft/cli/...", "croft/grid/cli/..."},
		reason:   "rooms know nothing of the commands that use them",
	},
	{
		packages: []string{"croft/internal/out"},
		mayNot:   []string{"croft/client", "croft/control/cloud/...", "croft/cli/args"},
		reason:   "what prints is handed what it prints",
	},
	{
		packages: []string{"croft/control/cloud"},
		mayNot:   append([]string{"croft/control/cloud/direct"}, adapters...),
		reason:   "control decides with the services that cloud declares, whatever implements them",
	},
	{
		packages: []string{"croft/cli/...", "croft/cmd/croft"},
		mayNot:   []string{"croft/etcdstore/..."},
		reason:   "commands call the operations of the API, whichever way client reaches them",
	},
	{
		packages: []string{"croft/pool/api/..."},
		may:      []string{"std", "croft", "croft/internal/egress", "croft/internal/failover"},
		reason:   "programs of others import the client, so it draws in nothing but the standard library and the nouns",
	},
	{
		packages: []string{"croft/..."},
		except:   []string{"croft/pool/resalloc/...", "croft/cmd/..."},
		mayNot:   []string{"croft/pool/resalloc/..."},
		reason:   "resalloc's programs and protocol can be deleted in one stroke: one call of the binary adds them",
	},
	{
		packages: []string{"croft/pool/resalloc/..."},
		mayNot:   adapters,
		except:   []string{"croft/pool/resalloc"}, // it runs commands of pools on behalf of pool/shell
		reason:   "resalloc's protocol knows tickets and nothing that stores",
	},
	{
		packages: []string{"croft/pool/resalloc"},
		mayNot: []string{"croft/etcdstore/...", "croft/placementclient/...", "croft/compute/hypervisor/...",
			"croft/compute/image/...", "croft/trust/gate/..."},
		reason: "resalloc's programs are handed what runs a manager of pools",
	},
	{
		packages: []string{"croft/..."},
		mayNot:   []string{"croft/cmd/..."},
		reason:   "the binary joins the rooms; nothing stands on the binary",
	},
	{
		packages: []string{"croft/internal/..."},
		except:   []string{"croft/internal/testing/libvirttest"},
		mayNot:   append(slices.Clone(deciding), adapters...),
		reason:   "helpers know the nouns at most and have several users; a helper that knows a room, or has one user, belongs beside it",
	},
	{
		packages: []string{"croft/node/doctor/..."},
		mayNot:   append(slices.Clone(deciding), adapters...),
		reason:   "what examines a machine needs nothing of the cloud that is to run on it",
	},
	{
		packages: []string{"croft/pool/shell/..."},
		mayNot: []string{"croft/etcdstore/...", "croft/placementclient/...", "croft/schedule/...",
			"croft/compute/hypervisor/...", "croft/compute/image/..."},
		reason: "what runs commands of pools knows pools, and nothing that stores or decides",
	},
	{
		packages: []string{"croft/compute/hypervisor/...", "croft/compute/image/..."},
		mayNot:   []string{"croft/etcdstore/...", "croft/placementclient/...", "croft/schedule/..."},
		reason:   "what touches guests and disks answers the agent, and nobody else",
	},
	{
		packages: []string{"croft/trust/gate/..."},
		mayNot: []string{"croft/etcdstore/...", "croft/placementclient/...", "croft/placement/...",
			"croft/schedule", "croft/schedule/crushmap", "croft/hosts"},
		reason: "what a host runs that is not trusted with etcd and Placement knows neither",
	},
	{
		packages: []string{"croft/hosts/audit/..."},
		mayNot:   []string{"croft/hosts", "croft/compute/...", "croft/schedule"},
		reason:   "an audit judges the other rooms, and asks them through interfaces of its own",
	},
	{
		packages: []string{"croft/hosts"},
		mayNot:   []string{"croft/hosts/audit/...", "croft/compute/..."},
		reason:   "what moves and forgets hosts works without what checks it",
	},
	{
		packages: []string{"croft/node/..."},
		mayNot:   []string{"croft/cli/..."},
		reason:   "a process of the cloud talks to people through its log and its metrics alone",
	},
	{
		packages: []string{"croft/trust", "croft/trust/pki/...", "croft/trust/invitation/..."},
		mayNot: []string{"croft/compute/...", "croft/schedule/...", "croft/mdserver/...", "croft/placement/...",
			"croft/hosts/...", "croft/hosts/audit/...", "croft/pool/..."},
		reason: "whom a process believes depends on nothing that the process does",
	},
	{
		packages: []string{"croft/placement/ledger/..."},
		mayNot:   []string{"net/http", "net/http/...", "croft/placement", "croft/placement/internal/..."},
		reason:   "the ledger decides about claims, whatever carries requests to it",
	},
	{
		packages: []string{"croft/..."},
		mayNot:   []string{"log", "github.com/sirupsen/...", "go.uber.org/zap/..."},
		except:   []string{"croft/etcdstore/..."},
		reason:   "slog, handed in, is the one way to log (etcd brings its own, which its room turns into ours)",
	},
	{
		packages: []string{"croft/..."},
		except:   testHelpers,
		mayNot:   testHelpers,
		reason:   "test helpers carry the testing package and must not ship",
	},
	{
		packages: []string{"croft/..."},
		except:   testHelpers,
		mayNot: []string{"testing", "testing/...", "github.com/google/go-cmp/...", "go.uber.org/goleak",
			"github.com/rogpeppe/go-internal/..."},
		reason: "what ships must not carry what tests",
	},
}

// testHelpers are packages that only tests import.
var testHelpers = []string{
	"croft/tenant/access/accesstest", "croft/tenant/access/oidc/oidctest", "croft/cluster/clustertest",
	"croft/cluster/local/localtest", "croft/compute/computetest", "croft/compute/pci/pcitest",
	"croft/trust/gate/gatetest", "croft/grid/machine/machinetest", "croft/grid/ssh/sshtest",
	"croft/etcdstore/etcdtest", "croft/compute/hypervisor/hvtest", "croft/internal/testing/...",
	"croft/tenant/objects/objectstest",
	"croft/cluster/heat/heattest", "croft/placement/transfer/transfertest",
	"croft/placementclient/keystone/keystonetest", "croft/placementclient/placementtest", "croft/pool/pooltest",
	"croft/pool/runner/runnertest",
	"croft/grid/runtime/runtimetest", "croft/schedule/scheduletest", "croft/control/cloud/cloudtest",
	"croft/control/controltest", "croft/bench/...", "croft/test/...",
}

// A goPackage is a package as described by `go list -json`.
type goPackage struct {
	Dir, ImportPath, Name              string
	GoFiles, TestGoFiles, XTestGoFiles []string
	Imports                            []string
}

// modulePackages lists every package of the module, once for all tests.
var modulePackages = sync.OnceValues(func() ([]goPackage, error) {
	out, err := exec.Command("go", "list", "-tags", "libvirt_dlopen",
		"-json=Dir,ImportPath,Name,GoFiles,TestGoFiles,XTestGoFiles,Imports", "./...").Output()
	if err != nil {
		return nil, err
	}
	var list []goPackage
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return list, nil
		} else if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
})

func packages(t *testing.T) []goPackage {
	t.Helper()
	list, err := modulePackages()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	return list
}

// ofTheCloud are the packages of the cloud that the grid imports: placement by CRUSH, and the definition of a VM.
var ofTheCloud = []string{"croft", "croft/crush/...", "croft/internal/...", "croft/compute/machine",
	"croft/compute/hypervisor/libvirt/domainxml"}

// TestTheGridAndTheCloudAreApart: the grid imports only these packages of the cloud, and the cloud no package of the
// grid. The program croft contains both, and fission only the grid.
func TestTheGridAndTheCloudAreApart(t *testing.T) {
	for _, p := range packages(t) {
		for _, imported := range p.Imports {
			if crossesToTheGrid(p.ImportPath, imported) {
				t.Errorf("%s imports %s: the grid and the cloud are separate; only cmd/croft has both", p.ImportPath,
					imported)
			}
		}
	}
}

func crossesToTheGrid(importer, imported string) bool {
	grid := []string{"croft/grid/...", "croft/cmd/fission"}
	switch {
	case importer == "croft/cmd/croft" || !matchAny([]string{"croft/..."}, imported):
		return false
	case matchAny(grid, importer):
		return !matchAny(append(grid, ofTheCloud...), imported)
	}
	return matchAny(grid, imported)
}

// TestFissionIsTheGridAlone: the program links nothing of the cloud, directly or through other packages.
func TestFissionIsTheGridAlone(t *testing.T) {
	deps, err := exec.Command("go", "list", "-deps", "./cmd/fission").Output()
	if err != nil {
		t.Fatal(err)
	}
	for dep := range strings.FieldsSeq(string(deps)) {
		if crossesToTheGrid("croft/cmd/fission", dep) {
			t.Errorf("fission links %s, which is of the cloud: give the grid a smaller package", dep)
		}
	}
	if !strings.Contains(string(deps), "croft/grid/cli\n") {
		t.Errorf("fission does not link the grid:\n%s", deps)
	}
}

func TestWhatCrossesBetweenTheGridAndTheCloud(t *testing.T) {
	for _, c := range []struct {
		importer, imported string
		want               bool
	}{
		{"croft/cmd/croft", "croft/grid/cli", false},
		{"croft/cli", "croft/grid/cli", true},
		{"croft/cmd/fission", "croft/grid/cli", false},
		{"croft/cmd/fission", "croft/cli", true},
		{"croft/compute", "croft/grid/unit", true},
		{"croft/grid/cli", "croft/cli/args", true},
		{"croft/grid/unit", "croft/etcdstore", true},
		{"croft/grid/place", "croft/crush", false},
		{"croft/grid/place", "croft/grid/state", false},
		{"croft/grid/place", "gopkg.in/yaml.v3", false},
	} {
		if got := crossesToTheGrid(c.importer, c.imported); got != c.want {
			t.Errorf("%s imports %s: %v", c.importer, c.imported, got)
		}
	}
}

func TestImportsPointOneWay(t *testing.T) {
	for _, p := range packages(t) {
		for _, broken := range breaches(rules, p.ImportPath, p.Imports) {
			t.Error(broken)
		}
	}
}

// TestRulesCatch shows that each kind of rule detects violations.
func TestRulesCatch(t *testing.T) {
	for _, c := range []struct {
		name, pkg, imports string
		want               bool
	}{
		{"the root may import the standard library", "croft", "net/netip", false},
		{"the root may not import a room", "croft", "croft/compute", true},
		{"the root may not import a module", "croft", "gopkg.in/yaml.v3", true},
		{"a deciding room may import the root", "croft/compute", "croft", false},
		{"a deciding room may import a helper", "croft/compute", "croft/internal/durable", false},
		{"a deciding room may not import an adapter", "croft/compute", "croft/etcdstore", true},
		{"an audit may not import what it judges", "croft/hosts/audit", "croft/hosts", true},
		{"hosts may not import their audit", "croft/hosts", "croft/hosts/audit", true},
		{"the ledger is free of HTTP", "croft/placement/ledger", "net/http", true},
		{"nor may a package below it", "croft/placement/model", "croft/compute/hypervisor/sim", true},
		{"an adapter may import the room it serves", "croft/compute/hypervisor/sim", "croft/compute", false},
		{"only etcdstore imports etcd", "croft/cmd/croft", "go.etcd.io/etcd/client/v3", true},
		{"etcdstore imports etcd", "croft/etcdstore", "go.etcd.io/etcd/client/v3", false},
		{"only one adapter imports libvirt", "croft/compute/hypervisor/sim", "libvirt.org/go/libvirtxml", true},
		{"what acts for pools may not import the store", "croft/pool/server", "croft/etcdstore", true},
		{"the client of pools imports nothing of the project but the nouns", "croft/pool/api", "croft/pool", true},
		{"no room knows resalloc's protocol", "croft/pool/server", "croft/pool/resalloc/xmlrpc", true},
		{"a command asks etcd through cloud or node", "croft/cmd/croft", "croft/etcdstore", true},
		{"nothing stands on the binary", "croft/test/e2e", "croft/cmd/croft", true},
		{"what ships carries no test library", "croft/schedule", "testing", true},
		{"nor a helper of tests", "croft/cmd/croft", "croft/compute/hypervisor/hvtest", true},
		{"a name that only begins alike is another package", "croft/computer", "croft/etcdstore", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := breaches(rules, c.pkg, []string{c.imports}); (len(got) > 0) != c.want {
				t.Errorf("%s importing %s: breaches %q, want any: %v", c.pkg, c.imports, got, c.want)
			}
		})
	}
}

// breaches describes which rules the imports of pkg break, one sentence each.
func breaches(rules []rule, pkg string, imports []string) []string {
	var list []string
	for _, r := range rules {
		if !matchAny(r.packages, pkg) || matchAny(r.except, pkg) {
			continue
		}
		for _, i := range imports {
			if matchAny(r.mayNot, i) || (r.may != nil && !matchAny(r.may, i)) {
				list = append(list, pkg+" imports "+i+": "+r.reason)
			}
		}
	}
	return list
}

func matchAny(patterns []string, pkg string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		if pattern == "std" {
			first, _, _ := strings.Cut(pkg, "/")
			return first != "croft" && !strings.Contains(first, ".")
		}
		below, ok := strings.CutSuffix(pattern, "/...")
		return pkg == below || ok && strings.HasPrefix(pkg, below+"/")
	})
}

// The directories and the Go files without tests that the root may have: a reader has to tell them apart.
const (
	mostDirectories = 25
	mostFiles       = 8
)

func TestTheRootHasFewDirectoriesAndFiles(t *testing.T) {
	out, err := exec.Command("git", "ls-files").Output()
	if err != nil {
		t.Skipf("no repository of git: %v", err)
	}
	seen := map[string]bool{}
	files := 0
	for file := range strings.Lines(string(out)) {
		dir, _, below := strings.Cut(strings.TrimSpace(file), "/")
		switch {
		case below && !strings.HasPrefix(dir, "."):
			seen[dir] = true
		case strings.HasSuffix(dir, ".go") && !strings.HasSuffix(dir, "_test.go"):
			files++
		}
	}
	if files > mostFiles {
		t.Errorf("the root has %d Go files: put a noun into the file of its subject", files)
	}
	if len(seen) > mostDirectories {
		t.Errorf("the root has %d directories: put a package below the one whose concern it shares", len(seen))
	}
}

// TestHelpersHaveSeveralUsers keeps internal/ small.
func TestHelpersHaveSeveralUsers(t *testing.T) {
	users := map[string][]string{}
	for _, p := range packages(t) {
		for _, i := range p.Imports {
			users[i] = append(users[i], p.ImportPath)
		}
	}
	for _, p := range packages(t) {
		helper := matchAny([]string{"croft/internal/..."}, p.ImportPath) && !matchAny(testHelpers, p.ImportPath)
		if by := users[p.ImportPath]; helper && len(by) < 2 {
			t.Errorf("%s is used by %q: a helper with one user lives beside it", p.ImportPath, by)
		}
	}
}

func TestEveryPackageHasOneComment(t *testing.T) {
	for _, p := range packages(t) {
		var in []string
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil,
				parser.ParseComments|parser.PackageClauseOnly)
			if err != nil {
				t.Fatal(err)
			}
			if file.Doc != nil {
				in = append(in, name)
				checkPackageComment(t, p, file.Doc.Text())
			}
		}
		if len(p.GoFiles) > 0 && len(in) != 1 {
			t.Errorf("%s has %d package comments (%s), want one: a sentence of responsibility, then what it promises",
				p.ImportPath, len(in), strings.Join(in, ", "))
		}
	}
}

func checkPackageComment(t *testing.T, p goPackage, text string) {
	want := "Package " + path.Base(p.ImportPath) + " "
	if p.Name == "main" {
		want = "Command " + path.Base(p.ImportPath) + " "
	}
	if !strings.HasPrefix(text, want) {
		t.Errorf("%s: its comment begins %.40q, want %q", p.ImportPath, text, want)
	}
}

// maxColumns is the maximum width of a line; a tab counts as four columns.
const maxColumns = 120

// TestLinesAreWrapped ignores lines that cannot be wrapped: those with a string of more than half their width,
// raw strings, tables in comments, and directives.
func TestLinesAreWrapped(t *testing.T) {
	for _, p := range packages(t) {
		for _, name := range slices.Concat(p.GoFiles, p.TestGoFiles, p.XTestGoFiles) {
			name = filepath.Join(p.Dir, name)
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, line := range longLines(text) {
				t.Errorf("%s:%d has more than %d columns: wrap it", name, line, maxColumns)
			}
		}
	}
}

// longLines lists the lines of a Go file that should be wrapped.
func longLines(text []byte) []int {
	var long []int
	for i, line := range strings.Split(string(text), "\n") {
		if utf8.RuneCountInString(line)+3*strings.Count(line, "\t") > maxColumns {
			long = append(long, i+1)
		}
	}
	if long == nil {
		return nil
	}
	fset := token.NewFileSet()
	file := fset.AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, scanner.ScanComments)
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			return long
		}
		unwrappable := tok == token.STRING && (literal[0] == '`' || len(literal) > maxColumns/2) ||
			tok == token.COMMENT && (strings.HasPrefix(literal, "//\t") || strings.HasPrefix(literal, "//go:"))
		if first := file.Line(pos); unwrappable {
			last := first + strings.Count(literal, "\n")
			long = slices.DeleteFunc(long, func(line int) bool { return first <= line && line <= last })
		}
	}
}

// A command starts in a few milliseconds, and compiling the expressions that it does not use took several more.
func TestExpressionsAreCompiledWhenTheyAreUsed(t *testing.T) {
	helps := regexp.MustCompile(`^croft/(test|bench|cmd/pictures|cmd/recording)(/|$)|test$`)
	early := regexp.MustCompile(`(?m)^(var \w+ =|\t\w+ +=) regexp\.MustCompile\(`)
	for _, p := range packages(t) {
		if helps.MatchString(p.ImportPath) {
			continue // it is no part of the commands
		}
		for _, name := range p.GoFiles {
			text, err := os.ReadFile(filepath.Join(p.Dir, name))
			if err != nil {
				t.Fatal(err)
			}
			if found := early.Find(text); found != nil {
				t.Errorf("%s: %q runs whenever a command starts: use lazyregexp.New", filepath.Join(p.Dir, name), found)
			}
		}
	}
}

// Not allowed in any tracked file: the names of package registries, which each builder configures separately.
var forbidden = regexp.MustCompile(`\b(proxy|sum)\.go[a-z]+\.org\b|\bdeb\.[a-z]+\.org\b|\bregistry\.[a-z]+\.org\b`)

func TestNoRegistryIsNamed(t *testing.T) {
	out, err := exec.Command("git", "ls-files", "-z").Output()
	if err != nil {
		t.Fatalf("git ls-files: %v (the tests want a git checkout)", err)
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		text, err := os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) {
			continue // deleted and not committed yet
		} else if err != nil {
			t.Fatal(err)
		}
		if len(text) > 1<<20 {
			t.Errorf("%s has %d bytes: what is built is not tracked", name, len(text))
			continue
		}
		for i, line := range strings.Split(string(text), "\n") {
			if word := forbidden.FindString(line); word != "" {
				t.Errorf("%s:%d has %q in it", name, i+1, word)
			}
		}
	}
}

// unboundedRead matches a read of all that a file has, which a user may have named.
var unboundedRead = regexp.MustCompile(`\bos\.(ReadFile|Open)\(|\bio\.ReadAll\([^i]`)

// TestCommandsReadBoundedFiles: the files that users name are read with internal/userfile, which neither waits at a
// FIFO nor reads a device or a file without end.
func TestCommandsReadBoundedFiles(t *testing.T) {
	err := filepath.WalkDir("cli", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
			path == "cli/serve/detach.go" { // reads the log that it has just made
			return err
		}
		text, err := os.ReadFile(path)
		for i, line := range strings.Split(string(text), "\n") {
			if found := unboundedRead.FindString(line); found != "" {
				t.Errorf("%s:%d calls %s: use userfile.Read, userfile.Open or userfile.ReadFrom", path, i+1, found)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// existing matches a comparison that a key exists, in etcdstore.
var existing = regexp.MustCompile(`\b(kv\.Exists|exists)\(`)

// TestEachComparisonOfExistenceSaysWhyItIsEnough: a key that exists may belong to a later object of the same name, so
// transactions compare the identity of the object that was read. Where existence is enough, a comment says why, on the
// line or directly above its statement.
func TestEachComparisonOfExistenceSaysWhyItIsEnough(t *testing.T) {
	found := 0
	err := filepath.WalkDir("etcdstore", func(name string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := os.ReadFile(name)
		lines := strings.Split(string(text), "\n")
		for i, line := range lines {
			code, comment, _ := strings.Cut(line, "//")
			if !existing.MatchString(code) || strings.HasPrefix(code, "func ") {
				continue
			}
			found++
			for above := i - 1; above > 0 && strings.HasPrefix(strings.TrimSpace(lines[above]), "//"); above-- {
				comment = lines[above] + comment
			}
			if !strings.Contains(comment, "enough") {
				t.Errorf("%s:%d compares that a key exists: compare kv.Created, kv.SameSince or kv.Unchanged, or say "+
					"in a comment why existence is enough", name, i+1)
			}
		}
		return err
	})
	if err != nil || found < 10 {
		t.Errorf("%d comparisons were found, %v", found, err)
	}
}
