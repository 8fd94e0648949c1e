package serve

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/internal/out"
	"croft/node"
)

// Up returns the command croft up.
func Up() *cobra.Command {
	flags := append([]args.HostFlag{args.StateDirFlag, args.LogLevelFlag, args.CloudFlag},
		append(args.AgentFlags, append(args.EmbeddedFlags, args.InsecureFlag)...)...)
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run a whole cloud on this machine, or make it a host of another",
		Long: `Run a whole cloud on this machine in one process: etcd, Placement, the metadata server
and the agent. It runs until it is interrupted; its virtual machines keep running, and
the next croft up finds them.

With --join - it reads a token from the input, which croft token create prints on a host
of another cloud: this machine becomes a host of that cloud and runs the agent alone,
now and whenever croft up starts again. --join @FILE reads it from a file that not
everybody may read. The token is never an argument, since every list of processes shows
those. With --only-join it ends after joining: start the package's service then.

With --etcd-member as well it serves the cloud's etcd and Placement too. With three such
hosts, the first one counted, the loss of any one stops nothing. The others reach it at
etcd.listen and etcd.peer_listen, with certificates that it gets with the token.

With --cloud it runs no Placement: OpenStack's is used, as Keystone names it. With
--hypervisor none this machine is no host itself: other hosts join.`,
	}
	args.AddHostFlags(cmd, flags...)
	cmd.Flags().Lookup(args.InsecureFlag.Flag).NoOptDefVal = "true"
	detach := cmd.Flags().Bool("detach", false, "run in the background; return once the cloud takes requests")
	given := cmd.Flags().String("join", "",
		"make this machine a host of another cloud: `TOKEN` is - for a line of the input, or @ and the name of a file")
	onlyJoin := cmd.Flags().Bool("only-join", false, "with --join: end when this machine has joined")
	member := cmd.Flags().Bool("etcd-member", false,
		"with --join: serve the cloud's etcd and Placement here too")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, log, err := args.LoadHostSettings(cmd, flags...)
		if err != nil {
			return err
		}
		if cmd.Flags().Changed("join") {
			token, err := tokenFrom(*given, cmd.InOrStdin(), cmd.ErrOrStderr())
			if err == nil {
				err = node.Join(cmd.Context(), s, token, *member, cmd.ErrOrStderr())
			}
			if err != nil || *onlyJoin {
				return err
			}
		} else if *onlyJoin {
			return croft.Errorf(croft.Invalid, "--only-join needs --join: give that and a token")
		} else if *member {
			return croft.Errorf(croft.Invalid,
				"--etcd-member goes with --join -: print a token for that with croft token create on a host of the cloud")
		}
		if *detach {
			return startDetached(cmd, s)
		}
		return node.Supervised(cmd.Context(), log, func(ready func()) error {
			return node.Up(cmd.Context(), s, log, func() {
				tellReady(cmd.ErrOrStderr(), "croft is up; try: croft schedule VCPU:1,MEMORY_MB:256,DISK_GB:1 --wait")
				ready()
			})
		})
	}
	return cmd
}

// tokenFrom reads the token given to --join: - means a line of stdin, and @FILE a file.
func tokenFrom(given string, stdin io.Reader, words io.Writer) (string, error) {
	if given != "-" {
		return args.TokenInFile("--join", given, "on the input with --join -")
	}
	if out.IsTerminal(stdin) {
		fmt.Fprint(words, "the token: ")
	}
	line, err := bufio.NewReader(io.LimitReader(stdin, 1<<16)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("read the token: %w", err)
	}
	return line, nil
}
