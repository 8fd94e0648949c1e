package args

import (
	"errors"
	"iter"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"croft"
	"croft/internal/nearest"
)

// AllFlags are the flags of a command, its own and inherited.
func AllFlags(cmd *cobra.Command) iter.Seq[*pflag.Flag] {
	return func(yield func(*pflag.Flag) bool) {
		more := true
		cmd.Flags().VisitAll(func(f *pflag.Flag) { more = more && yield(f) })
	}
}

// FlagError describes what is wrong with a flag, and proposes a similar one.
func FlagError(cmd *cobra.Command, err error) error {
	if missing, ok := errors.AsType[*pflag.NotExistError](err); ok {
		return unknownFlag(cmd, missing)
	}
	if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		want := map[string]string{
			"duration": "a duration such as 30s or 5m", "int": "a whole number", "int64": "a whole number",
			"uint16":  "a port",
			"float64": "a number", "bool": "true or false",
		}[wrong.GetFlag().Value.Type()]
		if want != "" {
			return croft.Errorf(croft.Invalid, "--%s: want %s, not %q", wrong.GetFlag().Name, want, wrong.GetValue())
		}
	}
	return croft.Errorf(croft.Invalid, "%w; see %s --help", err, cmd.CommandPath())
}

// unknownFlag is the error for a flag that does not exist: --name, -n, or -name with one dash too few.
func unknownFlag(cmd *cobra.Command, missing *pflag.NotExistError) error {
	var flags []string
	for flag := range AllFlags(cmd) {
		flags = append(flags, "--"+flag.Name)
	}
	given, meant := "--"+missing.GetSpecifiedName(), "--"+missing.GetSpecifiedName()
	if short := missing.GetSpecifiedShortnames(); short != "" {
		word, _, _ := strings.Cut(short, "=")
		given, meant = "-"+word, "--"+word
	}
	if hint := nearest.Hint(meant, flags); hint != "" && len(meant) > len("--x") {
		return croft.Errorf(croft.Invalid, "%s has no flag %s%s", cmd.CommandPath(), given, hint)
	}
	return croft.Errorf(croft.Invalid, "%s has no flag %s; see %s --help", cmd.CommandPath(), given, cmd.CommandPath())
}
