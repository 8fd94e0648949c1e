// Package keys has the commands that store public SSH keys of a project in the cloud: croft key.
package keys

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"

	"croft"
	"croft/cli/args"
	"croft/internal/command"
	"croft/internal/out"
	"croft/schedule"
	"croft/schedule/sshkeys"
)

// Command returns the command croft key.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "key",
		Short: "Keep public SSH keys, to be named in requests",
		Long: `key keeps public SSH keys of a project in the cloud, so that whoever asks for an
instance can say schedule --key NAME from any machine.`,
		Example: `  croft key add laptop ~/.ssh/id_ed25519.pub
  croft key list
  croft schedule VCPU:1,MEMORY_MB:256,DISK_GB:1 --key laptop`,
		Args: func(cmd *cobra.Command, args []string) error {
			return croft.Errorf(croft.Invalid, "usage: %s add, list or remove", cmd.CommandPath())
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	args.AddCloudFlags(cmd.PersistentFlags())
	cmd.AddCommand(addCommand(), listCommand(), removeCommand())
	return cmd
}

func addCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "add NAME FILE|-|KEY",
		Short: "Keep a public key under a name",
		Args:  command.Count(2, 2),
		RunE: func(cmd *cobra.Command, given []string) error {
			if err := checkKeyName(given[0]); err != nil {
				return err
			}
			line, err := oneKey(given[1], cmd.InOrStdin())
			if err != nil {
				return err
			}
			return args.With(cmd, func(ctx context.Context, c *args.Client) error {
				if err := c.Keys.AddKey(ctx, schedule.Key{Project: c.Project, Name: given[0], Line: line,
					Added: time.Now().UTC()}); err != nil {
					return err
				}
				fmt.Fprintf(cmd.ErrOrStderr(), "key %s %s\n", given[0], fingerprint(line))
				return nil
			})
		},
	}
}

// checkKeyName returns an error for words that stand for other keys.
func checkKeyName(name string) error {
	if name == sshkeys.Agent || name == sshkeys.Auto {
		return croft.Errorf(croft.Invalid,
			"a key cannot be named %s, which stands for the keys of your SSH agent: choose another name", name)
	}
	return schedule.CheckName(name)
}

// oneKey reads exactly one key: a name cannot stand for several.
func oneKey(text string, stdin io.Reader) (string, error) {
	if text == "-" {
		data, err := io.ReadAll(io.LimitReader(stdin, 64<<10))
		if err != nil {
			return "", croft.Errorf(croft.Invalid, "read the key: %w", err)
		}
		return sshkeys.Parse(string(data))
	}
	keys, err := sshkeys.ReadOne(text)
	if err != nil {
		return "", err
	}
	if len(keys) != 1 {
		return "", croft.Errorf(croft.Invalid, "there are %d keys in %s: a name is for one", len(keys), text)
	}
	return keys[0], nil
}

func listCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the keys",
		Args:  command.Count(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return args.With(cmd, func(ctx context.Context, c *args.Client) error {
				keys, err := c.Keys.ListKeys(ctx, c.Project)
				if err != nil {
					return err
				}
				c.NoteUnknownProject(cmd, len(keys))
				if f := c.Settings.Output; f == out.FormatJSON || f == out.FormatYAML {
					return out.PrintData(cmd.OutOrStdout(), f, append([]schedule.Key{}, keys...)) // never null
				}
				t := out.Table{Color: out.IsColored(cmd.OutOrStdout())}
				t.Head("NAME", "FINGERPRINT", "COMMENT", "ADDED")
				for _, k := range keys {
					t.Texts(k.Name, fingerprint(k.Line), comment(k.Line), k.Added.Format(time.DateTime))
				}
				return t.Print(cmd.OutOrStdout())
			})
		},
	}
}

func removeCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "remove NAME...",
		Short:             "Remove keys; instances that have them keep them",
		Args:              command.Count(1, -1),
		ValidArgsFunction: completeKeys,
		RunE: func(cmd *cobra.Command, given []string) error {
			return args.With(cmd, func(ctx context.Context, c *args.Client) error {
				var errs []error
				for _, name := range given {
					errs = append(errs, c.Keys.RemoveKey(ctx, c.Project, name))
				}
				return errors.Join(errs...)
			})
		},
	}
}

// completeKeys completes names of stored keys.
func completeKeys(cmd *cobra.Command, given []string, prefix string) ([]string, cobra.ShellCompDirective) {
	found := args.StoredNames(cmd, given, prefix, func(ctx context.Context, c *args.Client, offer args.Offer) error {
		keys, err := c.Keys.ListKeys(ctx, c.Project)
		for _, k := range keys {
			offer(k.Name, comment(k.Line))
		}
		return err
	})
	return found, cobra.ShellCompDirectiveNoFileComp
}

// fingerprint returns the fingerprint that ssh-keygen -l prints, for comparison by eye.
func fingerprint(line string) string {
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line))
	if err != nil {
		return "none"
	}
	return ssh.FingerprintSHA256(key)
}

func comment(line string) string {
	_, words, _, _, err := ssh.ParseAuthorizedKey([]byte(line))
	if err != nil {
		return ""
	}
	return words
}
