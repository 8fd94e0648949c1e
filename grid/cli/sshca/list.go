package sshca

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"croft/grid/sshca"
	"croft/internal/command"
	"croft/internal/out"
)

func revokeCommand() *cobra.Command {
	o, reason := &options{}, ""
	cmd := &cobra.Command{
		Use:   "revoke WHAT...",
		Short: "Take back certificates or keys",
		Long: `revoke takes back certificates, by serial number, key id or file, or a public key with
all of its certificates, by file. It adds to ca/revoked.jsonl, and makes from it
ca/revoked.krl, which sshd reads as RevokedKeys, and ca/revoked_keys, which has the
keys alone as text. Servers believe a certificate until they have the new file.`,
		Args: command.Count(1, -1),
		RunE: run(func(cmd *cobra.Command, given []string) error {
			a, err := o.authority()
			if err != nil {
				return err
			}
			var all []sshca.Revocation
			for _, what := range given {
				r, err := a.Find(what)
				if err != nil {
					return err
				}
				r.Reason = reason
				all = append(all, r)
			}
			changed, err := a.Revoke(context.WithoutCancel(cmd.Context()), all)
			if err != nil {
				return err
			}
			if !changed {
				fmt.Fprintln(cmd.ErrOrStderr(), "all of this was revoked before")
				return nil
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), a.KRLFile())
			return err
		}),
	}
	o.flags(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "why, for those who read ca/revoked.jsonl (`text`)")
	return cmd
}

// listed is a certificate as data.
type listed struct {
	sshca.Issued
	State string `json:"state"` // valid, ended or revoked
}

func listCommand() *cobra.Command {
	o, all := &options{}, false
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the certificates that were issued",
		Long: `list lists the certificates that are valid, from the log beside the private keys; with
--all also those that have ended or were revoked.`,
		Args: command.Count(0, 0),
		RunE: run(func(cmd *cobra.Command, _ []string) error {
			format, err := command.FormatOf(cmd)
			if err != nil {
				return err
			}
			a, err := o.authority()
			if err != nil {
				return err
			}
			list, err := certificates(a, time.Now())
			if err != nil {
				return err
			}
			if !all {
				list = slices.DeleteFunc(list, func(l listed) bool { return l.State != "valid" })
			}
			if out.IsData(format) {
				return out.PrintData(cmd.OutOrStdout(), format, list)
			}
			return printCertificates(cmd, list)
		}),
	}
	o.flags(cmd)
	cmd.Flags().BoolVarP(&all, "all", "a", false, "also those that have ended or were revoked")
	command.AddFormat(cmd)
	return cmd
}

func certificates(a *sshca.CA, now time.Time) ([]listed, error) {
	issued, err := a.Issued()
	if err != nil {
		return nil, err
	}
	revoked, err := a.Revoked()
	if err != nil {
		return nil, err
	}
	list := []listed{}
	for _, e := range issued {
		state := "valid"
		if !now.Before(e.To) {
			state = "ended"
		}
		if sshca.IsRevoked(e, revoked) {
			state = "revoked"
		}
		list = append(list, listed{e, state})
	}
	return list, nil
}

func printCertificates(cmd *cobra.Command, list []listed) error {
	t := out.Table{Color: out.IsColored(cmd.OutOrStdout())}
	t.Head("ID", "KIND", "PRINCIPALS", "UNTIL", "STATE")
	for _, l := range list {
		state := out.Cell{Text: l.State}
		switch l.State {
		case "valid":
			state.Color = out.Green
		case "revoked":
			state.Color = out.Red
		}
		t.Row(out.Cell{Text: l.ID}, out.Cell{Text: string(l.Kind)}, out.Cell{Text: strings.Join(l.Principals, ",")},
			out.Cell{Text: l.To.Format(time.RFC3339)}, state)
	}
	_, err := fmt.Fprint(cmd.OutOrStdout(), t.String())
	return err
}
