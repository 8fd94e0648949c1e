package command

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"croft"
)

// OwnErrors is the annotation of commands that OneForErrors has changed.
const OwnErrors = "croft-own-errors"

// OneForErrors makes a command and its subcommands end with exit code 1 for every error that is not an Exited,
// including wrong arguments and flags. It is for programs whose other exit codes have special meanings. It must be
// called once, after all subcommands were added.
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

// exits starts the paragraph of a help text that lists exit codes.
const exits = "Exit codes:"

// commonExits lists the exit codes of commands that do not document others; see croft.ExitCode.
const commonExits = exits + ` 0 done, 1 failure, 2 wrong usage, 3 not found, 4 no capacity or over quota,
5 conflict, 6 something does not answer, or not in time, 7 not permitted.`

// DocumentExits adds the exit codes to the help of a command and of all its subcommands. A command whose help has no
// such paragraph gets the paragraph of its nearest ancestor with one. It must be called once, after all subcommands
// were added.
func DocumentExits(cmd *cobra.Command) { documentExits(cmd, commonExits) }

func documentExits(cmd *cobra.Command, inherited string) {
	if own := exitsIn(cmd.Long); own != "" {
		inherited = own
	} else {
		text := cmd.Long
		if text == "" {
			text = cmd.Short + "."
		}
		cmd.Long = text + "\n\n" + inherited
	}
	for _, sub := range cmd.Commands() {
		documentExits(sub, inherited)
	}
}

// exitsIn returns the paragraph about exit codes in a help text; empty: it has none.
func exitsIn(text string) string {
	_, after, found := strings.Cut(text, exits)
	if !found {
		return ""
	}
	paragraph, _, _ := strings.Cut(after, "\n\n")
	return exits + paragraph
}
