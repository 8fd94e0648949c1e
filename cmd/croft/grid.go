package main

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"croft"
	"croft/cli"
	"croft/cli/args"
	"croft/control/api"
	gridcli "croft/grid/cli"
	"croft/grid/cli/ip"
	"croft/grid/cli/sshca"
)

// withGrid adds the commands of the grid, which the binary also runs under the names of the grid's programs.
func withGrid(p cli.Program) cli.Program {
	p.More = []cli.Subcommand{
		{Command: func() *cobra.Command { return gridcli.New(&cloudForGrid) }, Name: "fission",
			Listings: gridcli.Listings},
		{Command: ip.Command, Name: "itabot"},
		{Command: sshca.Command, Name: "lockpick"},
	}
	return p
}

// cloudForGrid reads the instances of the cloud in the settings, a login or flags.
var cloudForGrid = gridcli.Cloud{
	AddFlags: func(flags *pflag.FlagSet) {
		flags.String("settings", "", "read the cloud's settings from this `file` instead of searching schedule.yaml")
		flags.String("etcd", "", "`URLs` of the cloud's etcd, separated by commas")
		flags.String("placement", "", "`URL` of the cloud's Placement")
		flags.String("project", "", "`name` of the project that owns the instances")
		args.AddContextFlag(flags)
	},
	Flags: []string{"settings", "etcd", "placement", "project", args.ContextFlag},
	Instances: func(cmd *cobra.Command) (all []croft.Status, err error) {
		err = args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) (err error) {
			list, err := c.OwnInstances(ctx)
			for _, i := range list {
				all = append(all, recordsOf(i))
			}
			return err
		})
		return all, err
	},
}

// recordsOf returns the fields of an instance that the grid reads to adopt it.
func recordsOf(i api.Instance) croft.Status {
	st := croft.Status{Host: &croft.Host{Name: i.Host, VirtType: i.Hypervisor},
		Observation: &croft.Observation{State: i.Reported()},
		Instance: croft.Instance{ID: i.ID, Name: i.Name, Expires: i.Expires, Spec: croft.Spec{Resources: i.Resources,
			Image: i.ImageURL, GuestSettings: i.GuestSettings, InstanceSettings: i.InstanceSettings, In: i.In,
			Near: i.Near, Where: i.Where, WhereNot: i.WhereNot}}}
	st.Instance.Spec.Tags = i.Tags
	if i.Policy != "" {
		st.Instance.Spec.Policy = &croft.CrushPolicy{}
	}
	return st
}
