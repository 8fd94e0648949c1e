package system

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"croft"
	"croft/compute"
	"croft/etcdstore/etcdtest"
	"croft/hosts"
	"croft/hosts/audit"
	"croft/schedule"
)

// Fixes that can be disabled, to measure how soon the random runs find the bugs that they prevent. Each is disabled at
// the interface between two parts: the part sees the data that it saw before the fix.
var fixes = []string{
	"fence of an order", // a scheduler without an answer to its order reads the record, and releases the claim
	"former hosts",      // an instance that was moved twice waits for one host only
	"calls in order",    // a definition that the agent no longer waits for takes effect at any time
	// an order does not compare that its scheduler's lease lives, and undoing a request only reads the record
	"session of an order",
	"claim as seen",         // a move replaces any present claim
	"forgotten former host", // an instance waits for a forgotten host
	"claim of one host",     // an agent releases an instance's claim on any host
}

var (
	withoutFlag = flag.String("without", "", "take these fixes out, separated by commas: "+strings.Join(fixes, ", "))
	findFlag    = flag.Int("find", 0, "for each fix, or those of -without, how many seeds to try without it")
)

func takenOut() map[string]bool {
	out := map[string]bool{}
	for name := range strings.SplitSeq(*withoutFlag, ",") {
		out[name] = name != "" && *findFlag == 0
	}
	return out
}

// TestRandomRunsFindWhatIsTakenOut counts the seeds that find a violation with a fix disabled.
// docs/contributors/track-record.md has the figures.
func TestRandomRunsFindWhatIsTakenOut(t *testing.T) {
	if *findFlag == 0 {
		t.Skip("say with -find how many seeds to try")
	}
	names := fixes
	if *withoutFlag != "" {
		names = strings.Split(*withoutFlag, ",")
	}
	for _, name := range names {
		if !slices.Contains(fixes, name) {
			t.Errorf("there is no fix %q", name)
			continue
		}
		var found []string
		begun, first := time.Now(), ""
		for n := range *findFlag {
			seed := fmt.Sprint(1000 + n)
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestWholeSystem$", "-test.timeout", "5m",
				"-seed", seed, "-without", name)
			said, err := cmd.CombinedOutput()
			if err == nil {
				continue
			}
			if strings.Contains(string(said), "panic: ") {
				t.Errorf("seed %s without %q: %s", seed, name, said)
				continue
			}
			found = append(found, fmt.Sprint(n+1))
			for line := range strings.Lines(string(said)) {
				if first == "" && strings.Contains(line, "_test.go:") {
					first = strings.TrimSpace(line)
				}
			}
		}
		t.Logf("without %q: found by %d of %d seeds (%s), %s a seed; first: %s", name, len(found), *findFlag,
			strings.Join(found, " "),
			(time.Since(begun) / time.Duration(*findFlag)).Round(100*time.Millisecond), first)
		if len(found) == 0 {
			t.Errorf("no seed notices that %q is taken out", name)
		}
	}
}

type worseRequests struct {
	schedule.Records
	w *world
}

func (w *world) worseRequests(r schedule.Records) schedule.Records { return &worseRequests{r, w} }

func (r *worseRequests) Fence(ctx context.Context, inst croft.Instance) (croft.Instance, error) {
	if r.w.without["fence of an order"] {
		return r.w.read(ctx, inst)
	}
	return r.Records.Fence(ctx, inst)
}

func (r *worseRequests) Assign(ctx context.Context, inst croft.Instance, o croft.Order) (croft.Instance, error) {
	next, err := r.Records.Assign(ctx, inst, o)
	if !r.w.without["session of an order"] || err == nil || !strings.Contains(err.Error(),
		"the lease of the scheduler") {
		return next, err
	}
	key := "sessions/" + inst.Session
	if err := etcdtest.Put(ctx, "http://"+r.w.listen, r.w.store.Partition(), key, ""); err != nil {
		return inst, err
	}
	defer func() { _ = etcdtest.Delete(ctx, "http://"+r.w.listen, r.w.store.Partition(), key) }()
	return r.Records.Assign(ctx, inst, o)
}

