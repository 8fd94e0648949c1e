package clusters

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cluster"
)

// reaching is how ssh reaches a host of a cluster.
type reaching struct{ user, jump, identity, host string }

func sshCommand() *cobra.Command {
	var r reaching
	cmd := &cobra.Command{
		Use:   "ssh UUID|NAME [COMMAND...]",
		Short: "Log in to a cluster's master, or to another host of it",
		Long: `ssh runs the system's ssh to the address of the master, or of the host that --host names.
ssh itself checks the host's key; that of a host at the site local is known here, and
schedule ssh HOST checks it.`,
		Example: `  croft cluster ssh web
  croft cluster ssh --host slave-0 -l debian web uptime`,
		Args:              args.Count(1, -1),
		ValidArgsFunction: completing(1, offerClusters),
		RunE: func(cmd *cobra.Command, given []string) error {
			return args.With(cmd, func(ctx context.Context, c *args.Client) error {
				asking, cancel := context.WithTimeout(ctx, args.AnswerTimeout)
				defer cancel()
				have, err := find(asking, c, given[0])
				if err != nil {
					return err
				}
				m, err := member(have, r.host)
				if err != nil {
					return err
				}
				return r.run(ctx, cmd, m, given[1:])
			})
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // flags after the name are the command's
	f.StringVar(&r.host, "host", string(cluster.Master), "this `host`: its name, its UUID, master, or slave-0")
	f.StringVarP(&r.user, "user", "l", "", "log in as this `user`")
	f.StringVarP(&r.jump, "jump", "J", "", "go through this `host`")
	f.StringVarP(&r.identity, "identity", "i", "", "`file` of the private key to log in with")
	return cmd
}

// member is the host with this name, with an address. NotFound.
func member(have cluster.Cluster, name string) (cluster.Member, error) {
	var known []string
	for _, m := range have.Members {
		known = append(known, memberName(m))
		if name != memberName(m) && name != m.Name && name != string(m.ID) {
			continue
		}
		if m.Address == "" {
			return m, croft.Errorf(croft.NotFound, "host %s of cluster %s has no address: it is %s", memberName(m),
				have.Name, memberWords(m))
		}
		return m, nil
	}
	return cluster.Member{}, croft.Errorf(croft.NotFound, "cluster %s has no host %q, but %s", have.Name, name,
		strings.Join(known, ", "))
}

// run runs ssh and returns its exit code.
func (r reaching) run(ctx context.Context, cmd *cobra.Command, m cluster.Member, command []string) error {
	var given []string
	for _, option := range [][2]string{{"-l", r.user}, {"-J", r.jump}, {"-i", r.identity}} {
		if option[1] != "" {
			given = append(given, option[0], option[1])
		}
	}
	ssh := exec.CommandContext(ctx, "ssh", append(append(given, "--", m.Address), command...)...)
	ssh.Stdin, ssh.Stdout, ssh.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	ssh.Cancel = func() error { return ssh.Process.Signal(syscall.SIGTERM) }
	ssh.WaitDelay = 2 * time.Second
	err := ssh.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() > 0 {
		return &args.Exited{Code: exit.ExitCode()}
	}
	if errors.Is(err, exec.ErrNotFound) {
		return croft.Errorf(croft.NotFound, "there is no ssh on this machine; install openssh-client")
	}
	if err != nil {
		return fmt.Errorf("log in to %s: %w", memberName(m), err)
	}
	return nil
}
