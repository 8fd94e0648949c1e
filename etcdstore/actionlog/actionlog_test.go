package actionlog_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"croft"
	"croft/control/actions"
	"croft/etcdstore"
	"croft/etcdstore/etcdtest"
	"croft/tenant"
	"croft/tenant/access"
)

// begin is a time in the past of every test.
var begin = time.Now().UTC().Truncate(time.Second).Add(-time.Hour)

// entry returns an action of ann, n seconds after begin.
func entry(project croft.Project, n int) actions.Entry {
	return actions.Entry{Time: begin.Add(time.Duration(n) * time.Second), Operation: "stopInstance", User: "ann",
		Project: project, Result: actions.Done,
		Object: actions.Object{Kind: actions.Instance, Name: fmt.Sprint("vm", n)}}
}

func write(t *testing.T, s *etcdstore.Store, entries ...actions.Entry) {
	t.Helper()
	if err := s.Actions.Append(t.Context(), actions.NewBatch(entries...)); err != nil {
		t.Fatal(err)
	}
}

// names lists the objects of a page.
func names(p actions.Page) string {
	var all []string
	for _, e := range p.Entries {
		all = append(all, string(e.Project)+":"+e.Object.Name)
	}
	return strings.Join(all, " ")
}

func list(t *testing.T, s *etcdstore.Store, scope access.Scope, f actions.Filter) actions.Page {
	t.Helper()
	return etcdtest.Must(s.Actions.List(t.Context(), scope, f))(t)
}

func TestScopesAndFilters(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t)
	write(t, s, entry("lab", 1), entry("shop", 2), entry("", 3))
	bob := entry("lab", 4)
	bob.User, bob.Object.ID = "bob", "0e2f"
	write(t, s, bob)
	lab := access.Within("lab")
	for _, c := range []struct {
		name  string
		scope access.Scope
		f     actions.Filter
		want  string
	}{
		{"operators see everything", access.Everything(), actions.Filter{}, "lab:vm4 :vm3 shop:vm2 lab:vm1"},
		{"a tenant sees the own project", lab, actions.Filter{}, "lab:vm4 lab:vm1"},
		{"or those that are the tenant's", access.Within("lab", "shop"), actions.Filter{}, "lab:vm4 shop:vm2 lab:vm1"},
		{"not another's, if it is named", lab, actions.Filter{Project: "shop"}, ""},
		{"nor the cloud's", lab, actions.Filter{Project: "-"}, ""},
		{"nor by a trick", access.Everything(), actions.Filter{Project: "lab/x"}, ""},
		{"nobody sees nothing", access.Scope{}, actions.Filter{}, ""},
		{"one project", access.Everything(), actions.Filter{Project: "shop"}, "shop:vm2"},
		{"one user", access.Everything(), actions.Filter{User: "bob"}, "lab:vm4"},
		{"one object by name", lab, actions.Filter{Object: actions.Object{Kind: "instance", Name: "vm1"}}, "lab:vm1"},
		{"one object by ID", lab, actions.Filter{Object: actions.Object{Kind: "instance", Name: "0e2f"}}, "lab:vm4"},
		{"since", access.Everything(), actions.Filter{Since: begin.Add(3 * time.Second)}, "lab:vm4 :vm3"},
		{"since, within one write", access.Everything(), actions.Filter{Since: begin.Add(2 * time.Second)},
			"lab:vm4 :vm3 shop:vm2"},
	} {
		if got := names(list(t, s, c.scope, c.f)); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	if e := list(t, s, lab, actions.Filter{Limit: 1}).Entries[0]; e != bob {
		t.Errorf("stored as %+v, want %+v", e, bob)
	}
}

