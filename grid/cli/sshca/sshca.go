// Package sshca has the commands of the certificate authority for SSH: croft sshca.
package sshca

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"

	"github.com/adrg/xdg"
	"github.com/spf13/cobra"

	"croft"
	"croft/grid/sshca"
	"croft/internal/command"
)

// Command returns the command croft sshca, which the binary runs when it is called lockpick.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sshca",
		Short: "Sign short-lived SSH certificates",
		Long: `An authority signs certificates for SSH. Who may have which certificate is in the
repository, in ca/roles.yaml; the private keys and the log of what was issued are
outside of it, on the machine that signs.

It needs no daemon: sign signs on that machine, serve is the command that sshd runs
there for others. Certificates are valid for an hour, at most for 16.

Exit codes: 0 done, 1 an error, 2 wrong usage. Other commands end with 7 not permitted
where a role is refused; that is an error, 1, here.`,
		Example: `  croft sshca init
  croft sshca sign ~/.ssh/id_ed25519.pub --role ops --write
  ssh ca@ca.example.org sign --role ops < ~/.ssh/id_ed25519.pub > ~/.ssh/id_ed25519-cert.pub
  croft sshca revoke eva@ops#1795461234567 --reason 'lost laptop'`,
		Args: command.OnlySubcommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(initCommand(), signCommand(), hostCommand(), serveCommand(), revokeCommand(), listCommand())
	return cmd
}

// keysVariable names the directory of the private keys.
const keysVariable = "CROFT_SSHCA_KEYS"

// options say which authority is used.
type options struct {
	dir, keys, agent string
}

func (o *options) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&o.dir, "directory", "C", ".", "the repository: the `directory` that has ca/")
	f.StringVar(&o.dir, "dir", ".", "the former name of --directory")
	f.Lookup("dir").Hidden = true
	f.StringVar(&o.keys, "keys", "", "`directory` of the private keys and the log (by default $"+keysVariable+
		", else "+filepath.Join("~/.local/share", "croft", "sshca")+")")
	f.StringVar(&o.agent, "agent", "", "sign by the agent at this `socket`; - is $SSH_AUTH_SOCK")
}

func (o *options) authority() (*sshca.CA, error) {
	agent := o.agent
	if agent == "-" {
		if agent = os.Getenv("SSH_AUTH_SOCK"); agent == "" {
			return nil, croft.Errorf(croft.Invalid, "--agent -: no agent runs: SSH_AUTH_SOCK is not set")
		}
	}
	if info, err := os.Stat(o.dir); err != nil || !info.IsDir() {
		return nil, croft.Errorf(croft.Invalid, "%s is not a directory: name the repository (--directory)", o.dir)
	}
	return &sshca.CA{
		Dir:        filepath.Join(o.dir, "ca"),
		Keys:       cmp.Or(o.keys, os.Getenv(keysVariable), filepath.Join(xdg.DataHome, "croft", "sshca")),
		Agent:      agent,
		Passphrase: askPassphrase,
	}, nil
}

// run wraps a command's function: all its errors have exit code 1, as in all commands of the grid.
func run(f func(cmd *cobra.Command, given []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, given []string) error {
		if err := f(cmd, given); err != nil {
			return &command.Exited{Code: croft.ExitFailure, Err: err}
		}
		return nil
	}
}

func initCommand() *cobra.Command {
	o := &options{}
	open := false
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make an authority, and say how servers believe it",
		Long: `init makes the keys of two authorities, one for users and one for hosts, and the files
of ca/: commit those. What is there already stays. Then it prints what servers have
to be told, with root and without; once all is there, it prints that alone.`,
		Args: command.Count(0, 0),
		RunE: run(func(cmd *cobra.Command, _ []string) error {
			a, err := o.authority()
			if err != nil {
				return err
			}
			var passphrase []byte
			if a.Missing() && !open {
				if passphrase, err = newPassphrase(cmd.Context()); err != nil {
					return err
				}
			}
			made, err := a.Init(cmd.Context(), passphrase)
			for _, file := range made {
				fmt.Fprintln(cmd.ErrOrStderr(), "made", file)
			}
			if err != nil {
				return err
			}
			text, err := a.Setup()
			if err == nil {
				_, err = fmt.Fprint(cmd.OutOrStdout(), command.Names.Replace(text))
			}
			return err
		}),
	}
	o.flags(cmd)
	cmd.Flags().BoolVar(&open, "no-passphrase", false, "keep the private keys without a passphrase")
	return cmd
}
