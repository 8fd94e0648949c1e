package server

import (
	"strings"
	"testing"
	"time"

	"croft/pool"
)

// The page shows why each pool's last start failed, but a command's output only to admins.
func TestThePageSaysWhyAStartFailed(t *testing.T) {
	failed := func(s pool.Settings) pool.PoolStatus {
		return pool.PoolStatus{Record: pool.Record{Settings: s,
			LastFailure: &pool.Failure{Resource: 7, At: time.Unix(1e9, 0), Error: "no <room> is left"}}}
	}
	for name, c := range map[string]struct {
		settings pool.Settings
		admin    bool
		want     string
	}{
		"of instances":             {pool.Settings{Instance: &pool.Instance{}}, false, "resource 7"},
		"of instances, why":        {pool.Settings{Instance: &pool.Instance{}}, false, "no &lt;room&gt; is left"},
		"of commands":              {pool.Settings{}, false, "an admin sees why"},
		"of commands, to an admin": {pool.Settings{}, true, "no &lt;room&gt; is left"},
		"what prints all of it":    {pool.Settings{}, false, "<code>croft pool logs 7</code>"},
	} {
		o := overview{Secrets: c.admin}
		o.addPools([]pool.PoolStatus{failed(c.settings)})
		var page strings.Builder
		if err := pageTemplate.ExecuteTemplate(&page, "pools", o); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(page.String(), c.want) {
			t.Errorf("%s: the page lacks %q:\n%s", name, c.want, page.String())
		}
		if !c.admin && c.settings.Instance == nil && strings.Contains(page.String(), "room") {
			t.Errorf("%s: anybody sees what a command printed", name)
		}
	}
}
