package top

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"croft/internal/out"
)

// Control sequences that all terminals support: alternate screen on and off, cursor off and on, to the corner,
// clear the rest of a line, clear the rest of the screen.
const (
	EnterScreen = "\x1b[?1049h\x1b[?25l"
	LeaveScreen = "\x1b[?25h\x1b[?1049l"
	toCorner    = "\x1b[H"
	ClearLine   = "\x1b[K"
	clearRest   = "\x1b[J"
)

// topPause is the shortest time between two redraws for changes; keys are handled at once.
const topPause = 200 * time.Millisecond

// show draws the cloud on a terminal whenever it changes, until q or the end of ctx.
func (w *watch) show(ctx context.Context, in io.Reader, stdout io.Writer) error {
	keyboard, display := in.(*os.File), stdout.(*os.File) // only files are terminals
	before, err := term.MakeRaw(int(keyboard.Fd()))
	if err != nil {
		return fmt.Errorf("take the terminal: %w", err)
	}
	fmt.Fprint(stdout, EnterScreen)
	defer func() {
		fmt.Fprint(stdout, LeaveScreen)
		_ = term.Restore(int(keyboard.Fd()), before)
	}()
	ctx, cancel := context.WithCancel(ctx)
	var typing sync.WaitGroup
	defer typing.Wait()
	defer cancel()
	keys := make(chan string)
	typing.Go(func() { typedKeys(ctx, keyboard, keys) })
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, unix.SIGWINCH)
	defer signal.Stop(resized)
	return w.follow(ctx, &screen{color: out.IsColored(stdout)}, display, keys, resized)
}

// follow draws after every change, at most once per topPause, and at once after a key or a resize. It ends when the
// user quits, or with the error of a cloud that refuses to be watched.
func (w *watch) follow(ctx context.Context, screen *screen, display *os.File, keys <-chan string,
	resized <-chan os.Signal) error {
	clock := time.NewTicker(time.Second)
	defer clock.Stop()
	view := w.look(time.Now())
	for {
		width, height, err := term.GetSize(int(display.Fd()))
		if err != nil || width == 0 || height == 0 {
			width, height = 80, 24
		}
		lines, shown := screen.draw(view, width, height)
		w.watch(shown)
		fmt.Fprint(display, toCorner+strings.Join(lines, ClearLine+"\r\n")+ClearLine+clearRest)
		select {
		case <-ctx.Done():
			return nil
		case key := <-keys:
			if screen.key(key) {
				return nil
			}
			continue // the same data, with another view
		case err := <-w.refused:
			return err
		case <-resized:
			continue
		case <-w.changed:
			if !w.rest(ctx, screen, keys) {
				return nil
			}
		case <-clock.C:
		}
		view = w.look(time.Now())
	}
}

// rest collects changes for topPause, unless a key arrives. It returns false if the user quits.
func (w *watch) rest(ctx context.Context, screen *screen, keys <-chan string) bool {
	select {
	case <-ctx.Done():
		return false
	case key := <-keys:
		return !screen.key(key)
	case <-time.After(topPause):
		return true
	}
}

// typedKeys sends typed keys one by one, until ctx ends.
func typedKeys(ctx context.Context, in *os.File, keys chan<- string) {
	b := make([]byte, 64)
	for ctx.Err() == nil {
		if !out.Readable(in) {
			continue
		}
		n, err := in.Read(b)
		for typed := string(b[:n]); typed != ""; {
			var key string
			key, typed = cutKey(typed)
			select {
			case keys <- key:
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// cutKey removes the first key from typed input: a character, or the escape sequence of a special key.
func cutKey(typed string) (key, rest string) {
	n := 1
	switch {
	case strings.HasPrefix(typed, "\x1b[") || strings.HasPrefix(typed, "\x1bO"):
		n = 2
		for n < len(typed) && (typed[n] < 0x40 || typed[n] > 0x7e) {
			n++
		}
		n = min(n+1, len(typed))
	case typed[0] >= utf8.RuneSelf:
		_, n = utf8.DecodeRuneInString(typed)
	}
	return typed[:n], typed[n:]
}
