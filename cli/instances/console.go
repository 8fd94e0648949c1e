package instances

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/adrg/xdg"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"croft/cli/args"
	"croft/control/api"
	"croft/internal/out"
)

func consoleCommand() *cobra.Command {
	var follow, log, takeOver bool
	cmd := &cobra.Command{
		Use:   "console UUID|NAME",
		Short: "Type at the guest's serial console",
		Long: `console attaches this terminal to the guest's serial console, through the agent of its
host; Ctrl-] leaves. Only one session at a time is possible; --takeover ends another
one. If stdin or stdout is not a terminal, and with --log or --follow, it prints what
the guest wrote, as schedule logs does.`,
		ValidArgsFunction: args.CompleteInstances(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			live := !follow && !log && out.IsTerminal(cmd.InOrStdin()) && out.IsTerminal(cmd.OutOrStdout())
			return onConsole(cmd, args[0], func(ctx context.Context, c *session, i api.Instance) error {
				if live {
					return c.attach(ctx, cmd, i, takeOver)
				}
				return c.console(ctx, cmd.OutOrStdout(), i, follow)
			})
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false,
		"print what the guest wrote and writes, until interrupted")
	cmd.Flags().BoolVar(&log, "log", false, "print what the guest wrote")
	cmd.Flags().BoolVar(&takeOver, "takeover", false, "end the session that is attached")
	return cmd
}

func logsCommand() *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use:               "logs UUID|NAME",
		Short:             "Print what the guest wrote to its serial console",
		ValidArgsFunction: args.CompleteInstances(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return onConsole(cmd, args[0], func(ctx context.Context, c *session, i api.Instance) error {
				return c.console(ctx, cmd.OutOrStdout(), i, follow)
			})
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "continue to print what the guest writes, until interrupted")
	return cmd
}

// onConsole calls do with the instance of the console.
func onConsole(cmd *cobra.Command, idOrName string, do func(context.Context, *session, api.Instance) error) error {
	return within(cmd, func(ctx context.Context, c *session) error {
		i, err := c.Instance(ctx, idOrName)
		if err != nil {
			return err
		}
		return do(ctx, c, i)
	})
}

// console copies the guest's output to w; with follow, it continues with new output.
func (c *session) console(ctx context.Context, w io.Writer, i api.Instance, follow bool) error {
	in := api.ConsoleLog{InstanceNamed: c.Named(string(i.ID)), Follow: follow}
	return c.ReadLog(ctx, in, func(from io.Reader) error { return out.ShowText(w, from) })
}

// EscapeKey leaves a console: Ctrl-], as in telnet and virsh.
const EscapeKey = 0x1d

// attach connects the terminal to the console until the escape key, the end of the guest, or the end of ctx.
func (c *session) attach(ctx context.Context, cmd *cobra.Command, i api.Instance, takeOver bool) error {
	in := api.Console{InstanceNamed: c.Named(string(i.ID)), TakeOver: takeOver}
	return c.AttachConsole(ctx, in, func(guest io.ReadWriteCloser) error {
		in := cmd.InOrStdin().(*os.File) // the caller has checked that it is a terminal, and thus a file
		before, err := term.MakeRaw(int(in.Fd()))
		if err != nil {
			return fmt.Errorf("attach to the console of %s: %w", i.Name, err)
		}
		defer func() { _ = term.Restore(int(in.Fd()), before) }()
		fmt.Fprintf(cmd.ErrOrStderr(), "the console of %s; Ctrl-] leaves\r\n", i.Name)
		left, err := converse(ctx, in, cmd.OutOrStdout(), guest)
		switch {
		case left || ctx.Err() != nil:
			fmt.Fprint(cmd.ErrOrStderr(), "\r\n")
			return nil
		case err != nil:
			return err
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "\r\ninstance %s has closed its console\r\n", i.Name)
		return nil
	})
}

// converse copies in both directions. left says that the escape key ended it.
func converse(ctx context.Context, in *os.File, out io.Writer, guest io.ReadWriteCloser) (left bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = guest.Close() })
	defer stop()
	var work sync.WaitGroup
	work.Go(func() {
		defer cancel()
		left = typeTo(ctx, guest, in)
	})
	_, err = io.Copy(out, guest)
	cancel()
	work.Wait()
	if left {
		err = nil
	}
	return left, err
}

// typeTo sends typed input until the escape key or the end of ctx. It reports whether it was the escape key.
func typeTo(ctx context.Context, guest io.Writer, in *os.File) (escaped bool) {
	b := make([]byte, 1024)
	for ctx.Err() == nil {
		if !out.Readable(in) {
			continue
		}
		n, err := in.Read(b)
		typed, _, escaped := bytes.Cut(b[:n], []byte{EscapeKey})
		if _, failed := guest.Write(typed); failed != nil || escaped || err != nil {
			return escaped
		}
	}
	return false
}

// maxConsole limits the stored console log of a failed instance.
const maxConsole = 1 << 20

// keepConsole saves the console log of a failed instance before its removal deletes the log, and returns the file's
// name; empty: there is no log, or it cannot be read.
func (c *session) keepConsole(ctx context.Context, i api.Instance) string {
	ctx, cancel := context.WithTimeout(ctx, args.AnswerTimeout)
	defer cancel()
	var said tailBuffer
	if err := c.console(ctx, &said, i, false); err != nil || len(said.text) == 0 {
		return "" // it never ran, or its host is gone
	}
	file := filepath.Join(xdg.StateHome, "croft", "consoles", i.Name+"-"+string(i.ID)[:8]+".log")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return ", and its console log cannot be kept: " + err.Error()
	}
	if err := os.WriteFile(file, said.text, 0o600); err != nil {
		return ", and its console log cannot be kept: " + err.Error()
	}
	return ", and what it said on its console is in " + file
}

// tailBuffer keeps the last maxConsole bytes written to it.
type tailBuffer struct{ text []byte }

func (t *tailBuffer) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	if over := len(t.text) - maxConsole; over > 0 {
		t.text = append(t.text[:0], t.text[over:]...)
	}
	return len(p), nil
}
