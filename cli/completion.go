package cli

import (
	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/internal/nearest"
)

// completionCommand prints the completion of its root.
func completionCommand() *cobra.Command {
	shells := []string{"bash", "zsh", "fish"}
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print a shell's completion",
		Long: `completion prints a script that completes commands, flags and the names of
instances. To have it in every new shell:

  bash   schedule completion bash > /etc/bash_completion.d/schedule
  zsh    schedule completion zsh > "${fpath[1]}/_schedule"
  fish   schedule completion fish > ~/.config/fish/completions/schedule.fish

croft, compute, mdserver and resalloc's programs have one each of their own.`,
		Args:      args.Count(1, 1),
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
