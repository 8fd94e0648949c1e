package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cloud/direct"
	"croft/node"
	"croft/node/settings"
	"croft/trust"
)

func caRotateCommand() *cobra.Command {
	var finish, force bool
	cmd := onHost(&cobra.Command{
		Use:   "rotate",
		Short: "Have a new authority follow the present one, and end the trust in that",
		Long: `rotate makes new authorities, whose certificates are believed by those who know the
present ones alone, too. Nothing stops: hosts that run get new certificates within
minutes. Both are trusted until

  croft ca rotate --finish

which refuses as long as a host has a certificate of the authority before; with --force
those hosts have to join again (croft token create --host NAME). Make new certificates
for operators (croft ca issue) in between. When it is done, start croft up anew on each
host that serves etcd: etcd reads whom to trust when it starts, and takes certificates
of the authority before until then.`,
	}, func(cmd *cobra.Command, s settings.Settings, _ *slog.Logger) error {
		if force && !finish {
			return croft.Errorf(croft.Invalid, "--force is for --finish")
		}
		own, err := node.CredentialsOnDisk(&s)
		if err != nil {
			return err
		}
		with := func(ctx context.Context, do func(context.Context, trust.RotationStore) error) error {
			return withCloud(ctx, own.StateDir(), do)
		}
		done, said := false, ""
		if finish {
			said = "the authority before is not trusted any more; start croft up anew on each host that serves etcd, so that " +
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
	cmd.Flags().BoolVar(&finish, "finish", false, "end the trust in the authority before")
	cmd.Flags().BoolVar(&force, "force", false, "finish although hosts have certificates of the authority before")
	return cmd
}

// withCloud calls do with the cloud of a state directory, as the host's own operator.
func withCloud(ctx context.Context, stateDir string, do func(context.Context, trust.RotationStore) error) (err error) {
	s := direct.Defaults()
	if err := direct.AddLocal(stateDir, &s.Etcd, &s.Placement); err != nil {
		return err
	}
	store, err := s.Etcd.Open(ctx, false)
	if err != nil {
		return fmt.Errorf("the cloud has to run for this: %w", err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	ctx, cancel := context.WithTimeout(ctx, args.AnswerTimeout)
	defer cancel()
	return do(ctx, store.Trust)
}
