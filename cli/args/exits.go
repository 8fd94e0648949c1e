package args

import (
	"errors"

	"github.com/spf13/cobra"

	"croft"
)

// OwnErrors is the annotation of commands that OneForErrors changed.
const OwnErrors = "croft-own-errors"

// OneForErrors makes a command and those below it end with exit code 1 for every error that is no Exited, wrong
// arguments and flags too. It is for programs whose other exit codes have meanings of their own; it is called once,
// when all subcommands have been added.
func OneForErrors(cmd *cobra.Command) {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[OwnErrors] = "yes"
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return one(FlagError(cmd, err)) })
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, given []string) error { return one(check(cmd, given)) }
	}
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, given []string) error { return one(run(cmd, given)) }
	}
	for _, sub := range cmd.Commands() {
		OneForErrors(sub)
	}
}

func one(err error) error {
	if _, exits := errors.AsType[*Exited](err); err == nil || exits {
		return err
	}
	return &Exited{Code: croft.ExitFailure, Err: err}
}
