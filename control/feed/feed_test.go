package feed

import (
	"errors"
	"testing"
	"testing/synctest"

	"croft"
)

// addAll adds changes at revisions that do not fall, all of one revision together.
func addAll(f *Feed, revisions ...int64) {
	var one []croft.Change
	for i, revision := range revisions {
		one = append(one, croft.Change{Revision: revision})
		if i+1 == len(revisions) || revisions[i+1] != revision {
			f.Add(one)
			one = nil
		}
	}
}

// TestFollowersMissNothing checks the position at which a client resumes after the revision that it names.
func TestFollowersMissNothing(t *testing.T) {
	for _, c := range []struct {
		name      string
		revisions []int64 // in the order of their arrival, after the feed started at 10
		after     int64
		want      []int64 // received by the client
		compacted bool
	}{
		{"a new client gets what is to come", []int64{11, 12}, 0, nil, false},
		{"one that has everything", []int64{11, 12}, 12, nil, false},
		{"one that has a part", []int64{11, 12, 13}, 11, []int64{12, 13}, false},
		{"one that was there at the beginning", []int64{11, 12}, 10, []int64{11, 12}, false},
		{"one that is from before the beginning", []int64{11, 12}, 9, nil, true},
		{"one that has nothing of a revision with several changes", []int64{11, 12, 12, 12}, 11, []int64{12, 12, 12},
			false},
		{"one that has all of a revision with several changes", []int64{11, 11, 11, 12}, 11, []int64{12}, false},
		{"one that knows another server's future", []int64{11, 12}, 20, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := New()
			f.Begin(10)
			addAll(f, c.revisions...)
			position, _, err := f.From(t.Context(), c.after)
			if errors.Is(err, ErrCompacted) != c.compacted {
				t.Fatalf("got %v", err)
			}
			if c.compacted {
				return
			}
			addAll(f, 99) // so that next does not wait
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
		addAll(f, int64(2+i))
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

func TestARevisionIsForgottenAsAWhole(t *testing.T) {
	f := New()
	f.Begin(1)
	addAll(f, 2)
	f.Add(changesAt(3, mostChanges-1))
	addAll(f, 4)
	if _, _, err := f.From(t.Context(), 2); !errors.Is(err, ErrCompacted) {
		t.Errorf("a part of revision 3 is forgotten, and one that has nothing of it is told %v", err)
	}
	position, _, err := f.From(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := f.Next(t.Context(), position); err != nil || len(got) != 1 || got[0].Revision != 4 {
		t.Errorf("one that has all of revision 3 gets %v, %v", got, err)
	}
}

func changesAt(revision int64, n int) []croft.Change {
	all := make([]croft.Change, n)
	for i := range all {
		all[i].Revision = revision
	}
	return all
}
