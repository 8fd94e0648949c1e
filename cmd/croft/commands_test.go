package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli"
	commands "croft/internal/command"
)

func TestTheCommandsThatListThingsOfTheGridExist(t *testing.T) {
	program := withGrid(cli.Program{})
	for _, more := range program.More {
		for noun, list := range more.Listings {
			words := strings.Fields(list)[1:]
			if _, rest, err := program.Root("croft").Find(words); err != nil || len(rest) > 0 {
				t.Errorf("%s: %q is no command: %v", noun, list, err)
			}
		}
	}
}

func TestEveryHelpTextListsTheExitCodes(t *testing.T) {
	program := withGrid(cli.Program{})
	var walk func(cmd *cobra.Command, own bool)
	walk = func(cmd *cobra.Command, own bool) {
		own = own || cmd.Annotations[commands.OwnErrors] != ""
		for _, sub := range cmd.Commands() {
			walk(sub, own)
		}
		_, codes, found := strings.Cut(cmd.Long, "Exit codes:")
		if !found || !own && !strings.Contains(codes, "7 not permitted") || strings.Contains(codes, "Exit codes:") {
			t.Errorf("the help of %s does not list its exit codes once, with 7:\n%s", cmd.CommandPath(), cmd.Long)
		}
	}
	for _, name := range []string{"croft", "schedule", "compute", "mdserver", "fission", "itabot", "lockpick"} {
		walk(program.Root(name), false)
	}
}

func TestEveryCommandCountsItsArguments(t *testing.T) {
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		if cmd.Args == nil || cmd.Annotations[commands.OwnErrors] != "" {
			return
		}
		for _, n := range []int{0, 1, 2, 9} {
			if err := cmd.Args(cmd, make([]string, n)); err != nil && croft.KindOf(err) != croft.Invalid {
				t.Errorf("%s refuses %d arguments as %v, not as wrong input: use command.Count", cmd.CommandPath(), n, err)
			}
		}
	}
	program := withGrid(cli.Program{})
	for _, name := range []string{"croft", "schedule"} {
		walk(program.Root(name))
	}
}

func TestTheHelpGroupsAllCommands(t *testing.T) {
	for _, sub := range withGrid(cli.Program{}).Root("croft").Commands() {
		if sub.GroupID == "" {
			t.Errorf("the help lists croft %s outside of the groups", sub.Name())
		}
	}
}
