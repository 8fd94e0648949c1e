// Package admin has the commands for operators of a cloud: the audit, the tokens with which hosts join, the authority
// of certificates, and snapshots.
package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"croft/cli/args"
	"croft/hosts/audit"
	"croft/internal/out"
	"croft/internal/plain"
)

// AuditCommand returns the command croft audit.
func AuditCommand() *cobra.Command {
	var fix bool
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Compare records, orders, claims, guests and disks of all hosts",
		Long: `audit compares records, names, orders, observations and claims in Placement with each
other and with the guests and disks of every host. It prints every difference with its
cause. Operations in progress are not reported. Hosts that do not answer are named on
stderr as unchecked.

With --fix it repairs differences whose repair cannot harm a guest or a recorded disk.
Agents repair most of these automatically within minutes.

Exit codes: 0 no difference, or all repaired; 1 differences; others as for schedule: 2
wrong usage, 3 not found, 5 conflict, 6 something does not answer, 7 not permitted.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return args.With(cmd, func(ctx context.Context, c *args.Client) error {
				look := c.AuditCloud
				if fix {
					look = c.RepairCloud
				}
				report, err := look(ctx)
				if err != nil {
					return fmt.Errorf("audit: %w", err)
				}
				if err := printAudit(cmd, c.Settings.Output, report); err != nil {
					return err
				}
				return verdict(report)
			})
		},
	}
	args.AddCloudFlags(cmd.Flags())
	cmd.Flags().BoolVar(&fix, "fix", false, "make the repairs that are safe")
	return cmd
}

// verdict returns an error if differences remain.
func verdict(report audit.Report) error {
	left := 0
	for _, d := range report.Differences {
		if !d.Settled() {
			left++
		}
	}
	switch {
	case left == 0:
		return nil
	case left < len(report.Differences) || !anyMendable(report):
		return fmt.Errorf("audit: %d of %d differences are left", left, len(report.Differences))
	}
	return errors.New("audit: the hosts, Placement and the records differ; --fix makes the safe repairs")
}

func anyMendable(report audit.Report) bool {
	for _, d := range report.Differences {
		if d.Mendable {
			return true
		}
	}
	return false
}

// printAudit prints the differences, and reports unreadable data on stderr.
func printAudit(cmd *cobra.Command, format string, report audit.Report) error {
	for _, u := range report.Unchecked {
		fmt.Fprintf(cmd.ErrOrStderr(), "host %s is unchecked, its guests and disks: %s\n", plain.Line(u.Name),
			plain.Line(u.Why))
	}
	if out.IsData(format) {
		return out.PrintData(cmd.OutOrStdout(), format, struct {
			Differences []audit.Difference `json:"differences"`
			Unchecked   []audit.Unchecked  `json:"unchecked"`
		}{append([]audit.Difference{}, report.Differences...), append([]audit.Unchecked{}, report.Unchecked...)})
	}
	for _, d := range report.Differences {
		if _, err := fmt.Fprintln(cmd.OutOrStdout(), plain.Line(sentence(d))); err != nil {
			return err
		}
	}
	return nil
}

// sentence describes a difference in one line: its kind, the instance and the host, the reason, and the outcome or the
// remedy.
func sentence(d audit.Difference) string {
	var b strings.Builder
	noun := cmp.Or(d.Noun, "instance")
	kind := string(d.Kind)
	if noun == "snapshot" {
		kind = strings.ReplaceAll(kind, "volume", noun)
	}
	b.WriteString(kind)
	switch {
	case d.Instance != "" && d.Name != "":
		fmt.Fprintf(&b, ": %s %s (%s)", noun, d.Name, d.Instance)
	case d.Instance != "":
		fmt.Fprintf(&b, ": %s %s", noun, d.Instance)
	}
	if d.Host != "" {
		fmt.Fprintf(&b, " on host %s", d.HostName)
	}
	b.WriteString(": " + d.Cause)
	switch {
	case d.Outcome != "":
		b.WriteString("; " + d.Outcome)
	case d.Advice != "":
		b.WriteString("; do: " + d.Advice)
	case d.Mendable:
		b.WriteString("; --fix mends it")
	}
	return b.String()
}
