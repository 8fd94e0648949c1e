package args

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"croft"
	"croft/control/api"
	"croft/tenant"
)

// AnyProject is the annotation of commands that accept projects that do not exist: removed ones, or new ones.
const AnyProject = "croft-any-project"

// ForAnyProject marks a command whose --project may name a project that does not exist.
func ForAnyProject(cmd *cobra.Command) *cobra.Command {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[AnyProject] = "yes"
	return cmd
}

// checkProject returns an error if the project of the settings does not exist, no instance belongs to it, and refused
// is true for the error. Operators may use names without creating a project. NotFound, Unavailable.
func (c *Client) checkProject(ctx context.Context, refused func(error) bool) error {
	if c.Project == "" || c.Project == croft.DefaultProject || c.Project.Check() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, AnswerTimeout)
	defer cancel()
	err := UnknownProject(ctx, c, c.Project)
	if err == nil || croft.KindOf(err) == croft.Unavailable {
		return err
	}
	of := api.InstanceFilter{InProject: api.InProject{Project: c.Project}, Page: api.Page{Limit: 1}}
	if page, used := c.ListInstances(ctx, of); used != nil || len(page.Instances) > 0 {
		return nil
	}
	if c.unknown = err; refused(err) {
		return err
	}
	return nil
}

// NoteUnknownProject tells the user, below a list without entries, that the project does not exist.
func (c *Client) NoteUnknownProject(cmd *cobra.Command, entries int) {
	if entries == 0 && c.unknown != nil && c.Project != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "%v\n", c.unknown)
	}
}

// SimilarProject returns a NotFound error if nothing was found in the named project, the project does not exist, and
// its name looks like a typing mistake for an existing project.
func SimilarProject(ctx context.Context, c *Client, name croft.Project) error {
	if name == "" || name == croft.DefaultProject {
		return nil
	}
	if err := UnknownProject(ctx, c, name); tenant.Hinted(err) {
		return err
	}
	return nil
}

// UnknownProject returns a NotFound error if no project that the caller sees has the name. It suggests similar names.
// Unavailable.
func UnknownProject(ctx context.Context, c *Client, name croft.Project) error {
	if _, err := FindProject(ctx, c, name); croft.KindOf(err) == croft.NotFound ||
		croft.KindOf(err) == croft.Unavailable {
		return err
	}
	return nil // callers who may not see projects get the error of the request itself
}

// ProjectHint returns the end of an error message about a project that does not exist; empty: it exists, or no project
// has a similar name.
func ProjectHint(ctx context.Context, c *Client, name croft.Project) string {
	return tenant.HintOf(UnknownProject(ctx, c, name))
}

// FindProject returns a project. NotFound: the error suggests similar names.
func FindProject(ctx context.Context, c *Client, name croft.Project) (tenant.Tenant, error) {
	if name.Check() == nil {
		found, err := c.GetProject(ctx, api.ProjectNamed{Project: name})
		if croft.KindOf(err) != croft.NotFound {
			return found, err
		}
	}
	all, err := c.ListProjects(ctx)
	if err != nil {
		return tenant.Tenant{}, err
	}
	var names []croft.Project
	for _, p := range all.Projects {
		names = append(names, p.Name)
	}
	return tenant.Tenant{}, tenant.NotFound(name, names)
}
