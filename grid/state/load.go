package state

import (
	"context"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"croft"
	"croft/internal/lazyregexp"
)

// ClusterFile is the file that marks a directory as a cluster's.
const ClusterFile = "cluster.yaml"

// Load reads the directory of a cluster. Errors: NotFound if the directory is no cluster's; Invalid, several joined,
// for mistakes in the files, each with file and line.
func Load(ctx context.Context, dir string) (*State, error) {
	s, ids, err := LoadForIDs(ctx, dir)
	if err != nil {
		return nil, err
	}
	list := problems{ids}
	if err := list.err(); err != nil {
		return nil, err
	}
	return s, nil
}

// LoadForIDs is Load for callers that give ids: missing and duplicate ids are not errors, and it returns them as
// problems.
func LoadForIDs(ctx context.Context, dir string) (*State, []Problem, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, nil, croft.Errorf(croft.NotFound, "open the cluster's directory: %w", err)
	}
	defer root.Close()
	l := &loading{ctx: ctx, s: &State{Dir: dir, Policies: map[string]File{}}, files: files{root}}
	if !l.files.has(ClusterFile) {
		return nil, nil, croft.Errorf(croft.NotFound, "%s is not the directory of a cluster: it has no %s; name another "+
			"one with -C, or make one with croft grid init", dir, ClusterFile)
	}
	l.loadCluster()
	l.loadIDs()
	l.loadTree()
	l.given()
	l.loadPolicies()
	l.loadJobs()
	l.loadSlots()
	l.loadRoster()
	l.checkFacts()
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	if err := l.problems.err(); err != nil {
		return nil, nil, err
	}
	return l.s, l.ids.list, nil
}

var validID = lazyregexp.New(`^[0-9a-f]{32}$`)

// loadCluster reads cluster.yaml.
func (l *loading) loadCluster() {
	c := &l.s.Cluster
	c.Types = defaultTypes
	v := l.read(ClusterFile, &l.problems)
	if len(l.problems.list) > 0 {
		return
	}
	l.s.Settings = v
	f := fields{v, &l.problems, ""}
	if c.ID = f.text("id"); !validID.MatchString(c.ID) {
		l.problems.add(f.at("id"), "id: want the 32 hexadecimal digits that grid init made, in quotes")
	}
	c.VCS, c.Runtime, c.StateDir, c.IP = f.text("vcs"), f.text("runtime"), f.text("state_dir"), f.text("ip")
	c.Upstream = f.one("upstream", "optional", "required", "optional")
	if c.StateDir != "" && !path.IsAbs(c.StateDir) {
		l.problems.add(f.at("state_dir"), "state_dir: %q is no absolute path", c.StateDir)
	}
	timeouts := f.below("timeouts")
	c.Dial = time.Duration(timeouts.number("dial", 1, 3600, 0)) * time.Second
	if c.Certificate = f.below("ssh").texts("certificate"); len(c.Certificate) > 0 && c.Certificate[0] == "" {
		l.problems.add(f.below("ssh").at("certificate"), "ssh.certificate: name a program, such as [ssh, ca@host, sign]")
	}
	c.Parallel = f.number("parallel", 1, 1024, 0)
	if given := f.texts("types"); given != nil {
		c.Types = given
	}
	seen := map[string]bool{}
	for _, one := range c.Types {
		if !validName.MatchString(one) || seen[one] {
			l.problems.add(f.at("types"), "types: %q is given twice, or no name: %s", one, nameHint)
		}
		seen[one] = true
	}
	if len(c.Types) < 2 {
		l.problems.add(f.at("types"), "types: give at least two, lowest first, such as [node, host, rack, site, root]")
		c.Types = defaultTypes
	}
}

// loadPolicies reads policies/.
func (l *loading) loadPolicies() {
	l.files.walk("policies", ".rule", &l.problems, func(dir string, in []entry) {
		if dir != "policies" {
			l.problems.add(Position{File: dir}, "a directory has no place among the policies")
			return
		}
		for _, e := range in {
			text, err := l.files.read(e.path, maxFile)
			switch {
			case e.link:
				l.problems.add(Position{File: e.path}, "a symbolic link has no place among the policies")
			case !validName.MatchString(e.name):
				l.problems.add(Position{File: e.path}, "%q is no name of a policy: %s", e.name, nameHint)
			case err != nil:
				l.problems.add(Position{File: e.path}, "%s", err)
			default:
				l.s.Policies[e.name] = File{e.path, text}
			}
		}
	})
}

// Job returns the job with a name; nil: no job has it.
func (s *State) Job(name string) *Job {
	at, ok := slices.BinarySearchFunc(s.Jobs, name, func(j *Job, name string) int {
		return strings.Compare(j.Name, name)
	})
	if !ok {
		return nil
	}
	return s.Jobs[at]
}

// Node returns the node with a name; nil: no node has it.
func (s *State) Node(name string) *Node {
	at, ok := slices.BinarySearchFunc(s.Leaves, name, func(n *Node, name string) int {
		return strings.Compare(n.Name, name)
	})
	if !ok {
		return nil
	}
	return s.Leaves[at]
}
