package placementcheck

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/anishathalye/porcupine"
)

// settle reads the final state, and infers from it and from earlier reads whether requests without an answer were
// executed, and when at the latest. It only excludes impossible outcomes. Without it the checker would have to try all
// combinations, which takes too long.
func (k *Check) settle(ctx context.Context, g int) error {
	dropped := map[int]bool{}
	for id, changes := range k.owned[g] {
		for _, i := range changes {
			q := k.events[g][i].Input.(request)
			if q.kind == move {
				id = q.other
			}
			a := k.do(ctx, g, 0, request{kind: consumer, consumer: id}, false)
			if a.verdict != done {
				return fmt.Errorf("consumer %s cannot be read at the end", id)
			}
			if happened(q, a) {
				k.narrow(g, i, id)
			} else {
				dropped[i] = true
			}
		}
	}
	for p := range k.groups[g].providers {
		if a := k.do(ctx, g, 0, request{kind: provider, provider: p}, false); a.verdict != done {
			return fmt.Errorf("provider %s cannot be read at the end", k.groups[g].providers[p])
		}
	}
	var kept []porcupine.Operation
	for i, op := range k.events[g] {
		if op.Return == math.MaxInt64 && op.Input.(request).kind == resize {
			k.narrowResize(g, &op)
		}
		if !dropped[i] {
			kept = append(kept, op)
		}
	}
	k.events[g] = kept
	return nil
}

// happened infers from a consumer's final state whether its last change was made. A client that got no answer does not
// change the consumer again.
func happened(q request, end answer) bool {
	switch q.kind {
	case release:
		return end.generation == none
	case move:
		return end.generation != none
	}
	return end.generation == max(q.generation, 0)+1
}

// narrow bounds the time of a consumer's last change, which was made: after the start of all reads that do not show it,
// and before the end of any read that shows it.
func (k *Check) narrow(g, i int, id string) {
	op := &k.events[g][i]
	q := op.Input.(request)
	made := fmt.Sprintf(" %d;", max(q.generation, 0)+1)
	if q.kind == move {
		made = " 1;"
	}
	for _, read := range k.events[g] {
		what, answered := read.Input.(request), read.Output.(answer)
		if what.kind != provider || answered.verdict != done {
			continue
		}
		_, rest, shown := strings.Cut(answered.holders, id+" ")
		switch {
		case q.kind == release && shown:
			op.Call = max(op.Call, read.Call)
		case q.kind == release || q.want[what.provider] == 0:
		case shown && strings.HasPrefix(rest, fmt.Sprint(q.want[what.provider])+made):
			op.Return = min(op.Return, read.Return)
		default:
			op.Call = max(op.Call, read.Call)
		}
	}
}

// narrowResize bounds the time of a resize without an answer: once the provider's generation is known to have changed,
// the resize has been made or never will be.
func (k *Check) narrowResize(g int, op *porcupine.Operation) {
	q := op.Input.(request)
	for _, other := range k.events[g] {
		what, answered := other.Input.(request), other.Output.(answer)
		tells := what.kind == provider || what.kind == usage || what.kind == resize
		if tells && what.provider == q.provider && answered.verdict == done && answered.generation > q.generation {
			op.Return = min(op.Return, max(other.Return, op.Call+1))
		}
	}
}
