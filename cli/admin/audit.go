// Package admin has the commands for operators of a cloud: the audit, tokens with which hosts join, the authority
// of certificates, and snapshots.
package admin

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"croft"
	"croft/audit"
	"croft/cli/args"
	"croft/cli/out"
	"croft/internal/plain"
)

// AuditCommand makes the command croft audit.
func AuditCommand() *cobra.Command {
	var fix bool
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Compare records, orders, claims, guests and disks of all hosts",
		Long: `audit compares what is on record with what there is: records, names, orders,
observations, claims in Placement, and on every host the guests and their disks. It
prints every difference with its cause, and nothing where there is none; what is under
way is none. Hosts that do not answer are named on stderr as unchecked.

With --fix it mends what no guest and no disk on record can suffer from. The agents do
most of that by themselves, within minutes.

Exit codes: 0 no difference, or all mended; 1 differences; others as for schedule.`,
		Args: args.Count(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return args.With(cmd, func(ctx context.Context, c *args.Client) error {
				report, err := c.Audits.Audit(ctx)
				if err != nil {
					return fmt.Errorf("audit: %w", err)
				}
				outcomes := make([]string, len(report.Differences))
				if fix {
					mendAll(ctx, c.Audits.Mend, report, outcomes)
				}
				if err := printAudit(cmd, c.Settings.Output, report, outcomes); err != nil {
					return err
				}
				return verdict(report, outcomes)
			})
		},
	}
	args.AddCloudFlags(cmd.Flags())
	cmd.Flags().BoolVar(&fix, "fix", false, "mend what is safe to mend")
	return cmd
}

const (
	mended      = "mended"
	mendedAbove = "mended together with the one above" // of the same kind and instance
)

// mendAll mends the mendable differences and records the outcome of each. Differences with one cause are mended
// and reported once: a claim that leaked on two hosts is two differences.
func mendAll(ctx context.Context, mend func(context.Context, audit.Difference) error, report audit.Report,
	outcomes []string) {
	type thing struct {
		kind     audit.Kind
		instance croft.InstanceID
		name     string
	}
	done := map[thing]bool{}
	for i, d := range report.Differences {
		if !d.Mendable {
			continue
		}
		one := thing{d.Kind, d.Instance, ""}
		if d.Instance == "" || d.Kind == audit.LostName || d.Kind == audit.StrayFiles {
			one.name = d.Name + string(d.Host) // separate per name and host
		}
		if done[one] {
			outcomes[i] = mendedAbove
			continue
		}
		if err := mend(ctx, d); err != nil {
			outcomes[i] = "not mended: " + err.Error()
			continue
		}
		outcomes[i], done[one] = mended, true
	}
}

// verdict returns an error if differences remain.
func verdict(report audit.Report, outcomes []string) error {
	left := 0
	for _, outcome := range outcomes {
		if outcome != mended && outcome != mendedAbove {
			left++
		}
	}
	switch {
	case left == 0:
		return nil
	case left < len(outcomes) || !anyMendable(report):
		return fmt.Errorf("audit: %d of %d differences are left", left, len(outcomes))
	}
	return errors.New("audit: the hosts, Placement and the records differ; --fix mends what is safe")
}

func anyMendable(report audit.Report) bool {
	for _, d := range report.Differences {
		if d.Mendable {
			return true
		}
	}
	return false
}

// printAudit prints the differences, and on stderr what could not be read.
func printAudit(cmd *cobra.Command, format string, report audit.Report, outcomes []string) error {
	for _, u := range report.Unchecked {
		fmt.Fprintf(cmd.ErrOrStderr(), "host %s is unchecked, its guests and disks: %s\n", plain.Line(u.Name),
			plain.Line(u.Why))
	}
	if format == out.FormatJSON || format == out.FormatYAML {
		type result struct {
			audit.Difference
			Outcome string `json:"outcome,omitempty"`
		}
		results := []result{}
		for i, d := range report.Differences {
			results = append(results, result{d, outcomes[i]})
		}
		return out.PrintData(cmd.OutOrStdout(), format, struct {
			Differences []result          `json:"differences"`
			Unchecked   []audit.Unchecked `json:"unchecked"`
		}{results, append([]audit.Unchecked{}, report.Unchecked...)})
	}
	for i, d := range report.Differences {
		if _, err := fmt.Fprintln(cmd.OutOrStdout(), plain.Line(sentence(d, outcomes[i]))); err != nil {
			return err
		}
	}
	return nil
}

// sentence is a difference on one line: what, of which instance and host, why, and the outcome or what to do.
func sentence(d audit.Difference, outcome string) string {
	var b strings.Builder
	b.WriteString(string(d.Kind))
	switch {
	case d.Instance != "" && d.Name != "":
		fmt.Fprintf(&b, ": instance %s (%s)", d.Name, d.Instance)
	case d.Instance != "":
		fmt.Fprintf(&b, ": instance %s", d.Instance)
	}
	if d.Host != "" {
		fmt.Fprintf(&b, " on host %s", d.HostName)
	}
	b.WriteString(": " + d.Cause)
	switch {
	case outcome != "":
		b.WriteString("; " + outcome)
	case d.Advice != "":
		b.WriteString("; do: " + d.Advice)
	case d.Mendable:
		b.WriteString("; --fix mends it")
	}
	return b.String()
}
