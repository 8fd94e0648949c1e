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
	"croft/cli/out"
	"croft/schedule"
)

// showCommand shows instances, those too that have the name of a subcommand.
func showCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show UUID|NAME...",
		Short: "Show the address of an instance, or with -o everything",
		Long: `show prints the address of an instance, or with -o table, json or yaml all that is
known of it: the record, the order, what its host last saw, the host.`,
		Args:              args.Count(1, -1),
		ValidArgsFunction: args.CompleteInstances(-1),
		RunE:              show,
	}
	args.AddWaitFlags(cmd.Flags(), "the instance runs and has an address")
	return cmd
}

func show(cmd *cobra.Command, args []string) error {
	return within(cmd, func(ctx context.Context, c *session) error {
		var all []croft.Status
		var errs []error
		for _, arg := range args {
			st, err := c.look(ctx, cmd, arg)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			all = append(all, st)
		}
		if c.Settings.Output == out.FormatText {
			errs = append(errs, printAddresses(cmd, all))
		} else if len(all) > 0 {
			errs = append(errs, printStatuses(cmd, c.Settings.Output, all, len(args) > 1))
		}
		return errors.Join(errs...)
	})
}

// look reads an instance and, where that is asked for, waits until it runs first.
func (c *session) look(ctx context.Context, cmd *cobra.Command, idOrName string) (croft.Status, error) {
	st, err := c.Instance(ctx, idOrName)
	if err != nil || !c.Settings.Wait.Any() {
		return st, err
	}
	if errs := c.wait(ctx, cmd, []croft.Instance{st.Instance}, c.Settings.Wait.Goal()); errs[0] != nil {
		return st, errs[0]
	}
	return c.Instance(ctx, string(st.Instance.ID))
}

// printAddresses prints one address for each instance. An instance without one is
// an error, so that $(schedule web) is never empty unnoticed.
func printAddresses(cmd *cobra.Command, all []croft.Status) error {
	var errs []error
	for _, st := range all {
		if addr := Address(st); addr != "" {
			fmt.Fprintln(cmd.OutOrStdout(), addr)
			continue
		}
		errs = append(errs, noAddress(st))
	}
	return errors.Join(errs...)
}

func noAddress(st croft.Status) error {
	name, state := st.Instance.Name, schedule.Describe(&st)
	if state == schedule.Unknown {
		return croft.Errorf(croft.Unavailable,
			"instance %s has no address: whether it runs cannot be told, since it is on host %s%s", name, st.Host.Name,
			silence(*st.Host))
	}
	if o := st.Observation; o != nil && o.State == croft.StateFailed {
		return fmt.Errorf("instance %s has no address: it failed: %s", name, o.Error)
	}
	if state == string(croft.StateStopped) {
		return fmt.Errorf("instance %s has no address: it is stopped; `schedule start %s` boots it", name, name)
	}
	return fmt.Errorf("instance %s has no address yet: it is %s; with --wait this waits for one", name, state)
}

// silence says in a clause that nothing is heard of a host, and since when; nothing of
// one that is alive.
func silence(h croft.Host) string {
	if h.Alive {
		return ""
	}
	return ", which is silent" + Since(h)
}

// Address is schedule.Address.
func Address(st croft.Status) string { return schedule.Address(&st) }

// printStatuses prints all about instances in a format other than text.
func printStatuses(cmd *cobra.Command, format string, all []croft.Status, list bool) error {
	if out.IsTable(format) || format == out.FormatText {
		for i, st := range all {
			if i > 0 {
				fmt.Fprintln(cmd.OutOrStdout())
			}
			t := details(st)
			t.Color = out.IsColored(cmd.OutOrStdout())
			if err := t.Print(cmd.OutOrStdout()); err != nil {
				return err
			}
		}
		return nil
	}
	data := Printable(all)
	if list {
		return out.PrintData(cmd.OutOrStdout(), format, data)
	}
	return out.PrintData(cmd.OutOrStdout(), format, data[0])
}

// details is everything about an instance, for people.
func details(st croft.Status) *out.Table {
	t := &out.Table{}
	add := func(name, value string) {
		if value != "" {
			t.Row(out.Cell{Text: name, Color: out.Bold}, out.Cell{Text: value})
		}
	}
	inst := st.Instance
	add("instance", string(inst.ID))
	add("name", inst.Name)
	add("project", string(inst.Project))
	t.Row(out.Cell{Text: "state", Color: out.Bold}, state(st))
	if o := st.Observation; o != nil {
		add("error", o.Error)
		if o.Ended != "" {
			add("ended", fmt.Sprintf("%s; `schedule start %s` boots it", o.Ended, inst.Name))
		}
		add("addresses", joined(o.Addresses))
		add("mac", o.MAC)
		add("set-up", setUp(o.CloudInit))
	}
	if h := st.Host; h != nil {
		add("host", h.Name+" "+string(h.ID)+silence(*h))
		add("hypervisor", h.VirtType)
		add("location", h.Location)
	}
	add("resources", inst.Spec.Resources.String())
	add("image", inst.Spec.Image)
	for _, key := range inst.Spec.Keys {
		add("key", shortKey(key))
	}
	if n := len(inst.Spec.UserData); n > 0 {
		add("user-data", fmt.Sprintf("%d bytes", n))
	}
	add("restart", string(cmp.Or(inst.Spec.Restart, croft.RestartOnFailure)))
	add("metadata", string(inst.Spec.Metadata))
	add("imds", string(inst.Spec.IMDS))
	for _, key := range slices.Sorted(maps.Keys(inst.Spec.Tags)) {
		add("tag", key+"="+inst.Spec.Tags[key])
	}
	add("generation", fmt.Sprint(inst.Generation))
	if inst.Spec.Ephemeral {
		add("ephemeral", "yes")
	}
	for _, affinity := range inst.Spec.Affinities {
		add("group", affinity.String())
	}
	add("networks", strings.Join(inst.Spec.Networks, ", "))
	add("host key", printableSpec(inst.Spec).HostKey)
	add("created", inst.Created.Format(time.RFC3339))
	timeline(t, st)
	return t
}

// setUp says in words how the guest's own set-up ended, if it has told.
func setUp(told *croft.CloudInit) string {
	switch {
	case told == nil:
		return ""
	case told.State == croft.CloudInitFailed:
		return fmt.Sprintf("failed, says the guest: %s", told.Error)
	}
	return string(told.State) + ", says the guest"
}

func joined(addrs []netip.Addr) string {
	var texts []string
	for _, a := range addrs {
		texts = append(texts, a.String())
	}
	return strings.Join(texts, ", ")
}

// shortKey leaves out the middle of a key that nobody reads.
func shortKey(key string) string {
	words := strings.Fields(key)
	for i, word := range words {
		if len(word) > 40 {
			words[i] = word[:12] + "..." + word[len(word)-12:]
		}
	}
	return strings.Join(words, " ")
}

// state is the word for where an instance stands, in its color.
func state(st croft.Status) out.Cell { return StateCell(schedule.Describe(&st)) }

func StateCell(word string) out.Cell {
	switch croft.State(word) {
	case croft.StateRunning:
		return out.Cell{Text: word, Color: out.Green}
	case croft.StateFailed, schedule.Unknown:
		return out.Cell{Text: word, Color: out.Red}
	case croft.StateStopped:
		return out.Cell{Text: word}
	}
	return out.Cell{Text: word, Color: out.Yellow}
}

// Since says when a silent host was last heard of.
func Since(h croft.Host) string {
	if h.Seen.IsZero() {
		return ""
	}
	return " since " + h.Seen.Local().Format(time.DateTime)
}
