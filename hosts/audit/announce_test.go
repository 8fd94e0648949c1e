package audit_test

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"croft"
	"croft/hosts/audit"
)

// told is a caretaker with Announce, and its announcements.
type told struct {
	*nobodys
	audit.Caretaker
	ends  []time.Time
	fails error
	said  bytes.Buffer
}

func announcing(left time.Duration) *told {
	a := &told{nobodys: &nobodys{books: expiring(croft.StateScheduled, time.Now().Add(left)),
		fails: map[string]error{}}}
	a.Caretaker = audit.Caretaker{Records: nobodysRecords{nobodys: a.nobodys},
		Shared: nobodysRecords{nobodys: a.nobodys}, Inventory: nobodysClaims{nobodys: a.nobodys},
		Announce: func(_ context.Context, inst croft.Instance) error {
			a.ends = append(a.ends, inst.Expires)
			return a.fails
		}, Log: slog.New(slog.NewTextHandler(&a.said, nil))}
	return a
}

// sweeps sweeps, and fails the test unless want ends were announced by then.
func (a *told) sweeps(t *testing.T, want int, when string) {
	t.Helper()
	if err := a.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(a.ends) != want {
		t.Errorf("%s: announced %v, want %d", when, a.ends, want)
	}
}

func TestAnEndIsAnnouncedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := announcing(2 * time.Hour)
		a.sweeps(t, 0, "two hours before")
		time.Sleep(61 * time.Minute)
		a.sweeps(t, 1, "in the last hour")
		a.sweeps(t, 1, "again")
		again := announcing(time.Hour) // another process: it knows only the record
		again.books = a.books
		again.sweeps(t, 0, "after a restart")

		inst := a.books.Instances["web"]
		inst.Expires = inst.Expires.Add(8 * time.Hour)
		a.books.Instances["web"] = inst
		a.sweeps(t, 1, "after it was prolonged")
		time.Sleep(8 * time.Hour)
		a.sweeps(t, 2, "in the hour before the new end")
	})
}

func TestAnAnnouncementThatFailsIsRepeated(t *testing.T) {
	for name, c := range map[string]struct {
		hook, note croft.Kind
		want       int // announcements after two turns, of which the second succeeds
		says       int
	}{
		"the hook fails":        {croft.Unavailable, "", 2, 1},
		"etcd does not answer":  {"", croft.Unavailable, 2, 1},
		"the record changed":    {"", croft.Conflict, 2, 0},
		"everything is as well": {"", "", 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := announcing(time.Minute)
				if c.hook != "" {
					a.fails = croft.Errorf(c.hook, "planned")
				}
				if c.note != "" {
					a.nobodys.fails["note web"] = croft.Errorf(c.note, "planned")
				}
				a.sweeps(t, 1, "first")
				a.fails, a.nobodys.fails = nil, map[string]error{}
				a.sweeps(t, c.want, "then")
				a.sweeps(t, c.want, "afterwards")
				if got := strings.Count(a.said.String(), "could not be announced"); got != c.says {
					t.Errorf("it says so %d times, want %d: %s", got, c.says, a.said.String())
				}
			})
		})
	}
}

// Slow hooks delay neither the next turn nor the end of expired instances, which comes first.
func TestHooksThatHangHoldUpLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := announcing(-time.Second)
		web := a.books.Instances["web"]
		for i := range 100 {
			inst := web
			inst.ID, inst.Name = croft.InstanceID("i"+string(rune('a'+i%26))+string(rune('a'+i/26))), ""
			inst.Expires = time.Now().Add(time.Minute)
			a.books.Instances[inst.ID] = inst
		}
		a.Announce = func(ctx context.Context, _ croft.Instance) error {
			if !slices.Contains(a.steps, "destroy web") {
				t.Error("what has expired is not destroyed first")
			}
			<-ctx.Done()
			return ctx.Err()
		}
		a.books.Names = nil
		for id, inst := range maps.All(a.books.Instances) {
			a.books.Names = append(a.books.Names, audit.Name{Project: "p", Name: inst.Name, Instance: id})
		}
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
		defer cancel()
		_ = a.Sweep(ctx) // its second look takes as long, and is cut off
		if took := time.Since(began); took > 40*time.Second {
			t.Errorf("it took %s", took)
		}
		if got := strings.Count(a.said.String(), "could not be announced"); got < 8 || got > 16 {
			t.Errorf("%d hooks were begun, want the 8 of each look", got)
		}
	})
}
