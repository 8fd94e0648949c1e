package pool

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"croft"
)

func TestLinesAreServedInTurn(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	q := queue{}
	var all []*Ticket
	for i := range 1000 {
		ticket := &Ticket{ID: TicketID(i + 1), Tags: []string{fmt.Sprint("tag", random.IntN(7))}}
		q.add(ticket)
		all = append(all, ticket)
	}
	for range 300 {
		i := random.IntN(len(all))
		if random.IntN(2) == 0 {
			i = 0
		}
		q.remove(all[i])
		q.remove(all[i]) // it is already removed
		all = slices.Delete(all, i, i+1)
	}
	given := map[string]int{} // of tag0 and tag1, ten each
	goesOn := func(l *line) bool { return l.tags[0] > "tag1" || given[l.tags[0]] < 10 }
	var got, want []TicketID
	for l, ticket := range inTurn(q.lines(func(tags []string) bool { return tags[0] < "tag5" }), nil, goesOn) {
		given[l.tags[0]]++
		got = append(got, ticket.ID)
	}
	count := map[string]int{}
	for _, ticket := range all {
		tag := ticket.Tags[0]
		if count[tag]++; tag < "tag5" && (tag > "tag1" || count[tag] <= 10) {
			want = append(want, ticket.ID)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestTheProjectThatHoldsTheFewestResourcesIsNext(t *testing.T) {
	q := queue{}
	for i, project := range []croft.Project{"many", "many", "many", "few", "none", "few", "many"} {
		q.add(&Ticket{ID: TicketID(i + 1), Project: project, Tags: []string{"a"}})
	}
	held := map[croft.Project]int{"many": 2, "few": 1}
	var got []TicketID
	for l, ticket := range inTurn(q.lines(func([]string) bool { return true }), held,
		func(*line) bool { return true }) {
		held[l.project]++
		got = append(got, ticket.ID)
	}
	if want := []TicketID{5, 4, 1, 6, 2, 3, 7}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestALineOfNobodyIsGone(t *testing.T) {
	q := queue{}
	ticket := &Ticket{ID: 7, Tags: []string{"a"}}
	q.add(ticket)
	q.remove(ticket)
	if len(q) > 0 {
		t.Errorf("got %v", q)
	}
}
