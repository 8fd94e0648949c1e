package page

import (
	"croft"
	"croft/control/api"
	"croft/internal/wording"
)

// advice is what the page knows before a form is sent: what would be refused, and what to do first.
type advice struct {
	Says  string
	Deeds []deed
	Do    []action // of the instance, each with a button
	Stops bool     // the form would be refused as a whole, so it is not offered
}

// advise returns what to do before an action of an instance.
func (v *visit) advise(a action, i api.Instance) (d advice, err error) {
	at := "/instances/" + string(i.ID)
	if (a.Name == "remove" || a.Name == "rebuild") && i.Protected {
		return advice{Says: "The instance is protected: end the protection first.", Stops: true,
			Deeds: []deed{{Does: "To the protection", Link: link(i.Project, at) + "#h-keep"}}}, nil
	}
	switch a.Name {
	case "resize":
		if off(i) {
			return d, nil
		}
		stop, _ := actionNamed("stop")
		return advice{Says: "The guest is on, so only its disk can be made larger. For other processors or memory, " +
			"stop it first.", Do: []action{stop}}, nil
	case "move":
		list, err := v.client.ListSnapshots(v.ctx, api.InProject{Project: i.Project})
		n := 0
		for _, s := range list.Snapshots {
			if s.Instance == i.ID {
				n++
			}
		}
		if err != nil || n == 0 {
			return d, err
		}
		return advice{Says: "The instance has " + wording.Count(n, "snapshot") + ", which a move does not carry: " +
			"remove them first.", Stops: true,
			Deeds: []deed{{Does: "To the snapshots", Link: link(i.Project, at) + "#h-disks"}}}, nil
	case "backup":
		list, err := v.client.ListBackupStores(v.ctx, api.InProject{Project: i.Project}, api.Listing{Limit: 1})
		if err != nil || len(list.Stores) > 0 {
			return d, err
		}
		d = advice{Says: "The project has no backup store: an operator adds one.", Stops: true,
			Deeds: v.deeds("", nil, "backups.stores.new")}
		if len(d.Deeds) > 0 {
			d.Says = "The project has no backup store: add one first."
		}
	}
	return d, nil
}

// off reports whether the guest of an instance is off.
func off(i api.Instance) bool {
	return i.Reported() == croft.StateStopped || i.Reported() == croft.StateFailed
}
