package policies

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"croft/cli/args"
	"croft/cli/verb"
	"croft/control/api"
	"croft/internal/out"
	"croft/schedule"
)

func explainCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "explain INSTANCE",
		Short: "Explain whether an instance is on the host that its policy chooses, and why",
		Long: `explain computes the order of the hosts again, from the instance's UUID, its current
policy and the current hosts, and prints whether the instance is on the first host that
accepts it, and if not, why.`,
		Example: `  croft policy explain web
  croft policy explain web -o json | jq .trace`,
		ValidArgsFunction: args.CompleteInstances(1),
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			found, err := c.GetStanding(ctx, api.InstanceNamed{ID: c.Args[0], Project: c.Project})
			if err != nil {
				return err
			}
			if c.WantsData() {
				return c.PrintData(found)
			}
			return printStanding(c.Cmd.OutOrStdout(), found)
		}),
	}
}

func printStanding(w io.Writer, s *schedule.Standing) error {
	now := "removed since, so the former one is used"
	if s.Now != nil {
		now = "the same now"
		if s.Now.Generation != s.Used.Generation {
			now = fmt.Sprintf("generation %d now", s.Now.Generation)
		}
	}
	fmt.Fprintf(w, "instance  %s (%s)\n", s.Name, s.Instance)
	fmt.Fprintf(w, "host      %s\n", s.Host)
	fmt.Fprintf(w, "policy    %s, generation %d at the request, %s\n", s.Used.Name, s.Used.Generation, now)
	fmt.Fprintf(w, "input     %d\n", s.Input)
	fmt.Fprintf(w, "stands    %s\n", s.Why)
	if len(s.Refused) > 0 {
		fmt.Fprintln(w, "\nRefused when its host was chosen:")
		t := &out.Table{Color: out.IsColored(w)}
		t.Head("HOST", "WHY")
		for _, r := range s.Refused {
			t.Texts(r.Host, r.Why)
		}
		if err := t.Print(w); err != nil {
			return err
		}
	}
	if len(s.Trace) == 0 {
		return nil
	}
	fmt.Fprintln(w, "\nThe policy gives now:")
	t := &out.Table{Color: out.IsColored(w)}
	t.Head("ORDER", "HOST", "PASS", "VERDICT")
	for i, step := range s.Trace {
		verdict := "may take it"
		if step.Why != "" {
			verdict = step.Why
		}
		if step.ID == s.HostID {
			verdict = "has it"
			if step.Why != "" {
				verdict += ", but " + step.Why
			}
		}
		pass := strconv.Itoa(step.Pass)
		if step.Pass < 0 {
			pass = "over"
		}
		t.Texts(strconv.Itoa(i+1), step.Host, pass, verdict)
	}
	return t.Print(w)
}

// ExportCommand returns the command croft crush export.
func ExportCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Print the CRUSH map of a cloud's hosts, as crushtool reads it",
		Long: `export prints the map by which schedule --policy crush:NAME chooses hosts, with the
policies as rules. Hosts are devices, and 1.0 is the weight of 1024 VCPUs. The crushtool
options for hosts that take no instances now are on stderr.`,
		Example: `  croft crush export > map.txt
  crushtool -c map.txt -o map.bin
  crushtool -i map.bin --test --show-mappings --rule 0 --num-rep 1 --x 42`,
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			m, err := c.GetCrushMap(ctx)
			if err != nil {
				return err
			}
			if c.WantsData() {
				return c.PrintData(m)
			}
			for _, device := range m.Out {
				c.Say("--weight %d 0", device)
			}
			_, err = io.WriteString(c.Cmd.OutOrStdout(), m.Text)
			return err
		}),
	}
	args.AddCloudFlags(cmd.Flags())
	return cmd
}
