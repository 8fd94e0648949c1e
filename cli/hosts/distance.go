package hosts

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cli/verb"
	"croft/control/api"
	"croft/internal/out"
)

// DistanceCommand returns the command croft distance.
func DistanceCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "distance",
		Short: "Define distances between aggregates, locations and hosts",
		Long: `distance manages the distances that operators define. Requests use them to choose near
or far hosts (schedule --near, --far and --distance). Each has a type, such as network,
in units of your choice. The type failure is the default: unless defined, it follows
from the locations of hosts (0 the same host, 1 rack, 2 row, 3 site, 4 another site).

A distance is defined between two aggregates, locations or hosts, in both directions,
and applies to all hosts in them. The most explicit pair wins: a host before an
aggregate, a rack, a row and a site. Of equally explicit pairs the smaller distance
applies.`,
		Example: `  croft distance set site1 site2 40 --type network
  croft distance get host1 host2 --type network
  schedule VCPU:1,MEMORY_MB:256,DISK_GB:1 --near web:10 --distance network`,
	}
	args.AddCloudFlags(cmd.PersistentFlags())
	kind := cmd.PersistentFlags().String("type", "", "`type` of distances (failure; for list all)")
	cmd.AddCommand(distanceList(kind), distanceGet(kind), distanceSet(kind), distanceRemove(kind))
	return cmd
}

// typeOf returns the type that the flag names.
func typeOf(kind string) string { return cmp.Or(kind, croft.FailureDistance) }

func distanceList(kind *string) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the stated distances",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if *kind != "" {
				if err := croft.CheckDistanceType(*kind); err != nil {
					return err
				}
			}
			return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
				list, err := c.ListDistances(ctx)
				if err != nil {
					return err
				}
				all := list.Types
				if *kind != "" {
					some := slices.DeleteFunc(slices.Clone(all),
						func(d croft.Distances) bool { return d.Type != *kind })
					if len(some) == 0 && *kind != croft.FailureDistance {
						return croft.NoDistances(*kind, all)
					}
					all = some
				}
				stdout := cmd.OutOrStdout()
				if c.WantsData() {
					return c.PrintData(append([]croft.Distances{}, all...)) // never null
				}
				names, err := namesOfHosts(ctx, c, all)
				if err != nil {
					return err
				}
				t := out.Table{Color: out.IsColored(stdout)}
				t.Head("TYPE", "A", "B", "DISTANCE")
				for _, d := range all {
					for _, row := range d.Distances {
						t.Texts(d.Type, names(row.A), names(row.B), strconv.Itoa(row.Distance))
					}
				}
				return t.Print(stdout)
			})
		},
	}
}

// namesOfHosts returns a function that replaces the UUID of a host with its name, if the caller may see hosts.
func namesOfHosts(ctx context.Context, c *args.Client, all []croft.Distances) (func(string) string, error) {
	isHost := func(end string) bool { _, err := croft.ParseHostID(end); return err == nil }
	var names map[croft.HostID]string
	if slices.ContainsFunc(all, func(d croft.Distances) bool {
		return slices.ContainsFunc(d.Distances, func(row croft.Distance) bool { return isHost(row.A) || isHost(row.B) })
	}) {
		var err error
		if names, err = c.HostNames(ctx); err != nil {
			return nil, err
		}
	}
	return func(end string) string { return cmp.Or(names[croft.HostID(end)], end) }, nil
}

func distanceGet(kind *string) *cobra.Command {
	return &cobra.Command{
		Use:     "get A B",
		Short:   "Show the distance between two aggregates, locations or hosts",
		PreRunE: func(*cobra.Command, []string) error { return croft.CheckDistanceType(typeOf(*kind)) },
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			found, err := c.GetDistance(ctx, api.DistanceBetween{Type: typeOf(*kind), A: c.Args[0], B: c.Args[1]})
			if err != nil {
				return err
			}
			return c.Print(found, func(t *out.Table) {
				t.Head("TYPE", "A", "B", "DISTANCE", "STATED")
				t.Texts(found.Type, c.Args[0], c.Args[1], strconv.Itoa(found.Distance), verb.YesNo(found.Stated))
			})
		}),
	}
}

func distanceSet(kind *string) *cobra.Command {
	var d api.NewDistance
	return &cobra.Command{
		Use:   "set A B DISTANCE",
		Short: "Define the distance between two aggregates, locations or hosts",
		Long: `set defines a distance, a whole number from 0 to 1000000, and replaces an earlier one
between these two. Instances stay where they are: distances are used only when a host is
chosen.`,
		PreRunE: func(_ *cobra.Command, given []string) error {
			if err := croft.CheckDistanceType(typeOf(*kind)); err != nil {
				return err
			}
			n, err := strconv.ParseUint(given[2], 10, 31)
			if err != nil || n > croft.MaxStatedDistance {
				return croft.Errorf(croft.Invalid, "%q is not a distance: write a whole number from 0 to %d", given[2],
					croft.MaxStatedDistance)
			}
			d = api.NewDistance{Type: typeOf(*kind), A: given[0], B: given[1], Distance: int(n)}
			return nil
		},
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			set, err := c.SetDistance(ctx, d)
			if err != nil {
				return err
			}
			return c.Report(set.Generation, "the distance of type %s between %s and %s is %d", d.Type, d.A, d.B,
				d.Distance)
		}),
	}
}

func distanceRemove(kind *string) *cobra.Command {
	return &cobra.Command{
		Use:     "remove A B",
		Short:   "Remove a stated distance",
		PreRunE: func(*cobra.Command, []string) error { return croft.CheckDistanceType(typeOf(*kind)) },
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			err := c.RemoveDistance(ctx, api.DistanceRemoval{DistanceBetween: api.DistanceBetween{Type: typeOf(*kind),
				A: c.Args[0], B: c.Args[1]}})
			if err != nil {
				return err
			}
			c.Say("the distance of type %s between %s and %s is no longer defined", typeOf(*kind), c.Args[0],
				c.Args[1])
			return nil
		}),
	}
}
