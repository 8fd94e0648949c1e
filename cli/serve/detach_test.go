package serve

import (
	"slices"
	"testing"
)

func TestTheChildInTheBackgroundDoesNotJoinAgain(t *testing.T) {
	got := forChild([]string{"up", "--join", "-", "--detach", "--state-dir", "/s", "--join=@token", "--detach=true"})
	if want := []string{"up", "--state-dir", "/s"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
