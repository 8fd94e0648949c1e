package control

import (
	"net/http"

	"croft"
	"croft/control/api"
	"croft/tenant/usage"
)

// listUsage answers with the usage of the projects that the caller sees.
func listUsage(c *call) error { return answerUsage(c, c.scope.Projects()) }

// getUsage answers with the usage of the project in the path and of the projects below it.
func getUsage(c *call) error { return answerUsage(c, []croft.Project{c.project}) }

// answerUsage answers with the usage history of projects; nil: all. Only operators see the usage from before a project
// was removed, because a later project of the same name may have another owner.
func answerUsage(c *call, projects []croft.Project) error {
	f := usage.Filter{Projects: projects, Former: c.flag("former") && c.caller.Operator(), Since: c.query.Get("since"),
		Until: c.query.Get("until")}
	if !c.scope.All() && f.Projects == nil {
		f.Projects = []croft.Project{}
	}
	if err := f.Check(); err != nil {
		return api.NewProblem(api.BadQuery, err.Error())
	}
	ctx, cancel := c.brief()
	defer cancel()
	report, err := c.Cloud.Usage.List(ctx, f)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, report)
}
