package mailbox_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"croft/internal/mailbox"
)

func TestEachKeyOnceHoweverOftenItWasPut(t *testing.T) {
	box := mailbox.New[int]()
	box.Put(1, 2)
	box.Put(1)
	box.Put()
	<-box.Ready()
	got := box.Take()
	slices.Sort(got)
	if !slices.Equal(got, []int{1, 2}) {
		t.Errorf("got %v", got)
	}
	if got := box.Take(); len(got) != 0 {
		t.Errorf("a second take got %v", got)
	}
}

func TestRunSeesWhatIsPutWhileItWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		box := mailbox.New[int]()
		var got []int
		box.Put(1)
		err := box.Run(ctx, func(k int) {
			got = append(got, k)
			if k == 3 {
				cancel()
				return
			}
			box.Put(k + 1)
		})
		if err != context.Canceled || !slices.Equal(got, []int{1, 2, 3}) {
			t.Errorf("got %v, %v", got, err)
		}
	})
}

func TestAllOfAGroupGetIt(t *testing.T) {
	var g mailbox.Boxes[string]
	g.Put("to nobody")
	a, leave := g.Join()
	b, _ := g.Join()
	g.Put("x")
	leave()
	g.Put("y")
	if got := a.Take(); !slices.Equal(got, []string{"x"}) {
		t.Errorf("a got %v", got)
	}
	got := b.Take()
	slices.Sort(got)
	if !slices.Equal(got, []string{"x", "y"}) {
		t.Errorf("b got %v", got)
	}
}
