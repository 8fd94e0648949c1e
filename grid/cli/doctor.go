package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/grid/checkup"
	"croft/grid/machine"
	"croft/grid/runtime"
	"croft/grid/state"
	"croft/grid/unit"
	"croft/internal/checks"
	"croft/internal/command"
	"croft/internal/out"
)

func doctorCommand(o *options) *cobra.Command {
	var files []string
	var how connecting
	cmd := &cobra.Command{
		Use:   "doctor [NODE...]",
		Short: "Examine the directory and its nodes, and say in one line each what to do",
		Long: `doctor looks at the repository of the cluster's directory (links, merges, what is not
committed), at its secrets, and at nodes: whether they answer, have what is needed, and run the
runtimes of their slots. It starts a trivial unit of each such runtime that needs no image of
another kind than a directory, and removes it. Nothing else is changed. Each line says ok, warn or
fail; the exit code is 1 where anything failed.`,
		Args: command.Count(0, -1),
		RunE: func(cmd *cobra.Command, given []string) error {
			if _, err := o.data(); err != nil {
				return err
			}
			s, err := o.load(cmd)
			if err != nil {
				return err
			}
			nodes, done, err := o.examined(cmd, s, given, &how)
			if err != nil {
				return err
			}
			defer done()
			findings := checkup.Repository(cmd.Context(), o.dir, s.Cluster.VCS)
			findings = append(findings, o.secrets(cmd, s, files))
			findings = append(findings, checkup.Nodes(cmd.Context(), nodes)...)
			return o.findings(cmd, findings)
		},
	}
	identityFlag(cmd, &files)
	cmd.Flags().StringVar(&how.sshConfig, "ssh-config", "", "the ssh configuration, in place of ~/.ssh/config (`file`)")
	o.formats(cmd)
	cmd.AddCommand(doctorRuntimeCommand(o))
	return cmd
}

// secrets checks whether the secrets of the cluster can be opened here.
func (o *options) secrets(cmd *cobra.Command, s *state.State, files []string) checks.Result {
	r := checks.Result{Level: checks.OK, Check: "secrets", Found: "all that slots use can be opened"}
	if _, err := s.Nodes(cmd.Context(), o.keeper(files)); err != nil {
		r.Level, r.Found = checks.Fail, err.Error()
	}
	return r
}

// examined returns the nodes with these names, or all used nodes, with the runtimes of their slots.
func (o *options) examined(cmd *cobra.Command, s *state.State, names []string, how *connecting) ([]checkup.Node, func(),
	error) {
	chosen := slices.Clone(s.Leaves)
	if len(names) > 0 {
		chosen = nil
		for _, name := range names {
			n, err := findNode(s, name)
			if err != nil {
				return nil, nil, err
			}
			chosen = append(chosen, n)
		}
	}
	all, err := s.Nodes(cmd.Context(), nil)
	if err != nil {
		return nil, nil, err
	}
	reach := newMachines(s, how.sshConfig)
	done := []func(){reach.dialer.Close}
	closeAll := func() {
		for _, f := range slices.Backward(done) {
			f()
		}
	}
	var list []checkup.Node
	for _, n := range chosen {
		if len(names) == 0 && n.State == state.Out {
			continue
		}
		u := reached(s, n)
		m, end := reach.of(u)
		done = append(done, end)
		one := checkup.Node{Name: n.Name, Machine: m, StateDir: u.StateDir, Cluster: s.Cluster.ID}
		for _, name := range usedRuntimes(s, all, n) {
			r, err := o.runtimes(s).Open(name)
			if err != nil {
				closeAll()
				return nil, nil, err
			}
			one.Runtimes = append(one.Runtimes, r)
		}
		list = append(list, one)
	}
	return list, closeAll, nil
}

