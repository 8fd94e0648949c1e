// Package partitions has the commands for other clouds: croft partition, which exports the records of this cloud and
// shows the exports of others.
package partitions

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"croft/cli/args"
	"croft/cli/verb"
	"croft/control/api"
	"croft/control/federation"
	"croft/internal/out"
	"croft/internal/userfile"
)

// Command returns the command croft partition.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "partition",
		Short: "Export the records of this cloud, show those of other clouds, and manage peers",
		Long: `partition manages what clouds know of each other: each cloud is a partition with its own
UUID. An export has a partition's hosts, projects, limits, properties and instances at
one moment, without secrets. Another cloud that imports it only shows it: nothing is
scheduled there, and imported names and numbers are kept apart from that cloud's own.
Peers are other clouds with which this one exchanges requests.`,
		Example: `  croft partition export --name east east.jsonl
  croft partition import east.jsonl
  croft partition show east hosts`,
	}
	args.AddCloudFlags(cmd.PersistentFlags())
	cmd.AddCommand(exportCommand(), importCommand(), partitions.List("List the partitions that are known here"),
		showCommand(), removeCommand(), cardCommand(), peerCommand(), keyCommand())
	return cmd
}

// transferTime limits the time of an export or an import.
const transferTime = 10 * time.Minute

func exportCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export [FILE]",
		Short: "Write the records of this cloud to a new file, or to stdout",
		Long: `export writes hosts, resource providers, limits, projects, definitions, properties,
tags and instances of this cloud as JSON Lines, all as of one revision of etcd. There
is no token, user-data, key or address of a host in it.`,
	}
	name := cmd.Flags().String("name", "", "`alias` that importers use unless they choose another")
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		return args.With(cmd, func(ctx context.Context, c *args.Client) error {
			ctx, cancel := context.WithTimeout(ctx, transferTime)
			defer cancel()
			var h federation.Header
			write := func(w io.Writer) (err error) {
				h, err = c.ExportPartition(ctx, api.Export{Name: *name}, w)
				return err
			}
			if len(given) == 0 || given[0] == "-" {
				return write(cmd.OutOrStdout())
			}
			err := args.WriteNew(given[0], write)
			if err == nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s has the records of partition %s at revision %d\n", given[0],
					h.Partition, h.Revision)
			}
			return err
		})
	}
	return cmd
}

func importCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Import an export of another cloud, in place of its earlier one",
		Long: `import reads an export (- is stdin) and stores all of it or nothing. Importing the same
export again changes nothing; an older one is refused. The name of a partition is an
alias in this cloud: if the proposed one is taken, a number is added.`,
	}
	alias := cmd.Flags().String("as", "", "`alias` of the partition here, from now on")
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		from := cmd.InOrStdin()
		if given[0] != "-" {
			f, err := userfile.Open(given[0])
			if err != nil {
				return fmt.Errorf("read the export: %w", err)
			}
			defer f.Close()
			from = f
		}
		return args.With(cmd, func(ctx context.Context, c *args.Client) error {
			ctx, cancel := context.WithTimeout(ctx, transferTime)
			defer cancel()
			p, changed, err := c.ImportPartition(ctx, api.Import{As: *alias}, from)
			if err != nil {
				return fmt.Errorf("import %s: %w", given[0], err)
			}
			if c.WantsData() {
				return c.PrintData(p)
			}
			words := map[bool]string{true: "is", false: "was already"}[changed]
			fmt.Fprintf(cmd.ErrOrStderr(), "partition %s %s shown as of revision %d\n", p.Alias, words,
				p.Imported.Revision)
			return nil
		})
	}
	return cmd
}

// partitions are the clouds that are known here.
var partitions = verb.Noun[federation.Partition]{
	Name: "partition",
	Use:  "PARTITION",
	All: func(ctx context.Context, c *args.Client) ([]federation.Partition, error) {
		list, err := c.ListPartitions(ctx)
		return list.Partitions, err
	},
	Find: func(ctx context.Context, c *args.Client, idOrAlias string) (federation.Partition, error) {
		return c.GetPartition(ctx, api.PartitionNamed{ID: idOrAlias})
	},
	Word: func(p federation.Partition) (string, string) { return p.Alias, "" },
	Head: []string{"ALIAS", "ID", "REVISION", "EXPORTED", "HOSTS", "PROJECTS", "INSTANCES", "PEER"},
	Row: func(p federation.Partition) []out.Cell {
		peer := "-"
		if p.Peer != nil {
			peer = p.Peer.Endpoint
		}
		i := p.Imported
		if i == nil {
			return verb.Texts(p.Alias, string(p.ID), "-", "-", "-", "-", "-", peer)
		}
		return verb.Texts(p.Alias, string(p.ID), fmt.Sprint(i.Revision), i.Exported.Format(time.DateTime),
			fmt.Sprint(i.Rows[federation.KindHost]), fmt.Sprint(i.Rows[federation.KindProject]),
			fmt.Sprint(i.Rows[federation.KindInstance]), peer)
	},
	Rows: func(t *out.Table, p federation.Partition) {
		t.Texts("partition", string(p.ID))
		t.Texts("alias", p.Alias)
		if p.Peer != nil {
			peerRows(t, p.Peer)
		}
		if i := p.Imported; i != nil {
			t.Texts("revision", fmt.Sprint(i.Revision))
			t.Texts("exported", i.Exported.Format(time.DateTime))
			t.Texts("imported", i.At.Format(time.DateTime))
			for _, kind := range federation.Kinds {
				t.Texts(string(kind)+"s", fmt.Sprint(i.Rows[kind]))
			}
		}
	},
}

func removeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "remove PARTITION",
		Short: "Remove everything that was imported of a partition",
		Long: `remove removes everything that was imported of a partition, and its alias. A partition
that is a peer stays one; croft partition peer remove ends that.`,
		ValidArgsFunction: complete,
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			p, err := c.RemovePartition(ctx, api.PartitionNamed{ID: c.Args[0]})
			switch {
			case err == nil && p.Peer != nil:
				c.Say("the import of %s (%s) is removed; it is still a peer: "+
					"`croft partition peer remove %[1]s` ends that", p.Alias, p.ID)
			case err == nil:
				c.Say("partition %s (%s) is removed here", p.Alias, p.ID)
			}
			return err
		}),
	}
}
