package instances

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/control/api"
	"croft/internal/shell"
)

func forwardCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "forward UUID|NAME [PORT]",
		Short: "Connect stdin and stdout to a port of an instance",
		Long: `forward connects to a TCP port of the instance, 22 if none is given, sends it the
input and prints what it sends. With CROFT_URL the connection goes through the cloud,
so it works where the instance cannot be reached from here; schedule ssh uses it then.`,
		Example: `  ssh -o ProxyCommand='schedule forward web' root@web
  echo | schedule forward web 80`,
		ValidArgsFunction: args.CompleteInstances(1),
		RunE: func(cmd *cobra.Command, given []string) error {
			port := 22
			if len(given) > 1 {
				var err error
				if port, err = strconv.Atoi(given[1]); err != nil || port < 1 || port > 65535 {
					return croft.Errorf(croft.Invalid, "%q is not a port: use a number from 1 to 65535", given[1])
				}
			}
			return within(cmd, func(ctx context.Context, c *session) error {
				i, err := c.Instance(ctx, given[0])
				if err != nil {
					return err
				}
				in := api.GuestPort{InstanceNamed: c.Named(string(i.ID)), Port: port}
				return c.ForwardPort(ctx, in, func(guest io.ReadWriteCloser) error {
					stop := context.AfterFunc(ctx, func() { _ = guest.Close() })
					defer stop()
					go func() { _, _ = io.Copy(guest, cmd.InOrStdin()) }() // ends with the process
					if _, err := io.Copy(cmd.OutOrStdout(), guest); ctx.Err() == nil {
						return err
					}
					return nil // ssh interrupts its ProxyCommand when it ends
				})
			})
		},
	}
}

// ProxyCommand returns the command with which ssh reaches an instance through the cloud.
func ProxyCommand(cmd *cobra.Command, id croft.InstanceID) ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	words := []string{self}
	if filepath.Base(self) != "schedule" {
		words = append(words, "schedule")
	}
	words = append(words, "forward")
	for _, flag := range []string{"settings", args.ContextFlag} {
		if value, err := cmd.Flags().GetString(flag); err == nil && value != "" {
			words = append(words, "--"+flag, value)
		}
	}
	words = append(words, string(id))
	for i, word := range words { // quoted for ssh and the shell that it starts
		words[i] = shell.Quote(strings.ReplaceAll(word, "%", "%%"))
	}
	return []string{"-o", fmt.Sprintf("ProxyCommand=%s", strings.Join(words, " "))}, nil
}
