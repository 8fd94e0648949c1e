package instances

import (
	"context"

	"github.com/spf13/cobra"

	"croft/cli/args"
)

// session is one command's connection to the cloud, with the operations on instances.
type session struct{ *args.Client }

// within is args.With for a session.
func within(cmd *cobra.Command, do func(context.Context, *session) error) error {
	return args.With(cmd, func(ctx context.Context, c *args.Client) error { return do(ctx, &session{c}) })
}
