package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"croft"
	"croft/grid/adopt"
	"croft/grid/machine"
	"croft/grid/state"
	"croft/internal/command"
	"croft/internal/durable"
	"croft/internal/out"
)

// adopted is a discovered unit, and the result for it.
type adopted struct {
	adopt.Found
	File string `json:"file"`
	Done string `json:"done"` // written, there, marked or found
	Why  string `json:"why,omitempty"`
}

func adoptCommand(o *options, cloud *Cloud) *cobra.Command {
	var how connecting
	var runtimes []string
	var mark, dry, fromCloud bool
	cmd := &cobra.Command{
		Use:   "adopt [NODE]",
		Short: "Write jobs for what runs on a node already",
		Long: `adopt writes a job for each container of podman and docker, and each domain of libvirt, that runs
on a node and is of no grid: jobs/adopted/NODE/NAME.yaml, and its slot. What a job cannot say is
in comments at its head. On the node nothing changes, and a plan would make new units beside
the old ones: so read the jobs first.

With --mark, running containers are given the names and marks of their jobs, as the files are
then, without being stopped; the next plan finds them as they should be, and changes nothing.
Domains cannot be given one: shut them down when their successors run.`,
		Example: `  croft grid adopt web1
  croft grid adopt web1 --mark --runtime podman`,
		Args: command.Count(0, 1),
		RunE: func(cmd *cobra.Command, given []string) error {
			if _, err := o.data(); err != nil {
				return err
			}
			if err := checkAdopt(cmd, given, fromCloud, cloud); err != nil {
				return err
			}
			if fromCloud {
				return o.adoptCloud(cmd, cloud, given, dry)
			}
			return o.change(cmd, func(s *state.State) error {
				n, err := findNode(s, given[0])
				if err != nil {
					return err
				}
				rows, err := o.adopt(cmd, s, n, &how, runtimes, mark, dry)
				return o.tellAdopted(cmd, rows, err)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&how.sshConfig, "ssh-config", "", "the ssh configuration, in place of ~/.ssh/config (`file`)")
	f.StringSliceVar(&runtimes, "runtime", adopt.Runtimes, "which to ask (`names`)")
	f.BoolVar(&mark, "mark", false, "give running containers the marks of their jobs")
	f.BoolVar(&dry, "dry-run", false, "write nothing")
	if cloud != nil {
		cmd.Short += ", or in a croft cloud"
		cmd.Long += `

With --from-cloud, the jobs are those of the instances of a croft cloud, as virtual machines
on the nodes that are named like their hosts; NODE chooses one. The cloud is that of
schedule.yaml, of a login, or of the flags, as for schedule list. Nothing changes there.`
		cmd.Example += "\n  croft grid adopt --from-cloud --project shop --dry-run"
		f.BoolVar(&fromCloud, "from-cloud", false, "ask a croft cloud for its instances in place of a node")
		cloud.AddFlags(f)
	}
	o.formats(cmd)
	return cmd
}

// checkAdopt returns an error for flags that do not belong together.
func checkAdopt(cmd *cobra.Command, given []string, fromCloud bool, cloud *Cloud) error {
	switch {
	case len(given) > 0 || fromCloud:
	case cloud == nil:
		return croft.Errorf(croft.Invalid, "name the node whose containers and domains are to be adopted")
	default:
		return croft.Errorf(croft.Invalid,
			"name the node whose containers and domains are to be adopted, or give --from-cloud")
	}
	of := []string{"runtime", "mark", "ssh-config"}
	if !fromCloud {
		of = nil
		if cloud != nil {
			cmd.Short += ", or in a croft cloud"
			cmd.Long += `

With --from-cloud, the jobs are those of the instances of a croft cloud, as virtual machines
on the nodes that are named like their hosts; NODE chooses one. The cloud is that of
schedule.yaml, of a login, or of the flags, as for schedule list. Nothing changes there.`
			cmd.Example += "\n  croft grid adopt --from-cloud --project shop --dry-run"
			of = cloud.Flags
		}
	}
	for _, name := range of {
		switch {
		case !cmd.Flags().Changed(name):
		case fromCloud:
			return croft.Errorf(croft.Invalid, "--%s is about a node: leave it or --from-cloud out", name)
		default:
			return croft.Errorf(croft.Invalid, "--%s is about a cloud: add --from-cloud", name)
		}
	}
	return nil
}

// adoptCloud writes jobs for the instances of a cloud.
func (o *options) adoptCloud(cmd *cobra.Command, cloud *Cloud, given []string, dry bool) error {
	all, err := cloud.Instances(cmd)
	if err != nil {
		return err
	}
	return o.change(cmd, func(s *state.State) error {
		var only *state.Node
		var err error
		if len(given) > 0 {
			if only, err = findNode(s, given[0]); err != nil {
				return err
			}
		}
		var rows []adopted
		for _, st := range all {
			var row *adopted
			if row, err = o.adoptInstance(s, st, only, dry); row != nil {
				rows = append(rows, *row)
			}
			if err != nil {
				break
			}
		}
		return o.tellAdopted(cmd, rows, err)
	})
}

// adoptInstance writes the job of an instance on the node that has its host's name; nil: that is not the requested
// node.
func (o *options) adoptInstance(s *state.State, st croft.Status, only *state.Node, dry bool) (*adopted, error) {
	row := &adopted{Found: adopt.Instance(st), Done: "found"}
	host := ""
	if st.Host != nil {
		host = st.Host.Name
	}
	n, err := findNode(s, host)
	switch {
	case only != nil && n != only:
		return nil, nil
	case host == "":
		row.Why = "it is on no host that is known here"
		return row, nil
	case err != nil:
		row.Why = fmt.Sprintf("its host %s is no node of the cluster: croft grid node add %[1]s", host)
		return row, nil
	}
	if row.File = row.Path(n.Name); !dry {
		row.Done, err = o.writeAdopted(s, n, row.Found)
	}
	return row, err
}

// adopt finds the units that run on a node, and writes jobs or sets marks.
func (o *options) adopt(cmd *cobra.Command, s *state.State, n *state.Node, how *connecting, runtimes []string, mark,
	dry bool) ([]adopted, error) {
	reach := newMachines(s, how.sshConfig)
	defer reach.dialer.Close()
	m, done := reach.of(reached(s, n))
	defer done()
	var rows []adopted
	var silent error
	for _, name := range runtimes {
		found, err := adopt.List(cmd.Context(), m, name)
		if _, ended := errors.AsType[*machine.Exit](err); ended { // such as a daemon that does not run
			err = fmt.Errorf("%s: %w; start it there, or leave %s out of --runtime", n.Name, err, name)
			silent = errors.Join(silent, err)
			continue
		}
		if err != nil {
			return rows, fmt.Errorf("%s: %w", n.Name, err)
		}
		for _, f := range found {
			row := adopted{Found: f, File: f.Path(n.Name), Done: "found"}
			switch {
			case mark:
				row.Done, row.Why, err = o.giveMark(cmd, s, n, m, f)
			case !dry:
				row.Done, err = o.writeAdopted(s, n, f)
			}
			rows = append(rows, row)
			if err != nil {
				return rows, err
			}
		}
	}
	return rows, silent
}

// writeAdopted writes the job and its slot. An existing job stays unchanged.
func (o *options) writeAdopted(s *state.State, n *state.Node, f adopt.Found) (string, error) {
	file := filepath.Join(o.dir, f.Path(n.Name))
	if _, err := os.Lstat(file); err == nil {
		return "there", nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("adopt: %w", err)
	}
	text, err := f.File(n.Name)
	if err != nil {
		return "", err
	}
	link := filepath.Join(o.dir, "alloc", jobOf(f, n), "0")
	for _, dir := range []string{filepath.Dir(file), filepath.Dir(link)} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return "", fmt.Errorf("adopt: %w", err)
		}
	}
	if err := durable.Write(file, text, 0o644); err != nil {
		return "", err
	}
	up := strings.Repeat("../", strings.Count(path.Join("alloc", jobOf(f, n), "0"), "/"))
	if err := os.Symlink(up+n.Path, link); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("adopt: %w", err)
	}
	return "written", nil
}

