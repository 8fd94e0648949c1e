package clusters

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cli/verb"
	"croft/cluster"
	"croft/control/api"
	"croft/internal/command"
	"croft/internal/out"
)

// changes changes a cluster, and waits until that is done.
func changes(cmd *cobra.Command, w *waiting, name, doing string, change func(context.Context, *args.Client) (
	api.Cluster, error)) error {
	return args.With(cmd, func(ctx context.Context, c *args.Client) error {
		asking, cancel := context.WithTimeout(ctx, args.AnswerTimeout)
		defer cancel()
		have, err := change(asking, c)
		if err != nil {
			return nearCluster(asking, c, name, chosen(cmd, c, err))
		}
		w.resizes = true
		return w.finish(ctx, cmd, c, have, doing)
	})
}

func setCommand() *cobra.Command {
	var name string
	var idle, expires cluster.Seconds
	cmd := &cobra.Command{
		Use:               "set UUID|NAME",
		Short:             "Change a cluster's name, or when it is deleted",
		ValidArgsFunction: clusters.Complete(1),
	}
	f := cmd.Flags()
	f.StringVar(&name, "name", "", "its new `name`")
	command.DurationVar(f, &idle, "keep-idle", 0, "delete it once it had no use for this `time`; 0: keep it")
	command.DurationVar(f, &expires, "expires", 0, "delete it after this `time` from now on, even while it is used; "+
		"0: never")
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		change := cluster.Change{Name: verb.Given(f, "name", &name), KeepIdle: verb.Given(f, "keep-idle", &idle),
			Expires: verb.Given(f, "expires", &expires)}
		if change == (cluster.Change{}) {
			return croft.Errorf(croft.Invalid, "no change is given: give --name, --keep-idle or --expires")
		}
		if err := cluster.CheckPeriods(idle, expires); err != nil {
			return err
		}
		return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
			have, err := c.ChangeCluster(ctx, api.ClusterChange{ClusterNamed: named(c, given[0]), Change: change})
			if err != nil {
				return nearCluster(ctx, c, given[0], err)
			}
			return c.Report(have, "cluster %s is changed", have.Name)
		})
	}
	return cmd
}

func resizeCommand() *cobra.Command {
	var w waiting
	cmd := &cobra.Command{
		Use:   "resize UUID|NAME SLAVES",
		Short: "Make a cluster larger or smaller, and wait until it is",
		Long: `resize changes how many slaves a cluster has. Remaining slaves keep their addresses; the
last ones are removed first. A cluster that cannot be made larger stays unchanged.`,
		ValidArgsFunction: clusters.Complete(1),
		RunE: func(cmd *cobra.Command, given []string) error {
			slaves, err := strconv.Atoi(given[1])
			if err != nil || slaves < 0 || slaves > cluster.MaxSlaves {
				return croft.Errorf(croft.Invalid, "%.40q is not a number of slaves: use 0 to %d", given[1],
					cluster.MaxSlaves)
			}
			return changes(cmd, &w, given[0], "is resized", func(ctx context.Context, c *args.Client) (api.Cluster,
				error) {
				return c.ChangeCluster(ctx, api.ClusterChange{ClusterNamed: named(c, given[0]),
					Change: cluster.Change{Slaves: &slaves}})
			})
		},
	}
	w.flags(cmd)
	return cmd
}

func growCommand() *cobra.Command {
	var w waiting
	cmd := &cobra.Command{
		Use:               "grow UUID|NAME",
		Short:             "Make a cluster larger by one slave, and wait until it is",
		ValidArgsFunction: clusters.Complete(1),
		RunE: func(cmd *cobra.Command, given []string) error {
			return changes(cmd, &w, given[0], "grows", func(ctx context.Context, c *args.Client) (api.Cluster,
				error) {
				return c.AddClusterHost(ctx, named(c, given[0]))
			})
		},
	}
	w.flags(cmd)
	return cmd
}

