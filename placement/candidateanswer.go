package placement

import (
	"slices"
	"strconv"

	"croft/placement/ledger"
)

// Microversions of the answer of /allocation_candidates: 1.12 makes allocations an object, 1.17 adds traits to the
// summaries, 1.27 all classes, 1.29 parents, roots and the whole trees, 1.34 mappings.
//
// The answer is written byte by byte, not through encoding/json: see BenchmarkCandidateAnswer.

// candidates handles /allocation_candidates.
type candidates struct {
	ledger    *ledger.Ledger
	randomize bool
}

// list serves GET /allocation_candidates.
func (h candidates) list(q *request) (*response, error) {
	req, err := readCandidateRequest(q)
	if err != nil {
		return nil, err
	}
	req.Randomize = h.randomize
	a := candidateAnswer{req: req, version: q.version, minimal: q.version >= 12 && prefers(q.r.Header, minimal)}
	var body []byte
	err = h.ledger.View(func(st *ledger.State) error {
		found, err := st.Candidates(q.r.Context(), req)
		a.st = st
		body = a.append(make([]byte, 0, 512+640*len(found)), found)
		return err
	})
	if err != nil {
		return nil, err
	}
	resp := q.okBody(body, 0)
	if a.minimal {
		resp.set("Preference-Applied", minimal)
	}
	return resp, nil
}

// minimal is the preference (RFC 7240) of a client, such as croft's own, that needs no mappings, traits, parents, the
// roots of providers that are roots themselves, or providers without allocations. Other Placements ignore it and answer
// in full.
const minimal = "return=minimal"

// candidateAnswer writes candidates as JSON.
type candidateAnswer struct {
	st      *ledger.State
	req     *ledger.CandidateRequest
	version version
	minimal bool
}

func (a *candidateAnswer) append(b []byte, found []ledger.Candidate) []byte {
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

// each calls use once per provider of a candidate, with its portions.
func each(portions []ledger.Portion, use func(p *ledger.Provider, portions []ledger.Portion)) {
	for i, x := range portions {
		if slices.ContainsFunc(portions[:i], func(y ledger.Portion) bool { return y.Provider == x.Provider }) {
			continue
		}
		var own []ledger.Portion
		for _, y := range portions[i:] {
			if y.Provider == x.Provider {
				own = append(own, y)
			}
		}
		use(x.Provider, own)
	}
}

func (a *candidateAnswer) appendPortions(b []byte, portions []ledger.Portion) []byte {
	b = append(b, `"resources": {`...)
	for i, x := range portions {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(appendString(b, a.st.ClassName(x.Class)), ": "...)
		b = strconv.AppendInt(b, x.N, 10)
	}
	return append(b, '}')
}

func (a *candidateAnswer) appendRequest(b []byte, c *ledger.Candidate) []byte {
	b = append(b, `{"allocations": {`...)
	first := true
	each(c.Portions, func(p *ledger.Provider, portions []ledger.Portion) {
		if !first {
			b = append(b, ", "...)
		}
		first = false
		b = append(appendString(b, p.UUID), ": {"...)
		b = append(a.appendPortions(b, portions), '}')
	})
	b = append(b, '}')
	if a.version >= 34 && !a.minimal {
		b = a.appendMappings(append(b, `, "mappings": {`...), c)
		b = append(b, '}')
	}
	return append(b, '}')
}

func (a *candidateAnswer) appendMappings(b []byte, c *ledger.Candidate) []byte {
	for i, o := range c.Options {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(appendString(b, a.req.Groups[i].Suffix), ": ["...)
		for j, p := range o.Providers {
			if j > 0 {
				b = append(b, ", "...)
			}
			b = appendString(b, p.UUID)
		}
		b = append(b, ']')
	}
	return b
}

// appendList writes the list used before 1.12.
func (a *candidateAnswer) appendList(b []byte, c *ledger.Candidate) []byte {
	b = append(b, `{"allocations": [`...)
	first := true
	each(c.Portions, func(p *ledger.Provider, portions []ledger.Portion) {
		if !first {
			b = append(b, ", "...)
		}
		first = false
		b = append(appendString(append(b, `{"resource_provider": {"uuid": `...), p.UUID), "}, "...)
		b = append(a.appendPortions(b, portions), '}')
	})
	return append(b, "]}"...)
}

// summarized lists the providers that the answer describes: those with allocations, and from 1.29 on their whole trees.
func (a *candidateAnswer) summarized(found []ledger.Candidate) []*ledger.Provider {
	seen := make(map[*ledger.Provider]struct{}, len(found))
	var list []*ledger.Provider
	for i := range found {
		for _, x := range found[i].Portions {
			p := x.Provider
			if a.version >= 29 && !a.minimal {
				p = p.Root()
			}
			if _, have := seen[p]; have {
				continue
			}
			seen[p] = struct{}{}
			if a.version >= 29 && !a.minimal {
				list = p.AppendTree(list)
			} else {
				list = append(list, p)
			}
		}
	}
	return list
}

func (a *candidateAnswer) appendSummary(b []byte, p *ledger.Provider) []byte {
	b = append(appendString(b, p.UUID), `: {"resources": {`...)
	first := true
	for i := range p.Inventories {
		inv := &p.Inventories[i]
		name := a.st.ClassName(inv.Class)
		if a.version < 27 && !a.asksFor(name) {
			continue
		}
		if !first {
			b = append(b, ", "...)
		}
		first = false
		b = append(appendString(b, name), `: {"capacity": `...)
		b = strconv.AppendInt(b, inv.Capacity(), 10)
		b = strconv.AppendInt(append(b, `, "used": `...), p.Used(inv.Class), 10)
		b = append(b, '}')
	}
	b = append(b, '}')
	if a.minimal {
		if p.Root() != p { // without this, a client would take the provider for its own root
			b = appendString(append(b, `, "root_provider_uuid": `...), p.Root().UUID)
		}
		return append(b, '}')
	}
	if a.version >= 17 {
		b = append(b, `, "traits": [`...)
		for i, t := range p.Traits {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = appendString(b, a.st.TraitName(t))
		}
		b = append(b, ']')
	}
	if a.version >= 29 {
		b = appendNullable(append(b, `, "parent_provider_uuid": `...), p.Parent)
		b = appendString(append(b, `, "root_provider_uuid": `...), p.Root().UUID)
	}
	return append(b, '}')
}

func (a *candidateAnswer) asksFor(class string) bool {
	for i := range a.req.Groups {
		if slices.ContainsFunc(a.req.Groups[i].Resources, func(w ledger.NamedAmount) bool { return w.Class == class }) {
			return true
		}
	}
	return false
}

// appendString writes a JSON string.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			return append(b, encode(s)...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// appendNullable writes a string, or null for an empty one.
func appendNullable(b []byte, s string) []byte {
	if s == "" {
		return append(b, "null"...)
	}
	return appendString(b, s)
}
