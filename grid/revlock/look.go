package revlock

import (
	"context"
	"fmt"
	"strings"
	"time"

	"croft"
	"croft/grid/machine"
)

// maxApplied bounds the applied document of a node, in bytes.
const maxApplied = 64 << 20

// A View is a node's record and the holders of its lock, read without taking the lock.
type View struct {
	State
	Applied []byte   // the document of the last Commit; nil: no commit yet
	Holders []string // each holder of the lock: since when, and its Options.Who
	// Unwatched are the titles of changes that nobody confirmed and that the node will not undo on its own, for example
	// because it restarted. GiveBack makes the node undo them.
	Unwatched []string
	Firewall  string // the listing of the nftables table that was asked for; "": no such table
}

// Look reads a node without taking its lock. table is the name of an nftables table of the family inet, or "".
func Look(ctx context.Context, m machine.Machine, p Place, table string) (View, error) {
	text, mark, err := p.ask(ctx, m, "look", settings{"table": table}, maxApplied, question)
	if err != nil {
		return View{}, err
	}
	var v View
	var boot, rev string
	for part := range strings.SplitSeq(text, "\n"+mark+" ") {
		head, body, _ := strings.Cut(part, "\n")
		kind, rest, _ := strings.Cut(head, " ")
		switch kind {
		case "boot":
			boot = rest
		case "holder", "reader":
			if fields := strings.SplitN(rest, " ", 4); len(fields) == 4 {
				v.Holders = append(v.Holders, fmt.Sprintf("%s since %s", oneLine(fields[3]), oneLine(fields[0])))
			}
		case "unwatched":
			v.Unwatched = append(v.Unwatched, oneLine(rest))
		case "rev":
			rev = body
		case "applied":
			if body != "" {
				v.Applied = []byte(body)
			}
		case "firewall":
			v.Firewall = body
		case "end":
			v.State, err = parseState(rev, boot)
			return v, err
		}
	}
	return View{}, croft.Errorf(croft.Unavailable, "its answer was cut off")
}

// A Verdict is the outcome of an armed change.
type Verdict string

// The verdicts.
const (
	Confirmed Verdict = "confirmed"
	Back      Verdict = "back" // the change was undone
	None      Verdict = "none" // no such change is armed
)

// Confirm keeps the change that was armed with an id. It may be repeated: the first verdict counts. Call it over a
// connection that was opened after the change, since the change may have broken new connections.
func Confirm(ctx context.Context, m machine.Machine, p Place, id string) (Verdict, error) {
	text, _, err := p.ask(ctx, m, "settle "+machine.Quote(id, string(Confirmed)), settings{}, 1<<20, question)
	if err != nil {
		return "", err
	}
	return verdict(text)
}

// Recall makes a node undo an armed change at once, and waits at most wait until this is done. failed says that the
// undo script ended with an error.
func Recall(ctx context.Context, m machine.Machine, p Place, id string, wait time.Duration) (v Verdict, failed bool,
	err error) {
	text, _, err := p.ask(ctx, m, fmt.Sprintf("recall %s %d", machine.Quote(id), int(wait.Seconds())), settings{},
		1<<20, wait+question)
	if err != nil {
		return "", false, err
	}
	fields := strings.Fields(text)
	v, err = verdict(text)
	return v, len(fields) > 2 && fields[2] != "0", err
}

// GivenBack is a change that GiveBack made the node undo.
type GivenBack struct {
	Title  string
	Failed bool // the undo script ended with an error
}

// GiveBack makes a node undo the changes that nobody confirmed and no watcher waits for. It may be repeated. Conflict:
// another client holds the node's lock; taking the lock has the same effect.
func GiveBack(ctx context.Context, m machine.Machine, p Place) ([]GivenBack, error) {
	text, _, err := p.ask(ctx, m, "give_back", settings{}, 1<<20, undoing)
	if err != nil {
		return nil, err
	}
	head, rest, _ := strings.Cut(text, "\n")
	switch head {
	case "given busy":
		return nil, croft.Errorf(croft.Conflict, "somebody has its lock")
	case "given back":
	default:
		return nil, croft.Errorf(croft.Unavailable, "its answer is %.80q", text)
	}
	var list []GivenBack
	for line := range strings.Lines(rest) {
		if code, title, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			list = append(list, GivenBack{oneLine(title), code != "0"})
		}
	}
	return list, nil
}

func verdict(text string) (Verdict, error) {
	fields := strings.Fields(text)
	if len(fields) >= 2 && fields[0] == "verdict" {
		switch v := Verdict(fields[1]); v {
		case Confirmed, Back, None:
			return v, nil
		}
	}
	return "", croft.Errorf(croft.Unavailable, "its answer is %.80q, which is no verdict", text)
}

// Break increases the epoch of a node, so that the holder of its lock runs no further order, and ends the holder. held
// says whether the lock was held; if it was not, nothing is changed.
func Break(ctx context.Context, m machine.Machine, p Place, who, reason string) (held bool, err error) {
	text, _, err := p.ask(ctx, m, "break_lock", settings{"who": who, "reason": reason}, 1<<20, question)
	if err != nil {
		return false, fmt.Errorf("break its lock: %w", err)
	}
	switch strings.TrimSpace(text) {
	case "broken held":
		return true, nil
	case "broken free":
		return false, nil
	}
	return false, croft.Errorf(croft.Unavailable, "break its lock: its answer is %.80q", text)
}
