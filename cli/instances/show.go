package instances

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/control/api"
	"croft/internal/out"
	"croft/internal/wording"
)

// showCommand returns the command that shows instances, even instances with the name of a subcommand.
func showCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show UUID|NAME...",
		Short: "Show the address of an instance, or with -o everything",
		Long: `show prints the address of an instance, or with -o table, json or yaml everything about
it: its record, its order, its host, and the state that the host last reported.`,
		ValidArgsFunction: args.CompleteInstances(-1),
		RunE:              show,
	}
	args.AddWaitFlags(cmd.Flags(), "the instance runs and has an address")
	return cmd
}

func show(cmd *cobra.Command, args []string) error {
	return within(cmd, func(ctx context.Context, c *session) error {
		var all []api.Instance
		var errs []error
		for _, arg := range args {
			i, err := c.look(ctx, cmd, arg)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			all = append(all, i)
		}
		if c.Settings.Output == out.FormatText {
			errs = append(errs, printAddresses(cmd, all))
		} else if len(all) > 0 {
			errs = append(errs, printFull(cmd, c.Settings.Output, all, len(args) > 1))
		}
		return errors.Join(errs...)
	})
}

// printAddresses prints one address per instance. An instance without one is an error, so that $(schedule web) is
// never silently empty.
func printAddresses(cmd *cobra.Command, all []api.Instance) error {
	var errs []error
	for _, i := range all {
		if i.Address != "" {
			fmt.Fprintln(cmd.OutOrStdout(), i.Address)
			continue
		}
		errs = append(errs, noAddress(i))
	}
	return errors.Join(errs...)
}

// printFull prints everything about instances in a format other than text.
func printFull(cmd *cobra.Command, format string, all []api.Instance, list bool) error {
	if out.IsTable(format) || format == out.FormatText {
		for n, i := range all {
			if n > 0 {
				fmt.Fprintln(cmd.OutOrStdout())
			}
			t := details(i)
			t.Color = out.IsColored(cmd.OutOrStdout())
			if err := t.Print(cmd.OutOrStdout()); err != nil {
				return err
			}
		}
		return nil
	}
	if list {
		return out.PrintData(cmd.OutOrStdout(), format, all)
	}
	return out.PrintData(cmd.OutOrStdout(), format, all[0])
}

// details returns a table of everything about an instance.
func details(i api.Instance) *out.Table {
	t := &out.Table{}
	add := func(name, value string) {
		if value != "" {
			t.Row(out.Cell{Text: name, Color: out.Bold}, out.Cell{Text: value})
		}
	}
	add("instance", string(i.ID))
	add("name", i.Name)
	add("project", string(i.Project))
	add("cluster", string(i.Cluster))
	t.Row(out.Cell{Text: "state", Color: out.Bold}, StateCell(i.State))
	if i.Lost == nil {
		add("error", i.Error)
	}
	add("no address", lateAddress(i))
	add("moving to", string(i.MovingTo))
	add("not moved", i.Unmoved)
	if i.Ended != "" {
		add("ended", fmt.Sprintf("%s; `schedule start %s` boots it", i.Ended, i.Name))
	}
	add("addresses", joined(i.Addresses))
	add("mac", i.MAC)
	add("set-up", setUp(i.CloudInit))
	if l := i.Lost; l != nil {
		where := ""
		if l.HostName != "" {
			where = fmt.Sprintf(" with host %s %s", l.HostName, l.Host)
		}
		add("lost", fmt.Sprintf("%s%s: %s", l.At.Local().Format(time.DateTime), where, l.Reason))
		add("to have it again", again(i))
	}
	if i.HostAlive != nil {
		add("host", i.Host+" "+string(i.HostID)+silence(i))
		add("hypervisor", i.Hypervisor)
		add("location", i.Location)
	}
	add("resources", i.Resources.String())
	add("size", i.Size)
	add("image", i.Image)
	if i.ImageURL != i.Image {
		add("image url", i.ImageURL)
	}
	for _, key := range i.Keys {
		add("key", shortKey(key))
	}
	if n := len(i.UserData); n > 0 {
		add("user-data", fmt.Sprintf("%d bytes", n))
	}
	add("restart", string(cmp.Or(i.Restart, croft.RestartOnFailure)))
	add("metadata", string(i.Metadata))
	add("imds", string(i.IMDS))
	for _, key := range slices.Sorted(maps.Keys(i.Tags)) {
		add("tag", key+"="+i.Tags[key])
	}
	for _, key := range slices.Sorted(maps.Keys(i.Labels)) {
		add("label", key+"="+i.Labels[key].String())
	}
	if i.Protected {
		add("protected", fmt.Sprintf("yes; `schedule protect --off %s` ends it", i.Name))
	}
	add("generation", fmt.Sprint(i.Generation))
	if storage := cmp.Or(i.OnStorage, i.Storage); storage != "" {
		add("storage", storage)
	}
	add("machine", i.Machine.String())
	if i.Ejected {
		add("CD drive", "empty: the ISO is ejected")
	}
	if i.Ephemeral {
		add("ephemeral", "yes")
	}
	for _, affinity := range i.Affinities {
		add("group", affinity.String())
	}
	for _, bound := range i.In {
		add("placed", bound.String())
	}
	if len(i.Where) > 0 {
		add("placed", "where "+strings.Join(i.Where, " or "))
	}
	for _, filter := range i.WhereNot {
		add("placed", "not where "+filter)
	}
	if i.Policy != "" {
		add("policy", fmt.Sprintf("%s, generation %d", i.Policy, i.PolicyGeneration))
	}
	for _, r := range i.Refused {
		add("refused", string(r.Host)+": "+r.Why)
	}
	for _, near := range i.Near {
		word, text, _ := strings.Cut(near.String(), " ")
		if near.Location != near.To || !near.Aggregate {
			text += ", at " + near.Location
		}
		add(word, text)
	}
	add("chosen address", i.FixedAddress)
	add("networks", strings.Join(i.Networks, ", "))
	add("volumes", strings.Join(i.Volumes, ", "))
	add("open ports", strings.Join(i.Open, ", "))
	add("host key", i.HostKey)
	for _, p := range i.Peers {
		add("peer", p.Address+" "+p.Name)
	}
	add("created", i.Created.Format(time.RFC3339))
	if !i.Expires.IsZero() {
		text := i.Expires.Format(time.RFC3339) + ", " + remaining(i.Expires)
		if expiresSoon(i.Expires) {
			text += fmt.Sprintf("; `schedule keep %s` prolongs it", i.Name)
		}
		add("expires", text)
	}
	timeline(t, i)
	return t
}

