package pools

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/adrg/xdg"
	"github.com/spf13/cobra"

	"croft"
	"croft/internal/build"
	"croft/internal/command"
	"croft/internal/out"
	"croft/internal/plain"
	"croft/internal/userfile"
	"croft/pool/runner"
)

func gitlabCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "gitlab",
		Short: "Run each job of GitLab on its own machine: the steps of GitLab's custom executor",
		Long: `GitLab Runner calls config, prepare, run and cleanup for each job, if its configuration
has the section that config-toml prints. prepare opens a ticket for the job's machine,
run runs the job's scripts there, and cleanup gives the machine back. If the runner is
killed, the ticket's lease ends, and the machine with it.

A failure of the job's script ends with BUILD_FAILURE_EXIT_CODE, every other failure with
SYSTEM_FAILURE_EXIT_CODE, so GitLab can repeat the job.`,
	}
	for _, sub := range []*cobra.Command{gitlabPrepare(), gitlabRun(), gitlabCleanup(), gitlabTOML()} {
		addFlags(sub)
		cmd.AddCommand(sub)
	}
	cmd.AddCommand(gitlabConfig())
	return cmd
}

// systemFailure makes the error of a step end with the exit code for failures of the system.
func systemFailure(err error) error {
	if err == nil {
		return nil
	}
	return &command.Exited{Code: exitCode("SYSTEM_FAILURE_EXIT_CODE", 2), Err: err}
}

// exitCode returns an exit code that GitLab's runner chose.
func exitCode(variable string, otherwise int) int {
	if code, err := strconv.Atoi(os.Getenv(variable)); err == nil && code > 0 && code < 256 {
		return code
	}
	return otherwise
}

// gitlabJob returns the job of this step.
func gitlabJob() (runner.GitLabJob, error) {
	return runner.ReadGitLabJob(os.Getenv("JOB_RESPONSE_FILE"), os.Getenv("CUSTOM_ENV_CI_SERVER_URL"),
		os.Getenv("CUSTOM_ENV_CI_RUNNER_ID"))
}

// step makes the RunE of a step.
func step(shell *openSSH, e *runner.Executor,
	do func(context.Context, *cobra.Command, runner.GitLabJob, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, given []string) error {
		job, err := gitlabJob()
		if err != nil {
			return systemFailure(err)
		}
		err = askWithShell(cmd, shell, func(ctx context.Context, m manager) error {
			e.Tickets, e.Shell, e.User = m, shell, shell.user
			e.Dir = filepath.Join(xdg.StateHome, "croft", "runner")
			e.Say = func(text string) { fmt.Fprintln(cmd.ErrOrStderr(), "croft: "+plain.Line(text)) }
			return do(ctx, cmd, job, given)
		})
		if exited, ok := errors.AsType[*command.Exited](err); ok {
			return exited
		}
		return systemFailure(err)
	}
}

func gitlabConfig() *cobra.Command {
	var builds, cache string
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the settings of a job for GitLab Runner",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return systemFailure(out.PrintData(cmd.OutOrStdout(), out.FormatJSON, map[string]any{
				"driver":     map[string]string{"name": "croft", "version": build.Version},
				"builds_dir": builds, "cache_dir": cache, "builds_dir_is_shared": false,
			}))
		},
	}
	cmd.Flags().StringVar(&builds, "builds-dir", "/var/tmp/builds", "`directory` of the job's files on the machine")
	cmd.Flags().StringVar(&cache, "cache-dir", "/var/tmp/cache", "`directory` of the job's cache on the machine")
	return cmd
}

func gitlabPrepare() *cobra.Command {
	var shell openSSH
	var e runner.Executor
	cmd := &cobra.Command{
		Use:   "prepare --tag TAG...",
		Short: "Get a machine for the job",
	}
	f := cmd.Flags()
	f.StringArrayVar(&e.Tags, "tag", nil, "a `tag` that the machine must have; repeat for more")
	command.DurationVar(f, &e.Lease, "lease", 10*time.Minute,
		"delete the machine this `duration` after GitLab Runner was killed")
	command.DurationVar(f, &e.Wait, "timeout", 30*time.Minute, "wait no longer than this `duration` for a machine")
	command.DurationVar(f, &e.Boot, "boot-timeout", 5*time.Minute,
		"give up a machine whose SSH server does not answer for this `duration`")
	shell.flags(f)
	cmd.RunE = step(&shell, &e, func(ctx context.Context, _ *cobra.Command, job runner.GitLabJob, _ []string) error {
		if e.Lease < time.Minute {
			return croft.Errorf(croft.Invalid, "--lease: use 1m or more, because nothing renews it between two steps")
		}
		return e.Prepare(ctx, job)
	})
	return cmd
}

