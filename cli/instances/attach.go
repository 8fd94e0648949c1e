package instances

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"croft"
	"croft/cli/out"
)

// EscapeKey leaves a console: Ctrl-], as in telnet and virsh.
const EscapeKey = 0x1d

// attach connects the terminal to the console until the escape key, the end of the guest, or the end of ctx.
func (c *session) attach(ctx context.Context, cmd *cobra.Command, st croft.Status) error {
	return c.Consoles.Attach(ctx, st, func(guest io.ReadWriteCloser) error {
		in := cmd.InOrStdin().(*os.File) // only a file is a terminal
		before, err := term.MakeRaw(int(in.Fd()))
		if err != nil {
			return fmt.Errorf("attach to the console of %s: %w", st.Instance.Name, err)
		}
		defer func() { _ = term.Restore(int(in.Fd()), before) }()
		fmt.Fprintf(cmd.ErrOrStderr(), "the console of %s; Ctrl-] leaves\r\n", st.Instance.Name)
		left, err := converse(ctx, in, cmd.OutOrStdout(), guest)
		switch {
		case left || ctx.Err() != nil:
			fmt.Fprint(cmd.ErrOrStderr(), "\r\n")
			return nil
		case err != nil:
			return err
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "\r\ninstance %s has closed its console\r\n", st.Instance.Name)
		return nil
	})
}

// converse copies in both directions. left: the escape key ended it.
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

// typeTo sends typed input until the escape key, which it reports, or the end of ctx.
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
