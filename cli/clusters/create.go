package clusters

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cli/verb"
	"croft/cluster"
	"croft/control/api"
	"croft/internal/command"
	"croft/internal/out"
	"croft/schedule/sshkeys"
)

// asking is a request for a cluster and its flags.
type asking struct {
	api.ClusterCandidates
	parameters      []string
	file            string
	implementations []string
	keys            []string
	lookedFor       []string // settings of keys that the request was made with
	noReuse         bool
}

// flags adds the flags of a request.
func (a *asking) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.IntVar(&a.Slaves, "slaves", 0, "how many hosts in addition to the master (`number`)")
	f.StringSliceVar(&a.Hints.Sites, "site", nil, "build it at this `site`; repeat for more to choose from")
	f.StringSliceVar(&a.Hints.ExcludeSites, "exclude-site", nil, "not at this `site`; repeat for more")
	f.StringSliceVar(&a.Hints.PreferSites, "prefer-site", nil, "at this `site` if it can; repeat for more, best first")
	f.StringSliceVar(&a.Hints.Credentials, "credential", nil, "with this `credential` of yours; repeat for more")
	f.StringSliceVar(&a.implementations, "implementation", nil, "by this implementation (`UUID`); repeat for more")
	f.StringArrayVar(&a.parameters, "parameter", nil, "`name=value` for the template; repeat for more")
	f.StringVar(&a.file, "parameters", "", "`file` with parameters in YAML, such as secret ones; - reads stdin")
	f.StringArrayVar(&a.keys, "key", nil, "public SSH `key` that may log in to its hosts: a file, a pattern of files, the "+
		"name of one that croft key list shows, agent, or the key itself; repeat for more (keys)")
	f.BoolVar(&a.noReuse, "no-reuse", false, "always create a new one, even if you have a suitable one")
	command.DurationVar(f, &a.KeepIdle, "keep-idle", 0, "delete it once it had no use for this `time` (keep it)")
	command.DurationVar(f, &a.Expires, "expires", 0, "delete it after this `time`, even while it is used (never)")
	f.StringVar((*string)(&a.ID), "id", "", "its `UUID`, so that the same request can be sent again (a random one)")
	for _, flag := range []string{"site", "exclude-site", "prefer-site"} {
		_ = cmd.RegisterFlagCompletionFunc(flag, sites.Complete(-1)) // the flag was defined above
	}
	_ = cmd.RegisterFlagCompletionFunc("credential", credentials.Complete(-1)) // this one too
}

// request returns the request that the arguments and flags describe. Invalid.
func (a *asking) request(ctx context.Context, cmd *cobra.Command, c *args.Client, given []string) (
	api.ClusterCandidates, error) {
	r := a.ClusterCandidates
	r.Name, r.Appliance, r.Project = given[0], given[1], c.Project
	if err := cluster.CheckPeriods(r.KeepIdle, r.Expires); err != nil {
		return r, err
	}
	for _, id := range a.implementations {
		r.Hints.Implementations = append(r.Hints.Implementations, cluster.ImplementationID(id))
	}
	if a.noReuse {
		r.Reuse = cluster.ReuseNever
	}
	var err error
	if r.Parameters, err = parameters(cmd.InOrStdin(), a.file, a.parameters); err != nil {
		return r, err
	}
	texts := c.Settings.Keys
	if cmd.Flags().Changed("key") {
		texts = a.keys
	}
	var names []string
	a.lookedFor = texts
	if a.Keys, names, err = sshkeys.Read(texts); err != nil {
		return r, err
	}
	stored, err := c.StoredKeys(ctx, names)
	if err != nil {
		return r, err
	}
	a.Keys = slices.Concat(a.Keys, stored)
	r.Keys = a.Keys
	return r, nil
}

func createCommand() *cobra.Command {
	var a asking
	var w waiting
	cmd := &cobra.Command{
		Use:   "create NAME APPLIANCE [--slaves N]",
		Short: "Ask for a cluster, and wait until it is ready",
		Long: `create asks for a cluster of an appliance, waits until it is ready, and prints the address
of its master. You get the cluster that you have of the same appliance and parameters, if
it is large enough: then NAME is ignored, and the name of the existing cluster is printed
(--no-reuse: a new one). Several requests at once get one cluster.

If a build fails, another site is tried, three at most, unless --site names one. If the
command is interrupted, the build continues; --no-wait prints the UUID of the cluster at
once.`,
		Example: `  croft cluster create web slurm --slaves 3
  croft cluster create web slurm --slaves 1 --site local --keep-idle 2h --expires 24h
  croft cluster create web slurm --slaves 3 --prefer-site lab --parameters secrets.yaml`,
		ValidArgsFunction: completeNameAppliance,
		RunE: func(cmd *cobra.Command, given []string) error {
			return args.With(cmd, func(ctx context.Context, c *args.Client) error {
				made, err := create(ctx, cmd, c, &a, given)
				if err != nil {
					return err
				}
				if made.Reused {
					joined(cmd.ErrOrStderr(), made, a.Keys)
				} else {
					args.WarnKeyless(cmd.ErrOrStderr(), a.lookedFor, a.Keys, nil)
				}
				return w.finish(ctx, cmd, c, made, "is built")
			})
		},
	}
	a.flags(cmd)
	w.flags(cmd)
	return cmd
}

