// Package ip has the commands for addresses that are kept as files: croft ip, which is also called itabot.
package ip

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cli/out"
	"croft/ipam"
)

// ExitRefused is the exit code for a lock that another process does not let go.
const ExitRefused = 3

// options are those of every command here.
type options struct {
	dir    string
	output string
}

// Command makes the command croft ip.
func Command() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "ip",
		Short: "Keep addresses, sets of them and access rules as files",
		Long: `ip manages addresses as files of a directory under version control, below net/. It
works in an empty directory; in that of a cluster (croft grid) it knows jobs and nodes.

The path of a lease is its address: a link from net/lease/v4/10.0.0.5 to the owner, so
that two branches which give one address to two owners conflict when they are merged.

Sets of addresses are expressions:
  #tag @set pool:web job:web/* node:syd/**      names
  10.0.0.0/8 10.0.0.9 10.0.0.9-10.0.0.20        addresses, of IPv6 too
  all4 all6 none                                all of a family, and nothing
  a | b    a - b    a & b    !a    ( )          & binds over -, and - over |`,
		Example: `  croft ip add web 10.0.0.0/24 --gateway 10.0.0.1 --tag web
  croft ip get web shop/front/0
  croft ip show 10.0.0.2
  croft ip access add shop --from '10.0.0.0/8' --to 'job:shop/**' --proto tcp --ports 80
  croft ip nft | nft -f -`,
		Args: args.OnlySubcommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVarP(&o.dir, "directory", "C", ".", "the `directory` with net/")
	cmd.AddCommand(addCommand(o), getCommand(o), freeCommand(o), tagCommand(o), showCommand(o), findCommand(o),
		setCommand(o), accessCommand(o), nftCommand(o), importCommand(o), checkCommand(o), hardpointCommand(o))
	args.OneForErrors(cmd)
	return cmd
}

// formats defines the flag -o of a command.
func (o *options) formats(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.output, "output", "o", out.FormatText, "print text, json or yaml (`format`)")
	args.CompleteFlag(cmd, "output", []string{out.FormatText, out.FormatJSON, out.FormatYAML})
}

// print prints a result: as data, or else as the text that the function writes.
func (o *options) print(cmd *cobra.Command, value any, text func() error) error {
	if o.output == out.FormatText {
		return text()
	}
	return out.PrintData(cmd.OutOrStdout(), o.output, value)
}

func (o *options) checkFormat() error {
	if o.output != "" && !slices.Contains([]string{out.FormatText, out.FormatJSON, out.FormatYAML}, o.output) {
		return croft.Errorf(croft.Invalid, "output %q is not one of text, json and yaml", o.output)
	}
	return nil
}

// read runs a function on what the directory says, and tells what was noted.
func (o *options) read(cmd *cobra.Command, use func(n *ipam.Net) error) error {
	return o.with(func(d *ipam.Dir) error {
		n, err := d.Read()
		if err != nil {
			return err
		}
		err = use(n)
		tellNotes(cmd, n)
		return err
	})
}

// change is read for functions that change something.
func (o *options) change(cmd *cobra.Command, use func(n *ipam.Net) error) error {
	return o.with(func(d *ipam.Dir) error {
		err := d.Change(cmd.Context(), func(n *ipam.Net) error {
			err := use(n)
			tellNotes(cmd, n)
			return err
		})
		if errors.Is(err, ipam.ErrLocked) {
			return &args.Exited{Code: ExitRefused, Err: err}
		}
		return err
	})
}

func (o *options) with(use func(d *ipam.Dir) error) error {
	if err := o.checkFormat(); err != nil {
		return err
	}
	d, err := ipam.Open(o.dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return use(d)
}

func tellNotes(cmd *cobra.Command, n *ipam.Net) {
	slices.Sort(n.Notes)
	for _, note := range slices.Compact(n.Notes) {
		fmt.Fprintln(cmd.ErrOrStderr(), "note:", note)
	}
}
