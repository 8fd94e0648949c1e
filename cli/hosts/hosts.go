// Package hosts has the commands that show and maintain hosts: croft host.
package hosts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cli/instances"
	"croft/cli/verb"
	"croft/control/api"
	"croft/hosts"
	"croft/internal/out"
	"croft/internal/plain"
	"croft/internal/wording"
	"croft/tenant/objects"
)

// Command returns the command croft host.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "host",
		Short: "List and show hosts; drain, enable, accept, fence or remove one",
		Example: `  croft host list
  croft host drain host3 --move
  croft host remove host3
  croft host fence host3 --off`,
	}
	args.AddCloudFlags(cmd.PersistentFlags())
	cmd.AddCommand(listCommand(), showCommand(), inventoryCommand())
	cmd.AddCommand(drainCommand(), enableCommand(), acceptCommand(), removeCommand(), fenceCommand(),
		leftoverCommand())
	return cmd
}

func listCommand() *cobra.Command {
	var filters []string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the hosts: state, instances, claimed and offered resources",
		Long: `list shows the hosts by name: state, role in etcd, number of instances, claimed and
offered resources. With -o wide also versions and UUIDs.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := objects.ParseFilter(filters); err != nil {
				return err
			}
			return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
				list, err := c.ListHosts(ctx)
				if err != nil {
					return err
				}
				all := list.Hosts
				if len(filters) > 0 {
					chosen, err := args.Chosen(ctx, c, objects.Host, filters)
					if err != nil {
						return err
					}
					all = slices.DeleteFunc(all, func(h api.Host) bool { return !chosen[string(h.ID)] })
				}
				err = errors.Join(printHosts(cmd, c.Settings.Output, all), list.Incomplete())
				for _, problem := range list.Problems {
					fmt.Fprintln(cmd.ErrOrStderr(), problem)
				}
				return err
			})
		},
	}
	cmd.Flags().StringArrayVar(&filters, "filter", nil, args.FilterUsage)
	return cmd
}

// hostData is a host in JSON and YAML.
type hostData struct {
	hosts.Host
	State string `json:"state"`
}

func printHosts(cmd *cobra.Command, format string, all []api.Host) error {
	stdout := cmd.OutOrStdout()
	if out.IsData(format) {
		list := []hostData{}
		for _, h := range all {
			list = append(list, hostData{h.Host, h.State})
		}
		return out.PrintData(stdout, format, list)
	}
	t := out.Table{Color: out.IsColored(stdout)}
	head := []string{"HOST", "STATE", "ETCD", "INSTANCES", "VCPU", "MEMORY_MB", "DISK_GB"}
	if format == out.FormatWide {
		head = append(head, "VERSION", "ID")
	}
	t.Head(head...)
	for _, h := range all {
		row := []out.Cell{{Text: h.Name}, hostState(h.Host), etcdRole(h.Host), {Text: fmt.Sprint(h.Count)},
			share(h.Host, croft.VCPU), share(h.Host, croft.MemoryMB), share(h.Host, croft.DiskGB)}
		if format == out.FormatWide {
			row = append(row, out.Cell{Text: out.OrDash(h.Version)}, out.Cell{Text: string(h.ID)})
		}
		t.Row(row...)
	}
	if err := t.Print(stdout); err != nil {
		return err
	}
	for _, h := range all {
		printProblems(cmd.ErrOrStderr(), h.Host)
	}
	return nil
}

// printProblems prints the problems and notes of a host, one per line.
func printProblems(w io.Writer, h hosts.Host) {
	for _, problem := range slices.Concat(h.Problems, h.Notes) {
		fmt.Fprintf(w, "host %s: %s\n", plain.Line(h.Name), plain.Line(problem))
	}
}

// hostState returns a host's state in its color, and for a silent host since when.
func hostState(h hosts.Host) out.Cell {
	words := h.State()
	if !h.Alive {
		words += instances.Since(h.Seen)
		if h.Drained && h.Death == nil {
			words += ", drained"
		}
	}
	if h.LargeClockDifference() {
		words += fmt.Sprintf(", clock %s", wording.Duration(time.Duration(h.ClockDifference)*time.Second))
	}
	switch {
	case !h.Alive || len(h.Problems) > 0:
		return out.Cell{Text: words, Color: out.Red}
	case h.Drained:
		return out.Cell{Text: words, Color: out.Yellow}
	}
	return out.Cell{Text: words, Color: out.Green}
}

// etcdRole returns the role of the host's etcd, in its color.
func etcdRole(h hosts.Host) out.Cell {
	switch h.Etcd {
	case croft.MemberLeads, croft.MemberFollows, "":
		return out.Cell{Text: out.OrDash(string(h.Etcd))}
	}
	return out.Cell{Text: string(h.Etcd), Color: out.Yellow}
}

// share returns the claimed part of a host's capacity, in red if it exceeds the capacity.
func share(h hosts.Host, class croft.ResourceClass) out.Cell {
	if h.Offered == nil {
		return out.Cell{Text: "-"}
	}
	text := fmt.Sprintf("%d/%d", h.Claimed[class], h.Offered[class])
	if h.Claimed[class] > h.Offered[class] && h.Alive {
		return out.Cell{Text: text, Color: out.Red}
	}
	return out.Cell{Text: text}
}

func showCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "show UUID|NAME",
		Short:             "Show everything about a host and its instances",
		ValidArgsFunction: args.CompleteHosts,
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			h, err := c.GetHost(ctx, api.HostNamed{ID: c.Args[0]})
			if err != nil {
				return err
			}
			return printHost(c.Cmd, c.Settings.Output, h)
		}),
	}
}

func printHost(cmd *cobra.Command, format string, h api.Host) error {
	stdout := cmd.OutOrStdout()
	if out.IsData(format) {
		return out.PrintData(stdout, format, struct {
			hostData
			On []api.Instance `json:"on"`
		}{hostData{h.Host, h.State}, append([]api.Instance{}, h.Statuses...)}) // never null
	}
	t := hostDetails(h.Host)
	t.Color = out.IsColored(stdout)
	if err := t.Print(stdout); err != nil || h.Count == 0 {
		return err
	}
	fmt.Fprintln(stdout)
	list := instances.Table(h.Statuses)
	list.Color = t.Color
	return list.Print(stdout)
}

// hostDetails returns a table of everything about a host.
func hostDetails(h hosts.Host) *out.Table {
	t := &out.Table{}
	add := func(name, value string) {
		if value != "" {
			t.Row(out.Cell{Text: name, Color: out.Bold}, out.Cell{Text: value})
		}
	}
	add("host", string(h.ID))
	add("name", h.Name)
	add("former name", h.FormerName)
	t.Row(out.Cell{Text: "state", Color: out.Bold}, hostState(h))
	for _, problem := range h.Problems {
		t.Row(out.Cell{Text: "problem", Color: out.Bold}, out.Cell{Text: problem, Color: out.Red})
	}
	for _, note := range h.Notes {
		add("note", note)
	}
	for _, f := range h.Findings {
		found := fmt.Sprintf("%s  %s: %s", f.Level, f.Check, f.Found)
		if f.Do != "" {
			found += "; do: " + f.Do
		}
		color := out.Yellow
		if f.Level == croft.FindingFail {
			color = out.Red
		}
		t.Row(out.Cell{Text: "finding", Color: out.Bold}, out.Cell{Text: found, Color: color})
	}
	add("etcd", string(h.Etcd))
	add("addresses", strings.Join(h.Addresses, ", "))
	add("api", h.API)
	add("location", h.Location)
	add("hypervisor", h.VirtType)
	for _, arch := range h.Arch {
		add("architecture", string(arch))
	}
	add("version", h.Version)
	for _, class := range slices.Sorted(maps.Keys(h.Offered)) {
		add(string(class), fmt.Sprintf("%d of %d claimed", h.Claimed[class], h.Offered[class]))
	}
	var traits []string
	for _, trait := range h.Traits {
		traits = append(traits, string(trait))
	}
	add("traits", strings.Join(traits, ", "))
	add("instances", fmt.Sprint(h.Count))
	return t
}
