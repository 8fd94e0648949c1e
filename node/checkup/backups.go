package checkup

import (
	"context"
	"fmt"
	"strings"
	"time"

	"croft/control/cloud/direct"
	"croft/internal/checks"
	"croft/internal/wording"
	"croft/schedule/backups"
)

// mostNamed is the maximum number of instances without a backup that are named.
const mostNamed = 5

// lookBackups reports the instances of the cloud that have no recent backup, if there is a store for backups.
func lookBackups(s direct.EtcdSettings) func(context.Context) checks.Result {
	return func(ctx context.Context) checks.Result {
		store, err := openCloud(ctx, s)
		if err != nil {
			return checks.Result{Level: checks.Warn, Found: "not looked at: " + err.Error()}
		}
		if store == nil {
			return checks.Good("there are no instances yet")
		}
		defer store.Close() // opened only for reading
		stores, err := store.Backups.Stores(ctx)
		if err != nil {
			return checks.Result{Level: checks.Warn, Found: "not looked at: " + err.Error()}
		}
		if len(stores) == 0 {
			return checks.Good("none are made: there is no backup store")
		}
		now := time.Now()
		found, err := backups.Protection{Instances: store.Instances, Records: store.Backups,
			Labels: direct.Labels(store)}.Overdue(ctx, "", now, 0)
		if err != nil {
			return checks.Result{Level: checks.Warn, Found: "not looked at: " + err.Error()}
		}
		return judgeBackups(found, now)
	}
}

// judgeBackups reports the instances without a recent backup.
func judgeBackups(found []backups.Unprotected, now time.Time) checks.Result {
	if len(found) == 0 {
		return checks.Good("every instance has a recent one")
	}
	var named []string
	for _, u := range found[:min(len(found), mostNamed)] {
		since := "none since it was created " + wording.Duration(now.Sub(u.Instance.Created).Round(time.Minute)) +
			" ago"
		if !u.Last.IsZero() {
			since = "none for " + wording.Duration(now.Sub(u.Last).Round(time.Minute))
		}
		if u.Schedule != "" {
			since += ", though schedule " + u.Schedule + " makes them"
		}
		named = append(named, fmt.Sprintf("%s of project %s: %s", u.Instance.Name, u.Instance.Project, since))
	}
	if more := len(found) - len(named); more > 0 {
		named = append(named, fmt.Sprintf("and %d more", more))
	}
	return checks.Result{Level: checks.Warn,
		Found: wording.Count(len(found), "instance") + " without a recent backup: " +
			strings.Join(named, "; "),
		Do: "`croft backup overdue` lists them with the reasons; `croft backup schedule create` makes backups " +
			"regularly"}
}
