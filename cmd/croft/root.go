package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"croft/cli"
)

// program is the command line with the commands that run parts of a cloud.
func program() cli.Program {
	return cli.Program{
		Commands: func() []*cobra.Command {
			return []*cobra.Command{
				upCommand(), computeCommand(), mdserverCommand(), placementCommand(), etcdCommand(), caCommand(), doctorCommand(),
			}
		},
		PoolServe: poolServeCommand,
		Resalloc:  resallocBackend,
	}
}

// Run runs the program as cli.Program.Run does.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return program().Run(ctx, args, stdin, stdout, stderr)
}
