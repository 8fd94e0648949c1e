package cli

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/grid/watch"
	"croft/internal/command"
)

func beatCommand(o *options) *cobra.Command {
	var receive, store string
	var script bool
	var lease time.Duration
	cmd := &cobra.Command{
		Use:   "beat",
		Short: "Print a beat of this machine, or receive those of a node",
		Long: `On a node, beat prints one line that says that the node lives. It goes over ssh to the
controller, by a timer or a loop:

  while :; do croft grid beat | ssh -T grid@controller; sleep 10; done

The node needs no croft for that, since a line is: beat BOOT COUNT REVISION LOAD LEASE

  while :; do echo "beat $(cat /proc/sys/kernel/random/boot_id) $(cut -d' ' -f1 /proc/uptime |
    tr -d .) - $(cut -d' ' -f1 /proc/loadavg) 0" | ssh -T grid@controller; sleep 10; done

On the controller, the key of each node is in ~/.ssh/authorized_keys with the command that
receives it. The name there is what counts; nothing that a node sends can change it:

  restrict,command="croft grid beat -C /srv/cluster --receive web1" ssh-ed25519 AAAA... web1

--script prints a program for nodes with exclusive jobs: it sends beats, asks for a lease
with each, and ends the jobs when the lease runs out. Its first lines say how to set it up.`,
		Example: `  croft grid beat --script > /usr/local/sbin/croft-beat
  croft grid beat | croft grid beat -C /srv/cluster --receive web1`,
		Args: command.Count(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if receive != "" && (script || lease != 0) || script && lease != 0 {
				return croft.Errorf(croft.Invalid, "--receive, --script and --lease do not go together")
			}
			if script {
				_, err := io.WriteString(cmd.OutOrStdout(), watch.Script)
				return err
			}
			clock, err := watch.SystemClock()
			if err != nil {
				return err
			}
			if receive == "" {
				return sendBeat(cmd, clock, lease)
			}
			settings, s, err := openStore(o.dir, store, clock)
			if err != nil {
				return err
			}
			return s.Serve(cmd.Context(), receive, cmd.InOrStdin(), cmd.OutOrStdout(), settings.Rules)
		},
	}
	f := cmd.Flags()
	f.StringVar(&receive, "receive", "", "take beats of this `node` from the standard input, and answer each")
	f.BoolVar(&script, "script", false, "print the program for nodes with exclusive jobs")
	command.DurationVar(f, &lease, "lease", 0, "ask for a lease that long, such as 20s: only for programs that end with it")
	storeFlag(cmd, &store)
	return cmd
}

func sendBeat(cmd *cobra.Command, clock watch.Clock, lease time.Duration) error {
	b, err := watch.LocalBeat(clock)
	if err != nil {
		return err
	}
	if lease < 0 || lease > time.Hour || lease%time.Second != 0 {
		return croft.Errorf(croft.Invalid, "--lease: give whole seconds, at most an hour")
	}
	b.Lease = lease
	_, err = fmt.Fprintln(cmd.OutOrStdout(), b)
	return err
}

func storeFlag(cmd *cobra.Command, store *string) {
	cmd.Flags().StringVar(store, "state", "", "the `directory` of beats and of the watch's memory "+
		"(/var/lib/croft/grid/ID, or below ~/.local/state)")
}

// openStore opens the store of a cluster's watch; dir is its directory, if not the usual one.
func openStore(cluster, dir string, clock watch.Clock) (watch.Settings, *watch.Store, error) {
	settings, err := watch.ReadSettings(cluster)
	if err != nil {
		return settings, nil, err
	}
	if dir == "" {
		base := "/var/lib"
		if os.Getuid() != 0 {
			home, err := os.UserHomeDir()
			if err != nil {
				return settings, nil, croft.Errorf(croft.Invalid,
					"find the directory of the watch: %w; name one with --state", err)
			}
			base = cmp.Or(os.Getenv("XDG_STATE_HOME"), filepath.Join(home, ".local", "state"))
		}
		dir = filepath.Join(base, "croft", "grid", settings.Cluster)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return settings, nil, fmt.Errorf("find the directory of the watch: %w", err)
	}
	s, err := watch.OpenStore(dir, clock)
	return settings, s, err
}
