package feed

import (
	"errors"
	"testing"
	"testing/synctest"

	"croft"
)

// TestFollowersMissNothing checks where a client goes on, by the revision that it names.
func TestFollowersMissNothing(t *testing.T) {
	for _, c := range []struct {
		name      string
		revisions []int64 // as they arrive after the feed began at 10
		after     int64
		want      []int64 // what the client gets
		compacted bool
	}{
		{"a new client gets what is to come", []int64{11, 12}, 0, nil, false},
		{"one that has everything", []int64{11, 12}, 12, nil, false},
		{"one that has a part", []int64{11, 12, 13}, 11, []int64{12, 13}, false},
		{"one that was there at the beginning", []int64{11, 12}, 10, []int64{11, 12}, false},
		{"one that is from before the beginning", []int64{11, 12}, 9, nil, true},
		{"an older revision that arrived later", []int64{12, 11}, 12, []int64{11}, false},
		{"a newer revision that arrived earlier", []int64{13, 12}, 12, []int64{13, 12}, false},
		{"one that knows another server's future", []int64{11, 12}, 20, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := New()
			f.Begin(10)
			for _, revision := range c.revisions {
				f.Add(croft.Change{Revision: revision})
			}
			position, _, err := f.From(t.Context(), c.after)
			if errors.Is(err, ErrCompacted) != c.compacted {
				t.Fatalf("got %v", err)
			}
			if c.compacted {
				return
			}
			f.Add(croft.Change{Revision: 99}) // so that next does not wait
			got, err := f.Next(t.Context(), position)
			if err != nil || len(got) != len(c.want)+1 {
				t.Fatalf("got %v, %v, want %v and 99", got, err, c.want)
			}
			for i, want := range c.want {
				if got[i].Revision != want {
					t.Errorf("got %v, want %v", got, c.want)
				}
			}
		})
	}
}

func TestAFollowerThatIsTooSlowIsTold(t *testing.T) {
	f := New()
	f.Begin(1)
	position, now, err := f.From(t.Context(), 0)
	if err != nil || now != 1 {
		t.Fatalf("at %d, %v", now, err)
	}
	for i := range 2 * mostChanges {
		f.Add(croft.Change{Revision: int64(2 + i)})
	}
	if _, err := f.Next(t.Context(), position); !errors.Is(err, ErrCompacted) {
		t.Errorf("got %v", err)
	}
	if _, _, err := f.From(t.Context(), 2); !errors.Is(err, ErrCompacted) {
		t.Errorf("one that connects again: %v", err)
	}
	if len(f.changes) > mostChanges {
		t.Errorf("%d changes are kept", len(f.changes))
	}
}

func TestALostWatchEndsEveryFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New()
		f.Begin(1)
		position, _, err := f.From(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := f.Next(t.Context(), position)
			ended <- err
		}()
		synctest.Wait()
		f.Begin(5)
		if err := <-ended; !errors.Is(err, ErrCompacted) {
			t.Errorf("got %v", err)
		}
	})
}
