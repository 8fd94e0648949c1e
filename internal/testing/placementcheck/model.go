package placementcheck

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// kind is the operation of a request.
type kind string

const (
	claim    kind = "claim"    // replace a consumer's claim
	release  kind = "release"  // delete a consumer's claim
	move     kind = "move"     // in one request, transfer a consumer's claim to a new consumer
	resize   kind = "resize"   // change a provider's total
	consumer kind = "consumer" // read a consumer's claim
	provider kind = "provider" // read a provider's claims, by consumer
	usage    kind = "usage"    // read a provider's usage
)

func (k kind) reads() bool { return k == consumer || k == provider || k == usage }

// amounts are quantities of a group's two providers.
type amounts [2]int64

// none is the generation of a consumer that does not exist.
const none = -1

// request is a request that was sent.
type request struct {
	kind       kind
	consumer   string
	other      string  // move: the new consumer
	provider   int     // resize, and reads of a provider: index of the provider
	want       amounts // claim, move
	generation int64   // of the consumer; resize: of the provider
	total      int64   // resize
}

// verdict is the result of a request.
type verdict string

const (
	done    verdict = "done"
	full    verdict = "full"    // rejected for lack of capacity
	stale   verdict = "stale"   // rejected for a wrong generation
	absent  verdict = "absent"  // rejected: nothing to delete
	unsent  verdict = "unsent"  // no server accepted it
	unknown verdict = "unknown" // no answer, or an answer without information
)

// answer is a server's answer.
type answer struct {
	verdict    verdict
	has        amounts // consumer
	generation int64   // consumer, provider, usage, resize
	used       int64   // usage
	holders    string  // provider: its claims by consumer, in the form of state.holders
}

// holding is a consumer's claim.
type holding struct {
	amounts
	generation int64
}

// state is a group of two providers and all claims on them. It is immutable. Equal states have equal keys.
type state struct {
	total, generation amounts
	consumers         map[string]holding
	key               string
}

func (s state) with(all map[string]holding) state {
	var key []byte
	for _, name := range slices.Sorted(maps.Keys(all)) {
		h := all[name]
		key = fmt.Append(key, name, " ", h.amounts, h.generation, ";")
	}
	s.consumers, s.key = all, string(key)
	return s
}

func equal(a, b state) bool {
	return a.total == b.total && a.generation == b.generation && a.key == b.key
}

func used(all map[string]holding) (sum amounts) {
	for _, h := range all {
		sum[0] += h.amounts[0]
		sum[1] += h.amounts[1]
	}
	return sum
}

// holders lists the claims on one provider by consumer.
func holders(all map[string]holding, provider int) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if n := all[name].amounts[provider]; n > 0 {
			fmt.Fprintf(&b, "%s %d %d;", name, n, all[name].generation)
		}
	}
	return b.String()
}

// step is the sequential server: it returns the answer in a state, and the next state.
func (s state) step(q request) (answer, state) {
	all := s.consumers
	h, exists := all[q.consumer]
	if !exists {
		h.generation = none
	}
	switch q.kind {
	case consumer:
		return answer{verdict: done, has: h.amounts, generation: h.generation}, s
	case provider:
		return answer{verdict: done, generation: s.generation[q.provider], holders: holders(all, q.provider)}, s
	case usage:
		return answer{verdict: done, generation: s.generation[q.provider], used: used(all)[q.provider]}, s
	case release:
		if !exists {
			return answer{verdict: absent}, s
		}
		left := maps.Clone(all)
		delete(left, q.consumer)
		return answer{verdict: done}, s.with(left)
	case resize:
		if s.generation[q.provider] != q.generation {
			return answer{verdict: stale}, s
		}
		s.total[q.provider] = q.total
		s.generation[q.provider]++
		return answer{verdict: done, generation: s.generation[q.provider]}, s
	case claim, move:
		return s.claim(q, h)
	}
	panic("placementcheck: no request of kind " + q.kind)
}

// claim sets or replaces a consumer's claim, if it fits.
func (s state) claim(q request, h holding) (answer, state) {
	if h.generation != q.generation {
		return answer{verdict: stale}, s
	}
	to, generation := q.consumer, max(h.generation, 0)+1
	all := maps.Clone(s.consumers)
	delete(all, q.consumer)
	touched := q.want
	if q.kind == move {
		if _, taken := all[q.other]; taken {
			return answer{verdict: stale}, s
		}
		to, generation = q.other, 1
		touched[0], touched[1] = touched[0]+h.amounts[0], touched[1]+h.amounts[1]
	}
	now := used(all)
	for p, n := range q.want {
		if n > 0 && now[p]+n > s.total[p] {
			return answer{verdict: full}, s
		}
	}
	all[to] = holding{q.want, generation}
	for p, n := range touched {
		if n > 0 {
			s.generation[p]++
		}
	}
	return answer{verdict: done}, s.with(all)
}

// model returns the sequential server for the checker.
func model(start state) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return start },
		Step: func(before, input, output any) (bool, any) {
			got := output.(answer)
			want, after := before.(state).step(input.(request))
			if got.verdict == unknown { // executed or rejected: both are possible
				return true, after
			}
			return got == want, after
		},
		Equal:             func(a, b any) bool { return equal(a.(state), b.(state)) },
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
		DescribeState:     func(s any) string { return fmt.Sprintf("%+v", s) },
	}
}
