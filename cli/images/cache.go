package images

import (
	"slices"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cli/out"
	"croft/image"
	"croft/internal/nearest"
)

// addCacheFlags defines the flags of commands that read this host's cache.
func addCacheFlags(cmd *cobra.Command) {
	args.AddHostFlags(cmd, args.StateDirFlag)
	cmd.Flags().StringP("output", "o", out.FormatText, "print text, table, json or yaml (`format`)")
	// Fails only for a flag that does not exist or has a completion; this one is defined above.
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(out.Formats,
		cobra.ShellCompDirectiveNoFileComp))
}

// cacheOf returns the directory of this host's cache and the format of the output.
func cacheOf(cmd *cobra.Command) (dir, format string, err error) {
	if format, err = cmd.Flags().GetString("output"); err != nil {
		return "", "", err
	}
	if !slices.Contains(out.Formats, format) {
		return "", "", croft.Errorf(croft.Invalid, "output %q is none of text, table, wide, json and yaml%s", format,
			nearest.Hint(format, out.Formats))
	}
	s, _, err := args.LoadHostSettings(cmd, args.StateDirFlag)
	return image.CacheDir(s.StateDir), format, err
}
