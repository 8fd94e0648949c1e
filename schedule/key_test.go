package schedule_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"croft"
	"croft/schedule"
)

type keys struct {
	schedule.Keys
	list func() ([]schedule.Key, error)
}

func (k keys) ListKeys(context.Context, croft.Project) ([]schedule.Key, error) { return k.list() }

func TestFindKeys(t *testing.T) {
	two := func() ([]schedule.Key, error) {
		return []schedule.Key{{Name: "ann", Line: "ssh-ed25519 A"}, {Name: "bob", Line: "ssh-ed25519 B"}}, nil
	}
	fails := func() ([]schedule.Key, error) { return nil, errPlanned }
	for _, c := range []struct {
		name  string
		list  func() ([]schedule.Key, error)
		names []string
		want  []string
		err   string
	}{
		{"in the order of their names", two, []string{"bob", "ann"}, []string{"ssh-ed25519 B", "ssh-ed25519 A"}, ""},
		{"none without reading", fails, nil, nil, ""},
		{"not without the store", fails, []string{"ann"}, nil, "find the key ann: planned"},
		{"none that is not there", two, []string{"ann", "bbo"}, nil, `did you mean "bob"?`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := schedule.FindKeys(t.Context(), keys{list: c.list}.ListKeys, croft.DefaultProject, c.names)
			if !slices.Equal(got, c.want) || (err == nil) != (c.err == "") || err != nil &&
				!strings.Contains(err.Error(), c.err) {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}
