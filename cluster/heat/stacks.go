package heat

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/orchestration/v1/stacks"

	"croft"
	"croft/cluster"
)

// raw is the body of a request, sent unchanged. The builders of gophercloud would load the files that a template names.
type raw map[string]any

func (r raw) ToStackCreateMap() (map[string]any, error)           { return r, nil }
func (r raw) ToStackUpdatePatchMap() (map[string]any, error)      { return r, nil }
func (r raw) ToStackTemplateValidateMap() (map[string]any, error) { return r, nil }

// The tags of the driver's stacks.
const (
	ours    = "croft"
	prefix  = "croft-"
	holding = "croft-holds-a-name" // an empty stack that makes Heat reject late requests
)

func partitionTag(p croft.PartitionID) string { return prefix + string(p) }

func clusterTag(c croft.ClusterID) string { return prefix + string(c) }

// tagsOf returns the tags of the stack of a build, in Heat's format.
func tagsOf(b cluster.Build, more ...string) string {
	return strings.Join(append([]string{ours, partitionTag(b.Partition), clusterTag(b.Cluster)}, more...), ",")
}

// isOf reports whether a stack belongs to the cluster.
func isOf(s stacks.ListedStack, b cluster.Build) bool {
	return slices.Contains(s.Tags, clusterTag(b.Cluster)) && slices.Contains(s.Tags, partitionTag(b.Partition))
}

// nameOf returns the name of the stack of a build.
func nameOf(b cluster.Build) string {
	if b.Remote.Name != "" {
		return b.Remote.Name
	}
	return prefix + string(b.Cluster)
}

// api is the Heat API of a site, with a session.
type api struct {
	*session
	c *gophercloud.ServiceClient
}

// heat returns the Heat API of the site. Unavailable: the catalogue has none.
func (s *session) heat() (*api, error) {
	if client := s.service("orchestration"); client != nil {
		return &api{s, client}, nil
	}
	region := "any region"
	if s.site.Region != "" {
		region = "region " + s.site.Region
	}
	return nil, croft.Errorf(croft.Unavailable, "site %s: its catalogue has no orchestration in %s", s.site.Name,
		region)
}

// pageSize is the number of stacks per page of a list.
const pageSize = 200

// mostPages bounds a list, in case a site sends the same page forever.
const mostPages = 100

// list returns the stacks with a tag, oldest first, with as few requests as possible.
func (a *api) list(ctx context.Context, tag string) ([]stacks.ListedStack, error) {
	var all []stacks.ListedStack
	marker := ""
	for range mostPages {
		page, err := a.page(ctx, tag, marker)
		if err != nil {
			return nil, a.explain("list stacks", err)
		}
		all = append(all, page...)
		if len(page) < pageSize {
			// Heat lists a deleted stack for a short time.
			all = slices.DeleteFunc(all, func(st stacks.ListedStack) bool { return st.Status == "DELETE_COMPLETE" })
			slices.SortStableFunc(all, older)
			return all, nil
		}
		marker = page[len(page)-1].ID
	}
	return nil, croft.Errorf(croft.Unavailable, "site %s: its list of stacks has no end", a.site.Name)
}

func older(a, b stacks.ListedStack) int {
	if c := a.CreationTime.Compare(b.CreationTime); c != 0 {
		return c
	}
	return strings.Compare(a.ID, b.ID)
}

func (a *api) page(ctx context.Context, tag, marker string) ([]stacks.ListedStack, error) {
	ctx, cancel := a.brief(ctx)
	defer cancel()
	pages, err := stacks.List(a.c, stacks.ListOpts{Tags: tag, Limit: pageSize, Marker: marker}).AllPages(ctx)
	if err != nil {
		return nil, err
	}
	return stacks.ExtractStacks(pages)
}

// get returns a stack by name and ID, with its outputs.
func (a *api) get(ctx context.Context, name, id string) (*stacks.RetrievedStack, error) {
	ctx, cancel := a.brief(ctx)
	defer cancel()
	return whole(stacks.Get(ctx, a.c, url.PathEscape(name), url.PathEscape(id)).Extract())
}

// find returns the stack of a build by ID or by tag; nil: none exists. Denied: it is in another project.
func (a *api) find(ctx context.Context, b cluster.Build) (*stacks.RetrievedStack, error) {
	if err := a.sees(b); err != nil {
		return nil, err
	}
	id := b.Remote.ID
	if id == "" {
		all, err := a.list(ctx, clusterTag(b.Cluster))
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(all, func(st stacks.ListedStack) bool { return isOf(st, b) && !isMarker(st.Tags) })
		if i < 0 {
			return nil, nil
		}
		id = all[i].ID
	}
	st, err := a.get(ctx, nameOf(b), id)
	switch {
	case missing(err):
		return nil, nil
	case err != nil:
		return nil, a.explain("read the stack", err)
	case st.Status == "DELETE_COMPLETE":
		return nil, nil
	}
	return st, nil
}

// isMarker reports whether a stack only reserves a name.
func isMarker(tags []string) bool { return slices.Contains(tags, holding) }

// sees checks that the session is for the project that a cluster was built in. Denied.
func (s *session) sees(b cluster.Build) error {
	if b.Remote.Project == "" || b.Remote.Project == s.project {
		return nil
	}
	return croft.Errorf(croft.Denied, "site %s: the cluster is in project %s, and the credential is for project %s",
		s.site.Name, b.Remote.Project, s.project)
}

// pause is the interval between two looks at a stack that is about to change.
const pause = 150 * time.Millisecond

// begun waits until the status of a stack shows a request: Heat's older engine answers before it starts.
func (a *api) begun(ctx context.Context, look func(ctx context.Context) (bool, error)) error {
	ctx, cancel := a.brief(ctx)
	defer cancel()
	for {
		if done, err := look(ctx); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return croft.Errorf(croft.Unavailable, "the status of the stack shows nothing of it yet")
		case <-time.After(pause):
		}
	}
}

// clusterOf returns the cluster that the tags name.
func clusterOf(tags []string, p croft.PartitionID) croft.ClusterID {
	for _, tag := range tags {
		id, found := strings.CutPrefix(tag, prefix)
		if found && tag != partitionTag(p) && tag != holding {
			return croft.ClusterID(id)
		}
	}
	return ""
}

// remote converts a stack to the form of the record.
func (s *session) remote(st stacks.ListedStack) cluster.Remote {
	return cluster.Remote{ID: st.ID, Name: st.Name, Project: s.project, Status: st.Status,
		Reason: cut(s.mask(st.StatusReason)), Asked: true}
}

// statusOf returns the status code of an error, or 0.
func statusOf(err error) int {
	a, _ := answerOf(err)
	return a.status
}

// taken reports whether the name of a stack is in use.
func taken(err error) bool { return statusOf(err) == http.StatusConflict }

// create asks Heat to create a stack.
func (a *api) create(ctx context.Context, body raw) error {
	ctx, cancel := a.brief(ctx)
	defer cancel()
	_, err := stacks.Create(ctx, a.c, body).Extract()
	return err
}

// delete deletes a stack. A stack that is gone is no error.
func (a *api) delete(ctx context.Context, name, id string) error {
	ctx, cancel := a.brief(ctx)
	defer cancel()
	return ignoreMissing(stacks.Delete(ctx, a.c, name, id).ExtractErr())
}

func ignoreMissing(err error) error {
	if missing(err) {
		return nil
	}
	return err
}
