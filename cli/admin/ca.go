package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/control/cloud/direct"
	"croft/internal/out"
	"croft/internal/wording"
	"croft/node"
	"croft/node/settings"
	"croft/trust"
)

// CACommand returns the command croft ca, for use on the host that has the authority.
func CACommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ca",
		Short: "Show and renew this host's certificates, issue operators' ones, rotate the authority",
		Long: `The first croft up of a cloud makes its certificate authority, in state_dir/ca: one for
etcd, whose certificates read and write everything, and one for hosts. Hosts get
certificates when they join and renew them automatically, so most clouds need none of
these commands. They work on files, as root on the host that has the authority.

A certificate is valid until it expires (join.certificate_life); there is no revocation
list. To end access earlier:

  a host        croft host remove: the join server and Placement refuse it within a second.
                etcd itself knows no hosts: a compromised host that had access to etcd
                is locked out by croft ca rotate, rotate --finish, and a restart
                of croft up.
  an operator   the same.

The keys in state_dir/ca are needed only to join, to renew and for these commands; an
outage is tolerable, since certificates are renewed with a third of their life left.
Keep a copy of that directory where only you can read it. If you copy it to the state
directory of a host that serves etcd (croft up --etcd-member), hosts can also join and
renew there after its next croft up. Other hosts learn of that when they start; where
trust is strict, add the address (HOST:8777) to join in their joined.yaml. Copy the
directory again after croft ca rotate, and after --finish.`,
		Example: `  croft ca show
  croft ca issue --operator anna --to anna-access
  croft ca rotate`,
	}
	cmd.AddCommand(caShowCommand(), caIssueCommand(), caRenewCommand(), caRotateCommand())
	return cmd
}

func caShowCommand() *cobra.Command {
	cmd := onHost(&cobra.Command{
		Use:   "show",
		Short: "Show the authority and this host's certificates, and when they expire",
		Long: `show lists the authority, if this host has it, and this host's certificates. croft host
list reports the hosts whose certificates are not renewed in time.`,
	}, func(cmd *cobra.Command, s settings.Settings, _ *slog.Logger) error {
		format, err := cmd.Flags().GetString("output")
		if err != nil {
			return err
		}
		if !slices.Contains(out.Formats, format) {
			return croft.Errorf(croft.Invalid, "output %q is not one of text, table, wide, json and yaml", format)
		}
		all, err := trust.AllHeld(s.StateDir)
		if err == nil && len(all) == 0 {
			err = croft.Errorf(croft.NotFound,
				"%s has no certificates: a cloud that listens on this machine alone needs none",
				s.StateDir)
		}
		if len(all) == 0 {
			return err
		}
		return errors.Join(printCertificates(cmd, format, all), err)
	})
	cmd.Flags().StringP("output", "o", out.FormatText, "print text, table, json or yaml (`format`)")
	return cmd
}

func printCertificates(cmd *cobra.Command, format string, all []trust.Held) error {
	if out.IsData(format) {
		return out.PrintData(cmd.OutOrStdout(), format, all)
	}
	t := out.Table{Color: out.IsColored(cmd.OutOrStdout())}
	t.Head("AUTHORITY", "OF", "STATE", "UNTIL", "FILE")
	for _, c := range all {
		state := out.Cell{Text: c.State, Color: out.Green}
		if c.State != trust.Good {
			state = out.Cell{Text: c.State, Color: out.Red}
		}
		t.Row(out.Cell{Text: string(c.Authority)}, out.Cell{Text: c.Of}, state,
			out.Cell{Text: c.Until.Local().Format(time.DateOnly)}, out.Cell{Text: c.File})
	}
	return t.Print(cmd.OutOrStdout())
}

func caIssueCommand() *cobra.Command {
	var operator, to string
	cmd := onHost(&cobra.Command{
		Use:   "issue --operator NAME --to DIRECTORY",
		Short: "Issue certificates for an operator who works from another machine",
		Long: `issue makes a directory with the certificates of an operator, with their keys, and a
schedule.yaml that names them and says where the cloud is. As ~/.config/croft on
another machine, schedule and croft work from there:

  croft ca issue --operator anna --to anna-access
  scp -rp anna-access anna@laptop:.config/croft

The operator may do everything. Other etcd clients, such as etcdctl, use etcd.pem as
certificate and key, and etcd-ca.pem as authority. The certificates are not renewed
automatically: run issue with the same --to directory again before they expire.`,
	}, func(cmd *cobra.Command, s settings.Settings, log *slog.Logger) error {
		if operator == "" || to == "" {
			return croft.Errorf(croft.Invalid, "name the operator and the directory: --operator NAME --to DIRECTORY")
		}
		if err := issueTo(cmd.Context(), s, operator, to); err != nil {
			return err
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "%s has what %s needs, for %s: anyone who has it may do everything in this "+
			"cloud\n",
			to, operator, wording.Duration(s.Join.CertificateLife))
		reached, err := direct.ReadLocal(s.StateDir)
		if err == nil && reached.OnlyHere() {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s works on this machine alone: etcd and Placement listen on %s; set etcd.listen "+
				"and placement.listen to an address that the other machine reaches, start croft up again and issue again\n",
				to, strings.Join(reached.Etcd.Endpoints, ", "))
		}
		return nil
	})
	cmd.Flags().StringVar(&operator, "operator", "", "the operator's `name`")
	cmd.Flags().StringVar(&to, "to", "", "`directory` to make")
	return cmd
}

