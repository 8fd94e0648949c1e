package placement

import (
	"context"
	"net/http"
	"strconv"

	"croft"
	"croft/placement/ledger"
)

// partitionHeader is a header of the answer to GET /. It names the partition in which a server of croft keeps its
// state. A client that reaches the same partition may claim through its own ledger.
const partitionHeader = "Croft-Partition"

// Ledger returns the server's ledger, for claims of this process.
func (s *Server) Ledger() *ledger.Ledger { return s.ledger }

// Candidates does GET /allocation_candidates for callers in this process: it returns at most limit ways to satisfy a
// query string, always in random order. It waits until the state has been loaded. Invalid: the query is refused.
func (s *Server) Candidates(ctx context.Context, text string, limit int) ([]croft.Candidate, error) {
	if err := s.WaitReady(ctx); err != nil {
		return nil, err
	}
	if limit > 0 {
		text += "&limit=" + strconv.Itoa(limit)
	}
	req, err := readLocalQuery(text)
	if err != nil {
		return nil, localError(err)
	}
	var all []croft.Candidate
	err = s.ledger.View(func(st *ledger.State) error {
		found, err := st.Candidates(ctx, req)
		if err != nil {
			return err
		}
		of := localCandidates{st: st, summaries: map[*ledger.Provider]croft.Summary{}}
		all = make([]croft.Candidate, len(found))
		for i, c := range found {
			all[i] = of.candidate(c)
		}
		return nil
	})
	if err != nil {
		return nil, localError(err)
	}
	return all, nil
}

func readLocalQuery(text string) (*ledger.CandidateRequest, error) {
	params, err := parseQuery(text)
	if err != nil {
		return nil, err
	}
	req, err := readCandidateRequest(&request{version: maxVersion, query: params})
	if err == nil {
		req.Randomize = true
	}
	return req, err
}

// localError converts a refusal to an error for callers in this process.
func localError(err error) error {
	refusal := asAPIError(err)
	kind := croft.Invalid
	if refusal.status >= http.StatusInternalServerError {
		kind = croft.Unavailable
	}
	return croft.Errorf(kind, "placement: %s", refusal.detail)
}

// localCandidates turns candidates into croft's types.
type localCandidates struct {
	st        *ledger.State
	summaries map[*ledger.Provider]croft.Summary
}

func (l *localCandidates) candidate(c ledger.Candidate) croft.Candidate {
	out := croft.Candidate{Allocations: make(map[croft.HostID]croft.Resources, 1),
		Summaries: make(map[croft.HostID]croft.Summary, 1)}
	for _, x := range c.Portions {
		id := croft.HostID(x.Provider.UUID)
		if out.Allocations[id] == nil {
			out.Allocations[id] = make(croft.Resources, len(c.Portions))
			out.Summaries[id] = l.summary(x.Provider)
		}
		out.Allocations[id][croft.ResourceClass(l.st.ClassName(x.Class))] = x.N
	}
	return out
}

func (l *localCandidates) summary(p *ledger.Provider) croft.Summary {
	if known, ok := l.summaries[p]; ok {
		return known
	}
	s := croft.Summary{Root: croft.HostID(p.Root().UUID), Capacity: make(croft.Resources, len(p.Inventories)),
		Used: make(croft.Resources, len(p.Inventories))}
	for i := range p.Inventories {
		class := croft.ResourceClass(l.st.ClassName(p.Inventories[i].Class))
		s.Capacity[class], s.Used[class] = p.Inventories[i].Capacity(), p.Used(p.Inventories[i].Class)
	}
	l.summaries[p] = s
	return s
}
