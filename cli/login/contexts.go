package login

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/client/login"
	"croft/internal/command"
	"croft/internal/out"
)

// ContextCommand returns the command croft context.
func ContextCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "context",
		Short: "Choose between several logins",
		Long: `context manages the logins that croft login stores, each under a name. One of them is
the current one, which commands use unless CROFT_CONTEXT or --context name another, or
CROFT_URL a cloud without a login.`,
		Example: `  croft login --name work https://cloud.example:8781
  croft context list
  croft context use work
  croft schedule list --context home`,
	}
	cmd.AddCommand(listCommand(), useCommand(), showCommand(), removeCommand())
	return cmd
}

// entry is a context as printed, without its secrets.
type entry struct {
	Name    string        `json:"name"`
	Current bool          `json:"current"`
	URL     string        `json:"url"`
	User    string        `json:"user,omitempty"`
	Project croft.Project `json:"project,omitempty"`
	CA      string        `json:"ca,omitempty"`
	Issuer  string        `json:"issuer,omitempty"`
	Expires *time.Time    `json:"expires,omitempty"`
	Renewed bool          `json:"renewed"` // croft renews it
}

func entryOf(all login.Contexts, name string) entry {
	c := all.Contexts[name]
	e := entry{Name: name, Current: name == all.Current, URL: c.URL, User: c.User, Project: c.Project, CA: c.CA,
		Issuer: c.Issuer.URL, Renewed: c.Refresh != ""}
	if !c.Expires.IsZero() {
		e.Expires = &c.Expires
	}
	return e
}

// expiry describes how long a login is valid.
func (e entry) expiry() string {
	switch {
	case e.Renewed:
		return "renewed"
	case e.Expires == nil:
		return "-" // only the cloud knows
	case e.Expires.Before(time.Now()):
		return "expired"
	}
	return e.Expires.Local().Format(time.DateTime)
}

// overridden reports on stderr what takes precedence over the current context.
func overridden(cmd *cobra.Command) {
	switch {
	case os.Getenv("CROFT_URL") != "":
		fmt.Fprintln(cmd.ErrOrStderr(), "CROFT_URL is set, and overrides contexts")
	case os.Getenv(login.Variable) != "":
		fmt.Fprintf(cmd.ErrOrStderr(), "%s is set, and overrides the current context: %s\n", login.Variable,
			os.Getenv(login.Variable))
	}
}

func listCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the contexts; a star marks the current one",
		RunE: func(cmd *cobra.Command, _ []string) error {
			format, err := command.FormatOf(cmd)
			if err != nil {
				return err
			}
			all, err := login.Own().Read()
			if err != nil {
				return err
			}
			list := []entry{}
			t := out.Table{Color: out.IsColored(cmd.OutOrStdout())}
			t.Head("", "NAME", "URL", "USER", "PROJECT", "EXPIRES")
			for _, name := range all.Names() {
				e := entryOf(all, name)
				list = append(list, e)
				star := " "
				if e.Current {
					star = "*"
				}
				t.Texts(star, name, e.URL, out.OrDash(e.User), out.OrDash(string(e.Project)), e.expiry())
			}
			overridden(cmd)
			if out.IsData(format) {
				return out.PrintData(cmd.OutOrStdout(), format, list)
			}
			if len(list) == 0 {
				fmt.Fprintln(cmd.ErrOrStderr(), "there is no context: croft login makes one")
				return nil
			}
			return t.Print(cmd.OutOrStdout())
		},
	}
	command.AddFormat(cmd)
	return cmd
}

func useCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "use NAME",
		Short:             "Make a context the current one",
		ValidArgsFunction: completeContexts,
		RunE: func(cmd *cobra.Command, given []string) error {
			err := login.Own().Change(func(all *login.Contexts) error {
				_, err := all.Find(given[0])
				if err == nil {
					all.Current = given[0]
				}
				return err
			})
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "context %s is the current one\n", given[0])
			overridden(cmd)
			return nil
		},
	}
}

func showCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "show [NAME]",
		Short:             "Show a context, by default the current one, without its secrets",
		ValidArgsFunction: completeContexts,
		RunE: func(cmd *cobra.Command, given []string) error {
			format, err := command.FormatOf(cmd)
			if err != nil {
				return err
			}
			all, err := login.Own().Read()
			if err != nil {
				return err
			}
			if len(given) == 0 {
				name, err := current()
				if err != nil {
					return err
				}
				given = []string{name}
			}
			if _, err := all.Find(given[0]); err != nil {
				return err
			}
			e := entryOf(all, given[0])
			if out.IsData(format) {
				return out.PrintData(cmd.OutOrStdout(), format, e)
			}
			t := out.Table{Color: out.IsColored(cmd.OutOrStdout())}
			for _, row := range [][2]string{{"name", e.Name}, {"url", e.URL}, {"user", e.User},
				{"project", string(e.Project)}, {"ca", e.CA}, {"issuer", e.Issuer},
				{"expires", strings.Trim(e.expiry(), "-")}} {
				if row[1] != "" {
					t.Texts(row[0], row[1])
				}
			}
			return t.Print(cmd.OutOrStdout())
		},
	}
	command.AddFormat(cmd)
	return cmd
}

func removeCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "remove NAME",
		Short:             "Remove a context, as croft logout does",
		ValidArgsFunction: completeContexts,
		RunE:              func(cmd *cobra.Command, given []string) error { return forget(cmd, given[0]) },
	}
}

// completeContexts completes the name of a context.
func completeContexts(_ *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
	all, err := login.Own().Read()
	if err != nil || len(given) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return all.Names(), cobra.ShellCompDirectiveNoFileComp
}
