package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/adrg/xdg"
	"github.com/spf13/cobra"

	"croft"
	"croft/grid/apply"
	"croft/grid/machine"
	"croft/grid/plan"
	"croft/grid/revlock"
	"croft/grid/runtime"
	"croft/grid/ssh"
	"croft/grid/sshca"
	"croft/grid/state"
	"croft/grid/unit"
	"croft/grid/vcs"
)

// cluster is a cluster whose nodes can be reached.
type cluster struct {
	*apply.Grid
	state  *state.State
	shell  apply.Shell
	want   plan.Desired
	repo   *vcs.Repository
	memory revlock.Memory
	ssh    *ssh.Dialer
}

// connecting configures how a command reaches the nodes.
type connecting struct {
	sshConfig string
	parallel  int
	firewall  time.Duration
	note      string // for users who find a node locked
}

func (c *connecting) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&c.sshConfig, "ssh-config", "", "the ssh configuration, in place of ~/.ssh/config (`file`)")
	f.IntVar(&c.parallel, "parallel", 0, "nodes that are worked on at once (`number`; 8)")
}

// reach loads the cluster's directory, with everything that its nodes should run. It does not connect yet. The caller
// must close the result.
func (o *options) reach(cmd *cobra.Command, how *connecting) (*cluster, error) {
	if how.parallel < 0 || how.parallel > 64 {
		return nil, croft.Errorf(croft.Invalid, "--parallel %d: give 1 to 64", how.parallel)
	}
	s, err := o.load(cmd)
	if err != nil {
		return nil, err
	}
	c := &cluster{state: s, shell: apply.Shell{Cluster: s.Cluster.ID, Who: whoIsHere() + how.note},
		memory: revlock.Memory{File: filepath.Join(xdg.StateHome, "croft", "grid", s.Cluster.ID+".epochs")}}
	if c.repo, err = vcs.Open(o.dir, s.Cluster.VCS); err != nil {
		return nil, err
	}
	if c.want, err = desired(cmd.Context(), o.dir, s); err != nil {
		return nil, err
	}
	c.ssh = ssh.New(dialing(s, how.sshConfig))
	runtimes := runtimesOf(o.dir)
	parallel := how.parallel
	if parallel == 0 {
		parallel = s.Cluster.Parallel
	}
	c.Grid, err = apply.New(apply.Config{Dialer: dialer{c.ssh}, Locker: c.shell, VCS: c.repo, Runtimes: runtimes,
		Parallel: parallel, FirewallConfirm: how.firewall, Say: func(words string) { say(cmd, "%s", words) }})
	return c, err
}

// dialing returns how to log in to nodes: with the ssh configuration in the file, or else the user's, and with a
// certificate of the cluster's authority, if it has one.
func dialing(s *state.State, file string) ssh.Config {
	config := ssh.Config{File: file, Timeout: s.Cluster.Dial}
	if ask := s.Cluster.Certificate; len(ask) > 0 {
		config.Credential = &sshca.Credential{Request: ask, Dir: sshca.KeptIn(s.Cluster.ID)}
	}
	return config
}

// Close ends all connections.
func (c *cluster) Close() {
	c.Grid.Close()
	c.ssh.Close()
}

func whoIsHere() string {
	name := os.Getenv("USER")
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, _ := os.Hostname()
	return fmt.Sprintf("%s@%s, process %d", name, host, os.Getpid())
}

// runtimesOf returns a function that opens each runtime once for each state directory.
func runtimesOf(dir string) func(name string, n unit.Node) (apply.Runtime, error) {
	type key struct{ name, stateDir string }
	var mu sync.Mutex
	open := map[key]*runtime.Runtime{}
	return func(name string, n unit.Node) (apply.Runtime, error) {
		mu.Lock()
		defer mu.Unlock()
		k := key{name, n.StateDir}
		if open[k] == nil {
			r, err := runtime.Config{Repository: os.DirFS(dir), StateDir: n.StateDir}.Open(name)
			if err != nil {
				return nil, err
			}
			open[k] = r
		}
		return open[k], nil
	}
}

// dialer reaches nodes over SSH, and this machine directly.
type dialer struct{ ssh *ssh.Dialer }