// read reads a record where a fence would write it.
func (w *world) read(ctx context.Context, inst croft.Instance) (croft.Instance, error) {
	now, err := w.store.Instances.Instance(ctx, inst.ID)
	now.Spec.UserData = inst.Spec.UserData
	return now, err
}

type worseOrders struct {
	compute.Orders
	w *world
}

func (w *world) worseOrders(o compute.Orders) compute.Orders { return &worseOrders{o, w} }

func (o *worseOrders) Order(ctx context.Context, h croft.HostID, id croft.InstanceID) (croft.Order, error) {
	order, err := o.Orders.Order(ctx, h, id)
	if o.w.without["former hosts"] {
		order.LeftBefore = nil
	}
	return order, err
}

func (o *worseOrders) Remains(ctx context.Context, h croft.HostID, id croft.InstanceID) (bool, error) {
	if !o.w.without["forgotten former host"] {
		return o.Orders.Remains(ctx, h, id)
	}
	_, err := o.w.store.Orders.Order(ctx, h, id)
	if croft.KindOf(err) == croft.NotFound {
		return false, nil
	}
	return err == nil, err
}

type worseShared struct {
	audit.Shared
	w *world
}

func (w *world) worseShared(s audit.Shared) audit.Shared { return &worseShared{s, w} }

func (s *worseShared) Fence(ctx context.Context, inst croft.Instance) (croft.Instance, error) {
	if s.w.without["session of an order"] {
		return s.w.read(ctx, inst)
	}
	return s.Shared.Fence(ctx, inst)
}

type worseInventory struct {
	compute.Inventory
	w *world
}

func (w *world) worseInventory(i compute.Inventory) compute.Inventory { return &worseInventory{i, w} }

func (i *worseInventory) Release(ctx context.Context, id croft.InstanceID, may croft.Permit) error {
	if i.w.without["claim of one host"] {
		if _, err := may(ctx); err != nil {
			return err
		}
		may = croft.On()
	}
	return i.Inventory.Release(ctx, id, may)
}

type worseClaims struct {
	claimBook
	w *world
}

func (w *world) worseClaims(c hosts.Claims) hosts.Claims { return &worseClaims{c, w} }

func (c *worseClaims) Reclaim(ctx context.Context, had croft.Claim, p croft.Owner, to croft.Candidate) error {
	if c.w.without["claim as seen"] {
		now, err := c.claimBook.ClaimOf(ctx, had.Instance)
		if err != nil {
			return err
		}
		had = now
	}
	return c.claimBook.Reclaim(ctx, had, p, to)
}

// worseHypervisor makes calls that have no waiting caller take effect at any time. Like QEMU, it opens no file that
// another process has locked.
type worseHypervisor struct {
	compute.Hypervisor
	m *machine
}

func (h *worseHypervisor) Attach(ctx context.Context, id croft.InstanceID, v compute.Volume) error {
	if h.m.hv.Open(id) != nil {
		if err := h.m.w.lockedByQEMU(id, []string{v.Path}, h.m); err != nil {
			return err
		}
	}
	return h.Hypervisor.Attach(ctx, id, v)
}

func (h *worseHypervisor) Define(ctx context.Context, machine compute.Machine) error {
	if !h.m.w.without["calls in order"] || !h.m.slow.Load() {
		return h.Hypervisor.Define(ctx, machine)
	}
	done := make(chan error, 1)
	h.m.defining.Go(func() {
		time.Sleep(100 * time.Millisecond)
		done <- h.Hypervisor.Define(context.WithoutCancel(ctx), machine)
	})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return croft.Errorf(croft.Unavailable, "define %s: %w", machine.ID, context.Cause(ctx))
	}
}