func shrinkCommand() *cobra.Command {
	var w waiting
	cmd := &cobra.Command{
		Use:   "shrink UUID|NAME [HOST]",
		Short: "Make a cluster smaller by one slave, and wait until it is",
		Long: `shrink removes a slave: the last one, or the one with this UUID or name, such as slave-0. The
others stay as they are.`,
		ValidArgsFunction: completeHosts,
		RunE: func(cmd *cobra.Command, given []string) error {
			host := "last"
			if len(given) == 2 {
				host = given[1]
			}
			return changes(cmd, &w, given[0], "shrinks", func(ctx context.Context, c *args.Client) (api.Cluster,
				error) {
				have, err := find(ctx, c, given[0])
				if err != nil {
					return have, err
				}
				for _, m := range have.Members {
					if host == memberName(m) {
						host = string(m.ID)
					}
				}
				return c.RemoveClusterHost(ctx, api.ClusterHostNamed{ClusterNamed: nameOf(have), Host: host})
			})
		},
	}
	w.flags(cmd)
	return cmd
}

// completeHosts completes a cluster, then one of its hosts.
func completeHosts(cmd *cobra.Command, given []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(given) == 0 {
		return clusters.Complete(1)(cmd, given, prefix)
	}
	if len(given) > 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return args.StoredNames(cmd, nil, prefix, func(ctx context.Context, c *args.Client, offer args.Offer) error {
		have, err := c.FindCluster(ctx, api.ClusterAwaited{ClusterNamed: named(c, given[0])})
		for _, m := range have.Members {
			offer(m.Name, memberWords(m))
		}
		return err
	}), cobra.ShellCompDirectiveNoFileComp
}

func removeCommand() *cobra.Command {
	var r api.ClusterRemoval
	var w waiting
	cmd := &cobra.Command{
		Use:   "remove UUID|NAME...",
		Short: "Delete clusters with all of their hosts, and wait until they are gone",
		Long: `remove removes clusters in any state. The removal is recorded at once, and carried out
when the site permits: a cluster at a site that does not answer stays in the state
DELETING until it does. --abandon removes only the record of such a cluster; its
machines stay at the site.`,
		ValidArgsFunction: clusters.Complete(-1),
		RunE: func(cmd *cobra.Command, given []string) error {
			return args.With(cmd, func(ctx context.Context, c *args.Client) error {
				check := func(name string) error {
					return verb.Within(ctx, func(ctx context.Context) error {
						_, err := find(ctx, c, name)
						return err
					})
				}
				return verb.Each(given, check, func(name string) error { return remove(ctx, cmd, c, name, r, &w) })
			})
		},
	}
	cmd.Flags().BoolVar(&r.Force, "force", false, "although others use it")
	cmd.Flags().BoolVar(&r.Abandon, "abandon", false, "remove only the record: its machines stay at the site")
	w.flags(cmd)
	return cmd
}

func remove(ctx context.Context, cmd *cobra.Command, c *args.Client, name string, r api.ClusterRemoval,
	w *waiting) error {
	asking, cancel := context.WithTimeout(ctx, args.AnswerTimeout)
	defer cancel()
	r.ClusterNamed = named(c, name)
	have, err := c.DeleteCluster(asking, r)
	if err != nil {
		return nearCluster(asking, c, name, err)
	}
	if !w.not {
		if have, err = w.wait(ctx, cmd, c, have, "is deleted"); err != nil && !errors.Is(err, croft.NotFound) {
			return err
		}
	}
	if c.WantsData() {
		return c.PrintData(have)
	}
	switch {
	case have.Abandoned && have.Remote.Asked:
		fmt.Fprintf(cmd.ErrOrStderr(), "cluster %s is removed; at site %s stays %s\n", have.Name, have.Site,
			have.Remote.Name)
	case have.State == cluster.Deleted || err != nil:
		fmt.Fprintf(cmd.ErrOrStderr(), "cluster %s is gone\n", name)
	default:
		fmt.Fprintf(cmd.ErrOrStderr(), "cluster %s is being deleted\n", have.Name)
	}
	return nil
}

func useCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "use",
		Short: "End uses of clusters",
		Long: `A use means that somebody needs a cluster: each request that it answers creates one. A
cluster without uses is idle, and is deleted after the time that --keep-idle has set.`,
	}
	cmd.AddCommand(&cobra.Command{
		Use:     "remove UUID|NAME [USE]",
		Aliases: []string{"end"},
		Short:   "End a use of a cluster: yours, if you have one, or that with this UUID",
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			have, err := find(ctx, c, c.Args[0])
			if err != nil {
				return err
			}
			use, err := useOf(ctx, c, have, c.Args[1:])
			if err != nil {
				return err
			}
			if err := c.EndUse(ctx, api.UseNamed{ClusterNamed: nameOf(have), Use: use}); err != nil {
				return err
			}
			if have, err = c.FindCluster(ctx, api.ClusterAwaited{ClusterNamed: nameOf(have)}); err != nil {
				return err
			}
			left := "1 use is left"
			if n := len(have.Uses); n != 1 {
				left = fmt.Sprintf("%d uses are left", n)
			}
			return c.Report(have, "cluster %s: %s", have.Name, left)
		}),
		ValidArgsFunction: clusters.Complete(1),
	})
	return cmd
}

// useOf returns the named use, or the user's latest one.
func useOf(ctx context.Context, c *args.Client, have api.Cluster, given []string) (cluster.UseID, error) {
	if len(given) > 0 {
		return cluster.UseID(given[0]), nil
	}
	user, err := c.User(ctx)
	if err != nil {
		return "", err
	}
	var own cluster.UseID
	for _, u := range have.Uses {
		if u.Holder == user {
			own = u.ID
		}
	}
	if own == "" {
		return "", croft.Errorf(croft.NotFound, "cluster %s has no use of yours: name one of croft cluster show",
			have.Name)
	}
	return own, nil
}

func accountCommand() *cobra.Command {
	var forget bool
	cmd := &cobra.Command{
		Use:   "account UUID|NAME",
		Short: "Get your account on the machines of a cluster",
		Long: `account prints the user name and the password of your account on the machines of a
cluster, which the appliance's agent creates at your first call. Nobody else can read
it.`,
		ValidArgsFunction: clusters.Complete(1),
	}
	cmd.Flags().BoolVar(&forget, "forget", false, "forget it; on the machines it stays")
	cmd.RunE = verb.Run(func(ctx context.Context, c *args.Client) error {
		if forget {
			if err := c.RemoveAccount(ctx, named(c, c.Args[0])); err != nil {
				return nearCluster(ctx, c, c.Args[0], err)
			}
			c.Say("the account on cluster %s is removed", c.Args[0])
			return nil
		}
		account, err := c.MakeAccount(ctx, named(c, c.Args[0]))
		if err != nil {
			return nearCluster(ctx, c, c.Args[0], err)
		}
		return c.Print(account, func(t *out.Table) {
			t.Texts("user", account.Username)
			t.Texts("password", account.Password)
		})
	})
	return cmd
}

func outputCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "output UUID|NAME OUTPUT",
		Short: "Print an output of your cluster, also a secret one",
		Long: `output prints the output of this name of a cluster's template. Outputs with password,
secret or token in their names are stored encrypted; only this command prints them, and
only to the user of the cluster. Each read is in the action log and in the events of the
cluster.`,
		Example:           `  croft cluster output web jupyter_token`,
		ValidArgsFunction: clusters.Complete(1),
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			o, err := c.ReadOutput(ctx, api.OutputNamed{ClusterNamed: named(c, c.Args[0]), Output: c.Args[1]})
			if err != nil {
				return nearCluster(ctx, c, c.Args[0], err)
			}
			if c.WantsData() {
				return c.PrintData(o)
			}
			text, is := o.Value.(string)
			if !is {
				encoded, err := json.Marshal(o.Value)
				if err != nil {
					return err
				}
				text = string(encoded)
			}
			_, err = fmt.Fprintln(c.Cmd.OutOrStdout(), text)
			return err
		}),
	}
}
