package args

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/compute/image"
	"croft/internal/nearest"
)

// CompletionTimeout limits the time to wait for names after the tab key.
const CompletionTimeout = time.Second

// CompleteInstances completes at most this many names of instances whose records have one of the states; -1 means any
// number, and no states mean all.
func CompleteInstances(most int, states ...croft.State) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if most >= 0 && len(args) >= most {
			return completeImages(cmd, args, prefix)
		}
		found := StoredNames(cmd, args, prefix, func(ctx context.Context, c *Client,
			offer func(name, what string)) error {
			all, err := c.OwnInstances(ctx)
			for _, i := range all {
				if len(states) == 0 || slices.Contains(states, croft.State(i.State)) {
					offer(i.Name, i.State)
				}
			}
			return err
		})
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

// Offer receives a name and its description.
type Offer = func(name, what string)

// Unnamed returns an offer without the names that the command has in its arguments, except for one.
func (c *Client) Unnamed(except string, offer Offer) Offer {
	return func(name, what string) {
		if name == except || c.Cmd == nil || !slices.Contains(c.Cmd.Flags().Args(), name) {
			offer(name, what)
		}
	}
}

// Near adds the most similar name of the ones that list offers to a NotFound error that names none.
func Near(name string, err error, list func(Offer) error) error {
	if !errors.Is(err, croft.NotFound) || strings.Contains(err.Error(), "did you mean") {
		return err
	}
	var names []string
	if list(func(name, _ string) { names = append(names, name) }) != nil {
		return err // the hint is optional
	}
	return suggest(name, names, err)
}

// suggest adds the most similar name to an error that an object is missing. If the name itself is known, the error is
// about another object, and stays.
func suggest(name string, known []string, err error) error {
	if hint := nearest.Hint(name, known); hint != "" && !slices.Contains(known, name) {
		return croft.Errorf(croft.NotFound, "%w%s", err, hint)
	}
	return err
}

// StoredNames completes names that are stored in the cloud: list offers them with descriptions, and StoredNames keeps
// the ones that start with prefix and are not given yet. It returns nothing if the cloud does not answer soon.
func StoredNames(cmd *cobra.Command, given []string, prefix string,
	list func(ctx context.Context, c *Client, offer Offer) error) []string {
	ctx, cancel := context.WithTimeout(cmd.Context(), CompletionTimeout)
	defer cancel()
	s, err := LoadSettings(cmd.Flags())
	if err != nil {
		return nil
	}
	var found []string
	_ = WithSettings(ctx, s, func(ctx context.Context, c *Client) error {
		return list(ctx, c, func(name, what string) {
			if strings.HasPrefix(name, prefix) && !slices.Contains(given, name) {
				found = append(found, cobra.CompletionWithDesc(name, what))
			}
		})
	})
	return found
}

// completeImages completes the second argument of a query.
func completeImages(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if cmd.Name() != "schedule" && cmd.Name() != "create" || len(args) != 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return imageNames(prefix), cobra.ShellCompDirectiveDefault
}

// imageNames returns the catalog's names with this prefix, or none if the catalog is unreadable.
func imageNames(prefix string) []string {
	catalog, err := image.LoadCatalog(image.CatalogFiles(), nil)
	if err != nil {
		return nil
	}
	var found []string
	for _, name := range catalog.Names() {
		if strings.HasPrefix(name, prefix) {
			found = append(found, name)
		}
	}
	return found
}

// CompleteHosts completes the name of a host.
func CompleteHosts(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	found := StoredNames(cmd, args, prefix, func(ctx context.Context, c *Client, offer func(name, what string)) error {
		list, err := c.ListHosts(ctx)
		for _, h := range list.Hosts {
			offer(h.Name, h.State)
		}
		return err
	})
	slices.Sort(found)
	return found, cobra.ShellCompDirectiveNoFileComp
}

// CompleteImage completes one name of the catalog of images.
func CompleteImage(_ *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return imageNames(prefix), cobra.ShellCompDirectiveDefault
}
