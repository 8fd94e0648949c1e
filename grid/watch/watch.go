package watch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"croft"
	"croft/grid/edit"
	"croft/grid/state"
	"croft/internal/filelock"
	"croft/internal/wording"
)

// Config is the configuration of a watch.
type Config struct {
	Name  string // this controller's name, for people; 1 to 63 of a-z 0-9 . _ -
	Store *Store
	Rules Rules
	Term  time.Duration // how long one record makes this controller the leader; at least 8 times Every

	Repository Repository
	Prober     Prober
	Fence      Fencer  // nil: no fence
	Applier    Applier // nil: the watch only pushes, and others apply
	Log        *slog.Logger
}

// Watch watches the nodes of a cluster.
type Watch struct {
	Config
	lead   *lead
	loaded *state.State // the cluster at the revision at
	at     string
	told   string // the last logged summary
	failed string // the last logged error, if no round has succeeded since
}

// Report is what a round found and did.
type Report struct {
	Leader   string    `json:"leader"`
	Leads    bool      `json:"leads"` // this controller leads
	Revision string    `json:"revision"`
	Verdicts []Verdict `json:"nodes"`
	Actions  []Action  `json:"actions"` // taken and pushed
	Held     []string  `json:"held"`    // actions that were not taken, and why
}

// New returns a watch, which does nothing yet. Invalid: the configuration is incomplete or contradictory.
func New(c Config) (*Watch, error) {
	if c.Store == nil || c.Repository == nil || c.Prober == nil || c.Log == nil {
		return nil, croft.Errorf(croft.Invalid, "watch: Store, Repository, Prober and Log are required")
	}
	if !nodeForm.MatchString(c.Name) {
		return nil, croft.Errorf(croft.Invalid, "watch: %q is no name of a controller: it has 1 to 63 of a-z 0-9 . _ -",
			c.Name)
	}
	if err := c.Rules.check(c.Term); err != nil {
		return nil, err
	}
	return &Watch{Config: c, lead: &lead{repo: c.Repository, store: c.Store, name: c.Name, term: c.Term,
		turn: make(chan struct{}, 1)}}, nil
}

func (r Rules) check(term time.Duration) error {
	switch {
	case r.Every < time.Second || r.Every > time.Hour:
		return croft.Errorf(croft.Invalid, "watch: beats every %s: want 1 second to an hour",
			wording.Duration(r.Every))
	case r.Grace <= missed*r.Every:
		return croft.Errorf(croft.Invalid,
			"watch: a grace of %s is no longer than three beats of %s: make it at least %s",
			wording.Duration(r.Grace), wording.Duration(r.Every), wording.Duration(2*missed*r.Every))
	case term < 2*renewals*r.Every:
		return croft.Errorf(croft.Invalid, "watch: a term of %s is shorter than %s, %d beats", wording.Duration(term),
			wording.Duration(2*renewals*r.Every),
			2*renewals)
	}
	return nil
}

// Run watches until the context ends, one round per beat. It logs the error of a round, and the next round is the
// retry. Conflict: another watch runs with this store.
func (w *Watch) Run(ctx context.Context) error {
	return w.alone(func() error {
		tick := time.NewTicker(w.Rules.Every)
		defer tick.Stop()
		for {
			_, err := w.checkNodes(ctx)
			if said := fmt.Sprint(err); err != nil && ctx.Err() == nil && said != w.failed {
				w.Log.Error("a round of the watch", "err", err)
				w.failed = said
			} else if err == nil {
				w.failed = ""
			}
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
		}
	})
}

// Once does one round. Conflict: another watch runs with this store.
func (w *Watch) Once(ctx context.Context) (r Report, err error) {
	err = w.alone(func() error {
		r, err = w.checkNodes(ctx)
		return err
	})
	return r, err
}

