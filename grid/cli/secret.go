package cli

import (
	"fmt"
	"io"
	"strings"

	"filippo.io/age"
	"github.com/spf13/cobra"

	"croft"
	"croft/grid/secret"
	"croft/internal/command"
	"croft/internal/out"
)

func secretCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "secret",
		Short: "Seal values for files of the cluster",
		Long: `A secret is sealed by age for those whom secrets/recipients lists, one on a line: age1...,
ssh-ed25519 ... or ssh-rsa .... It may be the content of a file of a job, or a file of the
cluster's directory that one names with from. It is opened in memory when a job is applied,
and written on the node, where the unit sees it. A file of sops works in the same place.`,
		Example: `  age-keygen -o ~/.config/croft/age.txt
  age-keygen -y ~/.config/croft/age.txt >> secrets/recipients
  printf %s "$PASSWORD" | croft grid secret seal --line`,
		Args: command.OnlySubcommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(sealCommand(o), rotateCommand(o), openCommand(o))
	return cmd
}

// recipients returns the recipients of --to, or else the cluster's recipients.
func (o *options) recipients(to []string) ([]age.Recipient, error) {
	if len(to) > 0 {
		return secret.ParseRecipients("--to", strings.Join(to, "\n"))
	}
	return secret.Recipients(o.dir)
}

// maxSecret is the largest size of a value.
const maxSecret = 1 << 20

func input(cmd *cobra.Command) ([]byte, error) {
	value, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), maxSecret+1))
	if err == nil && len(value) > maxSecret {
		err = croft.Errorf(croft.Invalid, "standard input has more than %d bytes", maxSecret)
	}
	return value, err
}

func sealCommand(o *options) *cobra.Command {
	var to []string
	var line bool
	cmd := &cobra.Command{
		Use:   "seal",
		Short: "Seal standard input",
		Long: `seal reads a value from standard input, all of it, a last newline too, and prints it sealed:
as a block, to be indented below content: |, or with --line on one line.`,
		Example: `  croft grid secret seal < key.pem > secrets/key.age
  printf %s "$PASSWORD" | croft grid secret seal --line --to age1...`,
		Args: command.Count(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			recipients, err := o.recipients(to)
			if err != nil {
				return err
			}
			value, err := input(cmd)
			if err != nil {
				return err
			}
			if len(value) == 0 {
				return croft.Errorf(croft.Invalid, "standard input is empty: there is nothing to seal")
			}
			sealed, err := secret.Seal(value, recipients)
			if line {
				sealed, err = secret.SealLine(value, recipients)
				sealed += "\n"
			}
			if err != nil {
				return err
			}
			_, err = io.WriteString(cmd.OutOrStdout(), sealed)
			return err
		},
	}
	cmd.Flags().StringArrayVar(&to, "to", nil, "a `recipient` instead of those in secrets/recipients (repeatable)")
	cmd.Flags().BoolVar(&line, "line", false, "print age: and base64 on one line")
	return cmd
}

func openCommand(o *options) *cobra.Command {
	var files []string
	cmd := &cobra.Command{
		Use:   "open",
		Short: "Open a sealed value from standard input, and print it",
		Args:  command.Count(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			sealed, err := input(cmd)
			if err != nil {
				return err
			}
			value, err := o.keeper(files).Open(cmd.Context(), string(sealed))
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(value)
			return err
		},
	}
	identityFlag(cmd, &files)
	return cmd
}

func rotateCommand(o *options) *cobra.Command {
	var files []string
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Seal all values anew, for those whom secrets/recipients lists now",
		Long: `rotate opens every sealed value in the files of the cluster and seals it for those whom
secrets/recipients lists now. If one cannot be opened, nothing is changed. Who was taken off
the list may know the old values still, and has them in the history: change them too.`,
		Args: command.Count(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			asData, err := o.data()
			if err != nil {
				return err
			}
			recipients, err := o.recipients(nil)
			if err != nil {
				return err
			}
			done, err := o.keeper(files).Rotate(cmd.Context(), o.dir, recipients)
			if err != nil {
				return err
			}
			if asData {
				return out.PrintData(cmd.OutOrStdout(), o.output, done)
			}
			for _, r := range done {
				fmt.Fprintf(cmd.OutOrStdout(), "%s\t%d\n", r.File, r.Values)
			}
			return nil
		},
	}
	identityFlag(cmd, &files)
	o.formats(cmd)
	return cmd
}
