package clusters

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cli/verb"
	"croft/cluster"
	"croft/control/api"
	"croft/internal/nearest"
	"croft/internal/out"
	"croft/internal/wording"
)

// show prints everything about a cluster that matters to users.
func show(cmd *cobra.Command, c *args.Client, have api.Cluster) error {
	return c.Print(have, func(t *out.Table) {
		rows(t, have)
		for _, m := range have.Members {
			t.Texts("host "+memberName(m), memberWords(m))
		}
		for _, u := range have.Uses {
			t.Texts("use "+string(u.ID), "of "+u.Holder+" since "+moment(u.Since))
		}
		for _, a := range have.Attempts {
			t.Texts("failed before", "at site "+a.Site+": "+a.Error)
		}
		for _, d := range have.Why {
			t.Texts("not at "+d.Site, d.Reason)
		}
		for _, name := range slices.Sorted(maps.Keys(have.Outputs)) {
			if name != "master_ip" && name != "hosts" { // printed above
				t.Texts("output "+name, inLine(have.Outputs[name]))
			}
		}
		for _, name := range have.SecretOutputs {
			t.Texts("output "+name, "secret; its user reads it with croft cluster output "+have.Name+" "+name)
		}
	})
}

// readSecretOutputs adds the secret outputs of a cluster to the other outputs if the caller is its user. The server
// logs each read. It leaves out unreadable outputs with a warning.
func readSecretOutputs(ctx context.Context, cmd *cobra.Command, c *args.Client, have *api.Cluster) error {
	names := have.SecretOutputs
	if len(names) == 0 || have.State == cluster.Deleted {
		return nil
	}
	user, err := c.User(ctx)
	if err != nil || user != have.User {
		return err
	}
	all := map[string]any{}
	maps.Copy(all, have.Outputs)
	for _, name := range names {
		read, err := c.ReadOutput(ctx, api.OutputNamed{ClusterNamed: nameOf(*have), Output: name})
		if err != nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "secret output %s is left out: %v\n", name, err)
			continue
		}
		all[name] = read.Value
	}
	have.Outputs = all
	return nil
}

// inLine returns a text unchanged, and other values as JSON.
func inLine(value any) string {
	if text, is := value.(string); is {
		return text
	}
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(text)
}

// rows adds the general properties of a cluster.
func rows(t *out.Table, have api.Cluster) {
	t.Texts("name", have.Name)
	t.Texts("id", string(have.ID))
	t.Row(out.Cell{Text: "state"}, state(have.State))
	built := have.Appliance
	if have.Revision > 0 {
		built += ", revision " + strconv.Itoa(have.Revision)
	}
	t.Texts("appliance", built)
	t.Texts("site", out.OrDash(have.Site))
	t.Texts("user", have.User+" in project "+string(have.Project))
	t.Texts("slaves", strconv.Itoa(have.Slaves))
	for _, row := range [][2]string{{"master", have.MasterIP}, {"what now", have.Step},
		{"until", moment(have.Deadline)}, {"expires", moment(have.Expires)}, {"idle since", moment(have.IdleSince)},
		{"ended", moment(have.Ended)}} {
		if row[1] != "" {
			t.Texts(row[0], row[1])
		}
	}
	if have.KeepIdle > 0 {
		t.Texts("kept idle for", wording.Duration(time.Duration(have.KeepIdle)))
	}
	if have.Error != nil {
		t.Row(out.Cell{Text: "error"}, out.Cell{Text: have.Error.Message, Color: out.Red})
	}
	if have.Abandoned {
		t.Texts("abandoned", "what is left of it at site "+have.Site+" stays: "+have.Remote.Name)
	}
}

// moment formats a time; the zero time gives an empty text.
func moment(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.Local().Format(time.DateTime)
}

// memberName returns the role of a host, with its index.
func memberName(m cluster.Member) string {
	if m.Role == cluster.Master {
		return string(m.Role)
	}
	return string(m.Role) + "-" + strconv.Itoa(m.Index)
}

// memberWords describes how far a host is.
func memberWords(m cluster.Member) string {
	words := []string{strings.ToLower(string(m.State))}
	if m.Step != "" && m.State != cluster.MemberReady {
		words = append(words, m.Step)
	}
	for _, word := range []string{m.Address, m.Error} {
		if word != "" {
			words = append(words, word)
		}
	}
	return strings.Join(words, ", ")
}

