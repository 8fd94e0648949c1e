// Command croft is the whole cloud in one binary: each subcommand is one of its programs. Invoked as schedule,
// compute or mdserver, it is that subcommand, and as fission, itabot or lockpick the subcommand grid, ip or sshca; as
// resalloc, resalloc-maint or resalloc-server it is that program of resalloc, for croft's pools.
//
// Results go to stdout and messages to stderr; the exit code depends on the kind of the error.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"croft/cli"
)

func main() {
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it, and Notify would undo that
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(Run(ctx, os.Args, os.Stdin, os.Stdout, os.Stderr))
}

// Run runs the program as cli.Program.Run does.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return withGrid(withResalloc(cli.Program{})).Run(ctx, args, stdin, stdout, stderr)
}
