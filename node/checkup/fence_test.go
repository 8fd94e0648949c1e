package checkup

import (
	"context"
	"strings"
	"testing"

	"croft"
	"croft/internal/checks"
)

func TestFenceAgentsAreJudgedByTheHostsThatAreAlive(t *testing.T) {
	on := func(context.Context, croft.Host) (bool, error) { return true, nil }
	off := func(context.Context, croft.Host) (bool, error) { return false, nil }
	unknown := func(context.Context, croft.Host) (bool, error) {
		return false, croft.Errorf(croft.Unavailable, "nobody answers")
	}
	for name, c := range map[string]struct {
		alive bool
		isOn  func(context.Context, croft.Host) (bool, error)
		level checks.Level
		says  string
	}{
		"a living host is on":            {true, on, checks.OK, "the fence agents of 1 hosts answer"},
		"a living host is off":           {true, off, checks.Fail, "the fence agents of one report off"},
		"a silent host is off":           {false, off, checks.OK, "answer"},
		"the fence agent does not reply": {true, unknown, checks.Warn, "host one: nobody answers"},
	} {
		t.Run(name, func(t *testing.T) {
			got := judgeFence(t.Context(), []croft.Host{{Name: "one", Alive: c.alive}}, c.isOn)
			if got.Level != c.level || !strings.Contains(got.Found, c.says) {
				t.Errorf("got %+v", got)
			}
		})
	}
}