// issueTo writes the files of an operator into a directory.
func issueTo(ctx context.Context, s settings.Settings, name, dir string) error {
	if _, err := trust.AuthorityPartition(s.StateDir); err != nil {
		return err
	}
	access, err := direct.ReadLocal(s.StateDir)
	if err != nil {
		return err
	}
	if err := trust.IssueOperator(ctx, s.StateDir, name, dir, s.Join.CertificateLife); err != nil {
		return err
	}
	return access.Inside().Write(filepath.Join(dir, direct.SettingsFile),
		"# Made by croft ca issue. Paths are relative to this file.\n")
}

func caRenewCommand() *cobra.Command {
	return onHost(&cobra.Command{
		Use:   "renew",
		Short: "Renew this host's certificates now",
		Long: `renew makes new keys and certificates for this host at once, for example
if the old keys may have been read. A running croft uses them from its next connection
on. The old certificates stay valid until they expire; croft ca --help says how to end
their access before.`,
	}, func(cmd *cobra.Command, s settings.Settings, _ *slog.Logger) error {
		own, err := node.CredentialsOnDisk(&s)
		if err != nil {
			return err
		}
		for _, k := range own.Keepers() {
			if _, err := k.Renew(cmd.Context(), "asked for"); err != nil {
				return err
			}
			left, err := k.Files.Remaining()
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%s %s\n", k.Files.Pair(), trust.Expiry(time.Now().Add(left)))
		}
		return nil
	})
}

func caRotateCommand() *cobra.Command {
	var finish, force bool
	cmd := onHost(&cobra.Command{
		Use:   "rotate",
		Short: "Replace the cloud's authority by a new one, and end the trust in the old one",
		Long: `rotate makes new authorities, whose certificates are also accepted by programs that know
only the present authorities. Nothing stops: running hosts get new certificates within
minutes. Both are trusted until

  croft ca rotate --finish

which refuses as long as a host has a certificate of the old authority; with --force
those hosts have to join again (croft token create --host NAME). Make new certificates
for operators (croft ca issue) in between. Afterwards restart croft up on each host that
serves etcd: etcd reads the trusted authorities only when it starts, and accepts
certificates of the old one until then.`,
	}, func(cmd *cobra.Command, s settings.Settings, _ *slog.Logger) error {
		if force && !finish {
			return croft.Errorf(croft.Invalid, "--force is for --finish")
		}
		own, err := node.CredentialsOnDisk(&s)
		if err != nil {
			return err
		}
		with := func(ctx context.Context, do func(context.Context, trust.RotationStore, trust.Known) error) error {
			return withCloud(ctx, own.StateDir(), do)
		}
		done, said := false, ""
		if finish {
			said = "the previous authority is no longer trusted; restart croft up on each host that serves etcd, so that " +
				"it knows"
			done, err = own.FinishRotation(cmd.Context(), force, with)
		} else {
			said = "new authorities sign from now on; hosts get new certificates within some minutes, and then: croft ca " +
				"rotate --finish"
			done, err = own.Rotate(cmd.Context(), with)
		}
		if done {
			fmt.Fprintln(cmd.ErrOrStderr(), said)
		}
		return err
	})
	cmd.Flags().BoolVar(&finish, "finish", false, "end the trust in the old authority")
	cmd.Flags().BoolVar(&force, "force", false, "finish although hosts have certificates of the old authority")
	return cmd
}

// withCloud calls do with the cloud of a state directory, as the host's own operator.
func withCloud(ctx context.Context, stateDir string,
	do func(context.Context, trust.RotationStore, trust.Known) error) (err error) {
	s := direct.Defaults()
	if err := direct.AddLocal(stateDir, &s.Etcd, &s.Placement); err != nil {
		return err
	}
	store, err := s.Etcd.Open(ctx, false)
	if err != nil {
		return fmt.Errorf("the cloud must be running for this: %w", err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	ctx, cancel := context.WithTimeout(ctx, args.AnswerTimeout)
	defer cancel()
	return do(ctx, store.Trust, store.Registry)
}

// onHost returns a command that works on a host's files.
func onHost(cmd *cobra.Command, do func(cmd *cobra.Command, s settings.Settings,
	log *slog.Logger) error) *cobra.Command {
	args.AddHostFlags(cmd, hostCommandFlags...)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, log, err := args.LoadHostSettings(cmd, hostCommandFlags...)
		if err != nil {
			return err
		}
		return do(cmd, s, log)
	}
	return cmd
}

// hostCommandFlags are the flags of commands that work on a host's files.
var hostCommandFlags = []args.HostFlag{args.StateDirFlag, args.LogLevelFlag}