func gitlabRun() *cobra.Command {
	var shell openSSH
	var e runner.Executor
	cmd := &cobra.Command{
		Use:   "run SCRIPT STAGE",
		Short: "Run a script of the job on its machine",
	}
	shell.flags(cmd.Flags())
	cmd.RunE = step(&shell, &e, func(ctx context.Context, cmd *cobra.Command, job runner.GitLabJob,
		given []string) error {
		script, err := userfile.Read(given[0])
		if err != nil {
			return croft.Errorf(croft.Invalid, "read the script of stage %s: %w", plain.Line(given[1]), err)
		}
		err = e.Run(ctx, job, script, out.Inherited(cmd.OutOrStdout()), cmd.ErrOrStderr())
		exit, ok := errors.AsType[*runner.Exit](err)
		if !ok {
			return err
		}
		if file := os.Getenv("BUILD_EXIT_CODE_FILE"); file != "" {
			if err := os.WriteFile(file, []byte(strconv.Itoa(exit.Code)+"\n"), 0o600); err != nil {
				return err
			}
		}
		return &command.Exited{Code: exitCode("BUILD_FAILURE_EXIT_CODE", 1)}
	})
	return cmd
}

func gitlabCleanup() *cobra.Command {
	var shell openSSH
	var e runner.Executor
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Give the job's machine back, if it has one",
	}
	do := step(&shell, &e, func(ctx context.Context, _ *cobra.Command, job runner.GitLabJob, _ []string) error {
		return e.Cleanup(ctx, job)
	})
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		if os.Getenv("JOB_RESPONSE_FILE") == "" {
			return nil // GitLab Runner failed before it knew of the job
		}
		return do(cmd, given)
	}
	return cmd
}

func gitlabTOML() *cobra.Command {
	var shell openSSH
	var tags []string
	cmd := &cobra.Command{
		Use:   "config-toml --tag TAG...",
		Short: "Print the section of GitLab Runner's config.toml that calls these commands",
		Long: `config-toml prints the lines for config.toml below [[runners]], where executor has to be
"custom". The flags go into the commands.`,
	}
	cmd.Flags().StringArrayVar(&tags, "tag", nil, "a `tag` that the machines must have; repeat for more")
	shell.flags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if len(tags) == 0 {
			return croft.Errorf(croft.Invalid, "name with --tag what the machines must have")
		}
		self, err := os.Executable()
		if err != nil {
			return err
		}
		reach := changed(cmd, "settings", "server", "context")
		login := append(reach[:len(reach):len(reach)], changed(cmd, "user", "ssh-key", "jump", "any-host-key")...)
		var tagged []string
		for _, tag := range tags {
			tagged = append(tagged, "--tag", tag)
		}
		return writeTOML(cmd.OutOrStdout(), self, map[string][]string{
			"prepare": append(tagged, login...), "run": login, "cleanup": reach})
	}
	return cmd
}

// changed returns the flags of a command that were given, as arguments.
func changed(cmd *cobra.Command, names ...string) (given []string) {
	for _, name := range names {
		f := cmd.Flags().Lookup(name)
		if f == nil || !f.Changed {
			continue
		}
		value := f.Value.String()
		if name == "settings" || name == "ssh-key" { // GitLab Runner calls commands in other directories
			if path, err := filepath.Abs(value); err == nil {
				value = path
			}
		}
		given = append(given, "--"+name+"="+value)
	}
	return given
}

// writeTOML prints the section of the custom executor.
func writeTOML(w io.Writer, self string, flags map[string][]string) error {
	text := "  executor = \"custom\"\n  [runners.custom]\n"
	for _, name := range []string{"config", "prepare", "run", "cleanup"} {
		words := append([]string{"pool", "runner", "gitlab", name}, flags[name]...)
		for i := range words {
			words[i] = strconv.Quote(words[i])
		}
		text += fmt.Sprintf("    %s_exec = %q\n    %s_args = [%s]\n", name, self, name, strings.Join(words, ", "))
	}
	_, err := io.WriteString(w, text)
	return err
}
