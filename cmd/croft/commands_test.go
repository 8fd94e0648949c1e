package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

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

func TestEveryHelpTextOfTheGridListsTheExitCodes(t *testing.T) {
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
	for _, more := range program.More {
		walk(program.Root(more.Name), false)
	}
}
