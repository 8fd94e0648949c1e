package cloudtest

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"croft"
	"croft/client"
	"croft/pool/api"
)

// tag is the tag of the pool that all projects may use.
const tag = "shared"

// pools returns the operations of pools and tickets.
func (s *suite) pools() client.Pools { return client.Pools{Client: s.Client} }

func ticketsAreKept(s *suite) {
	asked := api.Opening{Tags: []string{tag, tag}, Sandbox: "box", TTL: api.Seconds(time.Hour), Key: "first",
		Project: "lab"}
	t, err := s.pools().Open(s.ctx, asked)
	s.must(err)
	again, err := s.pools().Open(s.ctx, asked)
	if err != nil || again.ID != t.ID {
		s.Errorf("asked again with its key, ticket %d is %d, %v", t.ID, again.ID, err)
	}
	if t.Project != "lab" || !slices.Equal(t.Tags, []string{tag}) || t.Sandbox != "box" ||
		t.TTL != asked.TTL || t.State != api.TicketOpen {
		s.Errorf("opened %+v", t)
	}
	t, err = s.pools().Wait(s.ctx, t.ID, api.Waiting{})
	s.must(err)
	if t.Err() != nil || t.Resource == nil || !strings.HasPrefix(string(t.Resource.Data), "secret-") ||
		t.Resource.Pool != "everybodys" || t.Resource.Ticket != t.ID {
		s.Errorf("waited for %+v, %v", t, t.Err())
	}
	renewed, err := s.pools().Renew(s.ctx, t.ID)
	if err != nil || renewed.Expires.Before(t.Expires) {
		s.Errorf("renewed %+v, %v", renewed, err)
	}
	s.listed(api.Selection{}, t.ID)
	s.listed(api.Selection{Project: "lab"}, t.ID)
	s.listed(api.Selection{Project: "shop"})

	vain, err := s.pools().Open(s.ctx, api.Opening{Tags: []string{"nowhere"}, Project: "lab"})
	s.must(err)
	if vain, err = s.pools().Wait(s.ctx, vain.ID, api.Waiting{}); err != nil {
		s.Errorf("the wait for what is nowhere ended with %v", err)
	}
	s.is(vain.Err(), croft.NoCapacity, "what is nowhere")
	if !strings.Contains(vain.WaitsFor, "no pool has the tag nowhere") {
		s.Errorf("it waits for %q", vain.WaitsFor)
	}
	s.listed(api.Selection{Limit: 1}, vain.ID)
	_, err = s.pools().Renew(s.ctx, vain.ID)
	s.is(err, croft.Conflict, "to renew what has no lease")

	for range 2 {
		closed, err := s.pools().Close(s.ctx, t.ID)
		if err != nil || closed.State != api.TicketClosed {
			s.Errorf("closed %+v, %v", closed, err)
		}
	}
	s.listed(api.Selection{}, vain.ID)
	s.listed(api.Selection{All: true}, t.ID, vain.ID)
	closed, err := s.pools().Wait(s.ctx, t.ID, api.Waiting{})
	s.must(err)
	s.is(closed.Err(), croft.Conflict, "a closed ticket")
	_, err = s.pools().Renew(s.ctx, t.ID)
	s.is(err, croft.Conflict, "to renew what is closed")
	for what, ask := range map[string]func(context.Context, int64) (api.Ticket, error){
		"to see": s.pools().Ticket, "to close": s.pools().Close, "to renew": s.pools().Renew} {
		_, err := ask(s.ctx, 4711)
		s.is(err, croft.NotFound, what+" a ticket that there is not")
	}
	_, err = s.pools().Open(s.ctx, api.Opening{Tags: []string{"a\x00"}, Project: "lab"})
	s.is(err, croft.Invalid, "a tag that cannot be printed")
	s.waitsInTime()
}

// listed fails the test unless exactly these tickets are listed.
func (s *suite) listed(of api.Selection, want ...int64) {
	s.Helper()
	list, err := s.pools().Tickets(s.ctx, of)
	s.must(err)
	var got []int64
	for _, t := range list.Tickets {
		got = append(got, t.ID)
	}
	if !slices.Equal(got, want) {
		s.Errorf("%+v lists %d, want %d", of, got, want)
	}
}

// waitsInTime checks that a wait ends with its context, and leaves the ticket open.
func (s *suite) waitsInTime() {
	var last api.Ticket
	for range 4 { // one more than the pool may have
		t, err := s.pools().Open(s.ctx, api.Opening{Tags: []string{tag}, Project: "lab"})
		s.must(err)
		last = t
	}
	ctx, cancel := context.WithTimeout(s.ctx, 100*time.Millisecond)
	defer cancel()
	if _, err := s.pools().Wait(ctx, last.ID, api.Waiting{}); !errors.Is(err, context.DeadlineExceeded) {
		s.Errorf("the wait ended with %v", err)
	}
	t, err := s.pools().Ticket(s.ctx, last.ID)
	if err != nil || !t.Waiting() || t.WaitsFor == "" {
		s.Errorf("after the wait it is %+v, %v", t, err)
	}
}

func poolsAreListed(s *suite) {
	t, err := s.pools().Open(s.ctx, api.Opening{Tags: []string{tag}, Project: "lab"})
	s.must(err)
	t, err = s.pools().Wait(s.ctx, t.ID, api.Waiting{})
	s.must(err)
	all, err := s.pools().Pools(s.ctx)
	s.must(err)
	i := slices.IndexFunc(all, func(p api.Pool) bool { return p.Name == "everybodys" })
	if i < 0 || !all[i].Shared || all[i].Stock == nil || all[i].Taken != 1 || all[i].Max != 3 {
		s.Fatalf("the pools are %+v", all)
	}
	one, err := s.pools().Pool(s.ctx, "everybodys")
	if err != nil || one.Name != "everybodys" || one.Project != "org" || one.Stock == nil {
		s.Errorf("the pool is %+v, %v", one, err)
	}
	for _, of := range []string{"", "everybodys"} {
		list, err := s.pools().Resources(s.ctx, of, false)
		held := slices.IndexFunc(list, func(r api.Resource) bool { return r.Ticket == t.ID })
		if err != nil || held < 0 || list[held].ID != t.Resource.ID {
			s.Errorf("the resources of %q are %+v, %v", of, list, err)
		}
	}
	if list, err := s.pools().Resources(s.ctx, "nowhere", true); err != nil || len(list) != 0 {
		s.Errorf("what there is not has %+v, %v", list, err)
	}
	for _, name := range []string{t.Resource.Name, strconv.FormatInt(t.Resource.ID, 10)} {
		r, err := s.pools().Resource(s.ctx, name)
		if err != nil || r.ID != t.Resource.ID {
			s.Errorf("%s is %+v, %v", name, r, err)
		}
		log, err := s.pools().Logs(s.ctx, name)
		if err != nil || !strings.Contains(string(log), "secret-"+strconv.FormatInt(r.ID, 10)) {
			s.Errorf("the log is %q, %v", log, err)
		}
	}
	_, err = s.pools().Pool(s.ctx, "nowhere")
	s.is(err, croft.NotFound, "a pool that there is not")
	_, err = s.pools().Resource(s.ctx, "nothing")
	s.is(err, croft.NotFound, "a resource that there is not")
	_, err = s.pools().Logs(s.ctx, "nothing")
	s.is(err, croft.NotFound, "the log of nothing")
}