func eventRows(t *out.Table, all []cluster.Event) {
	t.Head("AT", "STATE", "WHAT")
	for _, e := range all {
		what := e.Message
		if e.Console != "" {
			what += " (its console is kept: --console)"
		}
		t.Row(out.Cell{Text: moment(e.At)}, state(e.State), out.Cell{Text: what})
	}
}

// printConsoles prints the stored console outputs.
func printConsoles(cmd *cobra.Command, all []cluster.Event) error {
	for _, e := range all {
		if e.Console == "" {
			continue
		}
		fmt.Fprintf(cmd.OutOrStdout(), "\n==> console of %s, %s <==\n", e.Host, moment(e.At))
		if err := out.ShowText(cmd.OutOrStdout(), strings.NewReader(e.Console+"\n")); err != nil {
			return err
		}
	}
	return nil
}

// state returns a state in its color.
func state(s cluster.State) out.Cell {
	colors := map[cluster.State]out.Cell{cluster.Ready: {Color: out.Green}, cluster.Failed: {Color: out.Red},
		cluster.Degraded: {Color: out.Yellow}}
	cell := colors[s]
	cell.Text = string(s)
	return cell
}

// howMany returns how many of the wanted hosts are ready.
func howMany(one api.Cluster) string {
	ready := 0
	for _, m := range one.Members {
		if m.State == cluster.MemberReady {
			ready++
		}
	}
	return fmt.Sprintf("%d/%d", ready, 1+one.Slaves)
}

// now describes the current step or the error of a cluster.
func now(one api.Cluster) string {
	if one.Error != nil && one.State != cluster.Building {
		return one.Error.Message
	}
	return one.Step
}

func listCommand() *cobra.Command {
	var f api.ClusterFilter
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the clusters of the project",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var states []string
			for _, s := range cluster.States {
				states = append(states, string(s))
			}
			f.State = cluster.State(strings.ToUpper(string(f.State)))
			if f.State != "" && !slices.Contains(states, string(f.State)) {
				return croft.Errorf(croft.Invalid, "--state %q is not one of %s%s", f.State, strings.Join(states, ", "),
					nearest.Hint(string(f.State), states))
			}
			return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
				f.Project = c.Project
				list, err := c.ListClusters(ctx, f)
				if err != nil {
					return err
				}
				c.NoteUnknownProject(cmd, len(list.Clusters))
				return clusters.Print(c, list.Clusters)
			})
		},
	}
	cmd.Flags().StringVar((*string)(&f.State), "state", "", "only those in this `state`")
	cmd.Flags().StringVar(&f.Appliance, "appliance", "", "only those of this `appliance`")
	cmd.Flags().StringVar(&f.Site, "site", "", "only those at this `site`")
	return cmd
}

func showCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show UUID|NAME",
		Short: "Show a cluster, its hosts and its uses",
		Long: `show shows a cluster, for 24 hours after its end too, by its UUID. With -o json or yaml it
shows everything, and to the user of the cluster also its secret outputs: each of these reads
is in the action log, as with croft cluster output.`,
		ValidArgsFunction: clusters.Complete(1),
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			have, err := find(ctx, c, c.Args[0])
			if err != nil {
				return err
			}
			if c.WantsData() {
				if err := readSecretOutputs(ctx, c.Cmd, c, &have); err != nil {
					return err
				}
			}
			return show(c.Cmd, c, have)
		}),
	}
}

func eventsCommand() *cobra.Command {
	var consoles bool
	cmd := &cobra.Command{
		Use:   "events UUID|NAME",
		Short: "List what happened to a cluster",
		Long: `events lists what happened to a cluster, oldest first. Of hosts that failed, the ends of
their consoles are kept: --console prints them.`,
		ValidArgsFunction: clusters.Complete(1),
	}
	cmd.Flags().BoolVar(&consoles, "console", false, "print the console output of failed hosts, too")
	cmd.RunE = verb.Run(func(ctx context.Context, c *args.Client) error {
		list, err := c.ListClusterEvents(ctx, named(c, c.Args[0]))
		if err != nil {
			return err
		}
		err = c.Print(list.Events, func(t *out.Table) { eventRows(t, list.Events) })
		if err != nil || !consoles || c.WantsData() {
			return err
		}
		return printConsoles(c.Cmd, list.Events)
	})
	return cmd
}
