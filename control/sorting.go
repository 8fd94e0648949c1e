package control

import (
	"cmp"
	"container/heap"
	"fmt"
	"net/netip"
	"sort"
	"strings"
	"time"

	"croft"
	"croft/control/api"
	"croft/internal/redact"
	"croft/schedule"
)

// sorting sorts instances by a text of each, and those with the same text by name and UUID.
type sorting struct {
	text     func(*croft.Status) string // nil: only by name and UUID
	backward bool                       // by the text; names are never backward
}

// sortingOf returns the order that a list asks for. Callers that are not operators see no hosts and no directories of
// them, so these do not change the order of their lists.
func sortingOf(by string, operator bool) sorting {
	by, backward := strings.CutPrefix(by, "-")
	s := sorting{texts[by], backward}
	switch by {
	case "name":
		if backward {
			s.text = func(st *croft.Status) string { return st.Instance.Name }
		}
	case "host":
		if operator {
			s.text = hostName
		}
	case "image":
		shown := map[string]string{} // many instances have one image
		s.text = func(st *croft.Status) string {
			image := imageFor(&st.Instance.Spec, operator)
			text, known := shown[image]
			if !known {
				text = redact.Image(image)
				shown[image] = text
			}
			return text
		}
	}
	return s
}

// texts returns the texts by which instances are sorted, by fields of an instance.
var texts = map[string]func(*croft.Status) string{
	"state":   schedule.Describe,
	"project": func(st *croft.Status) string { return string(st.Instance.Project) },
	"created": func(st *croft.Status) string { return timeText(st.Instance.Created) },
	"expires": func(st *croft.Status) string {
		if st.Instance.Expires.IsZero() {
			return "never" // after all times
		}
		return timeText(st.Instance.Expires)
	},
	"address": func(st *croft.Status) string {
		switch at, _ := netip.ParseAddr(schedule.Address(st)); { // invalid: it has none
		case at.Is4():
			return fmt.Sprintf("4 %x", at.As4())
		case at.Is6():
			return fmt.Sprintf("6 %x", at.As16())
		}
		return ""
	},
	"resources": func(st *croft.Status) string {
		r := st.Instance.Spec.Resources
		return fmt.Sprintf("%019d %019d %019d", r[croft.VCPU], r[croft.MemoryMB], r[croft.DiskGB])
	},
}

// timeText returns a text whose order is that of the times.
func timeText(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000000") }

func hostName(st *croft.Status) string {
	if st.Host == nil {
		return ""
	}
	return st.Host.Name
}

// position is where an instance is in an order.
type position struct{ text, name, id string }

func (s sorting) positionOf(st *croft.Status) position {
	p := position{name: st.Instance.Name, id: string(st.Instance.ID)}
	if s.text != nil {
		p.text = s.text(st)
	}
	return p
}

func (s sorting) compare(a, b position) int {
	texts := cmp.Compare(a.text, b.text)
	if s.backward {
		texts = -texts
	}
	return cmp.Or(texts, cmp.Compare(a.name, b.name), cmp.Compare(a.id, b.id))
}

// next returns what starts the page after an instance.
func (s sorting) next(st *croft.Status) string {
	p := s.positionOf(st)
	if s.text == nil {
		return p.name + "/" + p.id
	}
	return p.text + "/" + p.name + "/" + p.id
}

// parse is the reverse of next. A name without a UUID is after all instances of the name. Invalid.
func (s sorting) parse(after string) (p position, err error) {
	if s.text == nil {
		name, id, exact := strings.Cut(after, "/") // a name has no slash
		if !exact {
			id = afterIDs
		}
		return position{name: name, id: id}, nil
	}
	parts := strings.Split(after, "/")
	n := len(parts) - 2
	if n < 1 {
		return p, api.NewProblem(api.BadQuery, "the parameter after is not the field next of a list with this sort")
	}
	return position{strings.Join(parts[:n], "/"), parts[n], parts[n+1]}, nil
}

// afterIDs is after all UUIDs.
const afterIDs = "~"

// from returns an iterator over the instances after a position (empty: all) of a list in the order of the names; nil:
// there are no more. Only for another order it asks whether an instance is wanted.
func (s sorting) from(all []*croft.Status, after string, wanted func(*croft.Status) bool) (
	next func() *croft.Status, err error) {
	var start position
	if after != "" {
		if start, err = s.parse(after); err != nil {
			return nil, err
		}
	}
	isAfter := func(p position) bool { return after == "" || s.compare(p, start) > 0 }
	if s.text == nil {
		n := sort.Search(len(all), func(i int) bool { return isAfter(s.positionOf(all[i])) })
		return func() *croft.Status {
			if n++; n > len(all) {
				return nil
			}
			return all[n-1]
		}, nil
	}
	q := &queue{sorting: s}
	for _, st := range all {
		if p := s.positionOf(st); isAfter(p) && wanted(st) {
			q.left = append(q.left, positioned{p, st})
		}
	}
	heap.Init(q)
	return func() *croft.Status {
		if len(q.left) == 0 {
			return nil
		}
		return heap.Pop(q).(*croft.Status)
	}, nil
}

// queue is a heap of instances, of which a page needs only the first ones.
type queue struct {
	sorting
	left []positioned
}

type positioned struct {
	position
	status *croft.Status
}

func (q *queue) Len() int           { return len(q.left) }
func (q *queue) Less(i, j int) bool { return q.compare(q.left[i].position, q.left[j].position) < 0 }
func (q *queue) Swap(i, j int)      { q.left[i], q.left[j] = q.left[j], q.left[i] }
func (q *queue) Push(any)           {} // nothing is added to a list
func (q *queue) Pop() any {
	last := len(q.left) - 1
	st := q.left[last].status
	q.left = q.left[:last]
	return st
}
