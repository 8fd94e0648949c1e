package heat

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/orchestration/v1/stacks"
	"github.com/gophercloud/gophercloud/v2/openstack/orchestration/v1/stacktemplates"

	"croft"
	"croft/cluster"
	"croft/cluster/heat/template"
	"croft/internal/lazyregexp"
)

// Launch implements cluster.Driver.
func (d *Driver) Launch(ctx context.Context, at cluster.SiteAccess, b cluster.Build) (cluster.Remote, error) {
	contract, err := d.contract(ctx, b.Implementation)
	if err != nil {
		return cluster.Remote{}, err
	}
	a, err := d.connect(ctx, at)
	if err != nil {
		return cluster.Remote{}, err
	}
	told := parameters(b, contract)
	if err := d.validate(ctx, a, b, told, hidden(b, contract)); err != nil {
		return cluster.Remote{}, err
	}
	body := raw{"stack_name": nameOf(b), "template": text(b.Implementation), "parameters": told,
		"tags": tagsOf(b), "disable_rollback": true, "timeout_mins": minutes(b.Timeout)}
	err = a.create(ctx, body)
	if err != nil && !taken(err) {
		explained := a.explain("create the stack", err, hidden(b, contract)...)
		if croft.KindOf(explained) == croft.Invalid && noImage.MatchString(explained.Error()) {
			return cluster.Remote{}, &cluster.ImageError{Err: explained}
		}
		return cluster.Remote{}, explained
	}
	return d.adopt(ctx, a, b)
}

// twins is how long the stack of a concurrent request may take to appear. Heat checks whether a name is in use before
// it creates the stack, so it may accept two requests at once.
const twins = time.Second

// adopt returns the stack of a cluster after a request for it. If concurrent requests created several, it keeps the
// oldest.
func (d *Driver) adopt(ctx context.Context, a *api, b cluster.Build) (cluster.Remote, error) {
	select {
	case <-time.After(twins):
	case <-ctx.Done():
		return cluster.Remote{}, croft.Errorf(croft.Unavailable, "site %s: create the stack: %w", a.site.Name,
			ctx.Err())
	}
	all, err := a.list(ctx, clusterTag(b.Cluster))
	if err != nil {
		return cluster.Remote{}, undecided(err)
	}
	all = slices.DeleteFunc(all, func(st stacks.ListedStack) bool { return !isOf(st, b) })
	if len(all) == 0 {
		return cluster.Remote{}, croft.Errorf(croft.Conflict, "site %s: a stack that is not ours has the name %s",
			a.site.Name, nameOf(b))
	}
	first := all[0]
	if isMarker(first.Tags) || d.phase(first) == cluster.Removing {
		return cluster.Remote{}, croft.Errorf(croft.Unavailable,
			"site %s: the previous stack with the name %s is being removed",
			a.site.Name, nameOf(b))
	}
	for _, extra := range all[1:] {
		if err := d.remove(ctx, a, extra.Name, extra.ID); err != nil {
			return cluster.Remote{}, undecided(err)
		}
	}
	return a.remote(first), nil
}

// noImage matches errors of Heat about a parameter or property that names an image that Glance does not have.
var noImage = lazyregexp.New(`(?i)error validating value .*image.*(not be found|no .*found)|no images? matching|` +
	`glance\.image|could not find image`)

// undecided prevents that an error after Heat accepted the launch is read as a refusal of the launch.
func undecided(err error) error {
	if kind := croft.KindOf(err); kind == croft.Unavailable || kind == croft.Denied {
		return err
	}
	return croft.Errorf(croft.Unavailable, "%w", err)
}

// validate asks Heat to validate a template that it has not validated for this driver yet, with the parameters, since
// conditions may depend on them. Invalid: Heat refuses the template, or fails because of it. A validation changes
// nothing, so a fault in Heat's own code is blamed on the template, unless it is about Heat's database, its messages or
// other services.
func (d *Driver) validate(ctx context.Context, a *api, b cluster.Build, told map[string]any, secret []string) error {
	key := validation{a.site.Name, b.Implementation.ID}
	if known, _ := recall(&d.memory, d.validated, key); known && key.implementation != "" {
		return nil
	}
	ctx, cancel := a.brief(ctx)
	defer cancel()
	result := stacktemplates.Validate(ctx, a.c, raw{"template": text(b.Implementation), "parameters": told})
	if fault, ok := answerOf(result.Err); ok && fault.status == http.StatusInternalServerError && fault.json &&
		fault.kind != "" && !elsewhere.MatchString(fault.kind) {
		return croft.Errorf(croft.Invalid, "site %s: Heat cannot read the template: %s", a.site.Name,
			cut(a.mask(fault.String(), secret...)))
	}
	if result.Err != nil {
		return a.explain("validate the template", result.Err, secret...)
	}
	var said struct{ Error string }
	if err := result.ExtractInto(&said); err == nil && said.Error != "" {
		return croft.Errorf(croft.Invalid, "site %s: Heat refuses the template: %s", a.site.Name,
			cut(a.mask(said.Error, secret...)))
	}
	remember(&d.memory, d.validated, key, true)
	return nil
}

// elsewhere matches the types of faults that are not about a template: faults of Heat's database, of its messages, of
// Keystone, and unnamed ones.
var elsewhere = lazyregexp.New(`(?i)^(DB|Messag|Remote|Timeout|Operational|Interface|Connect|Request|Auth|` +
	`Unauthorized|Forbidden|Keystone|Http|Service|Unknown|Internal)|Timeout$|Unavailable$`)

// parameters returns the parameters of a new stack: the parameters of the build, with the number of wanted slaves.
func parameters(b cluster.Build, c cluster.Contract) map[string]any {
	all := map[string]any{}
	for name, value := range b.Parameters {
		all[name] = value
	}
	if _, there := c.Declared[template.ClusterSize]; there {
		all[template.ClusterSize] = len(b.Indexes)
	}
	if _, there := c.Declared[template.Removed]; there {
		all[template.Removed] = removedBy(b)
	}
	if _, there := c.Declared["image"]; there && b.Image != "" {
		all["image"] = b.Image
	}
	return all
}

// removedBy returns the indexes that the build's slaves leave out, ascending.
func removedBy(b cluster.Build) []int {
	out := slices.Clone(b.Removed)
	last := -1
	for _, i := range b.Indexes {
		for gap := last + 1; gap < i; gap++ {
			out = append(out, gap)
		}
		last = max(last, i)
	}
	slices.Sort(out)
	return append([]int{}, slices.Compact(out)...)
}

// minutes rounds a duration up to minutes, the unit of Heat.
func minutes(d time.Duration) int {
	if d <= 0 {
		d = cluster.BuildTimeout
	}
	return max(1, int((d+time.Minute-1)/time.Minute))
}
