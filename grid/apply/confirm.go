package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"croft"
	"croft/grid/machine"
	"croft/grid/plan"
	"croft/grid/revlock"
	"croft/grid/unit"
)

// Times of changes that must be confirmed.
const (
	backMargin = 60 * time.Second // added to a change's time: for the node's undo and a reconnection
	redial     = time.Second
)

// An arming is a change that its node reverts unless it is confirmed in time.
type arming struct {
	id     string
	before time.Time // when the node reverts the change, by the local clock
}

func (r *run) isArmed(step int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, is := r.armed[step]
	return is
}

// armUnit arms a unit's change, if the unit requires confirmation: the node reverts the change unless it is confirmed
// in time.
func (r *run) armUnit(ctx context.Context, n *locked, i int) error {
	s := r.plan.Steps[i]
	if s.Unit.Confirm <= 0 || s.Op != plan.Create && s.Op != plan.Replace {
		return nil
	}
	rt, err := r.Runtimes(s.Unit.Runtime, n.Node)
	if err != nil {
		return err
	}
	var before *unit.Unit
	if s.Op == plan.Replace {
		if before, err = former(s); err != nil {
			return err
		}
	}
	keep, undo, err := rt.Undo(before, s.Unit)
	if err != nil {
		return fmt.Errorf("the undo script of %s: %w", s.Name, err)
	}
	return r.arm(ctx, n, i, revlock.Change{After: time.Duration(s.Unit.Confirm) * time.Second, Undo: undo, Keep: keep})
}

// former returns the unit that a change replaces, with all that is needed to create it again. Former secrets that
// differ from the current ones exist only on the node; they are marked as Kept, and the node keeps them. Conflict if
// the former unit is not known or cannot be created again.
func former(s plan.Step) (*unit.Unit, error) {
	if s.Was == nil || s.From != "" {
		return nil, croft.Errorf(croft.Conflict, "%s needs a confirmation, but the unit that runs there now is not "+
			"known, so the node could not undo the change: remove confirm from the job for one apply", s.Name)
	}
	if s.Lost {
		return nil, croft.Errorf(croft.Conflict, "%s was made from another image, or by another definition of its "+
			"runtime, and cannot be made again: a job with confirm wants that; take confirm out of the job for one apply",
			s.Name)
	}
	was := *s.Was
	was.Cluster = s.Unit.Cluster
	was.Files = slices.Clone(was.Files)
	for i, f := range was.Files {
		if !f.Secret {
			continue
		}
		at := slices.IndexFunc(s.Unit.Files, func(now unit.File) bool {
			return now.Path == f.Path && now.Digest == f.Digest
		})
		if at < 0 {
			was.Files[i].Kept = true
			continue
		}
		was.Files[i].Content = s.Unit.Files[at].Content
	}
	was.SecretEnv = slices.Clone(was.SecretEnv)
	for i, v := range was.SecretEnv {
		at := slices.IndexFunc(s.Unit.SecretEnv, func(now unit.SecretVar) bool {
			return now.Name == v.Name && now.Digest == v.Digest
		})
		if at < 0 {
			was.SecretEnv[i].Kept = true
			continue
		}
		was.SecretEnv[i].Content = s.Unit.SecretEnv[at].Content
	}
	return &was, nil
}

