package pools

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/internal/command"
	"croft/pool/runner"
)

// runnerCommand returns the command for CI systems.
func runnerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "runner",
		Short: "Give every job of a CI system a machine of its own",
		Long: `A runner takes one job of GitHub or GitLab on a machine of a pool, which is deleted after
the job. The commands run on any machine that reaches the pool's manager or the cloud,
and the machines over SSH.`,
	}
	github := githubCommand()
	addFlags(github)
	cmd.AddCommand(github, gitlabCommand())
	return cmd
}

func githubCommand() *cobra.Command {
	var address, tokenFile string
	var group int64
	var shell openSSH
	c := runner.FleetConfig{Shell: &shell}
	cmd := &cobra.Command{
		Use:   "github --url URL --token-file FILE --label LABEL... --tag TAG...",
		Short: "Keep runners waiting at GitHub, each for one job on its own machine",
		Long: `github keeps --idle runners waiting at an organization or a repository of GitHub, and has
at most --max at once. Each has a machine of a pool, takes one job, and is discarded with
its machine. When a runner takes a job, another one follows.

The token in the file needs the permission to manage runners: "Self-hosted runners"
(organization) or "Administration" (repository), read and write. The runner's program is
in the image at --runner-dir, or is downloaded to there.

If the first machine or runner is refused for good, such as a tag that no pool has, the
command ends: exit code 2, 3, 4 or 7. Later it tries again, with growing pauses.

After SIGTERM or SIGINT no runner takes another job, and running jobs may continue for
--drain. A second signal ends the command at once; then the leases of its tickets end,
and so do the machines.`,
		Example: `  croft pool runner github --url https://github.com/example --token-file token \
    --label croft --tag debian --user debian --max 8`,
	}
	f := cmd.Flags()
	f.StringVar(&address, "url", "", "`URL` of the organization or repository, also of GitHub Enterprise")
	f.StringVar(&tokenFile, "token-file", "", "`file` with the token of GitHub; read again whenever it is used")
	f.Int64Var(&group, "group", 1, "`ID` of the runner group; 1 is the default one")
	f.StringArrayVar(&c.Labels, "label", nil, "a `label` that jobs name in runs-on; repeat for more")
	f.StringArrayVar(&c.Tags, "tag", nil, "a `tag` that the machines must have; repeat for more")
	f.IntVar(&c.Idle, "idle", 1, "keep this `number` of runners waiting")
	f.IntVar(&c.Max, "max", 4, "have at most this `number` of runners")
	f.StringVar(&c.Name, "name", defaultRunnerName(),
		"begin the names of runners with this `word`; each command at GitHub needs another one")
	f.StringVar(&c.Dir, "runner-dir", "actions-runner", "`directory` of the runner's program on the machine")
	command.DurationVar(f, &c.JobTimeout, "job-timeout", 6*time.Hour, "end jobs after this `duration`")
	command.DurationVar(f, &c.Lease, "lease", 2*time.Minute,
		"delete machines this `duration` after the command was killed")
	command.DurationVar(f, &c.Boot, "boot-timeout", 5*time.Minute,
		"give up machines whose SSH server or runner does not answer for this `duration`")
	command.DurationVar(f, &c.Poll, "poll", 10*time.Second, "ask GitHub at this interval whether idle runners have a job")
	command.DurationVar(f, &c.Drain, "drain", time.Hour, "let running jobs continue for this `duration` after SIGTERM")
	shell.flags(f)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case address == "":
			return croft.Errorf(croft.Invalid, "name the organization or repository with --url")
		case tokenFile == "":
			return croft.Errorf(croft.Invalid, "name the file with the token of GitHub with --token-file")
		case c.Lease < minLease:
			return croft.Errorf(croft.Invalid, "--lease: use 10s or more, so that the lease can be renewed in time")
		case c.Poll < time.Second:
			return croft.Errorf(croft.Invalid, "--poll: use 1s or more, because GitHub limits requests")
		}
		return askWithShell(cmd, &shell, func(ctx context.Context, m manager) (err error) {
			if c.GitHub, err = runner.NewGitHub(address, tokenFile, group); err != nil {
				return err
			}
			defer c.GitHub.CloseIdle()
			c.Tickets = m
			c.Log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			fleet, err := runner.NewFleet(c)
			if err != nil {
				return err
			}
			return fleet.Run(ctx)
		})
	}
	return cmd
}

// minLease is the shortest lease: it is renewed three times.
const minLease = 10 * time.Second

// askWithShell calls do with a client, after it has completed the settings of ssh.
func askWithShell(cmd *cobra.Command, shell *openSSH, do func(context.Context, manager) error) error {
	s, err := args.LoadSettings(cmd.Flags())
	if err != nil {
		return err
	}
	if err := shell.prepare(cmd, overAPI(s)); err != nil {
		return err
	}
	return ask(cmd, func(ctx context.Context, m manager, _ string) error { return do(ctx, m) })
}

// defaultRunnerName returns a name for the runners of this machine.
func defaultRunnerName() string {
	host, _ := os.Hostname() // without a name of the machine, croft is enough
	host, _, _ = strings.Cut(host, ".")
	name := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' {
			return c
		}
		return -1
	}, "croft-"+host)
	return strings.TrimRight(name[:min(len(name), 40)], "-")
}
