package cli

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"croft"
	"croft/grid/hardpoint"
	"croft/grid/ipam"
	"croft/grid/machine"
	"croft/grid/place"
	"croft/grid/state"
)

//go:embed points/itabot.yaml
var ipPoints embed.FS

// addresses assigns addresses to slots: with the hard point ip if the repository defines it, else from the pools and
// leases in net/.
type addresses struct {
	dir   string
	net   *ipam.Net        // nil: the directory has no net/
	point *hardpoint.Point // nil: croft's own, which is net
	give  bool             // a slot without a lease gets one; otherwise that is an error
}

// openAddresses reads net/ and the hard point ip with this name; an empty name means itabot.
func openAddresses(dir, name string) (*addresses, error) {
	a := &addresses{dir: dir}
	shipped, err := fs.Sub(ipPoints, "points")
	if err != nil {
		return nil, err
	}
	p, err := hardpoint.Library{Kind: "ip", Verbs: []string{"get", "free", "show", "list"}, Shipped: shipped,
		Repository: os.DirFS(dir)}.Load(cmp.Or(name, "itabot"))
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(p.From, "hardpoints/") {
		if a.point = p; !p.Has("get") {
			return nil, croft.Errorf(croft.Invalid, "%s: the hard point ip lacks the verb get", p.From)
		}
	}
	a.net, err = readNet(dir)
	return a, err
}

// readNet reads net/ of a cluster's directory; nil: it does not exist.
func readNet(dir string) (*ipam.Net, error) {
	if _, err := os.Stat(filepath.Join(dir, "net")); errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // as the comment says
	}
	d, err := ipam.Open(dir)
	if err != nil {
		return nil, err
	}
	n, err := d.Read()
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return n, nil
}

// address returns the address of a slot in a pool: the answer of the hard point's program, or the slot's lease if there
// is no program or it answers without an address. NotFound, NoCapacity.
func (a *addresses) address(ctx context.Context, job string, slot int, pool string) (string, error) {
	if a.point != nil {
		if given, err := a.ask(ctx, job, slot, pool); err != nil || given != "" {
			return given, err
		}
	}
	owner := ipam.Owner{Job: job, Slot: slot}
	if a.give {
		l, err := a.net.Get(pool, owner, netip.Addr{})
		return l.Addr.String(), err
	}
	if a.net != nil {
		if one, has := a.net.LeaseOf(pool, owner); has {
			return one.Addr.String(), nil
		}
	}
	return "", croft.Errorf(croft.NotFound, "slot %d of %s has no address yet: croft grid place gives it one, and so "+
		"does croft ip get %s %s/%d", slot, job, pool, job, slot)
}

// ask runs the verb get of the hard point. An empty result means that it answers without an address.
func (a *addresses) ask(ctx context.Context, job string, slot int, pool string) (string, error) {
	request, err := json.Marshal(map[string]any{"pool": pool, "job": job, "slot": slot})
	if err != nil {
		return "", err
	}
	croftFile, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find croft for the hard point ip: %w", err)
	}
	r, err := a.point.Run(ctx, machine.Local{}, "get", hardpoint.Values{"croft": croftFile, "directory": a.dir,
		"pool": pool, "job": job, "slot": slot}, bytes.NewReader(request))
	if err != nil {
		return "", fmt.Errorf("%s: %w", a.point.From, err)
	}
	var answer struct{ Address string }
	if err := json.Unmarshal([]byte(r.Text), &answer); err != nil {
		return "", croft.Errorf(croft.Unavailable, "%s: get answers %.100q, which is not {\"address\": \"10.0.0.2\"}: %w",
			a.point.From, r.Text, err)
	}
	if answer.Address == "" {
		return "", nil
	}
	ip, err := netip.ParseAddr(answer.Address)
	if err != nil {
		return "", croft.Errorf(croft.Unavailable, "%s: get answers the address %.60q, which is none: correct the program",
			a.point.From, answer.Address)
	}
	return ip.Unmap().String(), nil
}

// allocate assigns an address to each slot that needs one and has none, to all or to none. Slots that no longer exist
// keep their addresses; allocate reports them.
func (o *options) allocate(cmd *cobra.Command, changes []place.Change) error {
	s, err := o.load(cmd) // includes the links that were just written
	if err != nil {
		return err
	}
	a, err := openAddresses(o.dir, s.Cluster.IP)
	if err != nil {
		return err
	}
	for _, c := range changes {
		owner := ipam.Owner{Job: c.Job, Slot: c.Slot}
		if c.To != "" || a.net == nil {
			continue
		}
		for _, l := range a.net.Sorted() {
			if l.Owner == owner && !l.Freed() {
				say(cmd, "%s stays leased to %s: croft ip free %s gives it back", l.Addr, owner, owner)
			}
		}
	}
	if !asksForAddresses(s) {
		return nil
	}
	d, err := ipam.Open(o.dir)
	if err != nil {
		return err
	}
	defer d.Close()
	err = d.Change(cmd.Context(), func(n *ipam.Net) error {
		a.net, a.give = n, true
		s.Addresses = a.address
		return s.Allocate(cmd.Context())
	})
	if errors.Is(err, ipam.ErrLocked) {
		return exit(ExitRefused, err)
	}
	return err
}

func asksForAddresses(s *state.State) bool {
	for _, j := range s.Jobs {
		if j.Values.Get("address") != nil {
			return true
		}
	}
	return false
}
