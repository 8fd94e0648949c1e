package command_test

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"croft/internal/command"
)

func TestTheUsageLineSaysHowManyArgumentsACommandTakes(t *testing.T) {
	for use, counts := range map[string][2]int{ // the fewest and the most; -1: any number
		"list": {0, 0}, "show NAME": {1, 1}, "show [NAME]": {0, 1}, "remove NAME...": {1, -1},
		"set [PROJECT] RESOURCE=LIMIT...": {1, -1}, "set KIND [-f FILE]": {1, 1},
		"create NAME TYPE [--slaves N]":       {2, 2},
		"add PROJECT --peer PEER --role ROLE": {1, 1}, "check NAME [FILE]": {1, 2}, "add NAME FILE|-|KEY": {2, 2},
	} {
		for n := range 5 {
			cmd := &cobra.Command{Use: use, RunE: func(*cobra.Command, []string) error { return nil }}
			command.Conventions(cmd)
			wanted := n >= counts[0] && (n <= counts[1] || counts[1] < 0)
			if err := cmd.Args(cmd, strings.Fields(strings.Repeat("x ", n))); (err == nil) != wanted {
				t.Errorf("%s with %d arguments: %v", use, n, err)
			}
		}
	}
}
