package share_test

import (
	"context"
	"testing"

	"croft/internal/share"
)

// A caller that asked during a failing read reads again.
func TestAReadThatFailedIsNotShared(t *testing.T) {
	s := share.NewRead[int]()
	begun, fail := make(chan struct{}), make(chan struct{})
	go func() {
		_, _ = s.Get(t.Context(), func(context.Context) (int, error) {
			close(begun)
			<-fail
			return 0, context.DeadlineExceeded
		})
	}()
	<-begun
	asked := make(chan int)
	go func() {
		got, err := s.Get(t.Context(), func(context.Context) (int, error) { return 7, nil })
		if err != nil {
			t.Error(err)
		}
		asked <- got
	}()
	close(fail)
	if got := <-asked; got != 7 {
		t.Errorf("got %d", got)
	}
}
