package command

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"croft"
	"croft/internal/build"
	"croft/internal/nearest"
	"croft/internal/out"
)

// Names replaces names of commands in errors and messages, and the name before an error. The grid's packages write
// croft grid, croft ip and croft sshca; a program that has these commands under other names sets Names before it runs.
var Names = strings.NewReplacer()

// Main runs the function of a program with a context that the first signal to end cancels, and exits with its code.
// A second signal ends the process at once.
func Main(run func(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int) {
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it, and Notify would undo that
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args, os.Stdin, os.Stdout, os.Stderr))
}

// Run runs a finished root command, prints a line for each error, and returns the exit code. end returns what follows
// the sentence of an error.
func Run(ctx context.Context, root *cobra.Command, args []string, stdin io.Reader, stdout, stderr io.Writer,
	end func(error) string) int {
	root.SetArgs(args)
	root.SetIn(stdin)
	stdout, lost := out.Check(stdout)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = lost()
	}
	report(stderr, err, end)
	return ExitCode(err)
}

// aliasesInHelp is the part of cobra's template that lists aliases: former words for the same command.
const aliasesInHelp = `{{if gt (len .Aliases) 0}}

Aliases:
  {{.NameAndAliases}}{{end}}`

// Finished sets the properties that all root commands share.
func Finished(root *cobra.Command) *cobra.Command {
	root.Version = build.Version
	root.SetVersionTemplate("croft {{.Version}}\n")
	root.SilenceErrors, root.SilenceUsage = true, true
	root.DisableSuggestions = true
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetUsageTemplate(strings.Replace(root.UsageTemplate(), aliasesInHelp, "", 1))
	if root.Annotations[OwnErrors] == "" {
		root.SetFlagErrorFunc(FlagError)
	}
	return root
}

// Completion returns the command that prints its root's completion script. The help shows how to install that of an
// example, and ends with a note.
func Completion(example, note string) *cobra.Command {
	shells := []string{"bash", "zsh", "fish"}
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print a shell's completion",
		Long: strings.ReplaceAll(`completion prints a script that completes commands, flags and names. To have it in
every new shell:

  bash   schedule completion bash > /etc/bash_completion.d/schedule
  zsh    schedule completion zsh > "${fpath[1]}/_schedule"
  fish   schedule completion fish > ~/.config/fish/completions/schedule.fish

The script for bash needs the package bash-completion.`, "schedule", example) + note,
		Args:      Count(1, 1),
		ValidArgs: shells,
		RunE: func(cmd *cobra.Command, args []string) error {
			out, root := cmd.OutOrStdout(), cmd.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(out, true)
			case "zsh":
				return root.GenZshCompletion(out)
			case "fish":
				return root.GenFishCompletion(out, true)
			}
			return croft.Errorf(croft.Invalid, "no completion for the shell %q, only for bash, zsh and fish%s", args[0],
				nearest.Hint(args[0], shells))
		},
	}
}

// Man returns the command that writes the manual pages of all commands of its root and of the other roots, if any.
func Man(others func() []*cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write the manual pages into a directory",
		Args:  Count(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("write manual pages: %w", err)
			}
			name := cmd.Root().Name()
			header := &doc.GenManHeader{Title: strings.ToUpper(name), Section: "1", Manual: name,
				Source: "croft " + build.Version}
			roots := []*cobra.Command{cmd.Root()}
			if others != nil {
				roots = append(roots, others()...)
			}
			for _, root := range roots {
				root.DisableAutoGenTag = true // keeps the pages reproducible
				escape(root)
				if err := doc.GenManTree(root, header, args[0]); err != nil {
					return fmt.Errorf("write the manual pages of %s: %w", root.Name(), err)
				}
			}
			return nil
		},
	}
}

// escape prepares descriptions for the generator, which reads Markdown. It protects text in angle brackets, such as
// <host>, which would be dropped as HTML, and indents lines that begin with a blank so far that they are not filled.
func escape(cmd *cobra.Command) {
	lines := strings.Split(cmd.Long, "\n")
	for n, line := range lines {
		if strings.HasPrefix(line, "  ") {
			lines[n] = "    " + line
		} else {
			lines[n] = strings.ReplaceAll(line, "<", `\<`)
		}
	}
	cmd.Long = strings.Join(lines, "\n")
	for _, sub := range cmd.Commands() {
		escape(sub)
	}
}
