package instances

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"croft"
	"croft/cli/args"
	"croft/compute/image"
	"croft/control/api"
	"croft/internal/command"
	"croft/internal/out"
	"croft/internal/redact"
	"croft/internal/wording"
	"croft/schedule/sshkeys"
)

// Login configures how to log in to an instance.
type Login struct {
	User     string // user name; empty: the one that the catalog names for the image
	Jump     string // host to go through; empty: none
	Identity string // file of the private key; empty: the user's files whose public keys the instance has

	Timeout time.Duration // limits the time until the guest's SSH server answers
}

// Flags adds the flags that set the fields of l.
func (l *Login) Flags(f *pflag.FlagSet) {
	f.StringVarP(&l.User, "user", "l", "", "log in as this `user`")
	f.StringVarP(&l.Jump, "jump", "J", "",
		"go through this `host`, such as root@host1, where the instance cannot be reached from here")
	f.StringVarP(&l.Identity, "identity", "i", "", "`file` of the private key to log in with")
	command.DurationVar(f, &l.Timeout, "connect-timeout", 30*time.Second,
		"give up if the SSH server of the instance does not answer within this `time`")
}

func sshCommand() *cobra.Command {
	var l Login
	cmd := &cobra.Command{
		Use:   "ssh UUID|NAME [COMMAND...]",
		Short: "Log in to an instance, or run a command in it",
		Long: `ssh runs the system's ssh to the instance's address. The instance is identified
by a host key that croft created with the request and passed to it in its metadata, so
the first connection is verified like every other. With CROFT_URL the connection goes
through the cloud, as with schedule forward.

The user is that of the image in the catalog, or --user. schedule ssh returns the exit
code of the command. If the SSH server of the instance does not answer in time
(--connect-timeout), it gives up with exit code 6.`,
		Example: `  schedule ssh web
  schedule ssh web uptime
  schedule ssh --jump root@host1 web`,
		ValidArgsFunction: args.CompleteInstances(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return within(cmd, func(ctx context.Context, c *session) error {
				i, err := c.look(ctx, cmd, args[0])
				if err != nil {
					return err
				}
				return l.Run(ctx, cmd, c.Client, i, Typed(args[1:]))
			})
		},
	}
	cmd.Flags().SetInterspersed(false) // flags after the name belong to the command
	l.Flags(cmd.Flags())
	args.AddWaitFlags(cmd.Flags(), "the instance runs and has an address")
	return cmd
}

// Typed returns the command to run in a guest, from the arguments after its name. Some users write -- before it, as ssh
// itself permits.
func Typed(given []string) []string {
	if len(given) > 0 && given[0] == "--" {
		return given[1:]
	}
	return given
}

// Run runs the system's ssh, which accepts only the host key of the instance, and returns its exit code. If the cloud
// is reached over its API, the connection goes through the API.
func (l Login) Run(ctx context.Context, cmd *cobra.Command, c *args.Client, i api.Instance, words []string) error {
	return l.connect(ctx, cmd, c, i, "ssh", func(options []string, user string) []string {
		return append(append(options, "-l", user, "--", i.Address), words...)
	})
}

// connect runs a program of OpenSSH with the arguments that with makes of the options and the user to log in as.
func (l Login) connect(ctx context.Context, cmd *cobra.Command, c *args.Client, i api.Instance, program string,
	with func(options []string, user string) []string) error {
	name := i.Name
	if i.Address == "" {
		return noAddress(i)
	}
	if l.Timeout < time.Second {
		return croft.Errorf(croft.Invalid, "--connect-timeout %s: use at least 1s", wording.Duration(l.Timeout))
	}
	user, err := l.as(ctx, c, i)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "croft-ssh-")
	if err != nil {
		return fmt.Errorf("log in to %s: %w", name, err)
	}
	defer os.RemoveAll(dir)
	given, err := l.arguments(i, filepath.Join(dir, "known_hosts"))
	if err != nil {
		return fmt.Errorf("log in to %s: %w", name, err)
	}
	if c.Settings.Settings.Set() && l.Jump == "" {
		through, err := ProxyCommand(cmd, i.ID)
		if err != nil {
			return fmt.Errorf("log in to %s: %w", name, err)
		}
		given = append(given, through...)
	}
	err = runSSH(ctx, cmd, program, name, with(given, user))
	exit, exited := errors.AsType[*command.Exited](err)
	if !exited || exit.Code != sshFailed || l.Jump != "" || ctx.Err() != nil {
		return err
	}
	if silent := answersSSH(ctx, c, i); silent != nil {
		return croft.Errorf(croft.Unavailable, "log in to %s: port 22 of %s does not answer as an SSH server (%w): "+
			"`schedule logs %s` shows whether the guest has booted, and `schedule console %s` reaches it without a network",
			name, i.Address, silent, name, name)
	}
	return err
}

// sshFailed is the exit code with which ssh reports its own failure; a command in the guest may return it, too.
const sshFailed = 255

// lookTimeout limits the look for the reason of a failed connection.
const lookTimeout = 3 * time.Second

// answersSSH returns why no SSH server answers at the address of an instance; nil: one does.
func answersSSH(ctx context.Context, c *args.Client, i api.Instance) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	look := func(guest io.ReadWriteCloser) error {
		stop := context.AfterFunc(ctx, func() { _ = guest.Close() })
		defer stop()
		banner := make([]byte, len("SSH-"))
		if _, err := io.ReadFull(guest, banner); err != nil || string(banner) != "SSH-" {
			return errors.New("it sends no banner of SSH")
		}
		return nil
	}
	if c.Settings.Settings.Set() {
		return c.ForwardPort(ctx, api.GuestPort{InstanceNamed: c.Named(string(i.ID)), Port: 22}, look)
	}
	guest, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(i.Address, "22"))
	if err != nil {
		return err
	}
	defer guest.Close()
	return look(guest)
}

