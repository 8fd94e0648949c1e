package placementcheck

import (
	"math"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// The checker must reject histories that are wrong.
func TestHistories(t *testing.T) {
	put := func(id string, n int64) request {
		return request{kind: claim, consumer: id, want: amounts{n, 0}, generation: none}
	}
	op := func(q request, a answer, call, back int64) porcupine.Operation {
		return porcupine.Operation{Input: q, Output: a, Call: call, Return: back}
	}
	ok := answer{verdict: done}
	usedNow := request{kind: usage}
	tests := []struct {
		name    string
		history []porcupine.Operation
		want    bool
	}{
		{"claims one after the other fit", []porcupine.Operation{
			op(put("a", 1), ok, 1, 2), op(put("b", 1), ok, 3, 4)}, true},
		{"claims beyond the capacity do not", []porcupine.Operation{
			op(put("a", 2), ok, 1, 5), op(put("b", 1), ok, 2, 6)}, false},
		{"a claim refused at the side of one that took all may come second", []porcupine.Operation{
			op(put("b", 1), answer{verdict: full}, 1, 4), op(put("a", 2), ok, 2, 6)}, true},
		{"a claim refused while all is free has no reason", []porcupine.Operation{
			op(put("b", 1), answer{verdict: full}, 1, 2), op(put("a", 2), ok, 3, 6)}, false},
		{"an acknowledged claim is seen", []porcupine.Operation{
			op(put("a", 2), ok, 1, 2), op(usedNow, answer{verdict: done, generation: 2, used: 2}, 3, 4)}, true},
		{"an acknowledged claim cannot be lost", []porcupine.Operation{
			op(put("a", 2), ok, 1, 2), op(usedNow, answer{verdict: done, generation: 1}, 3, 4)}, false},
		{"a claim without an answer may be made later", []porcupine.Operation{
			op(put("a", 2), answer{verdict: unknown}, 1, math.MaxInt64),
			op(usedNow, answer{verdict: done, generation: 1}, 3, 4),
			op(usedNow, answer{verdict: done, generation: 2, used: 2}, 5, 6)}, true},
		{"a claim without an answer is not made twice", []porcupine.Operation{
			op(put("a", 1), answer{verdict: unknown}, 1, math.MaxInt64),
			op(usedNow, answer{verdict: done, generation: 3, used: 2}, 3, 4)}, false},
		{"what has been seen does not go away", []porcupine.Operation{
			op(put("a", 1), answer{verdict: unknown}, 1, math.MaxInt64),
			op(usedNow, answer{verdict: done, generation: 2, used: 1}, 3, 4),
			op(usedNow, answer{verdict: done, generation: 1}, 5, 6)}, false},
		{"a consumer is made by one of two", []porcupine.Operation{
			op(put("a", 1), ok, 1, 4), op(put("a", 1), answer{verdict: stale}, 2, 3)}, true},
		{"a consumer is not made by both of two", []porcupine.Operation{
			op(put("a", 1), ok, 1, 4), op(put("a", 1), ok, 2, 3)}, false},
		{"a move leaves nothing behind", []porcupine.Operation{
			op(put("a", 2), ok, 1, 2),
			op(request{kind: move, consumer: "a", other: "b", want: amounts{2, 0}, generation: 1}, ok, 3, 4),
			op(request{kind: consumer, consumer: "a"}, answer{verdict: done, generation: none}, 5, 6),
			op(request{kind: provider}, answer{verdict: done, generation: 3, holders: "b 2 1;"}, 7, 8)}, true},
		{"half a move is none", []porcupine.Operation{
			op(put("a", 2), ok, 1, 2),
			op(request{kind: move, consumer: "a", other: "b", want: amounts{2, 0}, generation: 1},
				answer{verdict: unknown}, 3, math.MaxInt64),
			op(request{kind: provider}, answer{verdict: done, generation: 2}, 5, 6)}, false},
		{"a provider made smaller takes less", []porcupine.Operation{
			op(request{kind: resize, generation: 1, total: 1}, answer{verdict: done, generation: 2}, 1, 2),
			op(put("a", 2), ok, 3, 4)}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir()) // for the picture of the failure
			start := state{total: amounts{2, 2}, generation: amounts{1, 1}, consumers: map[string]holding{}}
			k := &Check{config: Config{Give: time.Minute}, groups: []*group{{start: start}},
				events: [][]porcupine.Operation{test.history}}
			if err := k.search(0); (err == nil) != test.want {
				t.Errorf("got %v", err)
			}
		})
	}
}
