package args

import (
	"context"

	"croft/tenant/objects"
)

// FilterUsage describes the flag --filter of lists.
const FilterUsage = "only those with these properties and tags: `terms` key=value, key=prefix*, key, tag:name; all " +
	"terms of a flag must match; with several flags, any of them"

// Chosen returns the IDs of the objects of a kind, in the client's project, that filters choose.
func Chosen(ctx context.Context, c *Client, kind objects.Kind, filters []string) (map[string]bool, error) {
	f, err := objects.ParseFilter(filters)
	if err != nil {
		return nil, err
	}
	all, err := c.AllObjects(ctx, c.Project, kind, f)
	if err != nil {
		return nil, err
	}
	chosen := map[string]bool{}
	for _, o := range all {
		chosen[o.ID] = true
	}
	return chosen, nil
}
