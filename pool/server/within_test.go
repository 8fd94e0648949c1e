package server_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"croft"
	"croft/pool/api"
)

func TestAnAdminMayAskAboutTicketsOfProjectsAlone(t *testing.T) {
	m, ci, boss := one(t)
	admin, ctx := client(t, boss, m.URL), bounded(t)
	open := func(project string) int64 {
		got, err := admin.Open(ctx, api.Opening{Tags: []string{"none"}, Project: project})
		if err != nil {
			t.Fatal(err)
		}
		return got.ID
	}
	lab, shop, nobodys := open("lab"), open("shop"), open("")
	for _, c := range []struct {
		name string
		ask  *api.Client
		sees []int64
	}{
		{"all", admin, []int64{lab, shop, nobodys}},
		{"those of one project", admin.Within("lab"), []int64{lab}},
		{"those of two", admin.Within("shop", "lab"), []int64{lab, shop}},
		{"none, without a project", admin.Within(), nil},
		{"none, of a project that has none", admin.Within("other"), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			list, err := c.ask.Tickets(ctx, api.Selection{All: true})
			if err != nil || len(list.Tickets) != len(c.sees) || list.Open != len(c.sees) {
				t.Errorf("listed %+v, %v", list, err)
			}
			for _, id := range []int64{lab, shop, nobodys, 4711} {
				seen := false
				for _, one := range c.sees {
					seen = seen || one == id
				}
				_, err := c.ask.Ticket(ctx, id)
				_, polled := c.ask.Poll(ctx, id, 1)
				if errors.Is(err, croft.NotFound) == seen || errors.Is(polled, croft.NotFound) == seen {
					t.Errorf("ticket %d: %v, %v", id, err, polled)
				}
				if seen {
					continue
				}
				_, closed := c.ask.Close(ctx, id)
				_, renewed := c.ask.Renew(ctx, id)
				if !errors.Is(closed, croft.NotFound) || !errors.Is(renewed, croft.NotFound) {
					t.Errorf("ticket %d: closed %v, renewed %v", id, closed, renewed)
				}
			}
		})
	}
	if list, err := admin.Tickets(ctx, api.Selection{Project: "shop"}); err != nil || len(list.Tickets) != 1 {
		t.Errorf("of shop: %+v, %v", list, err)
	}
	if got, err := admin.Within("shop").Close(ctx, shop); err != nil || got.State != api.TicketClosed {
		t.Errorf("closed %+v, %v", got, err)
	}
	status, text := request(t, "GET", m.URL+"/v1/tickets?project=lab", "",
		map[string]string{"Authorization": "Bearer " + ci})
	if status != http.StatusForbidden || !strings.Contains(text, "only admins name projects") {
		t.Errorf("a client: %d %s", status, text)
	}
}
