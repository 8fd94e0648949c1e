package placement

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"croft/placement/internal/pyjson"
)

// What changed in the answer of /allocation_candidates: 1.12 makes allocations an
// object, 1.17 adds traits to the summaries, 1.27 all classes, 1.29 parents, roots
// and the whole trees, 1.34 mappings.

// listCandidates is GET /allocation_candidates.
func (s *Server) listCandidates(q *request) (*response, error) {
	req, err := readCandidateRequest(q)
	if err != nil {
		return nil, err
	}
	req.randomize = s.config.Randomize
	s.mu.RLock()
	defer s.mu.RUnlock()
	found, err := s.state.candidates(q.r.Context(), req)
	if err != nil {
		return nil, err
	}
	a := answer{st: s.state, req: req, version: q.version, minimal: q.version >= 12 && prefersMinimal(q.r.Header)}
	resp := q.ok(a.append(make([]byte, 0, 512+640*len(found)), found), 0)
	if a.minimal {
		resp.set("Preference-Applied", minimal)
	}
	return resp, nil
}

// minimal is what a client prefers (RFC 7240) that has no use for most of the answer:
// mappings, traits, parents, roots of themselves, and providers of which nothing is
// taken. croft's own client does; other Placements answer it at full length.
const minimal = "return=minimal"

func prefersMinimal(h http.Header) bool {
	for _, value := range h.Values("Prefer") {
		for preference := range strings.SplitSeq(value, ",") {
			if strings.EqualFold(strings.TrimSpace(preference), minimal) {
				return true
			}
		}
	}
	return false
}

// answer writes candidates as JSON.
type answer struct {
	st      *state
	req     *candidateRequest
	version version
	minimal bool
}

func (a *answer) append(b []byte, found []candidate) []byte {
	b = append(b, `{"allocation_requests": [`...)
	for i := range found {
		if i > 0 {
			b = append(b, ", "...)
		}
		if a.version >= 12 {
			b = a.appendRequest(b, &found[i])
		} else {
			b = a.appendList(b, &found[i])
		}
	}
	b = append(b, `], "provider_summaries": {`...)
	for i, p := range a.summarized(found) {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = a.appendSummary(b, p)
	}
	return append(b, "}}"...)
}

// each calls use for every provider of a candidate with its parts.
func each(parts []part, use func(p *provider, parts []part)) {
	for i, x := range parts {
		if slices.ContainsFunc(parts[:i], func(y part) bool { return y.p == x.p }) {
			continue
		}
		var own []part
		for _, y := range parts[i:] {
			if y.p == x.p {
				own = append(own, y)
			}
		}
		use(x.p, own)
	}
}

func (a *answer) appendParts(b []byte, parts []part) []byte {
	b = append(b, `"resources": {`...)
	for i, x := range parts {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(pyjson.AppendString(b, a.st.classes.name(x.class)), ": "...)
		b = strconv.AppendInt(b, x.n, 10)
	}
	return append(b, '}')
}

func (a *answer) appendRequest(b []byte, c *candidate) []byte {
	b = append(b, `{"allocations": {`...)
	first := true
	each(c.parts, func(p *provider, parts []part) {
		if !first {
			b = append(b, ", "...)
		}
		first = false
		b = append(pyjson.AppendString(b, p.uuid), ": {"...)
		b = append(a.appendParts(b, parts), '}')
	})
	b = append(b, '}')
	if a.version >= 34 && !a.minimal {
		b = a.appendMappings(append(b, `, "mappings": {`...), c)
		b = append(b, '}')
	}
	return append(b, '}')
}

func (a *answer) appendMappings(b []byte, c *candidate) []byte {
	for i, o := range c.options {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(pyjson.AppendString(b, a.req.groups[i].suffix), ": ["...)
		for j, p := range o.providers {
			if j > 0 {
				b = append(b, ", "...)
			}
			b = pyjson.AppendString(b, p.uuid)
		}
		b = append(b, ']')
	}
	return b
}

// appendList is the form before 1.12.
func (a *answer) appendList(b []byte, c *candidate) []byte {
	b = append(b, `{"allocations": [`...)
	first := true
	each(c.parts, func(p *provider, parts []part) {
		if !first {
			b = append(b, ", "...)
		}
		first = false
		b = append(pyjson.AppendString(append(b, `{"resource_provider": {"uuid": `...), p.uuid), "}, "...)
		b = append(a.appendParts(b, parts), '}')
	})
	return append(b, "]}"...)
}

// summarized lists the providers to describe: those that take part, from 1.29 on
// all of their trees.
func (a *answer) summarized(found []candidate) []*provider {
	seen := make(map[*provider]struct{}, len(found))
	var list []*provider
	for i := range found {
		for _, x := range found[i].parts {
			p := x.p
			if a.version >= 29 && !a.minimal {
				p = p.root
			}
			if _, have := seen[p]; have {
				continue
			}
			seen[p] = struct{}{}
			if a.version >= 29 && !a.minimal {
				list = subtree(list, p)
			} else {
				list = append(list, p)
			}
		}
	}
	return list
}

func (a *answer) appendSummary(b []byte, p *provider) []byte {
	b = append(pyjson.AppendString(b, p.uuid), `: {"resources": {`...)
	first := true
	for i := range p.inventories {
		inv := &p.inventories[i]
		name := a.st.classes.name(inv.class)
		if a.version < 27 && !a.req.asksFor(name) {
			continue
		}
		if !first {
			b = append(b, ", "...)
		}
		first = false
		b = append(pyjson.AppendString(b, name), `: {"capacity": `...)
		b = strconv.AppendInt(b, inv.capacity(), 10)
		b = strconv.AppendInt(append(b, `, "used": `...), p.used(inv.class), 10)
		b = append(b, '}')
	}
	b = append(b, '}')
	if a.minimal {
		if p.root != p { // else it is its own
			b = pyjson.AppendString(append(b, `, "root_provider_uuid": `...), p.root.uuid)
		}
		return append(b, '}')
	}
	if a.version >= 17 {
		b = append(b, `, "traits": [`...)
		for i, t := range p.traits {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = pyjson.AppendString(b, a.st.traits.name(t))
		}
		b = append(b, ']')
	}
	if a.version >= 29 {
		b = appendNullable(append(b, `, "parent_provider_uuid": `...), p.parent)
		b = pyjson.AppendString(append(b, `, "root_provider_uuid": `...), p.root.uuid)
	}
	return append(b, '}')
}

func (req *candidateRequest) asksFor(class string) bool {
	for i := range req.groups {
		if slices.ContainsFunc(req.groups[i].resources, func(w want) bool { return w.class == class }) {
			return true
		}
	}
	return false
}
