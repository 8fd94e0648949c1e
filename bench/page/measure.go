package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"croft"
	"croft/tenant/access"
)

// The memory of the server counts once it has shrunk by less than a fiftieth during settle, or after mostSettle: the
// server reads the cloud at its start, and then returns the memory that this took.
const (
	settle     = 15 * time.Second
	mostSettle = 2 * time.Minute
)

// measure opens the views, then many pages at once, and prints the results.
func (w *world) measure(ctx context.Context, stdout io.Writer) error {
	before, err := w.settled(ctx)
	if err != nil {
		return err
	}
	watched := w.watchMemory(ctx)
	defer watched.end()
	report := func(when string) {
		fmt.Fprintf(stdout, "\nmemory of the server, MiB: %.0f before, %.0f %s, at most %.0f; its live heap is "+
			"%.0f\n", before, w.memory(), when, watched.most(), w.liveHeap(ctx))
	}
	report("at the start")
	if err := w.openViews(ctx, stdout); err != nil {
		return err
	}
	report("after the views")
	if err := w.openPages(ctx, stdout); err != nil {
		return err
	}
	report("with the pages open")
	if w.keep {
		t, err := w.newToken(ctx, "guest", "", access.PartitionAdmin)
		if err != nil {
			return err
		}
		fmt.Fprintf(w.words, "%s/ui takes the token %s; press Ctrl-C to end\n", w.api, t.secret)
		<-ctx.Done()
	}
	return nil
}

// settled returns the memory of the server once that does not shrink any more.
func (w *world) settled(ctx context.Context) (float64, error) {
	last := math.Inf(1)
	for began := time.Now(); ; {
		if err := pause(ctx, settle); err != nil {
			return 0, err
		}
		now := w.memory()
		if now > last*49/50 || time.Since(began) > mostSettle {
			return now, nil
		}
		last = now
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// openViews opens each view some times, one after the other.
func (w *world) openViews(ctx context.Context, stdout io.Writer) error {
	operator, err := w.browser(ctx, "operator", "", access.PartitionAdmin)
	if err != nil {
		return err
	}
	member, err := w.browser(ctx, "member", project(1%w.projects), access.Member)
	if err != nil {
		return err
	}
	at := "/ui/instances/" + string(w.changing.Instance)
	fmt.Fprintln(stdout, "milliseconds; the first byte and the last one, the median and the longest, and the server's time on\n"+
		"its processors, which does not depend on other programs")
	t := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "view\tfirst\tlongest\tlast\tlongest\tprocessors\tKiB\t")
	for _, view := range []struct {
		name string
		of   *browser
		path string
	}{
		{"login", operator, "/ui/login"},
		{"instances of all projects", operator, "/ui/instances"},
		{"their last page", operator, fmt.Sprintf("/ui/instances?after=vm%05d/", w.instances-50)},
		{"by name", operator, "/ui/instances?name=vm0123"},
		{"those that failed", operator, "/ui/instances?state=failed"},
		{"those on a host", operator, "/ui/instances?host=host00001"},
		{"with a tag", operator, "/ui/instances?filter=tag:keep"},
		{"sorted by age", operator, "/ui/instances?sort=age"},
		{"instances of a project", member, "/ui/instances"},
		{"those that failed", member, "/ui/instances?state=failed"},
		{"sorted by age", member, "/ui/instances?sort=age"},
		{"an instance", operator, at + "?project=" + string(project(0))},
		{"new instance", member, "/ui/instances/new"},
		{"hosts", operator, "/ui/hosts"},
		{"a rack", operator, "/ui/hosts?at=site1/row1/rack1"},
		{"a host", operator, "/ui/hosts/" + string(w.hostIDs[0])},
		{"dashboard of operators", operator, "/ui/dashboard"},
		{"dashboard of a member", member, "/ui/dashboard"},
		{"project", member, "/ui/project"},
		{"log", operator, "/ui/log"},
	} {
		var first, last []time.Duration
		size, used := 0, w.processors()
		for range w.rounds {
			one, err := view.of.open(ctx, view.path)
			if err != nil {
				return fmt.Errorf("%s: %w", view.name, err)
			}
			first, last, size = append(first, one.first), append(last, one.last), one.size
			if err := pause(ctx, w.pause); err != nil {
				return err
			}
		}
		used = (w.processors() - used) / time.Duration(w.rounds)
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t\n", view.name, middle(first),
			milliseconds(slices.Max(first)), middle(last), milliseconds(slices.Max(last)), milliseconds(used), size>>10)
	}
	return t.Flush()
}

