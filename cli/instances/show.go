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
	"croft/schedule"
)

// showCommand returns the command that shows instances, even instances with the name of a subcommand.
func showCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show UUID|NAME...",
		Short: "Show the address of an instance, or with -o everything",
		Long: `show prints the address of an instance, or with -o table, json or yaml all that is
known of it: the record, the order, what its host last saw, the host.`,
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

// printAddresses prints one address per instance. An instance without one is an error, so that $(schedule web) is
// never silently empty.
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

// printStatuses prints everything about instances in a format other than text.
func printStatuses(cmd *cobra.Command, format string, all []croft.Status, list bool) error {
	if out.IsTable(format) || format == out.FormatText {
		for i, st := range all {
			if i > 0 {
				fmt.Fprintln(cmd.OutOrStdout())
			}
			t := details(api.InstanceOf(st).Status)
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

// details returns a table of everything about an instance.
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
	add("cluster", string(inst.Cluster))
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
	if l := inst.Lost; l != nil {
		where := ""
		if l.HostName != "" {
			where = fmt.Sprintf(" with host %s %s", l.HostName, l.Host)
		}
		add("lost", fmt.Sprintf("%s%s: %s", l.At.Local().Format(time.DateTime), where, l.Reason))
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
	for _, bound := range inst.Spec.In {
		add("placed", bound.String())
	}
	if len(inst.Spec.Where) > 0 {
		add("placed", "where "+strings.Join(inst.Spec.Where, " or "))
	}
	for _, filter := range inst.Spec.WhereNot {
		add("placed", "not where "+filter)
	}
	if p := inst.Spec.Policy; p != nil {
		add("policy", fmt.Sprintf("crush:%s, generation %d", p.Name, p.Generation))
	}
	for _, r := range inst.Refused {
		add("refused", string(r.Host)+": "+r.Why)
	}
	for _, near := range inst.Spec.Near {
		word, text, _ := strings.Cut(near.String(), " ")
		if near.Location != near.To || !near.Aggregate {
			text += ", at " + near.Location
		}
		add(word, text)
	}
	add("networks", strings.Join(inst.Spec.Networks, ", "))
	add("open ports", strings.Join(inst.Spec.Open, ", "))
	add("host key", inst.Spec.HostKey)
	for _, p := range inst.Spec.Peers {
		add("peer", p.Address+" "+p.Name)
	}
	add("created", inst.Created.Format(time.RFC3339))
	if !inst.Expires.IsZero() {
		text := inst.Expires.Format(time.RFC3339) + ", " + remaining(inst)
		if expiresSoon(inst) {
			text += fmt.Sprintf("; `schedule keep %s` prolongs it", inst.Name)
		}
		add("expires", text)
	}
	timeline(t, st)
	return t
}

// setUp describes how the guest's own set-up ended, if it has reported.
func setUp(c *croft.CloudInit) string {
	switch {
	case c == nil:
		return ""
	case c.State == croft.CloudInitFailed:
		return fmt.Sprintf("failed, says the guest: %s", c.Error)
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
func timeline(t *out.Table, st croft.Status) {
	o := st.Observation
	if o == nil || len(o.Events) == 0 {
		return
	}
	events := o.Events
	if c := o.CloudInit; c != nil && !c.At.Before(events[len(events)-1].At) {
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

// Data is everything about an instance: its fields in lists, and the stored records.
type Data struct {
	Name    string `json:"name"`
	State   string `json:"state"`
	Address string `json:"address"`
	croft.Status
}

// Printable returns statuses without their secrets, with the fields that lists show.
func Printable(all []croft.Status) []Data {
	list := make([]Data, len(all))
	for i, st := range all {
		list[i] = Data{st.Instance.Name, schedule.Describe(&st), Address(st), api.InstanceOf(st).Status}
	}
	return list
}