func TestPagesHaveEveryEntryOnce(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t)
	var want []string
	for i := range 100 { // more blocks than are read together
		write(t, s, entry("lab", 3*i), entry("shop", 3*i), entry("lab", 3*i+1), entry("lab", 3*i+2))
		want = append(want, fmt.Sprint("shop:vm", 3*i))
		for k := range 3 {
			want = append(want, fmt.Sprint("lab:vm", 3*i+k))
		}
	}
	var got []string
	pages := 0
	for f := (actions.Filter{Limit: 7}); ; pages++ {
		page := list(t, s, access.Everything(), f)
		got = append(got, strings.Fields(names(page))...)
		if f.After = page.Next; f.After == "" {
			break
		}
		if len(page.Entries) != 7 {
			t.Fatalf("a page has %d entries", len(page.Entries))
		}
		if pages == 3 { // new entries do not move others
			write(t, s, entry("lab", 1000))
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%d entries in %d pages, want %d", len(got), pages, len(want))
	}
	for _, after := range []string{"x", "a/b", "a/b/c", "a/b/c/d"} {
		_, err := s.Actions.List(t.Context(), access.Everything(), actions.Filter{After: after})
		etcdtest.WantKind(t, err, croft.Invalid)
	}
}

// TestPagesContinueInTheOrderOfTime although two servers write blocks whose times overlap.
func TestPagesContinueInTheOrderOfTime(t *testing.T) {
	s := etcdtest.Start(t)
	write(t, s, entry("p", 1), entry("p", 4), entry("p", 6))
	write(t, s, entry("q", 2), entry("q", 3), entry("q", 7))
	write(t, s, entry("p", 5), entry("p", 8))
	var got []string
	f := actions.Filter{Limit: 3}
	for more := true; more; more = f.After != "" {
		page := list(t, s, access.Everything(), f)
		got, f.After = append(got, names(page)), page.Next
	}
	if all := strings.Join(got, " | "); all != "p:vm8 q:vm7 p:vm6 | p:vm5 p:vm4 q:vm3 | q:vm2 p:vm1" {
		t.Errorf("the pages are %s", all)
	}
}

