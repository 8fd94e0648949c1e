package checkup

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"croft"
	"croft/control/cloud/direct"
	"croft/control/cloud/fencing"
	"croft/etcdstore"
	"croft/hosts"
	"croft/internal/checks"
)

// lookFence asks the fence agent of each host of the cloud for the state of its power. A living host that is off has
// the wrong agent: a fence would switch off another machine, and declare this one dead while it runs.
func lookFence(s direct.EtcdSettings, agents *fencing.Agents) func(context.Context) checks.Result {
	return func(ctx context.Context) checks.Result {
		all, err := hostsOf(ctx, s)
		switch {
		case err != nil:
			return checks.Result{Level: checks.Warn, Found: "not looked at: " + err.Error()}
		case len(all) == 0:
			return checks.Good("there are no hosts yet")
		}
		return judgeFence(ctx, all, agents.IsOn)
	}
}

// judgeFence asks isOn of every host.
func judgeFence(ctx context.Context, all []croft.Host, isOn func(context.Context, croft.Host) (bool,
	error)) checks.Result {
	var wrong, unknown []string
	for _, h := range all {
		on, err := isOn(ctx, hosts.NamedAlone(h, slices.Values(all)))
		switch {
		case err != nil:
			unknown = append(unknown, fmt.Sprintf("host %s: %v", h.Name, err))
		case !on && h.Alive:
			wrong = append(wrong, h.Name)
		}
	}
	switch {
	case len(wrong) > 0:
		return checks.Result{Level: checks.Fail, Found: fmt.Sprintf("the fence agents of %s report off, but the hosts "+
			"are alive", strings.Join(wrong, ", ")),
			Do: "correct their addresses in the file of host.fence: a fence would switch off another machine"}
	case len(unknown) > 0:
		return checks.Result{Level: checks.Warn, Found: strings.Join(unknown, "; "),
			Do: "correct the file of host.fence; until then, fence these hosts with --confirm-off"}
	}
	return checks.Good(fmt.Sprintf("the fence agents of %d hosts answer", len(all)))
}

// hostsOf returns the hosts of the cloud of this etcd by name; none if there is no cloud yet.
func hostsOf(ctx context.Context, s direct.EtcdSettings) ([]croft.Host, error) {
	store, err := openCloud(ctx, s)
	if store == nil || err != nil {
		return nil, err
	}
	defer store.Close() // opened only for reading
	hosts, err := store.Registry.Hosts(ctx)
	byName := func(a, b croft.Host) int { return strings.Compare(a.Name, b.Name) }
	return slices.SortedFunc(maps.Values(hosts), byName), err
}

// openCloud opens the cloud of this etcd; nil if there is no cloud yet.
func openCloud(ctx context.Context, s direct.EtcdSettings) (*etcdstore.Store, error) {
	if !anybodyAt(ctx, s.Endpoints) {
		return nil, nil
	}
	store, err := s.Open(ctx, false)
	if croft.KindOf(err) == croft.NotFound {
		return nil, nil
	}
	return store, err
}