// setUp describes how the guest's own set-up ended, if it has reported.
func setUp(c *croft.CloudInit) string {
	switch {
	case c == nil:
		return ""
	case c.Earlier:
		return string(c.State) + " before the last start, says the guest; it has not reported since"
	case c.State == croft.CloudInitFailed:
		return fmt.Sprintf("the guest reports a failure: %s", c.Error)
	}
	return string(c.State) + ", says the guest"
}

func joined(addrs []netip.Addr) string {
	var texts []string
	for _, a := range addrs {
		texts = append(texts, a.String())
	}
	return strings.Join(texts, ", ")
}

// shortKey omits the middle of a key, which is of no interest.
func shortKey(key string) string {
	words := strings.Fields(key)
	for i, word := range words {
		if len(word) > 40 {
			words[i] = word[:12] + "..." + word[len(word)-12:]
		}
	}
	return strings.Join(words, " ")
}

// timeline adds to the details when the instance completed each step, how long the step took, and the time since the
// first.
func timeline(t *out.Table, i api.Instance) {
	if len(i.Events) == 0 {
		return
	}
	events := i.Events
	if c := i.CloudInit; c != nil && !c.At.Before(events[len(events)-1].At) {
		events = append(events[:len(events):len(events)],
			croft.Event{Name: croft.EventName("cloud-init " + string(c.State)), At: c.At})
	}
	for i, e := range events {
		text := e.At.Format(time.RFC3339)
		if i > 0 {
			text += fmt.Sprintf(" +%s, %s in all", wording.Exact(round(e.At.Sub(events[i-1].At))),
				wording.Exact(round(e.At.Sub(events[0].At))))
		}
		t.Row(out.Cell{Text: string(e.Name), Color: out.Bold}, out.Cell{Text: text})
	}
}

// round rounds a duration for display.
func round(d time.Duration) time.Duration {
	if d < 10*time.Second {
		return d.Round(10 * time.Millisecond)
	}
	return d.Round(100 * time.Millisecond)
}

// again returns the commands by which a lost instance runs again.
func again(i api.Instance) string {
	recreate := fmt.Sprintf("`schedule recreate %s` makes it a new disk from its image", i.Name)
	if i.OnStorage != "" {
		recreate = fmt.Sprintf("`schedule recreate %s` starts it on another host", i.Name)
	}
	if i.LastBackup == "" {
		return recreate
	}
	return fmt.Sprintf("`croft backup restore %s --in-place` restores its last backup; %s", i.LastBackup, recreate)
}
