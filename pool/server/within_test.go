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
		{"those of one project", admin.Within(api.ProjectRef{Name: "lab"}), []int64{lab}},
		{"those of two", admin.Within(api.ProjectRef{Name: "shop"}, api.ProjectRef{Name: "lab"}), []int64{lab, shop}},
		{"none, without a project", admin.Within(), nil},
		{"none, of a project that has none", admin.Within(api.ProjectRef{Name: "other"}), nil},
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
	got, err := admin.Within(api.ProjectRef{Name: "shop"}).Close(ctx, shop)
	if err != nil || got.State != api.TicketClosed {
		t.Errorf("closed %+v, %v", got, err)
	}
	status, text := request(t, "GET", m.URL+"/v1/tickets?project=lab", "",
		map[string]string{"Authorization": "Bearer " + ci})
	if status != http.StatusForbidden || !strings.Contains(text, "only admins name projects") {
		t.Errorf("a client: %d %s", status, text)
	}
}

const (
	former = "aaaaaaaa-aaaa-5aaa-8aaa-aaaaaaaaaaaa"
	later  = "bbbbbbbb-bbbb-5bbb-8bbb-bbbbbbbbbbbb"
)

func TestALaterProjectOfTheSameNameHasNoneOfTheTickets(t *testing.T) {
	m, _, boss := one(t)
	admin, ctx := client(t, boss, m.URL), bounded(t)
	open := func(id, key string) api.Ticket {
		got, err := admin.Open(ctx, api.Opening{Tags: []string{"none"}, Project: "ghost", ProjectID: id, Key: key,
			Sandbox: "s"})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	ended, open1, unknown := open(former, "k"), open(former, ""), open("", "old")
	if _, err := admin.Close(ctx, ended.ID); err != nil {
		t.Fatal(err)
	}
	if again := open(former, "k"); again.ID != ended.ID {
		t.Errorf("the key of the same project opens ticket %d and not %d", again.ID, ended.ID)
	}
	if next := open(later, "k"); next.ID == ended.ID {
		t.Error("the key of the former project's ticket finds it")
	} else if _, err := admin.Close(ctx, next.ID); err != nil {
		t.Fatal(err)
	}
	if again := open(later, "old"); again.ID != unknown.ID {
		t.Error("an open ticket of a program that knows no identities is not found by its key")
	}
	sees := func(who *api.Client, id int64) bool {
		_, err := who.Ticket(ctx, id)
		return err == nil
	}
	was := admin.Within(api.ProjectRef{Name: "ghost", ID: former})
	is := admin.Within(api.ProjectRef{Name: "ghost", ID: later})
	if !sees(was, ended.ID) || !sees(was, open1.ID) || !sees(is, unknown.ID) {
		t.Error("a project does not see its own tickets")
	}
	if sees(is, ended.ID) || sees(is, open1.ID) {
		t.Error("the later project sees tickets of the former one")
	}
	if _, err := admin.Close(ctx, unknown.ID); err != nil {
		t.Fatal(err)
	}
	if sees(is, unknown.ID) {
		t.Error("an ended ticket, which nobody knows whose it was, is the later project's")
	}
}
