package instances

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/control/api"
)

func copyCommand() *cobra.Command {
	var l Login
	var recursive bool
	cmd := &cobra.Command{
		Use:   "cp SOURCE TARGET",
		Short: "Copy files to or from an instance",
		Long: `cp copies a file from this machine to an instance, or from an instance to this machine, by
the system's scp, with the host key, the user and the connection of schedule ssh. One of
both is NAME:PATH or UUID:PATH; a path that does not begin with a slash is below the home
directory of the user. Write ./a:b for a file of this machine with a colon in its name.
The guest needs an SFTP server (Debian: openssh-sftp-server), which the guest tiny lacks.`,
		Example: `  schedule cp setup.sh web:/tmp/
  schedule cp -r web:/var/log ./logs`,
		ValidArgsFunction: args.CompleteInstances(2),
		RunE: func(cmd *cobra.Command, given []string) error {
			from, to := parseEnd(given[0]), parseEnd(given[1])
			if (from.instance == "") == (to.instance == "") {
				return croft.Errorf(croft.Invalid, "cp %s %s: one of both is a file of an instance, such as web:/tmp/x, and the "+
					"other one a file of this machine", given[0], given[1])
			}
			return within(cmd, func(ctx context.Context, c *session) error {
				i, err := c.look(ctx, cmd, from.instance+to.instance)
				if err != nil {
					return err
				}
				return l.connect(ctx, cmd, c.Client, i, "scp", func(options []string, user string) []string {
					if recursive {
						options = append(options, "-r")
					}
					return append(options, "--", from.operand(user, i), to.operand(user, i))
				})
			})
		},
	}
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "copy directories with all that is below them")
	l.Flags(cmd.Flags())
	args.AddWaitFlags(cmd.Flags(), "the instance runs and has an address")
	return cmd
}

// end is one end of a copy.
type end struct {
	instance string // empty: this machine
	path     string
}

// parseEnd parses NAME:PATH, or a path of this machine: as for scp, a colon after a slash belongs to the path.
func parseEnd(text string) end {
	name, path, remote := strings.Cut(text, ":")
	if !remote || name == "" || strings.Contains(name, "/") {
		return end{path: text}
	}
	return end{name, path}
}

// operand returns the end as scp has it.
func (e end) operand(user string, i api.Instance) string {
	switch address := i.Address; {
	case e.instance == "" && !strings.HasPrefix(e.path, "/") && !strings.HasPrefix(e.path, "."):
		return "./" + e.path // so that scp takes neither a colon nor a dash for something else
	case e.instance == "":
		return e.path
	case strings.Contains(address, ":"): // IPv6
		return fmt.Sprintf("%s@[%s]:%s", user, address, e.path)
	default:
		return fmt.Sprintf("%s@%s:%s", user, address, e.path)
	}
}

func portForwardCommand() *cobra.Command {
	var l Login
	cmd := &cobra.Command{
		Use:   "port-forward UUID|NAME PORT|LOCAL:PORT...",
		Short: "Make ports of an instance available on this machine",
		Long: `port-forward listens on ports of this machine, on 127.0.0.1 alone, and connects them to
ports of the instance, through the system's ssh as schedule ssh runs it, until it is
interrupted. It reaches servers that listen on the loopback address of the guest alone, too.
8080:80 connects port 8080 of this machine to port 80 of the instance, and 5432 means
5432:5432.`,
		Example: `  schedule port-forward web 8080:80
  schedule port-forward db 5432 -l debian`,
		ValidArgsFunction: args.CompleteInstances(1),
		RunE: func(cmd *cobra.Command, given []string) error {
			var ports []string
			for _, text := range given[1:] {
				local, remote, err := parsePorts(text)
				if err == nil {
					err = free(local)
				}
				if err != nil {
					return err
				}
				ports = append(ports, "-L", fmt.Sprintf("127.0.0.1:%d:localhost:%d", local, remote))
			}
			return within(cmd, func(ctx context.Context, c *session) error {
				i, err := c.look(ctx, cmd, given[0])
				if err != nil {
					return err
				}
				c.Say("port-forward: %s of 127.0.0.1 lead to %s, until this is interrupted", strings.Join(given[1:], ", "),
					i.Name)
				err = l.connect(ctx, cmd, c.Client, i, "ssh", func(options []string, user string) []string {
					options = append(append(options, "-N", "-o", "ExitOnForwardFailure=yes"), ports...)
					return append(options, "-l", user, "--", i.Address)
				})
				if ctx.Err() != nil {
					return nil // interrupted, which is its usual end
				}
				return err
			})
		},
	}
	l.Flags(cmd.Flags())
	args.AddWaitFlags(cmd.Flags(), "the instance runs and has an address")
	return cmd
}

// parsePorts parses LOCAL:PORT, or PORT for both. Invalid.
func parsePorts(text string) (local, remote int, err error) {
	first, second, both := strings.Cut(text, ":")
	if !both {
		second = first
	}
	for _, p := range []struct {
		text string
		port *int
	}{{first, &local}, {second, &remote}} {
		n, err := strconv.ParseUint(p.text, 10, 16)
		if err != nil || n == 0 {
			return 0, 0, croft.Errorf(croft.Invalid, "%q names no ports: write LOCAL:PORT, such as 8080:80, with numbers from "+
				"1 to 65535", text)
		}
		*p.port = int(n)
	}
	return local, remote, nil
}

// free reports whether a port of this machine can be listened on. Conflict.
func free(port int) error {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return croft.Errorf(croft.Conflict, "port %d of this machine cannot be used (%w): choose another one, such as "+
			"LOCAL:PORT", port, err)
	}
	return l.Close()
}
