package heat

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gophercloud/gophercloud/v2/openstack/orchestration/v1/stackresources"
	"github.com/gophercloud/gophercloud/v2/openstack/orchestration/v1/stacks"

	"croft"
	"croft/cluster"
	"croft/cluster/heat/template"
)

// Resize implements cluster.Driver. It sends only the size and the removed members to Heat, so that no other change
// reaches the members.
func (d *Driver) Resize(ctx context.Context, at cluster.SiteAccess, b cluster.Build) error {
	contract, err := d.contract(ctx, b.Implementation)
	if err != nil {
		return err
	}
	if _, there := contract.Declared[template.ClusterSize]; !there {
		return croft.Errorf(croft.Invalid,
			"the template has no parameter cluster_size, so the cluster cannot be resized")
	}
	a, err := d.connect(ctx, at)
	if err != nil {
		return err
	}
	st, err := a.find(ctx, b)
	if err != nil {
		return err
	}
	if err := resizable(a, st); err != nil {
		return err
	}
	lost := d.replace(ctx, a, b, contract, st)
	told, err := a.resizeParameters(ctx, b, contract, st)
	if err != nil || told == nil && lost == 0 {
		return err
	}
	if told == nil { // the size stays, and lost slaves are created again
		told = map[string]any{}
	}
	return d.patch(ctx, a, st, raw{"parameters": told, "tags": strings.Join(st.Tags, ","),
		"disable_rollback": true, "timeout_mins": minutes(b.Timeout)})
}

// resizeParameters returns the parameters to send, or nil if the stack has them already and is complete.
func (a *api) resizeParameters(ctx context.Context, b cluster.Build, c cluster.Contract, st *stacks.RetrievedStack) (
	map[string]any, error) {
	now, done := numberingOf(st), strings.HasSuffix(st.Status, "_COMPLETE")
	if _, there := c.Declared[template.Removed]; !there || !c.RemoveNamed {
		if done && now.size == len(b.Indexes) {
			return nil, nil
		}
		return map[string]any{template.ClusterSize: len(b.Indexes)}, nil
	}
	if done && slices.Equal(now.indexes(), b.Indexes) {
		return nil, nil
	}
	name := template.Group(text(b.Implementation))
	skipped, err := a.skipped(ctx, st, name)
	if err != nil {
		return nil, a.explain("read the group of slaves", err)
	}
	if skipped != nil {
		now.skipped = skipped
	}
	present, err := a.present(ctx, st, name)
	if err != nil {
		return nil, a.explain("read the slaves", err)
	}
	next, err := now.resized(b.Indexes, present)
	if err != nil {
		return nil, err
	}
	return map[string]any{template.ClusterSize: next.size, template.Removed: next.removed()}, nil
}

// skipped returns the numbers that a group skips forever. Nil: this Heat does not report them.
func (a *api) skipped(ctx context.Context, st *stacks.RetrievedStack, name string) ([]int, error) {
	ctx, cancel := a.brief(ctx)
	defer cancel()
	r, err := whole(stackresources.Get(ctx, a.c, st.Name, st.ID, name).Extract())
	if err != nil {
		return nil, err
	}
	list, ok := r.Attributes["removed_rsrc_list"].([]any)
	if !ok {
		return nil, nil
	}
	all := []int{}
	for _, item := range list {
		if n, err := strconv.Atoi(fmt.Sprint(item)); err == nil {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	return all, nil
}

// present returns the numbers of the members of a group, including failed ones.
func (a *api) present(ctx context.Context, st *stacks.RetrievedStack, name string) ([]int, error) {
	listed, err := a.resources(ctx, st.Name, st.ID)
	if err != nil {
		return nil, err
	}
	var all []int
	for _, r := range listed {
		if n, is := r.number(name); is {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	return all, nil
}

// resizable checks that a stack can be updated now. Conflict. NotFound.
func resizable(a *api, st *stacks.RetrievedStack) error {
	switch {
	case st == nil:
		return croft.Errorf(croft.NotFound, "site %s: the stack of the cluster no longer exists", a.site.Name)
	case strings.HasSuffix(st.Status, "_IN_PROGRESS"), strings.HasPrefix(st.Status, "DELETE_"),
		st.Status == "CREATE_FAILED":
		return croft.Errorf(croft.Conflict, "site %s: the stack is %s", a.site.Name, st.Status)
	}
	return nil
}

// patch updates the parameters of a stack, and waits until the status shows the update.
func (d *Driver) patch(ctx context.Context, a *api, st *stacks.RetrievedStack, body raw) error {
	d.forget(st.ID)
	request, cancel := a.brief(ctx)
	defer cancel()
	if err := stacks.UpdatePatch(request, a.c, st.Name, st.ID, body).ExtractErr(); err != nil {
		err = a.explain("update the stack", err)
		if croft.KindOf(err) == croft.Invalid && strings.Contains(err.Error(), "NotSupported") {
			err = croft.Errorf(croft.Conflict, "%w", err)
		}
		return err
	}
	err := a.begun(ctx, func(ctx context.Context) (bool, error) {
		now, err := a.get(ctx, st.Name, st.ID)
		if err != nil {
			return false, err
		}
		return strings.HasSuffix(now.Status, "_IN_PROGRESS") || !now.UpdatedTime.Equal(st.UpdatedTime) ||
			now.Status != st.Status, nil
	})
	d.forget(st.ID)
	if croft.KindOf(err) != "" {
		return err
	}
	return a.explain("wait for the update to start", err)
}
