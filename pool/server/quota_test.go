package server_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"croft"
	"croft/pool/api"
	"croft/pool/pooltest"
	"croft/pool/server"
)

// Without quotas, a client that opened tickets in a loop filled etcd: 258 MB in ten seconds.
func TestAClientOpensNoMoreThanItsQuota(t *testing.T) {
	m, ci, boss := oneWith(t, pooltest.NewMemory(), server.Quota{Open: 50, Rate: 0.001})
	auth := func(token string) map[string]string { return map[string]string{"Authorization": "Bearer " + token} }
	var taken, tooMany, other atomic.Int64
	var work sync.WaitGroup
	for i := range 8 {
		work.Go(func() {
			for n := range 50 {
				body, method := fmt.Sprintf(`{"tags": ["none-%d-%d"]}`, i, n), "POST"
				switch status, _ := request(t, method, m.URL+"/v1/tickets", body, auth(ci)); status {
				case http.StatusOK:
					taken.Add(1)
				case http.StatusTooManyRequests:
					tooMany.Add(1)
				default:
					other.Add(1)
				}
			}
		})
	}
	work.Wait()
	if taken.Load() != 50 || tooMany.Load() != 350 || other.Load() != 0 {
		t.Errorf("%d tickets were opened, %d refused, and %d answered otherwise", taken.Load(), tooMany.Load(),
			other.Load())
	}
	admin := client(t, boss, m.URL)
	for range 60 {
		opened(t, admin, "a")
	}
}

func TestAClientHasNoMoreOpenThanItsQuota(t *testing.T) {
	m, ci, _ := oneWith(t, pooltest.NewMemory(), server.Quota{Open: 3, Rate: 100_000})
	c := client(t, ci, m.URL)
	ctx := bounded(t)
	var ids []int64
	for i := range 3 {
		got, err := c.Open(ctx, api.Opening{Tags: []string{"a"}, Key: fmt.Sprint(i)})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, got.ID)
	}
	_, err := c.Open(ctx, api.Opening{Tags: []string{"a"}, Key: "one more"})
	if !errors.Is(err, croft.NoCapacity) || !strings.Contains(err.Error(),
		"ci has 3 tickets open, which is as many as it may have: close some first") {
		t.Errorf("the fourth: %v", err)
	}
	if again, err := c.Open(ctx, api.Opening{Tags: []string{"a"}, Key: "1"}); err != nil || again.ID != ids[1] {
		t.Errorf("asking again: %v, %v", again.ID, err)
	}
	if _, err := c.Close(ctx, ids[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Open(ctx, api.Opening{Tags: []string{"a"}, Key: "one more"}); err != nil {
		t.Errorf("once one is closed: %v", err)
	}
}

func TestATicketNamesLittle(t *testing.T) {
	m, ci, _ := one(t)
	long := strings.Repeat("x", 256)
	for name, c := range map[string]struct {
		opening api.Opening
		status  int
	}{
		"tags of 4 KiB":            {api.Opening{Tags: tagsOf(16, long)}, http.StatusOK},
		"tags of more":             {api.Opening{Tags: tagsOf(17, long)}, http.StatusBadRequest},
		"with the sandbox":         {api.Opening{Tags: tagsOf(16, long), Sandbox: "s"}, http.StatusBadRequest},
		"with the key":             {api.Opening{Tags: tagsOf(16, long), Key: "k"}, http.StatusBadRequest},
		"a tag that turns reading": {api.Opening{Tags: []string{"\u202ea"}}, http.StatusBadRequest},
		"a tag that steers":        {api.Opening{Tags: []string{"\u009b2J"}}, http.StatusBadRequest},
	} {
		body, err := json.Marshal(c.opening)
		if err != nil {
			t.Fatal(err)
		}
		if status, text := request(t, "POST", m.URL+"/v1/tickets", string(body),
			map[string]string{"Authorization": "Bearer " + ci}); status != c.status {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
}

func tagsOf(n int, like string) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("%02d", i)+like[2:])
	}
	return all
}

func TestAdminsAloneOpenTicketsOfProjects(t *testing.T) {
	m, ci, boss := one(t)
	_, err := client(t, ci, m.URL).Open(bounded(t), api.Opening{Tags: []string{"a"}, Project: "lab"})
	if !errors.Is(err, croft.Denied) || !strings.Contains(err.Error(), "leave the project out") {
		t.Errorf("a client: %v", err)
	}
	admin := client(t, boss, m.URL)
	got, err := admin.Open(bounded(t), api.Opening{Tags: []string{"a"}, Project: "lab"})
	if err != nil || got.Project != "lab" {
		t.Errorf("an admin: %+v, %v", got, err)
	}
	_, err = admin.Open(bounded(t), api.Opening{Tags: []string{"a"}, Project: "a/b"})
	if !errors.Is(err, croft.Invalid) {
		t.Errorf("a project that cannot be: %v", err)
	}
	if _, err = client(t, ci, m.URL).Ticket(bounded(t), got.ID); !errors.Is(err, croft.NotFound) {
		t.Errorf("another client sees it: %v", err)
	}
}
