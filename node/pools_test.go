package node

import (
	"errors"
	"strings"
	"testing"

	"croft"
	"croft/control"
	"croft/pool"
)

func TestWhereTheManagerOfPoolsIs(t *testing.T) {
	for _, c := range []struct {
		name string
		now  *pool.Server
		at   string
		says string
	}{
		{"nobody acts", nil, "", control.ErrNoPools.Error()},
		{"on this machine", &pool.Server{Machine: "here", Address: "http://127.0.0.1:49100"},
			"http://127.0.0.1:49100", ""},
		{"on another one", &pool.Server{Machine: "there", Address: "https://there.example:49100"},
			"https://there.example:49100", ""},
		{"for another one alone", &pool.Server{Name: "m", Machine: "there", Address: "http://127.0.0.1:49100"}, "",
			"m, listens on its own machine alone"},
		{"the same by its name", &pool.Server{Machine: "there", Address: "http://localhost:49100"}, "",
			"on its own machine alone"},
		{"it does not say where", &pool.Server{Name: "m", Machine: "here"}, "", "m, has no address"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := &actingManager{machine: "here"}
			a.now.Store(c.now)
			at, err := a.locate()
			if at != c.at || (err == nil) != (c.says == "") {
				t.Fatalf("at %q, %v", at, err)
			}
			if err != nil && (!errors.Is(err, croft.Unavailable) || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("it says %v", err)
			}
		})
	}
}
