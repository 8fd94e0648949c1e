package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"croft/cli"
	"croft/cli/admin"
	"croft/cli/serve"
	"croft/pool/resalloc"
)

// program is the command line with the commands that run parts of a cloud.
func program() cli.Program {
	return cli.Program{
		Commands: func() []*cobra.Command {
			return []*cobra.Command{
				serve.Up(), serve.Compute(), serve.Metadata(),
				serve.Placement(placementExportCommand(), placementImportCommand()),
				etcdCommand(), admin.CACommand(), doctorCommand(),
			}
		},
		PoolServe: poolServeCommand,
		Others:    others(),
	}
}

// others are the programs of resalloc.
func others() map[string]cli.Other {
	all := map[string]cli.Other{}
	for _, name := range resalloc.Names {
		all[name] = cli.Other{
			Command: func() *cobra.Command { return resalloc.Command(name, resallocBackend) },
			Version: resalloc.VersionTemplate(name),
		}
	}
	return all
}

// Run runs the program as cli.Program.Run does.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return program().Run(ctx, args, stdin, stdout, stderr)
}
