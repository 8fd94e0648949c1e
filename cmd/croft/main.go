// Command croft is the whole cloud in one binary: each subcommand is one of its programs. Invoked as schedule,
// compute or mdserver, it is that subcommand, and as fission, itabot or lockpick the subcommand grid, ip or sshca; as
// resalloc, resalloc-maint or resalloc-server it is that program of resalloc, for croft's pools.
//
// Results go to stdout and messages to stderr; the exit code depends on the kind of the error.
package main

import (
	"context"
	"io"

	"croft/cli"
	commands "croft/internal/command"
)

func main() { commands.Main(Run) }

// Run runs the program as cli.Program.Run does.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return withGrid(withResalloc(cli.Program{})).Run(ctx, args, stdin, stdout, stderr)
}
