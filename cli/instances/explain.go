package instances

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cli/out"
	"croft/schedule"
)

// briefRows is the limit of rows of a kind unless a table was requested.
const briefRows = 12

// explain lists the hosts with room for a request that is not made.
func (c *session) explain(ctx context.Context, cmd *cobra.Command, r schedule.Request) error {
	ctx, cancel := context.WithTimeout(ctx, args.AnswerTimeout)
	defer cancel()
	why, err := c.Requests.Explain(ctx, r)
	if err != nil {
		return err
	}
	stdout, format := cmd.OutOrStdout(), c.Settings.Output
	if format == out.FormatJSON || format == out.FormatYAML {
		err = out.PrintData(stdout, format, why)
	} else {
		rows := briefRows
		if out.IsTable(format) {
			rows = why.Hosts
		}
		err = printExplanation(stdout, why, rows)
	}
	if err == nil && len(why.Fits) == 0 {
		err = croft.Errorf(croft.NoCapacity, "%w", why)
	}
	return err
}

// printWhyNot explains why no host was left, if that is the reason: on stdout if data is wanted and there is no
// other result, else on stderr.
func (c *session) printWhyNot(cmd *cobra.Command, reason error, some bool) error {
	why, told := errors.AsType[*schedule.Explanation](reason)
	if !told {
		return nil
	}
	switch format := c.Settings.Output; {
	case some, format == out.FormatText:
		return printExplanation(cmd.ErrOrStderr(), why, briefRows)
	case out.IsTable(format):
		return printExplanation(cmd.ErrOrStderr(), why, why.Hosts)
	default:
		return out.PrintData(cmd.OutOrStdout(), format, why)
	}
}

// printExplanation prints tables of the hosts that fit, of the effects of the requirements, and of what the other
// hosts lack, with at most most rows each.
func printExplanation(w io.Writer, why *schedule.Explanation, most int) error {
	var tables []*out.Table
	if len(why.Fits) > 0 {
		tables = append(tables, fitTable(why, most))
	}
	if len(why.Rows) > 0 {
		tables = append(tables, requirementTable(why, most), missingTable(why, most))
	}
	for i, t := range tables {
		if i > 0 {
			fmt.Fprintln(w)
		}
		t.Color = out.IsColored(w)
		if err := t.Print(w); err != nil {
			return err
		}
	}
	return nil
}

func fitTable(why *schedule.Explanation, most int) *out.Table {
	t := &out.Table{}
	t.Head("RANK", "HOST", "FREE AFTER")
	for _, fit := range why.Fits[:min(most, len(why.Fits))] {
		t.Texts(fmt.Sprint(fit.Rank), fit.Host, fmt.Sprintf("%.0f %%", 100*fit.Free))
	}
	return t.AndMore(len(why.Fits) - most)
}

func requirementTable(why *schedule.Explanation, most int) *out.Table {
	t := &out.Table{}
	t.Head("REQUIREMENT", "DROPS", "NEAREST MISS")
	for _, r := range why.Requirements[:min(most, len(why.Requirements))] {
		t.Texts(r.Requirement, fmt.Sprintf("%d of %d", r.Dropped, why.Hosts), r.Nearest+": "+r.Miss)
	}
	return t.AndMore(len(why.Requirements) - most)
}

func missingTable(why *schedule.Explanation, most int) *out.Table {
	t := &out.Table{}
	t.Head("HOST", "MISSING")
	for _, row := range why.Rows[:min(most, len(why.Rows))] {
		host := row.Hosts[0]
		if n := len(row.Hosts) - 1; n > 0 {
			host = fmt.Sprintf("%s and %d more", host, n)
		}
		t.Texts(host, strings.Join(row.Missing, ", "))
	}
	return t.AndMore(len(why.Rows) - most)
}
