package instances

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/control/api"
	"croft/internal/command"
	"croft/internal/out"
)

// maxScreen limits the picture of a screen, in bytes.
const maxScreen = 64 << 20

func screenCommand() *cobra.Command {
	var view viewing
	cmd := &cobra.Command{
		Use:   "screen UUID|NAME [FILE]",
		Short: "Save what the guest's screen shows as a PNG, or open a viewer of it",
		Long: `screen writes a picture of the guest's screen to FILE, or to a file with the name of the
instance in this directory; - is stdout. The instance must have been made with
--display vnc.

With --open it starts vncviewer, and ends with it. With --listen it waits for a viewer
of your choice on a local address, such as 127.0.0.1:5901 or the path of a socket, and
ends when that viewer leaves. Whoever can reach the address sees the screen: only you
can reach a socket. The connection passes the API of the cloud and the agent of the
host. Only one viewer at a time is possible; --takeover ends the other one.`,
		ValidArgsFunction: args.CompleteInstances(1),
		Args:              command.Count(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			viewed := view.open || view.listen != ""
			switch {
			case viewed && len(args) > 1:
				return croft.Errorf(croft.Invalid, "a viewer writes no file: leave out %s", args[1])
			case !viewed && view.takeOver:
				return croft.Errorf(croft.Invalid, "--takeover is for viewers: give --open or --listen")
			}
			return onConsole(cmd, args[0], func(ctx context.Context, c *session, i api.Instance) error {
				if viewed {
					return c.view(ctx, cmd, i, view)
				}
				file := i.Name + ".png"
				if len(args) > 1 {
					file = args[1]
				}
				return c.saveScreen(ctx, cmd, i, file)
			})
		},
	}
	cmd.Flags().BoolVar(&view.open, "open", false, "start vncviewer")
	cmd.Flags().StringVar(&view.listen, "listen", "", "wait for a viewer on this local `address` or socket")
	cmd.Flags().BoolVar(&view.takeOver, "takeover", false, "end the viewer that is attached")
	return cmd
}

// viewing is how a viewer is connected.
type viewing struct {
	open     bool
	listen   string // empty: a free port of the loopback interface
	takeOver bool
}

// saveScreen writes a picture of the screen to a file.
func (c *session) saveScreen(ctx context.Context, cmd *cobra.Command, i api.Instance, file string) error {
	if file == "-" && out.IsTerminal(cmd.OutOrStdout()) {
		return croft.Errorf(croft.Invalid, "a picture is no text for a terminal: name a file, or redirect stdout")
	}
	ctx, cancel := context.WithTimeout(ctx, args.AnswerTimeout)
	defer cancel()
	var picture []byte
	err := c.ReadScreen(ctx, c.Named(string(i.ID)), func(from io.Reader) (err error) {
		picture, err = io.ReadAll(io.LimitReader(from, maxScreen))
		return err
	})
	if err != nil {
		return err
	}
	if file == "-" {
		_, err := cmd.OutOrStdout().Write(picture)
		return err
	}
	if err := os.WriteFile(file, picture, 0o600); err != nil {
		return croft.Errorf(croft.Invalid, "save the screen of %s: %w", i.Name, err)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "the screen of %s is in %s\n", i.Name, file)
	return nil
}

// listenLocally listens on the path of a socket, which only this user can reach, or on an address of this machine.
func listenLocally(ctx context.Context, address string) (net.Listener, error) {
	var config net.ListenConfig
	if strings.Contains(address, "/") {
		dir, err := os.MkdirTemp(filepath.Dir(address), ".croft-screen-") // only this user can enter it
		if err != nil {
			return nil, croft.Errorf(croft.Invalid, "wait for a viewer at %s: %w", address, err)
		}
		defer func() { _ = os.Remove(dir) }()
		l, err := config.Listen(ctx, "unix", filepath.Join(dir, "s"))
		if err == nil {
			l.(*net.UnixListener).SetUnlinkOnClose(false)
			err = errors.Join(os.Chmod(filepath.Join(dir, "s"), 0o600), os.Link(filepath.Join(dir, "s"), address),
				os.Remove(filepath.Join(dir, "s")))
		}
		if err != nil {
			return nil, croft.Errorf(croft.Invalid, "wait for a viewer at %s: %w", address, err)
		}
		return l, nil
	}
	at, err := netip.ParseAddrPort(strings.Replace(address, "localhost:", "127.0.0.1:", 1))
	if err != nil || !at.Addr().IsLoopback() {
		return nil, croft.Errorf(croft.Invalid, "--listen %s: give a local address such as 127.0.0.1:5901, or the path of a "+
			"socket", address)
	}
	l, err := config.Listen(ctx, "tcp", at.String())
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "wait for a viewer at %s: %w; choose another port, or 0 for a free one",
			address, err)
	}
	return l, nil
}

// view connects one viewer to the screen, and returns when either ends.
func (c *session) view(ctx context.Context, cmd *cobra.Command, i api.Instance, v viewing) error {
	viewer, err := exec.LookPath("vncviewer")
	if v.open && err != nil {
		return croft.Errorf(croft.Invalid, "there is no program vncviewer: install one (tigervnc-viewer), or give --listen "+
			"127.0.0.1:5901 and connect a viewer of your choice")
	}
	address := v.listen
	if address == "" {
		address = "127.0.0.1:0"
	}
	l, err := listenLocally(ctx, address)
	if err != nil {
		return err
	}
	if l.Addr().Network() == "unix" {
		defer func() { _ = os.Remove(address) }()
	} else {
		address = l.Addr().String()
	}
	defer l.Close()
	in := api.Screen{InstanceNamed: c.Named(string(i.ID)), TakeOver: v.takeOver}
	return c.AttachScreen(ctx, in, func(screen io.ReadWriteCloser) error {
		fmt.Fprintf(cmd.ErrOrStderr(), "the screen of %s is at %s\n", i.Name, address)
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(ctx, func() { _ = l.Close() })()
		var work sync.WaitGroup
		defer work.Wait()
		defer cancel()
		if v.open {
			work.Go(func() {
				defer cancel()
				run := exec.CommandContext(ctx, viewer, strings.Replace(address, ":", "::", 1))
				run.Stdout, run.Stderr = cmd.ErrOrStderr(), cmd.ErrOrStderr()
				_ = run.Run() // it has reported its error
			})
		}
		near, err := l.Accept()
		if err != nil {
			return nil // interrupted, or the viewer did not start
		}
		return relay(ctx, near, screen)
	})
}

// relay copies both ways between a viewer and a screen until one of them, or ctx, ends.
func relay(ctx context.Context, viewer, screen io.ReadWriteCloser) error {
	end := func() { _, _ = viewer.Close(), screen.Close() }
	defer context.AfterFunc(ctx, end)()
	var work sync.WaitGroup
	work.Go(func() {
		defer end()
		_, _ = io.Copy(screen, viewer)
	})
	_, _ = io.Copy(viewer, screen)
	end()
	work.Wait()
	return nil
}