func (r *run) arm(ctx context.Context, n *locked, i int, c revlock.Change) error {
	c.ID, c.Title = fmt.Sprintf("step-%d", i), title(r.plan.Steps[i])
	before := time.Now().Add(c.After)
	if err := n.holder.Arm(ctx, c); err != nil {
		return fmt.Errorf("arm the undo of the change: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.armed[i] = arming{c.ID, before}
	return nil
}

// giveBack makes nodes revert unconfirmed changes of an earlier apply that they no longer revert themselves because
// they restarted. Errors: TakenBack if nodes reverted changes, Refused if the lock of a node is held.
func (g *Grid) giveBack(ctx context.Context, want plan.Desired, p plan.Plan, found []plan.Observed) (Result, error) {
	res := nothing(p)
	for _, n := range want.Nodes {
		at := slices.IndexFunc(found, func(o plan.Observed) bool { return o.Node == n.Name })
		if _, concerned := p.Observed[n.Name]; at < 0 || !concerned || len(found[at].Unwatched) == 0 {
			continue
		}
		g.Say(fmt.Sprintf("%s undoes the change that was not confirmed: %s", n.Name,
			strings.Join(found[at].Unwatched, ", ")))
		c, err := g.connection(ctx, n)
		if err != nil {
			return res, err
		}
		list, err := g.Locker.GiveBack(ctx, c, n)
		if errors.Is(err, croft.Conflict) {
			err = &Refused{fmt.Errorf("%s: %w", n.Name, err)}
		}
		if err != nil {
			return res, err
		}
		for _, one := range list {
			op, name, _ := strings.Cut(one.Title, " ")
			why := one.Title + ": the node restarted before the change was confirmed"
			if one.Failed {
				why += ", and could not take all of it back: look at it"
			}
			res.Back = append(res.Back, plan.Step{Op: plan.Op(op), Node: n.Name, Name: name, Reason: why})
			res.Failed = append(res.Failed, Failure{n.Name, why, croft.Conflict})
		}
	}
	if len(res.Back) == 0 {
		return res, nil
	}
	res.Pending = p.Steps
	return res, &TakenBack{res}
}

// settle confirms the armed steps of a batch on nodes without a failure, and makes the other nodes revert theirs.
func (r *run) settle(ctx context.Context, batch []int) {
	of := map[string][]int{}
	var nodes []unit.Node
	for _, i := range batch {
		if !r.isArmed(i) || r.isDone(i) {
			continue
		}
		name := r.plan.Steps[i].Node
		if of[name] == nil {
			nodes = append(nodes, r.nodes[name].Node)
		}
		of[name] = append(of[name], i)
	}
	work := context.WithoutCancel(ctx)
	r.each(nodes, func(n unit.Node) { r.settleNode(work, n, of[n.Name]) })
}

// settleNode confirms or recalls the changes of a node over a new connection, and records the node's verdict on each.
func (r *run) settleNode(ctx context.Context, n unit.Node, steps []int) {
	keep := r.failure(n.Name) == nil
	for _, i := range steps {
		r.mu.Lock()
		a := r.armed[i]
		r.mu.Unlock()
		v, failed, err := r.verdict(ctx, n, a, keep)
		s := r.plan.Steps[i]
		switch {
		case err != nil:
			r.fail(n.Name, fmt.Errorf("%s: cannot ask whether it undid the change, as it does on its own: %w",
				title(s), err))
		case v == revlock.Confirmed && keep:
			r.finish(i)
			continue
		case v == revlock.Confirmed:
			r.fail(n.Name, fmt.Errorf("%s: confirmed, and failed after that", title(s)))
		case v == revlock.None:
			r.fail(n.Name, fmt.Errorf("%s: the node has no record of the change any more: did it restart?", title(s)))
		default:
			r.mu.Lock()
			r.back[i] = true
			r.mu.Unlock()
			r.fail(n.Name, croft.Errorf(croft.Conflict, "%s: taken back by the node", title(s)))
		}
		if failed {
			r.Say(fmt.Sprintf("%s: %s: the node could not take all of the change back: look at it", n.Name, title(s)))
		}
	}
}

func title(s plan.Step) string { return strings.TrimSpace(fmt.Sprintf("%s %s", s.Op, s.Name)) }

// verdict settles one change over a new connection. It retries until the node has certainly decided.
func (r *run) verdict(ctx context.Context, n unit.Node, a arming, keep bool) (v revlock.Verdict, failed bool,
	err error) {
	ctx, cancel := context.WithDeadline(ctx, a.before.Add(backMargin))
	defer cancel()
	for {
		v, failed, err = r.settleOnce(ctx, n, a.id, keep)
		if err == nil || ctx.Err() != nil {
			return v, failed, err
		}
		select {
		case <-ctx.Done():
			return "", false, err
		case <-time.After(redial):
		}
	}
}

func (r *run) settleOnce(ctx context.Context, n unit.Node, id string, keep bool) (revlock.Verdict, bool, error) {
	c, err := r.Dialer.Dial(ctx, n)
	if err != nil {
		return "", false, err
	}
	defer c.Close()
	if keep {
		v, err := r.Locker.Confirm(ctx, c, n, id)
		if v != revlock.Back {
			return v, false, err
		}
	}
	return r.Locker.Recall(ctx, c, n, id) // if the node is already reverting the change, Recall waits for that
}

// firewalls replaces the firewall tables of nodes: first on one node, to find out whether the new table cuts off our
// connection.
func (r *run) firewalls(ctx context.Context) {
	steps := r.steps(plan.Firewall)
	for first := true; len(steps) > 0 && len(r.failed) == 0 && ctx.Err() == nil; first = false {
		batch := steps
		if first {
			batch = steps[:1]
		}
		steps = steps[len(batch):]
		var mu sync.Mutex
		saved := map[string]string{}
		r.onNodes(ctx, batch, func(ctx context.Context, n *locked, i int) error {
			file, err := r.firewall(ctx, n, i)
			mu.Lock()
			saved[n.Name] = file
			mu.Unlock()
			return err
		})
		r.settle(ctx, batch)
		r.onNodes(ctx, batch, func(ctx context.Context, n *locked, _ int) error {
			_, err := machine.Output(ctx, n.holder, nil, "rm", "-f", saved[n.Name])
			return err
		})
	}
}

// firewall replaces one node's table. saved is the file on the node that contains the former table.
func (r *run) firewall(ctx context.Context, n *locked, i int) (saved string, err error) {
	s := r.plan.Steps[i]
	r.Say(s.String())
	table := tableOf(n.Firewall)
	if table == "" {
		table = Table(r.want.Cluster)
	}
	text := "add table inet " + table + "\ndelete table inet " + table + "\n"
	if strings.Contains(n.Firewall, "delete table inet "+table) {
		text = ""
	}
	text += n.Firewall + "\n"
	after := r.FirewallConfirm
	for _, u := range n.Units {
		if u.Confirm > 0 {
			after = max(after, time.Duration(u.Confirm)*time.Second)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, after)
	defer cancel()
	if _, err := machine.Output(ctx, n.holder, strings.NewReader(text), "nft", "-c", "-f", "-"); err != nil {
		return "", fmt.Errorf("check the firewall: %w", err)
	}
	saved, err = machine.Output(ctx, n.holder, nil, "sh", "-c",
		`umask 077; f=$(mktemp) || exit; nft -s list table inet "$1" >"$f" 2>/dev/null || : >"$f"; echo "$f"`, "sh", table)
	if err != nil {
		return "", fmt.Errorf("save the firewall: %w", err)
	}
	saved = strings.TrimSpace(saved)
	undo := fmt.Sprintf(`table=%s saved=%s
{ printf 'add table inet %%s\ndelete table inet %%s\n' "$table" "$table"; cat "$saved"; } | nft -f - || exit
rm -f "$saved"
`, machine.Quote(table), machine.Quote(saved))
	if err := r.arm(ctx, n, i, revlock.Change{After: after, Undo: undo}); err != nil {
		return saved, err
	}
	if _, err := machine.Output(ctx, n.holder, strings.NewReader(text), "nft", "-f", "-"); err != nil {
		return saved, fmt.Errorf("replace the firewall: %w", err)
	}
	return saved, nil
}
