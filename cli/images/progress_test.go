package images

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"croft"
	"croft/internal/testing/pty"
)

func TestPullsAreShownByHost(t *testing.T) {
	term := pty.New(t)
	cmd := &cobra.Command{}
	cmd.SetErr(term.File)
	show := newPullProgress(cmd, []croft.Host{{Name: "host1"}, {Name: "host2"}})
	show.update(0, croft.Progress{})
	show.update(0, croft.Progress{Done: 10 << 20, Total: 40 << 20})
	show.update(1, croft.Progress{Done: 5 << 20})
	term.Await(t, "host1")
	term.Await(t, "10.0 MiB of 40.0 MiB")
	term.Await(t, "5.0 MiB")
	show.update(0, croft.Progress{Done: 40 << 20, Total: 40 << 20})
	term.Await(t, "verifying")
	show.end(0, nil)
	show.end(1, croft.Errorf(croft.Unavailable, "no"))
	show.close()
	if screen := term.End(); !strings.Contains(screen, "there") || !strings.Contains(screen, "failed") {
		t.Errorf("the screen is:\n%q", screen)
	}
}

func TestPullsAreToldByLines(t *testing.T) {
	var words strings.Builder
	cmd := &cobra.Command{}
	cmd.SetErr(&words)
	show := newPullProgress(cmd, []croft.Host{{Name: "host1"}, {Name: "host2"}})
	for _, p := range []croft.Progress{{}, {Done: 1 << 20, Total: 40 << 20}, {Done: 2 << 20, Total: 40 << 20}} {
		show.update(0, p)
	}
	show.update(1, croft.Progress{Done: 1})
	show.end(0, nil)
	show.end(1, croft.Errorf(croft.Unavailable, "no"))
	show.close()
	want := "host host1: fetching the image, 40.0 MiB\nhost host2: fetching the image\nhost host1: the image is in the cache\n"
	if words.String() != want {
		t.Errorf("got %q, want %q", words.String(), want)
	}
}