func TestABatchIsWrittenOnce(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t)
	b := actions.NewBatch(entry("lab", 1), entry("shop", 2))
	for range 3 { // as after lost answers
		if err := s.Actions.Append(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	write(t, s, entry("lab", 1)) // from another server, at the same moment
	if got := names(list(t, s, access.Everything(), actions.Filter{})); got != "shop:vm2 lab:vm1 lab:vm1" {
		t.Errorf("there is %q", got)
	}
}

// fill writes n entries of a project in blocks of 50, starting at a time.
func fill(t *testing.T, s *etcdstore.Store, project croft.Project, n int, from time.Time) {
	t.Helper()
	for done := 0; done < n; done += 50 {
		var some []actions.Entry
		for i := range 50 {
			e := entry(project, 0)
			e.Time = from.Add(time.Duration(done+i) * time.Millisecond)
			some = append(some, e)
		}
		write(t, s, some...)
	}
}

func count(t *testing.T, s *etcdstore.Store, project croft.Project) int {
	t.Helper()
	n := 0
	for f := (actions.Filter{Project: project, Limit: actions.MostLimit}); ; {
		page := list(t, s, access.Everything(), f)
		n += len(page.Entries)
		if f.After = page.Next; f.After == "" {
			return n
		}
	}
}

func TestABusyProjectPushesOutNobodyElse(t *testing.T) {
	t.Parallel()
	server := etcdtest.Server(t)
	s, other := etcdtest.Open(t, server), etcdtest.Open(t, server)
	write(t, s, entry("quiet", 1))
	fill(t, s, "busy", actions.MostOfProject+500, begin)
	var both sync.WaitGroup
	for _, one := range []*etcdstore.Store{s, other} {
		both.Go(func() {
			if err := one.Actions.Trim(t.Context(), time.Now(), "busy"); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	if n := count(t, s, "busy"); n != actions.MostOfProject {
		t.Errorf("%d entries of the busy project stay", n)
	}
	all := list(t, s, access.Within("busy"), actions.Filter{Limit: actions.MostLimit})
	oldest := all.Entries[actions.MostOfProject-1]
	if !oldest.Time.Equal(begin.Add(500 * time.Millisecond)) {
		t.Errorf("the oldest is of %s", oldest.Time)
	}
	if err := s.Actions.Trim(t.Context(), time.Now()); err != nil {
		t.Error(err)
	}
	if n := count(t, s, "quiet"); n != 1 {
		t.Errorf("%d entries of the quiet project stay", n)
	}
}

func TestOldEntriesGo(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t)
	write(t, s, entry("lab", 1))
	write(t, s, entry("lab", 100))
	write(t, s, entry("", 1))
	if err := s.Actions.Trim(t.Context(), begin.Add(actions.Kept+50*time.Second)); err != nil {
		t.Fatal(err)
	}
	if got := names(list(t, s, access.Everything(), actions.Filter{})); got != "lab:vm100" {
		t.Errorf("there is %q", got)
	}
}

func TestALaterProjectOfTheNameSeesNothingOfTheFormer(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t)
	lab := access.Within("lab")
	remove := func() {
		t.Helper()
		etcdtest.Must(s.Projects.Create(t.Context(), tenant.Tenant{Name: "lab"}))(t)
		if err := s.Projects.Remove(t.Context(), "lab"); err != nil {
			t.Fatal(err)
		}
	}
	write(t, s, entry("lab", 1))
	skewed := entry("lab", 2)
	skewed.Time = time.Now().Add(time.Hour) // from a server with a wrong clock
	write(t, s, skewed)
	remove()
	late := entry("lab", 3) // done before the end, written after it
	write(t, s, late)
	if got := names(list(t, s, lab, actions.Filter{})); got != "" {
		t.Errorf("a later tenant sees %q", got)
	}
	if got := names(list(t, s, access.Everything(), actions.Filter{Project: "lab"})); got != "lab:vm2 lab:vm3 lab:vm1" {
		t.Errorf("an operator sees %q", got)
	}
	own := entry("lab", 4)
	own.Time = time.Now().Add(time.Second)
	write(t, s, own)
	if got := names(list(t, s, lab, actions.Filter{})); got != "lab:vm4" {
		t.Errorf("the later tenant sees %q", got)
	}
	// Once all entries are removed, the record of the end is removed too, and hides nothing any more.
	if err := s.Actions.Trim(t.Context(), time.Now().Add(actions.Kept+2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	write(t, s, late)
	if got := names(list(t, s, lab, actions.Filter{})); got != "lab:vm3" {
		t.Errorf("afterwards there is %q", got)
	}
}

// Refused requests, which can be sent with a member's token, cannot displace the log's entries about that member.
func TestRefusedRequestsPushOutNothingElse(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t)
	write(t, s, entry("lab", 1))
	for n := 0; n < 2_700; n += 100 {
		var some []actions.Entry
		for i := range 100 {
			e := entry("lab", 0)
			e.Time, e.Result = begin.Add(2*time.Second+time.Duration(n+i)*time.Millisecond), "forbidden_verb"
			some = append(some, e)
		}
		write(t, s, some...)
	}
	write(t, s, entry("lab", 100))
	for _, projects := range [][]croft.Project{{"lab"}, nil} {
		if err := s.Actions.Trim(t.Context(), time.Now(), projects...); err != nil {
			t.Fatal(err)
		}
	}
	page := list(t, s, access.Within("lab"), actions.Filter{Limit: actions.MostLimit})
	done, refused := 0, 0
	for _, e := range page.Entries {
		if e.Refused() {
			refused++
		} else {
			done++
		}
	}
	if done != 2 || refused != actions.MostRefused {
		t.Errorf("the log has %d actions and %d refused requests, want 2 and %d", done, refused, actions.MostRefused)
	}
	if newest := page.Entries[0]; newest.Object.Name != "vm100" ||
		page.Entries[len(page.Entries)-1].Object.Name != "vm1" {
		t.Error("entries are not in the order of time")
	}
}
