package failover_test

import (
	"testing"

	"croft/internal/failover"
)

func current(e *failover.Endpoints) string {
	now, _ := e.Current()
	return now
}

func TestEndpointsAreUsedInTurn(t *testing.T) {
	e := failover.New([]string{"http://a/", "http://b"})
	if current(e) != "http://a" || e.Len() != 2 {
		t.Fatalf("%s of %d", current(e), e.Len())
	}
	_, first := e.Current()
	_, second := e.Current() // for another request with the same failure
	first()
	second()
	if current(e) != "http://b" {
		t.Errorf("after two failures of the first: %s", current(e))
	}
	_, next := e.Current()
	next()
	if current(e) != "http://a" {
		t.Errorf("after the last one: %s", current(e))
	}
}

func TestTheOneInUseOutlastsANewList(t *testing.T) {
	e := failover.New([]string{"http://a", "http://b"})
	_, next := e.Current()
	next()
	e.Set([]string{"http://c", "http://b/"})
	if current(e) != "http://b" {
		t.Errorf("it moved to %s", current(e))
	}
	_, late := e.Current()
	e.Set([]string{"http://d", "http://e"})
	late() // for a list that was replaced
	if current(e) != "http://d" {
		t.Errorf("none is left of the old ones: %s", current(e))
	}
}
