package instances

import (
	"strings"
	"testing"

	"croft"
	"croft/control/api"
	"croft/internal/testing/pty"
)

// TestProgressIsOfTheNewestOrder: until the agent has seen an order to reboot, it has only told of the former boot.
func TestProgressIsOfTheNewestOrder(t *testing.T) {
	var said strings.Builder
	l := &lines{w: &said, name: []string{"web"}, last: make([]string, 1)}
	for _, i := range []api.Instance{{State: "running", Pending: true}, {State: "booting"}, {State: "running"}} {
		l.update(0, i)
	}
	if want := "instance web: ordered\ninstance web: booting\ninstance web: running\n"; said.String() != want {
		t.Errorf("it says\n%s\nwant\n%s", said.String(), want)
	}
}

func TestBytesAreCounted(t *testing.T) {
	term := pty.New(t)
	b := newStatusBars(term.File, []string{"web", "db"})
	fetching := func(p *croft.Progress) api.Instance { return api.Instance{State: "fetching", Progress: p} }
	b.update(0, fetching(&croft.Progress{Done: 10 << 20, Total: 40 << 20}))
	b.update(1, fetching(&croft.Progress{Done: 5 << 20}))
	term.Await(t, "10.0 MiB of 40.0 MiB")
	term.Await(t, "5.0 MiB")
	term.Await(t, "=>")
	b.update(0, fetching(nil))
	b.end(0, nil)
	b.end(1, croft.Errorf(croft.Invalid, "no"))
	b.close()
	if screen := term.End(); !strings.Contains(screen, "failed") {
		t.Errorf("the screen is:\n%q", screen)
	}
}