// SSH runs the system's ssh to log in to the named machine, and returns its exit code.
func SSH(ctx context.Context, cmd *cobra.Command, name string, given []string) error {
	return runSSH(ctx, cmd, "ssh", name, given)
}

// runSSH runs a program of OpenSSH, and returns its exit code.
func runSSH(ctx context.Context, cmd *cobra.Command, program, name string, given []string) error {
	ssh := OpenSSH(ctx, program, given)
	ssh.Stdin, ssh.Stdout, ssh.Stderr = cmd.InOrStdin(), out.Inherited(cmd.OutOrStdout()), cmd.ErrOrStderr()
	err := ssh.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() > 0 {
		return &command.Exited{Code: exit.ExitCode()}
	}
	if errors.Is(err, exec.ErrNotFound) {
		return croft.Errorf(croft.NotFound, "log in to %s: there is no %s on this machine; install openssh-client",
			name, program)
	}
	if err != nil {
		return fmt.Errorf("log in to %s: %w", name, err)
	}
	return nil
}

// OpenSSH returns the command that runs a program of OpenSSH. When ctx ends, it is asked to end, and then killed.
func OpenSSH(ctx context.Context, program string, given []string) *exec.Cmd {
	ssh := exec.CommandContext(ctx, program, given...)
	ssh.Cancel = func() error { return ssh.Process.Signal(syscall.SIGTERM) }
	ssh.WaitDelay = 2 * time.Second
	return ssh
}

// OnlyHostKey returns the options that make ssh accept no host key but the one that the file has under an alias.
func OnlyHostKey(file, alias, key string) []string {
	kind, _, _ := strings.Cut(key, " ")
	return []string{"-o", "UserKnownHostsFile=" + file, "-o", "GlobalKnownHostsFile=/dev/null",
		"-o", "HostKeyAlias=" + alias, "-o", "HostKeyAlgorithms=" + kind,
		"-o", "StrictHostKeyChecking=yes", "-o", "UpdateHostKeys=no", "-o", "CheckHostIP=no"}
}

// arguments returns arguments that make ssh accept only the host key of the instance. It writes the file with the key.
func (l Login) arguments(i api.Instance, knownHosts string) ([]string, error) {
	if i.HostKey == "" {
		return nil, croft.Errorf(croft.Invalid,
			"it has no host key to verify, since an older version of croft created it: use ssh directly, or destroy "+
				"it and request another")
	}
	if err := os.WriteFile(knownHosts, fmt.Appendf(nil, "%s %s\n", i.ID, i.HostKey), 0o600); err != nil {
		return nil, err
	}
	args := append(OnlyHostKey(knownHosts, string(i.ID), i.HostKey),
		"-o", fmt.Sprintf("ConnectTimeout=%d", int(math.Ceil(l.Timeout.Seconds()))))
	if l.Jump != "" {
		args = append(args, "-J", l.Jump)
	}
	if l.Identity != "" {
		return append(args, "-i", l.Identity, "-o", "IdentitiesOnly=yes"), nil
	}
	return append(args, Identities(i.Keys)...), nil
}

// Identities returns the flags of ssh for the user's private keys whose public keys are known, whatever the files in
// ~/.ssh are called: ssh itself tries only files with usual names.
func Identities(known []string) []string {
	files, err := filepath.Glob(sshkeys.Home("~/.ssh/*.pub"))
	if err != nil {
		return nil
	}
	var found []string
	for _, file := range files {
		private := strings.TrimSuffix(file, ".pub")
		keys, err := sshkeys.ReadFile(file)
		if _, there := os.Stat(private); err != nil || there != nil {
			continue // an agent may have the key
		}
		if slices.ContainsFunc(keys, func(key string) bool {
			return slices.ContainsFunc(known, func(k string) bool { return sshkeys.Same(k, key) })
		}) {
			found = append(found, "-i", private)
		}
	}
	return found
}

// as returns the user to log in as: the one of the image with this address in the catalog of this machine, or of the
// image with this name in that of the cloud, which shows tenants no addresses of files on hosts.
func (l Login) as(ctx context.Context, c *args.Client, i api.Instance) (string, error) {
	if l.User != "" {
		return l.User, nil
	}
	if croft.InCatalog(i.ImageURL) {
		stored, err := c.GetCatalogImage(ctx, api.CatalogImageNamed{InProject: api.InProject{Project: i.Project},
			Name: i.Image})
		if err == nil && stored.User != "" {
			return stored.User, nil
		}
		if err != nil && !errors.Is(err, croft.NotFound) { // it may have been removed
			return "", err
		}
	}
	catalog, err := image.LoadCatalog(image.CatalogFiles(), nil)
	if err != nil {
		return "", err
	}
	ref := redact.Image(i.ImageURL)
	for _, entry := range catalog.List() {
		if known, err := entry.Reference(); err == nil && redact.Image(known) == ref && entry.User != "" {
			return entry.User, nil
		}
	}
	cloud, err := c.ListImages(ctx)
	if err != nil {
		return "", err
	}
	for _, known := range cloud.Images {
		if known.Name == i.Image && known.User != "" {
			return known.User, nil
		}
	}
	return "", croft.Errorf(croft.Invalid, "the catalog has no login user for the image %s: give --user", ref)
}