func milliseconds(d time.Duration) string { return fmt.Sprintf("%.1f", d.Seconds()*1000) }

// middle returns the median.
func middle(all []time.Duration) string { return milliseconds(quantile(all, 0.5)) }

func quantile(all []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[int(q*float64(len(sorted)-1))]
}

// browser is a browser that is logged in.
type browser struct {
	at   string
	http *http.Client
}

func (w *world) browser(ctx context.Context, user string, p croft.Project, role access.Role) (*browser, error) {
	t, err := w.newToken(ctx, user, p, role)
	if err != nil {
		return nil, err
	}
	return w.login(ctx, t)
}

// login logs a browser in, once the server knows the token.
func (w *world) login(ctx context.Context, t token) (*browser, error) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, err
	}
	b := &browser{at: w.api, http: &http.Client{Jar: jar, Timeout: time.Minute,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	for range 100 {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, b.at+"/ui/login",
			strings.NewReader(url.Values{"token": {t.secret}}.Encode()))
		if err != nil {
			return nil, err
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		answer, err := b.http.Do(r)
		if err != nil {
			return nil, err
		}
		_ = answer.Body.Close() // the cookie is all that counts
		if answer.StatusCode == http.StatusSeeOther {
			return b, nil
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return nil, err
		}
	}
	return nil, croft.Errorf(croft.Unavailable, "the server does not accept the token of %s", t.user)
}

// opened is how long a page took.
type opened struct {
	first, last time.Duration
	size        int
}

func (b *browser) open(ctx context.Context, path string) (o opened, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, b.at+path, nil)
	if err != nil {
		return o, err
	}
	began := time.Now()
	answer, err := b.http.Do(r) // returns with the first bytes
	if err != nil {
		return o, err
	}
	defer answer.Body.Close()
	o.first = time.Since(began)
	text, err := io.ReadAll(answer.Body)
	o.last, o.size = time.Since(began), len(text)
	if err == nil && (answer.StatusCode != http.StatusOK || !bytes.Contains(text, []byte("</html>"))) {
		err = fmt.Errorf("%s answers %s: %.2000s", path, answer.Status, text)
	}
	return o, err
}

// pagesOfUser is the number of open pages of one user, which is below the limit of a session.
const pagesOfUser = 20

