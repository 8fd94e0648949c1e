package admin

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/internal/checks"
	"croft/internal/out"
	"croft/node/checkup"
)

// doctorFormats are the values of --output.
var doctorFormats = []string{out.FormatText, out.FormatJSON, out.FormatYAML}

// DoctorCommand returns the command croft doctor.
func DoctorCommand() *cobra.Command {
	flags := append([]args.HostFlag{args.StateDirFlag, args.LogLevelFlag, args.EtcdFlag}, args.AgentFlags...)
	flags = append(flags, args.EmbeddedFlags...)
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check this host, and print the remedy for each fault",
		Long: `doctor checks what the agent needs on this host, with the agent's settings, and changes
nothing. Each line says ok, warn (it works, slower or with less) or fail; the exit code
is 1 where anything failed.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			format, err := cmd.Flags().GetString("output")
			if err != nil {
				return err
			}
			if !slices.Contains(doctorFormats, format) {
				return croft.Errorf(croft.Invalid, "output %q is not one of text, json and yaml", format)
			}
			s, _, err := args.LoadHostSettings(cmd, flags...)
			if err != nil {
				return err
			}
			reach, err := args.Reach(cmd, &s)
			if err != nil {
				return err
			}
			findings, err := checkup.Examine(cmd.Context(), s, reach)
			if err != nil {
				return err
			}
			if err := printFindings(cmd.OutOrStdout(), format, findings); err != nil {
				return err
			}
			if !checks.Healthy(findings) {
				return errors.New("this host is not ready: see the lines that say fail")
			}
			return nil
		},
	}
	args.AddHostFlags(cmd, flags...)
	cmd.Flags().StringP("output", "o", out.FormatText, "print text, json or yaml (`format`)")
	return cmd
}

// printFindings prints one line per result, followed by the remedy if something is wrong.
func printFindings(w io.Writer, format string, findings []checks.Result) error {
	if format != out.FormatText {
		return out.PrintData(w, format, findings)
	}
	for _, f := range findings {
		line := fmt.Sprintf("%-4s  %-14s  %s", f.Level, f.Check, f.Found)
		if f.Do != "" {
			line += "; do: " + f.Do
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}
