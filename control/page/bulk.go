package page

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"croft"
	"croft/control/api"
	"croft/internal/wording"
)

// mostPicked is the most instances of one bulk action.
const mostPicked = 500

// readAtOnce is how many instances are read with one request.
const readAtOnce = 16

// answerRoom is the part of the time limit of a view in which a bulk action starts no further request.
const answerRoom = 8 * time.Second

// bulkPreview is what the page before and after a bulk action shows.
type bulkPreview struct {
	Action action
	Rows   []outcome
	Done   bool
	Typed  string // what the user typed to confirm
	Says   string // why the confirmation is not accepted
}

// outcome is an instance of a bulk action, and what became of it.
type outcome struct {
	row
	found bool
	Error string
	Left  bool // the time was over before its turn: nothing was done
	Lost  bool // it was asked for, and no answer came in time
}

// bulk shows the instances that a bulk action affects, and does it once that is confirmed.
func (v *visit) bulk() error {
	a, known := actionNamed(v.r.PostForm.Get("action"))
	if !known || !a.Bulk {
		return croft.Errorf(croft.Invalid, "choose what to do with the instances")
	}
	ids, err := pickedIn(v.r.PostForm["id"])
	if err != nil {
		return err
	}
	d := bulkPreview{Action: a, Typed: v.r.PostForm.Get("typed"), Rows: make([]outcome, len(ids))}
	for n, id := range ids {
		d.Rows[n].Instance = api.Instance{ID: id, Name: string(id), State: "gone"}
	}
	d.Done = v.r.PostForm.Get("confirm") == "yes" && !v.former
	if d.Done && a.Final && d.Typed != bulkWord(d.Count()) {
		d.Done, d.Says = false, "type "+bulkWord(d.Count())+" to confirm: this cannot be undone"
	}
	if v.former {
		d.Says = errFormer.Detail
	}
	v.readPicked(d.Rows)
	if d.Done {
		d.do(v.ctx, func(i api.Instance) error {
			_, err := a.do(v, api.InstanceNamed{ID: string(i.ID), Project: i.Project}, v.r.PostForm)
			return err
		})
	}
	return v.show(http.StatusOK, "bulk", a.Title+" "+bulkWord(d.Count()), d)
}

// pickedIn reads the picked instances, each once. Invalid.
func pickedIn(texts []string) (ids []croft.InstanceID, err error) {
	seen := map[croft.InstanceID]bool{}
	for _, text := range texts {
		id, err := croft.ParseInstanceID(text)
		if err != nil {
			return nil, croft.Errorf(croft.Invalid, "%.40q is no UUID of an instance: pick instances in the list", text)
		}
		if !seen[id] {
			ids = append(ids, id)
		}
		seen[id] = true
	}
	switch {
	case len(ids) == 0:
		return nil, croft.Errorf(croft.Invalid, "no instance is picked: pick some in the list, then choose what to do")
	case len(ids) > mostPicked:
		return nil, croft.Errorf(croft.Invalid, "%d instances are picked: pick at most %d", len(ids), mostPicked)
	}
	return ids, nil
}

// readPicked reads the instances of rows, several with one request.
func (v *visit) readPicked(rows []outcome) {
	parts := slices.Collect(slices.Chunk(rows, readAtOnce))
	shown := instanceList{Operator: v.caller.Operator(), Projects: v.caller.Operator()}
	each(len(parts), func(n int) {
		in := api.InstanceFilter{InProject: api.InProject{Project: v.project}, Page: api.Page{Limit: readAtOnce}}
		for _, one := range parts[n] {
			in.Name = append(in.Name, string(one.ID))
		}
		list, err := v.client.ListInstances(v.ctx, in)
		for m, one := range parts[n] {
			i := slices.IndexFunc(list.Instances, func(i api.Instance) bool { return i.ID == one.ID })
			switch {
			case err != nil:
				parts[n][m].Error = "it cannot be read: " + err.Error()
			case i < 0:
				parts[n][m].Error = "there is no instance with this UUID, or it is not yours"
			default:
				parts[n][m].row, parts[n][m].found = shown.row(list.Instances[i]), true
			}
		}
	})
}

// do calls action for each instance that was found, several at a time. It starts no further call shortly before the
// time limit of the view, so that the page can report the outcome of each instance.
func (d *bulkPreview) do(ctx context.Context, action func(api.Instance) error) {
	end, limited := ctx.Deadline()
	each(len(d.Rows), func(n int) {
		one := &d.Rows[n]
		if !one.found {
			return
		}
		if limited && time.Until(end) < answerRoom {
			one.Left = true
			return
		}
		err := action(one.Instance)
		p, answered := errors.AsType[*api.Problem](err)
		switch {
		case err == nil:
		case answered && p.Status == http.StatusTooManyRequests: // it was refused until the time was over
			one.Left = true
		case !answered && ctx.Err() != nil:
			one.Lost = true
		default:
			one.Error = err.Error()
		}
	})
}

// Count is the number of instances.
func (d bulkPreview) Count() int { return len(d.Rows) }

// Rest lists the instances that the time limit left out.
func (d bulkPreview) Rest() (ids []croft.InstanceID) {
	for _, one := range d.Rows {
		if one.Left {
			ids = append(ids, one.ID)
		}
	}
	return ids
}

// Outcome summarizes the outcomes of the instances.
func (d bulkPreview) Outcome() string {
	failed, lost, left := 0, 0, len(d.Rest())
	for _, one := range d.Rows {
		if one.Error != "" {
			failed++
		}
		if one.Lost {
			lost++
		}
	}
	var says []string
	for _, part := range []struct {
		n    int
		what string
	}{{failed, "failed"}, {lost, "did not answer"}, {left, "were left out, because the time was over"}} {
		if part.n > 0 {
			says = append(says, fmt.Sprintf("%d of %d %s", part.n, d.Count(), part.what))
		}
	}
	if says == nil {
		return "done"
	}
	return strings.Join(says, ", ")
}

// bulkWord is what a user types to confirm a bulk action that cannot be undone.
func bulkWord(n int) string { return wording.Count(n, "instance") }