// openPages opens pages that follow changes, and changes one instance.
func (w *world) openPages(ctx context.Context, stdout io.Writer) error {
	ctx, end := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer end()
	arrived := make(chan time.Time, w.pages)
	live := make(chan error, w.pages)
	var b *browser
	for n := range w.pages {
		if n%pagesOfUser == 0 {
			role, p := access.PartitionAdmin, croft.Project("")
			if n/pagesOfUser%2 == 1 {
				role, p = access.Member, project(0)
			}
			var err error
			if b, err = w.browser(ctx, fmt.Sprintf("user%d", n/pagesOfUser), p, role); err != nil {
				return err
			}
			b.http.Timeout = 0
		}
		if _, err := b.open(ctx, "/ui/instances"); err != nil {
			return err
		}
		of := b
		work.Go(func() { of.follow(ctx, string(w.changing.Instance), live, arrived) })
	}
	for range w.pages {
		if err := <-live; err != nil {
			return err
		}
	}
	var first, last, written []time.Duration
	for n := range w.changes {
		o := w.changing
		o.Error, o.Updated = fmt.Sprintf("change %d", n), time.Now().UTC()
		sent := time.Now()
		if err := w.store.Orders.Observe(ctx, o); err != nil {
			return err
		}
		stored := time.Now()
		written = append(written, stored.Sub(sent))
		var latest, earliest time.Time
		for range w.pages {
			select {
			case at := <-arrived:
				if earliest.IsZero() {
					earliest = at
				}
				latest = at
			case <-time.After(time.Minute):
				return croft.Errorf(croft.Unavailable, "a page does not show the change")
			}
		}
		first, last = append(first, earliest.Sub(sent)), append(last, latest.Sub(sent))
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	fmt.Fprintf(stdout, "\n%d pages are open, %d changes of one instance; milliseconds from the write, which\n"+
		"includes etcd's commit, the median, nine of ten, and the longest\n", w.pages, w.changes)
	t := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, line := range []struct {
		name string
		all  []time.Duration
	}{
		{"etcd has answered the write", written}, {"the first page has the row", first},
		{"all pages have the row", last},
	} {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t\n", line.name, middle(line.all), milliseconds(quantile(line.all, 0.9)),
			milliseconds(slices.Max(line.all)))
	}
	return t.Flush()
}

// follow reads the events of a page until ctx ends.
func (b *browser) follow(ctx context.Context, id string, live chan<- error, arrived chan<- time.Time) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, b.at+"/ui/instances/events", nil)
	if err != nil {
		live <- err
		return
	}
	answer, err := b.http.Do(r)
	if err != nil {
		live <- err
		return
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	begun := false
	for lines.Scan() {
		switch line := lines.Text(); {
		case !begun && line == "event: live":
			begun = true
			live <- nil
		case strings.HasPrefix(line, "data: ") && strings.Contains(line, `"id":"`+id):
			arrived <- time.Now()
		}
	}
	if !begun {
		live <- fmt.Errorf("the stream of changes ends: %s, %w", answer.Status, lines.Err())
	}
}

// memory returns the resident memory of the server in MiB.
func (w *world) memory() float64 {
	info, err := w.server.MemoryInfo()
	if err != nil {
		return 0
	}
	return float64(info.RSS) / (1 << 20)
}

// processors returns the time that the server has used on its processors.
func (w *world) processors() time.Duration {
	t, err := w.server.Times()
	if err != nil {
		return 0
	}
	return time.Duration((t.User + t.System) * float64(time.Second))
}

// peak watches the memory of the server.
type peak struct {
	stop context.CancelFunc
	done sync.WaitGroup
	mu   sync.Mutex
	top  float64
}

func (w *world) watchMemory(ctx context.Context) *peak {
	ctx, cancel := context.WithCancel(ctx)
	p := &peak{stop: cancel}
	p.done.Go(func() {
		for pause(ctx, 50*time.Millisecond) == nil {
			now := w.memory()
			p.mu.Lock()
			p.top = max(p.top, now)
			p.mu.Unlock()
		}
	})
	return p
}

// most returns the highest value so far.
func (p *peak) most() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.top
}

// end returns the highest value.
func (p *peak) end() float64 {
	p.stop()
	p.done.Wait()
	return p.most()
}

// liveHeap returns what the last garbage collection of the server has left, in MiB; 0: unknown.
func (w *world) liveHeap(ctx context.Context) float64 {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.api+"/metrics", nil)
	if err != nil {
		return 0
	}
	r.Header.Set("Authorization", "Bearer "+metricsSecret)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0
	}
	defer answer.Body.Close()
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		if text, is := strings.CutPrefix(lines.Text(), "go_gc_heap_live_bytes "); is {
			n, _ := strconv.ParseFloat(text, 64) // 0: unknown
			return n / (1 << 20)
		}
	}
	return 0
}
