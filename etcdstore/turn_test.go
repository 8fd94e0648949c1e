package etcdstore_test

import (
	"testing"
	"time"

	"croft/etcdstore/etcdtest"
)

func TestTheTurnIsOneAgentsAtATime(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	other := etcdtest.Open(t, f.server)
	if !etcdtest.Must(f.Turn.TakeTurn(t.Context(), time.Hour))(t) {
		t.Fatal("nobody had the turn, and it was not given")
	}
	if etcdtest.Must(other.Turn.TakeTurn(t.Context(), time.Hour))(t) || etcdtest.Must(f.Turn.TakeTurn(t.Context(),
		time.Hour))(t) {
		t.Error("the turn was given twice")
	}
}
