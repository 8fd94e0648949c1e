package audit_test

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"croft"
	"croft/hosts/audit"
)

// expiring is the evidence of one instance and nothing else.
func expiring(state croft.State, expires time.Time) audit.Evidence {
	inst := croft.Instance{ID: "web", Project: "p", Name: "web", State: state, Host: "h", Session: "7", Generation: 1,
		Expires: expires}
	return audit.Evidence{
		Hosts:     map[croft.HostID]croft.Host{"h": {ID: "h", Alive: true}},
		Instances: map[croft.InstanceID]croft.Instance{"web": inst}, Sessions: map[string]bool{"7": true},
		Names:  []audit.Name{{Project: "p", Name: "web", Instance: "web"}},
		Orders: []croft.Order{{Host: "h", Instance: "web", Generation: 1, Want: croft.WantRunning}},
	}
}

func TestACaretakerDestroysWhatHasExpired(t *testing.T) {
	for _, c := range []struct {
		name  string
		state croft.State
		left  time.Duration // 0: it does not expire
		fails croft.Kind
		want  []string
		says  string
	}{
		{"it has expired", croft.StateScheduled, -time.Second, "", []string{"destroy web"}, "is destroyed"},
		{"it was prolonged meanwhile", croft.StateScheduled, -time.Second, croft.Conflict, []string{"destroy web"}, ""},
		{"etcd does not answer", croft.StateScheduled, -time.Second, croft.Unavailable, []string{"destroy web"},
			"could not be checked"},
		{"it expires soon", croft.StateScheduled, 59 * time.Minute, "", nil, "an instance expires soon"},
		{"it expires later", croft.StateScheduled, 2 * time.Hour, "", nil, ""},
		{"it does not expire", croft.StateScheduled, 0, "", nil, ""},
		{"it is being destroyed", croft.StateDestroying, -time.Second, "", nil, ""},
		{"it is being scheduled", croft.StateScheduling, -time.Second, "", nil, ""},
		{"it was held until now", croft.StateHeld, -time.Second, "",
			[]string{"abandon web", "fence", "release", "discard"}, "was not used in time and is released"},
		{"it is held and was used or released meanwhile", croft.StateHeld, -time.Second, croft.Conflict,
			[]string{"abandon web"}, ""},
		{"it is held, and etcd does not answer", croft.StateHeld, -time.Second, croft.Unavailable,
			[]string{"abandon web"}, "could not be checked"},
		{"it is held for a minute more", croft.StateHeld, 91 * time.Second, "", nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var expires time.Time
				if c.left != 0 {
					expires = time.Now().Add(c.left)
				}
				n := &nobodys{books: expiring(c.state, expires), fails: map[string]error{}}
				if c.fails != "" {
					n.fails["destroy web"] = croft.Errorf(c.fails, "planned")
					n.fails["abandon web"] = n.fails["destroy web"]
				}
				said := n.sweep(t, 90*time.Second)
				if !slices.Equal(n.steps, c.want) {
					t.Errorf("done %q, want %q", n.steps, c.want)
				}
				if c.says != "" && strings.Count(said, c.says) != 1 ||
					c.says == "" && strings.Contains(said, "expire") {
					t.Errorf("it logged %q, want %q once", said, c.says)
				}
			})
		})
	}
}

// sweep runs a caretaker, whose only turn is at the start, for a time, and returns its log.
func (n *nobodys) sweep(t *testing.T, length time.Duration) string {
	t.Helper()
	var said bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	caretaker := audit.Caretaker{Records: nobodysRecords{nobodys: n}, Shared: nobodysRecords{nobodys: n},
		Inventory: nobodysClaims{nobodys: n}, Log: slog.New(slog.NewTextHandler(&said, nil))}
	_ = caretaker.Run(ctx)
	return said.String()
}

// The warning is repeated if the end changes, and not before.
func TestACaretakerWarnsOnceOfEachEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		n := &nobodys{books: expiring(croft.StateScheduled, time.Now().Add(time.Minute))}
		caretaker := audit.Caretaker{Records: nobodysRecords{nobodys: n}, Shared: nobodysRecords{nobodys: n},
			Inventory: nobodysClaims{nobodys: n}, Log: slog.New(slog.NewTextHandler(&said, nil))}
		for i, want := range []int{1, 1, 2, 2, 2} {
			switch i {
			case 2:
				n.books = expiring(croft.StateScheduled, time.Now().Add(30*time.Minute))
			case 4:
				n.books = expiring(croft.StateScheduled, time.Now().Add(8*time.Hour))
			}
			if err := caretaker.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := strings.Count(said.String(), "expires soon"); got != want {
				t.Errorf("%d: warned %d times, want %d", i, got, want)
			}
		}
	})
}

func TestNothingExpiresByAClockThatDiffers(t *testing.T) {
	for _, state := range []croft.State{croft.StateScheduled, croft.StateHeld} {
		synctest.Test(t, func(t *testing.T) {
			n := &nobodys{books: expiring(state, time.Now().Add(-time.Hour))}
			n.books.Clocks = croft.Errorf(croft.Unavailable, "the clocks differ by 1h")
			n.books.ClockDifference = time.Hour
			said := n.sweep(t, 90*time.Second)
			if len(n.steps) > 0 || !strings.Contains(said, "the clocks differ by 1h") {
				t.Errorf("%s: done %q, logged %q", state, n.steps, said)
			}
		})
	}
}