// joined reports that an existing cluster is used. Its hosts may only know the keys of an earlier request.
func joined(w io.Writer, have api.Cluster, keys []string) {
	fmt.Fprintf(w, "using the existing cluster %s, which is %s\n", have.Name, have.State)
	known := func(key string) bool { return slices.Contains(have.Keys, key) }
	if len(keys) > 0 && !slices.ContainsFunc(keys, known) {
		fmt.Fprintln(w, "its hosts do not have your SSH key: log in with a key of the original request, or request "+
			"another cluster with --no-reuse")
	}
}

func create(ctx context.Context, cmd *cobra.Command, c *args.Client, a *asking, given []string) (api.Cluster,
	error) {
	ctx, cancel := context.WithTimeout(ctx, 2*args.AnswerTimeout) // sites are also asked for their free capacity
	defer cancel()
	r, err := a.request(ctx, cmd, c, given)
	if err != nil {
		return api.Cluster{}, err
	}
	made, err := c.CreateCluster(ctx, api.NewCluster{InProject: r.InProject, Spec: r.Spec})
	return made, appliances.Near(ctx, c, r.Appliance, chosen(cmd, c, err))
}

// chosen prints a table of the reasons why no site can build a cluster, and returns a shorter error.
func chosen(cmd *cobra.Command, c *args.Client, err error) error {
	why, is := errors.AsType[*cluster.ChoiceError](err)
	if !is || len(why.Dropped) < 2 || c.WantsData() {
		return err
	}
	t := out.Table{Color: out.IsColored(cmd.ErrOrStderr())}
	droppedRows(&t, why.Dropped)
	fmt.Fprint(cmd.ErrOrStderr(), t.String())
	return croft.Errorf(croft.NoCapacity, "no site can build this cluster")
}

func droppedRows(t *out.Table, dropped []cluster.Dropped) {
	t.Head("SITE", "WHY NOT")
	for _, d := range dropped {
		t.Texts(d.Site, d.Reason)
	}
}

func explainCommand() *cobra.Command {
	var a asking
	cmd := &cobra.Command{
		Use:   "explain NAME APPLIANCE [--slaves N]",
		Short: "Say where a cluster would be built, and why not elsewhere",
		Long: `explain creates nothing: it prints the sites that could build a cluster, best first,
with the reason for their order, and the sites that could not, with the reason. If the
quota of the project refuses the cluster, that comes first. It exits with 4 if the
cluster could not be built now.`,
		ValidArgsFunction: completeNameAppliance,
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			r, err := a.request(ctx, c.Cmd, c, c.Args)
			if err != nil {
				return err
			}
			why, err := c.ExplainCluster(ctx, r)
			if err != nil {
				return appliances.Near(ctx, c, r.Appliance, err)
			}
			if err := printExplanation(c.Cmd, c, why); err != nil {
				return err
			}
			switch {
			case why.Reuse != "":
				return nil
			case why.Quota != "":
				return croft.Errorf(croft.OverQuota, "the quota refuses this cluster")
			case len(why.Candidates) == 0:
				return croft.Errorf(croft.NoCapacity, "no site can build this cluster")
			}
			return nil
		}),
	}
	a.flags(cmd)
	return cmd
}

func printExplanation(cmd *cobra.Command, c *args.Client, why cluster.Explanation) error {
	why.Candidates = append([]cluster.Choice{}, why.Candidates...)
	why.Dropped = append([]cluster.Dropped{}, why.Dropped...)
	if c.WantsData() {
		return c.PrintData(why)
	}
	if why.Reuse != "" {
		fmt.Fprintf(cmd.OutOrStdout(), "cluster %s exists and would be used\n", why.Reuse)
	}
	if why.Quota != "" {
		fmt.Fprintln(cmd.OutOrStdout(), why.Quota)
	}
	t := out.Table{Color: out.IsColored(cmd.OutOrStdout())}
	if len(why.Candidates) > 0 {
		t.Head("SITE", "REVISION", "CREDENTIAL", "ROOM", "WHY")
	}
	for _, one := range why.Candidates {
		t.Texts(one.Site, fmt.Sprint(one.Revision), out.OrDash(one.Credential), one.Capacity, one.Why)
	}
	if err := t.Print(cmd.OutOrStdout()); err != nil || len(why.Dropped) == 0 {
		return err
	}
	t = out.Table{Color: out.IsColored(cmd.OutOrStdout())}
	droppedRows(&t, why.Dropped)
	return t.Print(cmd.OutOrStdout())
}

// completeNameAppliance completes the second argument.
func completeNameAppliance(cmd *cobra.Command, given []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(given) != 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return args.StoredNames(cmd, nil, prefix, appliances.Offer), cobra.ShellCompDirectiveNoFileComp
}