// usedRuntimes returns the runtimes of a node's slots, or the cluster's runtimes if the node has no slots.
func usedRuntimes(s *state.State, all []unit.Node, n *state.Node) []string {
	var names []string
	for _, one := range all {
		if one.Name != n.Name {
			continue
		}
		for _, u := range one.Units {
			names = append(names, u.Runtime)
		}
	}
	if len(names) == 0 && s.Cluster.Runtime != "" {
		names = []string{s.Cluster.Runtime}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// findings prints the findings. It returns an error if a check failed.
func (o *options) findings(cmd *cobra.Command, findings []checks.Result) error {
	if asData, err := o.data(); err != nil {
		return err
	} else if asData {
		if err := out.PrintData(cmd.OutOrStdout(), o.output, findings); err != nil {
			return err
		}
	} else {
		for _, f := range findings {
			line := fmt.Sprintf("%-4s  %-14s  %s", f.Level, f.Check, command.Names.Replace(f.Found))
			if f.Do != "" {
				line += "; do: " + command.Names.Replace(f.Do)
			}
			fmt.Fprintln(cmd.OutOrStdout(), line)
		}
	}
	if !checks.Healthy(findings) {
		return errors.New("not all is well: see the lines that say fail")
	}
	return nil
}

func doctorRuntimeCommand(o *options) *cobra.Command {
	var image unit.Image
	var vm unit.VM
	var node, network string
	var how connecting
	var program, settings []string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "runtime NAME",
		Short: "Try a runtime on a node: everything twice",
		Long: `runtime makes a unit on a node, starts, lists, stops and removes it, everything twice, and says
for each step whether the runtime did what is asked of every runtime. Nothing is left there. It
is for hard points of your own, and for nodes that behave in their own way. A name that is
missing lists the runtimes.`,
		Example: `  croft grid doctor runtime process --node here
  croft grid doctor runtime podman --node web1 --image docker.io/library/busybox
  croft grid doctor runtime vm --node web1 --vm-image /var/lib/libvirt/images/debian.qcow2`,
		Args: command.Count(0, 1),
		RunE: func(cmd *cobra.Command, given []string) error {
			s, err := o.load(cmd)
			if err != nil {
				return err
			}
			if len(given) == 0 {
				return o.listRuntimes(cmd, s)
			}
			r, err := o.runtimes(s).Open(given[0])
			if err != nil {
				return err
			}
			u := unit.Unit{Cluster: s.Cluster.ID, Job: "doctor", Runtime: r.Name(), Image: image, Command: program,
				Network: network,
				Options: map[string]string{}}
			for _, set := range settings {
				name, value, err := option(set)
				if err != nil {
					return err
				}
				u.Options[name] = value
			}
			if vm.Image != "" {
				u.VM, u.Command = &vm, nil
			}
			return o.tryRuntime(cmd, s, r, u, node, &how, timeout)
		},
	}
	f := cmd.Flags()
	f.StringVar(&node, "node", "", "where (`name`; without one, this machine)")
	f.StringVar(&how.sshConfig, "ssh-config", "", "the ssh configuration, in place of ~/.ssh/config (`file`)")
	f.StringVar(&image.Rootfs, "rootfs", "", "a `directory` of the node as the root directory")
	f.StringVar(&image.Registry, "image", "", "an image that the runtime fetches (`reference`)")
	f.StringVar(&vm.Image, "vm-image", "", "for vm: a qcow2 or raw `file` of the node")
	f.Int64Var(&vm.Memory, "vm-memory", 256<<20, "for vm: its memory in `bytes`")
	f.StringVar(&vm.VirtType, "vm-type", "kvm", "for vm: `kvm` or qemu")
	f.StringVar(&network, "network", "", "host, bridge or none (`name`; host)")
	f.StringArrayVar(&settings, "option", nil, "one of the unit's options, `name=value` (repeatable)")
	f.StringArrayVar(&program, "command", []string{"sh", "-c", `trap "exit 0" TERM; while :; do sleep 1; done`},
		"what runs until it is told to end (an `argument`, repeatable)")
	command.DurationVar(f, &timeout, "timeout", 10*time.Minute, "for all of it (`duration`)")
	vm.VCPUs = 1
	o.formats(cmd)
	return cmd
}

func option(set string) (name, value string, err error) {
	for i, c := range set {
		if c == '=' && i > 0 {
			return set[:i], set[i+1:], nil
		}
	}
	return "", "", croft.Errorf(croft.Invalid, "--option %q: write name=value", set)
}

func (o *options) listRuntimes(cmd *cobra.Command, s *state.State) error {
	type row struct {
		Name  string `json:"name"`
		About string `json:"about"`
	}
	names, err := o.runtimes(s).Names()
	if err != nil {
		return err
	}
	var rows []row
	for _, name := range names {
		r, err := o.runtimes(s).Open(name)
		if err != nil {
			return err
		}
		rows = append(rows, row{name, r.About()})
	}
	if asData, err := o.data(); err != nil || asData {
		if err != nil {
			return err
		}
		return out.PrintData(cmd.OutOrStdout(), o.output, rows)
	}
	t := &out.Table{Color: out.IsColored(cmd.OutOrStdout())}
	t.Head("RUNTIME", "ABOUT")
	for _, r := range rows {
		t.Texts(r.Name, r.About)
	}
	return t.Print(cmd.OutOrStdout())
}

func (o *options) tryRuntime(cmd *cobra.Command, s *state.State, r *runtime.Runtime, u unit.Unit, node string,
	how *connecting, timeout time.Duration) error {
	var m machine.Machine = machine.Local{}
	if node != "" {
		n, err := findNode(s, node)
		if err != nil {
			return err
		}
		reach := newMachines(s, how.sshConfig)
		defer reach.dialer.Close()
		var done func()
		m, done = reach.of(reached(s, n))
		defer done()
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
	defer cancel()
	var findings []checks.Result
	for _, step := range r.Cycle(ctx, m, u) {
		f := checks.Result{Level: checks.OK, Check: r.Name(), Found: step.Name}
		if step.Err != nil {
			f.Level, f.Found = checks.Fail, step.Name+": "+step.Err.Error()
		}
		findings = append(findings, f)
	}
	return o.findings(cmd, findings)
}
