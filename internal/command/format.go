package command

import (
	"slices"

	"github.com/spf13/cobra"

	"croft"
	"croft/internal/nearest"
	"croft/internal/out"
)

// AddFormat defines the flag -o of a command that reads no settings of a cloud.
func AddFormat(cmd *cobra.Command) {
	cmd.Flags().StringP("output", "o", out.FormatText, "print text, table, json or yaml (`format`)")
	CompleteFlag(cmd, "output", out.Formats)
}

// FormatOf returns the format that the flag -o names. Invalid.
func FormatOf(cmd *cobra.Command) (string, error) {
	format, err := cmd.Flags().GetString("output")
	if err == nil && !slices.Contains(out.Formats, format) {
		err = croft.Errorf(croft.Invalid, "output %q is not one of text, table, wide, json and yaml%s", format,
			nearest.Hint(format, out.Formats))
	}
	return format, err
}

// CompleteFlag completes a flag of the command with a fixed list of values.
func CompleteFlag(cmd *cobra.Command, flag string, values []string) {
	err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // a mistake in the program: the flag is not defined yet, or has a completion
	}
}