// jobOf returns the job's name.
func jobOf(f adopt.Found, n *state.Node) string {
	return strings.TrimSuffix(strings.TrimPrefix(f.Path(n.Name), "jobs/"), ".yaml")
}

// giveMark marks a running container as the unit of its job.
func (o *options) giveMark(cmd *cobra.Command, s *state.State, n *state.Node, m machine.Machine, f adopt.Found) (done,
	why string, err error) {
	j := s.Job(jobOf(f, n))
	switch {
	case j == nil:
		return "found", "it has no job yet: run adopt without --mark", nil
	case !f.Running:
		return "found", "it does not run", nil
	case f.Runtime == "vm":
		return "found", "a domain cannot be given a mark", nil
	case !slices.ContainsFunc(j.Slots, func(slot state.Slot) bool { return slot.Number == 0 && slot.Node == n }):
		return "found", "slot 0 of its job is not on this node", nil
	}
	u, err := s.Unit(cmd.Context(), j, 0, n)
	if err != nil {
		return "found", "", err
	}
	if u.Runtime != f.Runtime {
		return "found", "its job has another runtime", nil
	}
	r, err := o.runtimes(s).Open(u.Runtime)
	if err == nil {
		err = r.Adopt(cmd.Context(), m, u, f.Name)
	}
	if croft.KindOf(err) == croft.Conflict {
		return "found", err.Error(), nil
	}
	return "marked", "", err
}

// tellAdopted prints the units found before an error, if any, and returns the error.
func (o *options) tellAdopted(cmd *cobra.Command, rows []adopted, err error) error {
	if err != nil && len(rows) == 0 {
		return err
	}
	return errors.Join(o.printAdopted(cmd, rows), err)
}

func (o *options) printAdopted(cmd *cobra.Command, rows []adopted) error {
	if asData, err := o.data(); err != nil || asData {
		if err != nil {
			return err
		}
		return out.PrintData(cmd.OutOrStdout(), o.output, rows)
	}
	t := &out.Table{Color: out.IsColored(cmd.OutOrStdout())}
	t.Head("RUNTIME", "NAME", "JOB", "")
	for _, r := range rows {
		t.Texts(r.Runtime, r.Name, r.File, r.Done)
	}
	if len(rows) > 0 {
		if err := t.Print(cmd.OutOrStdout()); err != nil {
			return err
		}
	}
	for _, r := range rows {
		if r.Why != "" {
			say(cmd, "%s: %s", r.Name, r.Why)
		}
		for _, not := range r.Not {
			say(cmd, "%s: not expressed: %s", r.Name, not)
		}
	}
	if len(rows) == 0 {
		say(cmd, "there is nothing to adopt")
	}
	return nil
}
