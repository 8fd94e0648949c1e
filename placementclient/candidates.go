package placementclient

import (
	"cmp"
	"context"
	"net/http"
	"strconv"
	"strings"

	"croft"
)

// Candidates implements schedule.Claims. Candidates share common parts, so callers must not modify the result.
func (c *Client) Candidates(ctx context.Context, query string, limit int) ([]croft.Candidate, error) {
	path := "/allocation_candidates?" + query
	if limit > 0 {
		path += "&limit=" + strconv.Itoa(limit)
	}
	var answer candidates
	if err := c.conn.call(ctx, http.MethodGet, path, nil, &answer); err != nil {
		return nil, sayClass(err)
	}
	return answer.list(), nil
}

// sayClass says in plain words that Placement does not know a resource class.
func sayClass(err error) error {
	_, class, unknown := strings.Cut(err.Error(), "No such resource class ")
	if !unknown || croft.KindOf(err) != croft.Invalid {
		return err
	}
	class, _, _ = strings.Cut(class, ".")
	return croft.Errorf(croft.Invalid, "no host has offered the resource class %s yet: correct its name; an operator "+
		"sees in `croft host show` what a host offers", class)
}

// candidates is the answer of /allocation_candidates. It is most of what a scheduler reads, so it is decoded without
// reflection. Mappings, traits and parents, the bulk of an answer that is not minimal, are skipped.
type candidates struct {
	requests  []map[croft.HostID]croft.Resources
	summaries map[croft.HostID]croft.Summary

	names map[string]string // interned hosts and classes
	last  amounts           // of the last allocation
	taken croft.Resources   // last as a map
	total amounts           // capacities of the last summary
	held  croft.Resources   // total as a map
}

// amounts is a small set of resources in answer order.
type amounts []amount

type amount struct {
	class croft.ResourceClass
	n     int64
}

func (a amounts) resources() croft.Resources {
	r := make(croft.Resources, len(a))
	for _, x := range a {
		r[x.class] = x.n
	}
	return r
}

// decode implements decoder.
func (a *candidates) decode(text []byte) error {
	*a = candidates{summaries: map[croft.HostID]croft.Summary{}, names: map[string]string{}}
	r := jsonReader{text: text}
	r.object(func(key []byte) {
		switch string(key) {
		case "allocation_requests":
			r.array(func() { a.readRequest(&r) })
		case "provider_summaries":
			r.object(func(host []byte) { a.summaries[croft.HostID(a.name(host))] = a.readSummary(&r) })
		default:
			r.skip()
		}
	})
	r.end()
	return r.err
}

// name returns a text as a string, allocated only once.
func (a *candidates) name(text []byte) string {
	if known, ok := a.names[string(text)]; ok {
		return known
	}
	made := string(text)
	a.names[made] = made
	return made
}

func (a *candidates) readRequest(r *jsonReader) {
	request := make(map[croft.HostID]croft.Resources, 1)
	r.object(func(key []byte) {
		if string(key) != "allocations" {
			r.skip()
			return
		}
		r.object(func(host []byte) { request[croft.HostID(a.name(host))] = a.readAllocation(r) })
	})
	a.requests = append(a.requests, request)
}

// readAllocation reads the amounts taken from one provider, which nearly always equal the last ones.
func (a *candidates) readAllocation(r *jsonReader) croft.Resources {
	var taken amounts
	r.object(func(key []byte) {
		if string(key) != "resources" {
			r.skip()
			return
		}
		r.object(func(class []byte) {
			taken = append(taken, amount{croft.ResourceClass(a.name(class)), r.integer()})
		})
	})
	return share(&a.last, &a.taken, taken)
}

func (a *candidates) readSummary(r *jsonReader) (s croft.Summary) {
	var total, used amounts
	r.object(func(key []byte) {
		switch string(key) {
		case "root_provider_uuid":
			if root, isText := r.textOrNull(); isText {
				s.Root = croft.HostID(a.name(root))
			}
		case "resources":
			r.object(func(class []byte) {
				name := croft.ResourceClass(a.name(class))
				var capacity, taken int64
				r.object(func(key []byte) {
					switch string(key) {
					case "capacity":
						capacity = r.integer()
					case "used":
						taken = r.integer()
					default:
						r.skip()
					}
				})
				total, used = append(total, amount{name, capacity}), append(used, amount{name, taken})
			})
		default:
			r.skip()
		}
	})
	s.Capacity, s.Used = share(&a.total, &a.held, total), used.resources()
	return s
}

// share returns the last map if the amounts are equal, else a new one.
func share(last *amounts, made *croft.Resources, now amounts) croft.Resources {
	if *made == nil || len(*last) != len(now) || !equal(*last, now) {
		*last, *made = now, now.resources()
	}
	return *made
}

func equal(a, b amounts) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// list returns the answer in croft's types.
func (a *candidates) list() []croft.Candidate {
	for host, s := range a.summaries {
		s.Root = cmp.Or(s.Root, host) // its own, or not reported
		a.summaries[host] = s
	}
	list := make([]croft.Candidate, len(a.requests))
	for i, request := range a.requests {
		summaries := make(map[croft.HostID]croft.Summary, len(request))
		for host := range request {
			summaries[host] = a.summaries[host]
		}
		list[i] = croft.Candidate{Allocations: request, Summaries: summaries}
	}
	return list
}