// Dial implements apply.Dialer.
func (d dialer) Dial(ctx context.Context, n unit.Node) (apply.Connection, error) {
	if n.Local {
		return here{}, nil
	}
	r := d.ssh.Remote(n)
	if err := r.Connect(ctx); err != nil {
		return nil, err
	}
	return remote{r}, nil
}

type here struct{ machine.Local }

func (here) Close() error { return nil }

type remote struct{ *ssh.Remote }

func (r remote) Close() error {
	r.Remote.Close()
	return nil
}

// desired returns the desired state in the directory.
func desired(ctx context.Context, dir string, s *state.State) (plan.Desired, error) {
	given, err := openAddresses(dir, s.Cluster.IP)
	if err != nil {
		return plan.Desired{}, err
	}
	if s.Addresses == nil {
		s.Addresses = given.address
	}
	d := plan.Desired{Cluster: s.Cluster.ID, Jobs: map[string]plan.Job{}}
	if d.Nodes, err = s.Nodes(ctx, keeperOf(dir)); err != nil {
		return plan.Desired{}, err
	}
	d.Nodes = append(d.Nodes, s.Left()...)
	for _, j := range s.Jobs {
		want := j.Want
		if j.Every {
			want = len(j.Slots)
		}
		d.Jobs[j.Name] = plan.Job{Want: want, Min: j.Min, MaxUnavailable: j.MaxUnavailable, Canary: j.Canary,
			Gate: j.Gate}
	}
	for i := range d.Nodes {
		if d.Nodes[i].State == state.Left {
			continue
		}
		if d.Nodes[i].Firewall, err = given.firewall(ctx, d.Nodes[i].Name); err != nil {
			return plan.Desired{}, fmt.Errorf("the firewall of %s: %w", d.Nodes[i].Name, err)
		}
	}
	return d, nil
}

// firewall returns the table of a node; empty: it needs none.
func (a *addresses) firewall(ctx context.Context, node string) (string, error) {
	if a.net == nil {
		return "", nil
	}
	n, err := a.net.FindNode(node)
	if err != nil {
		return "", err
	}
	t, err := a.net.Firewall(ctx, n)
	if err != nil {
		return "", err
	}
	if text, err := t.Script(); err != nil || strings.Contains(text, "{") {
		return text, err
	}
	return "", nil
}

// revision sets the revision of the desired state, and returns the upstream's head. If the directory has changes that
// are not committed, or commits that are not pushed, it returns an error with strict, and else reports them.
func (c *cluster) revision(cmd *cobra.Command, strict bool) (head string, err error) {
	c.want.Revision, head, err = revlock.Clean(cmd.Context(), c.repo)
	if errors.Is(err, croft.Conflict) {
		if strict {
			return "", exit(ExitRefused, err)
		}
		say(cmd, "croft: warning: %v", err)
		c.want.Revision, err = c.repo.Revision(cmd.Context())
		return "", err
	}
	if strict && errors.Is(err, croft.NotFound) {
		return "", exit(ExitRefused, err) // there is no commit yet
	}
	if err == nil && head == "" && c.state.Cluster.Upstream == "required" {
		err = croft.Errorf(croft.Invalid, "cluster.yaml says upstream: required, and the repository has none: set one")
	}
	return head, err
}

// remembered returns an error for nodes whose state is older than before.
func (c *cluster) remembered(p plan.Plan, found []plan.Observed) error {
	for _, o := range found {
		if _, concerned := p.Observed[o.Node]; !concerned {
			continue
		}
		if err := c.memory.Check(o.Node, o.Epoch); err != nil {
			return exit(ExitRefused, err)
		}
	}
	return nil
}

// remember stores the epochs of the nodes that were locked.
func (c *cluster) remember(ctx context.Context, p plan.Plan) error {
	epochs := map[string]int64{}
	var nodes []unit.Node
	for _, n := range c.want.Nodes {
		if slices.Contains(p.Writes(), n.Name) {
			nodes = append(nodes, n)
		}
	}
	for _, o := range c.Observe(ctx, c.want, nodes) {
		if o.Error == "" {
			epochs[o.Node] = o.Epoch
		}
	}
	return c.memory.Note(epochs)
}
