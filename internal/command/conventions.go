package command

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"croft/internal/out"
)

// Conventions gives a command and all commands below it the properties that follow from their names and usage lines,
// unless a command has set them itself: the number of arguments, the aliases of list and remove, the completion of the
// flag -o, and what a noun does without a verb. It must be called once, after all subcommands were added.
func Conventions(cmd *cobra.Command) {
	subs := cmd.Commands()
	for _, sub := range subs {
		Conventions(sub)
		sub.Aliases = append(sub.Aliases, aliases(sub.Name(), subs)...)
	}
	if cmd.Flags().Lookup("output") != nil || cmd.PersistentFlags().Lookup("output") != nil {
		if _, done := cmd.GetFlagCompletionFunc("output"); !done {
			CompleteFlag(cmd, "output", out.Formats)
		}
	}
	switch {
	case !cmd.HasSubCommands() && cmd.Args == nil:
		cmd.Args = countOf(cmd.Use)
	case cmd.HasSubCommands() && !cmd.Runnable():
		withoutVerb(cmd)
	}
}

// aliases returns the words that call a subcommand besides its name. They are neither completed nor in the help.
func aliases(name string, siblings []*cobra.Command) []string {
	words := map[string][]string{"list": {"ls"}, "remove": {"rm", "delete", "destroy"}}[name]
	return slices.DeleteFunc(words, func(word string) bool {
		return slices.ContainsFunc(
			siblings,
			func(s *cobra.Command) bool { return s.Name() == word || s.HasAlias(word) },
		)
	})
}

// withoutVerb makes a command that only has subcommands list its objects. If it has no subcommand list, it prints its
// help.
func withoutVerb(cmd *cobra.Command) {
	cmd.Args = OnlySubcommands
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	for _, sub := range cmd.Commands() {
		if sub.Name() == "list" && sub.Args(sub, nil) == nil {
			sub.Flags().VisitAll(cmd.Flags().AddFlag)
			sub.PersistentFlags().VisitAll(cmd.Flags().AddFlag)
			cmd.Annotations, cmd.RunE = sub.Annotations, sub.RunE
		}
	}
}

// countOf returns the check of the number of arguments that follows from a usage line such as "set NAME [FILE] --at
// PLACE". Flags and their values do not count.
func countOf(use string) cobra.PositionalArgs {
	least, most := 0, 0
	words := strings.Fields(strings.ReplaceAll(use, "[-", "-"))[1:]
	for i := 0; i < len(words); i++ {
		word := words[i]
		switch {
		case strings.HasPrefix(word, "-"):
			i++ // the value
			continue
		case !strings.HasPrefix(word, "["):
			least++
		}
		if most++; strings.Contains(word, "...") {
			return Count(least, -1)
		}
	}
	return Count(least, most)
}