// alone calls do while this process has the lock of the store.
func (w *Watch) alone(do func() error) error {
	file, err := os.OpenFile(filepath.Join(w.Store.dir, "watch.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("lock the directory of the watch: %w", err)
	}
	defer file.Close()
	if err := filelock.Take(file); errors.Is(err, filelock.ErrTaken) {
		return croft.Errorf(croft.Conflict, "another watch runs with the directory %s", w.Store.dir)
	} else if err != nil {
		return fmt.Errorf("lock the directory of the watch: %w", err)
	}
	m, err := w.Store.memory()
	if err != nil {
		return err
	}
	w.lead.m = m
	if err := w.Store.remember(m); err != nil {
		return err
	}
	return do()
}

// checkNodes checks all nodes once and acts.
func (w *Watch) checkNodes(ctx context.Context) (Report, error) {
	leads, record, err := w.lead.ensure(ctx)
	if err != nil {
		return Report{}, err
	}
	r := Report{Leader: record.Leader, Leads: leads, Actions: []Action{}, Held: []string{}}
	dir, s, err := w.checkout(ctx)
	if err != nil {
		return r, err
	}
	r.Revision = w.at
	if !leads {
		in, err := w.input(s, answers{})
		r.Verdicts = Decide(in).Verdicts
		w.tell(r)
		return r, err
	}
	err = w.lead.during(ctx, func(ctx context.Context) error {
		if err := w.leases(s); err != nil {
			return err
		}
		var unapplied error
		if record.Pending != nil {
			if err := w.lead.confirm(ctx); err != nil {
				return err
			}
			unapplied = w.apply(ctx, dir, &Pending{w.at, present(s, record.Pending.Nodes)})
		}
		return errors.Join(unapplied, w.judge(ctx, dir, s, &r))
	})
	w.tell(r)
	return r, err
}

// present returns the names of nodes that exist and are not out.
func present(s *state.State, nodes []string) (list []string) {
	for _, name := range nodes {
		if n := s.Node(name); n != nil && n.State != state.Out {
			list = append(list, name)
		}
	}
	return list
}

// checkout returns the cluster at the head of the upstream.
func (w *Watch) checkout(ctx context.Context) (dir string, s *state.State, err error) {
	dir, revision, err := w.Repository.Checkout(ctx)
	if err != nil {
		return "", nil, fmt.Errorf("fetch from the upstream: %w", err)
	}
	if w.loaded == nil || w.at != revision || w.loaded.Dir != dir {
		if s, err = state.Load(ctx, dir); err != nil {
			return "", nil, fmt.Errorf("load %s: %w", revision, err)
		}
		w.loaded, w.at = s, revision
	}
	return dir, w.loaded, nil
}

// leases revokes the leases of nodes that are out, because their slots run elsewhere, and restores those of other
// nodes.
func (w *Watch) leases(s *state.State) error {
	revoked, err := w.Store.allRevoked()
	if err != nil {
		return err
	}
	var errs []error
	for _, n := range s.Leaves {
		has := slices.Contains(revoked, n.Name)
		switch {
		case n.State == state.Out && !has:
			errs = append(errs, w.Store.revoke(n.Name, w.Store.clock.Now()))
		case n.State != state.Out && has:
			errs = append(errs, w.Store.restore(n.Name))
		}
	}
	return errors.Join(errs...)
}

// judge decides, asks the open questions, decides again and acts.
func (w *Watch) judge(ctx context.Context, dir string, s *state.State, r *Report) error {
	begun := w.Store.clock.Now()
	a := answers{}
	in, err := w.observe(s)
	if err != nil {
		return err
	}
	d := Decide(in)
	for _, ask := range []func(Decision){
		func(d Decision) { w.dial(ctx, s, d.Dial, a) },
		func(d Decision) { w.fence(ctx, s, d.Fence, a) },
	} {
		ask(d)
		if in, err = w.input(s, a); err != nil {
			return err
		}
		d = Decide(in)
	}
	r.Verdicts, r.Held = d.Verdicts, append([]string{}, d.Held...)
	if len(d.Actions) == 0 {
		return nil
	}
	return w.change(ctx, change{dir: dir, s: s, answers: a, begun: begun}, r)
}

// observe records which nodes fell silent and which came back, and returns the input of a decision without answers. No
// beat could arrive while this machine was suspended, so silence counts only from the end of a suspension.
func (w *Watch) observe(s *state.State) (Input, error) {
	now, slept := w.Store.clock.Now(), w.Store.clock.slept()
	if err := w.lead.remember(func(m *memory) {
		if slept > m.Slept {
			m.Since, m.Slept = now, slept
		}
	}); err != nil {
		return Input{}, err
	}
	in, err := w.input(s, answers{})
	if err != nil {
		return in, err
	}
	if err := w.lead.remember(func(m *memory) { m.observe(in.Now, in.Rules, in.Nodes) }); err != nil {
		return in, err
	}
	return w.input(s, answers{})
}

// input gathers the input of a decision.
func (w *Watch) input(s *state.State, a answers) (Input, error) {
	w.lead.turn <- struct{}{}
	defer func() { <-w.lead.turn }()
	m := w.lead.m
	in := Input{Rules: w.Rules, Leader: m.Leader}
	for _, n := range s.Leaves {
		one, err := w.node(s, n, m)
		if err != nil {
			return Input{}, err
		}
		a.fill(&one)
		in.Nodes = append(in.Nodes, one)
	}
	exclusive, others := slots(s)
	for i, n := range in.Nodes {
		in.Nodes[i].Exclusive, in.Nodes[i].Others = exclusive[n.Name], others[n.Name]
	}
	in.Now = w.Store.clock.Now()
	return in, nil
}

func (w *Watch) node(s *state.State, n *state.Node, m *memory) (Node, error) {
	one := Node{Name: n.Name, Site: siteOf(s, n), State: n.State, Local: n.Local}
	if n.State != state.Up {
		text, err := os.ReadFile(filepath.Join(s.Dir, filepath.FromSlash(n.Path)))
		if err != nil {
			return one, fmt.Errorf("read who wrote the state of %s: %w", n.Name, err)
		}
		one.Marked = edit.Marked(string(text))
	}
	rec, err := w.Store.read(n.Name)
	if err != nil {
		return one, err
	}
	if rec != nil {
		one.Beats, one.Last, one.Lease, one.Granted = true, max(rec.Arrived, m.Since), rec.Lease, rec.Granted
	}
	if past := m.Nodes[n.Name]; past != nil {
		one.Flaps, one.OutAt = len(past.Back), past.OutAt
		if past.Fenced > one.Last {
			one.Fenced = Yes
		}
	}
	return one, nil
}

// siteOf returns the path of a node's site; empty: it is in none. If the cluster's types contain no site, the
// directories directly below nodes/ are the sites.
func siteOf(s *state.State, n *state.Node) string {
	named := slices.Contains(s.Cluster.Types, "site")
	for b := n.Parent; b != nil && b.Parent != nil; b = b.Parent {
		if named && b.Type == "site" || !named && b.Parent.Parent == nil {
			return b.Path
		}
	}
	return ""
}

// slots counts the slots of each node: those of exclusive jobs, and the others.
func slots(s *state.State) (exclusive, others map[string]int) {
	exclusive, others = map[string]int{}, map[string]int{}
	for _, j := range s.Jobs {
		for _, slot := range j.Slots {
			switch {
			case slot.Node == nil:
			case j.Exclusive:
				exclusive[slot.Node.Name]++
			default:
				others[slot.Node.Name]++
			}
		}
	}
	return exclusive, others
}

// tell logs what has changed since the last round: who leads, which nodes are silent, and what keeps the watch from
// acting.
func (w *Watch) tell(r Report) {
	var silent []Verdict
	now := r.Leader
	for _, v := range r.Verdicts {
		if v.Status == Dead || v.Status == Suspect || v.Status == Quiet {
			silent = append(silent, v)
			now += " " + v.Node + " " + string(v.Status)
		}
	}
	if now += fmt.Sprint(len(r.Held)); now == w.told {
		return
	}
	w.told = now
	w.Log.Info("watching", "leader", r.Leader, "leads", r.Leads, "nodes", len(r.Verdicts), "silent", len(silent))
	for _, v := range silent {
		w.Log.Warn("a node is silent", "node", v.Node, "status", v.Status, "reason", v.Reason)
	}
	for _, held := range r.Held {
		w.Log.Warn("something is held", "reason", held)
	}
}
