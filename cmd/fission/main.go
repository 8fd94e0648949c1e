// Command fission is the grid without the cloud: the commands of croft grid, those of croft ip as itabot, and those of
// croft sshca as lockpick. Invoked as itabot or lockpick, it is that subcommand.
//
// Results go to stdout and messages to stderr; the exit codes are croft's.
package main

import (
	"croft/grid/cli/fission"
	"croft/internal/command"
)

func main() { command.Main(fission.Run) }
