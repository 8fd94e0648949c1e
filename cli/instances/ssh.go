package instances

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/image"
	"croft/internal/hostkey"
	"croft/schedule/sshkeys"
)

// login is `schedule ssh` with its flags.
type login struct {
	user, jump, identity string

	proxy []string // what makes ssh go through the cloud
}

func sshCommand() *cobra.Command {
	var l login
	cmd := &cobra.Command{
		Use:   "ssh UUID|NAME [COMMAND...]",
		Short: "Log in to an instance, or run a command in it",
		Long: `ssh runs the system's ssh to the instance's address. The instance proves itself with
a host key that was made when it was asked for and given to it with its metadata, so
the first connection is verified like every other. With CROFT_URL the connection goes
through the cloud, as with schedule forward.

The user is the one that the image is made for, as the catalog says, or --user. It
ends with the exit code of the command.`,
		Example: `  schedule ssh web
  schedule ssh web uptime
  schedule ssh --jump root@host1 web`,
		Args:              args.Count(1, -1),
		ValidArgsFunction: args.CompleteInstances(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return within(cmd, func(ctx context.Context, c *session) error {
				st, err := c.look(ctx, cmd, args[0])
				if err != nil {
					return err
				}
				if c.Settings.Settings.Set() && l.jump == "" {
					if l.proxy, err = c.proxyCommand(cmd, st.Instance.ID); err != nil {
						return fmt.Errorf("log in to %s: %w", st.Instance.Name, err)
					}
				}
				return l.run(ctx, cmd, st, args[1:])
			})
		},
	}
	cmd.Flags().SetInterspersed(false) // flags after the name are the command's
	cmd.Flags().StringVarP(&l.user, "user", "l", "", "log in as this `user`")
	cmd.Flags().StringVarP(&l.jump, "jump", "J", "",
		"go through this `host`, such as root@host1, where the instance cannot be reached from here")
	cmd.Flags().StringVarP(&l.identity, "identity", "i", "", "`file` of the private key to log in with")
	args.AddWaitFlags(cmd.Flags(), "the instance runs and has an address")
	return cmd
}

// run runs ssh and returns its exit code.
func (l login) run(ctx context.Context, cmd *cobra.Command, st croft.Status, command []string) error {
	name := st.Instance.Name
	addr := Address(st)
	if addr == "" {
		return noAddress(st)
	}
	user, err := l.as(st.Instance.Spec.Image)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "croft-ssh-")
	if err != nil {
		return fmt.Errorf("log in to %s: %w", name, err)
	}
	defer os.RemoveAll(dir)
	given, err := l.arguments(st.Instance, filepath.Join(dir, "known_hosts"))
	if err != nil {
		return fmt.Errorf("log in to %s: %w", name, err)
	}
	ssh := exec.CommandContext(ctx, "ssh", append(append(given, "-l", user, "--", addr), command...)...)
	ssh.Stdin, ssh.Stdout, ssh.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	ssh.Cancel = func() error { return ssh.Process.Signal(syscall.SIGTERM) }
	ssh.WaitDelay = 2 * time.Second
	err = ssh.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() > 0 {
		return &args.Exited{Code: exit.ExitCode()}
	}
	if errors.Is(err, exec.ErrNotFound) {
		return croft.Errorf(croft.NotFound, "log in to %s: there is no ssh on this machine; install openssh-client",
			name)
	}
	if err != nil {
		return fmt.Errorf("log in to %s: %w", name, err)
	}
	return nil
}

// arguments make ssh accept only the host key of the instance. The file with the key is written here.
func (l login) arguments(inst croft.Instance, knownHosts string) ([]string, error) {
	if inst.Spec.HostKey == "" {
		return nil, croft.Errorf(croft.Invalid,
			"it has no host key that could be verified, since an older croft made it: use ssh directly, or destroy it and request another")
	}
	public, err := hostkey.Public(inst.Spec.HostKey)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(knownHosts, fmt.Appendf(nil, "%s %s\n", inst.ID, public), 0o600); err != nil {
		return nil, err
	}
	args := []string{
		"-o", "UserKnownHostsFile=" + knownHosts, "-o", "GlobalKnownHostsFile=/dev/null",
		"-o", "HostKeyAlias=" + string(inst.ID), "-o", "HostKeyAlgorithms=ssh-ed25519",
		"-o", "StrictHostKeyChecking=yes", "-o", "UpdateHostKeys=no", "-o", "CheckHostIP=no",
	}
	args = append(args, l.proxy...)
	if l.jump != "" {
		args = append(args, "-J", l.jump)
	}
	if l.identity != "" {
		return append(args, "-i", l.identity, "-o", "IdentitiesOnly=yes"), nil
	}
	for _, file := range identities(inst.Spec.Keys) {
		args = append(args, "-i", file)
	}
	return args, nil
}

// identities are the user's private keys whose public halves the instance has, whatever the files in ~/.ssh are
// called: ssh itself tries only those with usual names.
func identities(known []string) []string {
	files, err := filepath.Glob(sshkeys.Home("~/.ssh/*.pub"))
	if err != nil {
		return nil
	}
	var found []string
	for _, file := range files {
		private := strings.TrimSuffix(file, ".pub")
		keys, err := sshkeys.ReadFile(file)
		if _, there := os.Stat(private); err != nil || there != nil {
			continue // an agent may have it
		}
		if slices.ContainsFunc(keys, func(key string) bool {
			return slices.ContainsFunc(known, func(k string) bool { return sameKey(k, key) })
		}) {
			found = append(found, private)
		}
	}
	return found
}

// sameKey compares two lines of authorized_keys without their comments.
func sameKey(a, b string) bool {
	first, second := strings.Fields(a), strings.Fields(b)
	return len(first) > 1 && len(second) > 1 && slices.Equal(first[:2], second[:2])
}

// as is the user to log in as.
func (l login) as(ref string) (string, error) {
	if l.user != "" {
		return l.user, nil
	}
	catalog, err := image.LoadCatalog(image.CatalogFiles(), nil)
	if err != nil {
		return "", err
	}
	for _, entry := range catalog.List() {
		if known, err := entry.Reference(); err == nil && known == ref && entry.User != "" {
			return entry.User, nil
		}
	}
	return "", croft.Errorf(croft.Invalid, "the catalog names no user to log in as on the image %s: give --user", ref)
}
