package instances

import (
	"strings"
	"testing"

	"croft"
	"croft/internal/testing/pty"
)

func TestBytesAreCounted(t *testing.T) {
	term := pty.New(t)
	b := newStatusBars(term.File, []string{"web", "db"})
	fetching := func(p *croft.Progress) croft.Status {
		return croft.Status{
			Instance:    croft.Instance{State: croft.StateScheduled},
			Observation: &croft.Observation{State: croft.StateFetching, Progress: p},
		}
	}
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
