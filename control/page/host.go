package page

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"croft"
	"croft/compute"
	"croft/control/api"
	"croft/hosts"
	"croft/internal/wording"
)

// hostPage is what the page of a host shows.
type hostPage struct {
	api.Host
	Buttons   []hostAction
	Deeds     []deed
	Gauges    []gauge
	Instances []hostInstance
	Moving    int
	Volumes   []api.Volume
	Images    []compute.Held
	Leftovers []hosts.Leftover
	Moves     bool     // some of its instances move, or could not
	Checked   bool     // its agent has checked the machine
	Missing   []string // parts that could not be read, and why
	Follow    string
	HostName  string
}

// hostInstance is an instance on a host.
type hostInstance struct {
	api.Instance
	Link string
	To   string // name of the host that it moves to
}

// askHost bounds the time for what only the host itself knows.
const askHost = 2 * time.Second

func (v *visit) hostNamed() api.HostNamed { return api.HostNamed{ID: v.r.PathValue("id")} }

func (v *visit) showHost() error {
	h, err := v.client.GetHost(v.ctx, v.hostNamed())
	if err != nil {
		return err
	}
	d := hostPage{Host: h, HostName: h.Name, Follow: Root + "/instances/events", Buttons: buttonsForHost(h),
		Checked: h.Findings != nil}
	deeds := []string{"hosts.properties"}
	if !h.Alive {
		deeds = append(deeds, "hosts.accept")
	}
	alone := false // it is the only server of etcd
	named := api.HostNamed{ID: string(h.ID)}
	here := api.Listing{Terms: api.Terms{Host: []string{h.Name}}}
	d.Missing, err = readAll([]reading{
		{name: "resources", read: func() error {
			list, err := v.client.GetInventory(v.ctx, named)
			for _, i := range list.Inventories {
				d.Gauges = append(d.Gauges, gaugeOf(measureOf(i.ResourceType), i.Used, i.Capacity))
			}
			return err
		}},
		{name: "volumes", read: func() error {
			list, err := v.client.ListVolumes(v.ctx, api.InProject{}, here)
			d.Volumes = list.Volumes
			return err
		}},
		{name: "images", read: func() error {
			if !h.Alive {
				return croft.Errorf(croft.Unavailable, "the host is silent, and only it knows")
			}
			ctx, cancel := context.WithTimeout(v.ctx, askHost)
			defer cancel()
			list, err := v.client.ListHostImages(ctx, named)
			d.Images = list.Images
			return err
		}},
		{name: "leftovers", read: func() error {
			list, err := v.client.ListLeftovers(v.ctx, named)
			d.Leftovers = list.Leftovers
			return err
		}},
		{name: "targets of moves", read: func() error { return d.readTargets(v) }},
		{name: "other servers of etcd", read: func() (err error) {
			alone, err = v.aloneInEtcd(h)
			return err
		}},
	})
	if err != nil {
		return err
	}
	if h.Etcd != "" && !alone {
		deeds = append(deeds, "hosts.etcd")
	}
	d.Deeds = v.deeds("", []string{"id", string(h.ID)}, deeds...)
	return v.show(http.StatusOK, "host", h.Name, &d)
}

// mostAsked is how many hosts are asked whether they serve etcd. Larger clouds have several that do.
const mostAsked = 100

// aloneInEtcd reports whether a host is known to be the only server of etcd, which cannot leave.
func (v *visit) aloneInEtcd(h api.Host) (bool, error) {
	if h.Etcd != croft.MemberLeads {
		return false, nil
	}
	list, err := v.client.ListHosts(v.ctx, api.Listing{Limit: mostAsked})
	return err == nil && list.Next == "" && !slices.ContainsFunc(list.Hosts, func(other api.Host) bool {
		return other.ID != h.ID && other.Etcd != ""
	}), err
}

// readTargets lists the instances of the host, with the hosts that they move to.
func (d *hostPage) readTargets(v *visit) error {
	names, want := map[croft.HostID]string{}, api.Listing{}
	for _, i := range d.Statuses {
		if i.MovingTo != "" && !slices.Contains(want.Name, string(i.MovingTo)) && len(want.Name) < mostTargets {
			want.Name = append(want.Name, string(i.MovingTo))
		}
	}
	var err error
	if len(want.Name) > 0 {
		var list api.HostList
		list, err = v.client.ListHosts(v.ctx, want)
		for _, h := range list.Hosts {
			names[h.ID] = h.Name
		}
	}
	for _, i := range d.Statuses {
		one := hostInstance{Instance: i, Link: link(i.Project, "/instances/"+string(i.ID)), To: names[i.MovingTo]}
		if i.MovingTo != "" {
			d.Moving++
			if one.To == "" {
				one.To = string(i.MovingTo)
			}
		}
		d.Instances = append(d.Instances, one)
		d.Moves = d.Moves || one.To != "" || i.Unmoved != ""
	}
	return err
}

// mostTargets is the most values of a term of a list.
const mostTargets = 16

// hostAction is something to do with a host. Names are as on the command line.
type hostAction struct {
	Name  string
	Title string
	About string
	Final bool
}

// hostActions lists the actions in the order of their buttons.
func hostActions() []hostAction {
	return []hostAction{
		{Name: "drain", Title: "Drain", About: "New instances go to other hosts until the host is enabled again. " +
			"The instances that it has go on."},
		{Name: "move", Title: "Move its instances", About: "Each instance moves to another host with room: ephemeral " +
			"ones are recreated from their images, the others move with their disks. What cannot move stays, with " +
			"the reason."},
		{Name: "enable", Title: "Enable", About: "New instances come to the host again."},
		{Name: "take-back", Title: "Take back", About: "The host was declared dead, and has returned: it gets " +
			"new instances again, unless it was drained before. What lost instances left on it stays there."},
		{Name: "fence", Title: "Fence", Final: true, About: "The host is declared dead. Its instances are lost; " +
			"those with the restart policy elsewhere start on other hosts. Be sure: a guest that still runs on " +
			"this host would run twice."},
		{Name: "remove", Title: "Forget", Final: true, About: "The records of the host are removed from the cloud, " +
			"and its server of etcd. It joins again only with a new invitation."},
	}
}

// buttonsForHost returns the actions that fit the state of a host.
func buttonsForHost(h api.Host) []hostAction {
	hidden := map[string]bool{"drain": h.Drained || h.Death != nil, "enable": !h.Drained || h.Death != nil,
		"move": !h.Drained || !h.Alive || h.Count == 0, "take-back": h.Death == nil, "fence": h.IsDead()}
	return slices.DeleteFunc(hostActions(), func(a hostAction) bool { return hidden[a.Name] })
}

// hostQuestion returns the question about an action. NotFound: there is no such action, or no such host.
func (v *visit) hostQuestion() (q question, h api.Host, err error) {
	all := hostActions()
	n := slices.IndexFunc(all, func(a hostAction) bool { return a.Name == v.r.PathValue("action") })
	if n < 0 {
		return q, h, croft.Errorf(croft.NotFound, "there is no such page")
	}
	if h, err = v.client.GetHost(v.ctx, v.hostNamed()); err != nil {
		return q, h, err
	}
	a, at := all[n], Root+"/hosts/"+string(h.ID)
	q = question{Title: a.Title, Name: h.Name, About: a.About, Does: a.Title, Post: at + "/" + a.Name, Back: at,
		Final: a.Final}
	if a.Final {
		q.Word = h.Name
	}
	chosen := v.r.PostForm.Get("how")
	count := wording.Count(h.Count, "instance")
	switch a.Name {
	case "drain":
		if h.Count > 0 {
			q.Options = []option{{Name: "move", Value: "yes", Label: "Move its " + count + " to other hosts, too",
				Checked: v.r.PostForm.Get("move") == "yes"}}
		}
	case "fence":
		alive := ""
		if h.Alive {
			alive = "its agent is alive, so it is not off"
		}
		q.Options = []option{
			{Name: "how", Value: string(croft.FencedOff), Label: "Its fence agent switches it off now", One: true,
				Disabled: h.NoFence, Checked: chosen == string(croft.FencedOff)},
			{Name: "how", Value: string(croft.ConfirmedOff), Label: "I have switched it off myself, and it stays off",
				One: true, Disabled: alive, Checked: chosen == string(croft.ConfirmedOff)}}
	case "remove":
		if h.Alive || h.Count > 0 {
			q.Options = []option{{Name: "force", Value: "yes",
				Label: fmt.Sprintf("Although it is %s and has %s, which are lost then", h.State, count)}}
		}
	}
	return q, h, nil
}

func (v *visit) confirmHost() error {
	q, _, err := v.hostQuestion()
	if err != nil {
		return err
	}
	return v.askAbout(http.StatusOK, q)
}

// The longest time for the moves of a host to be ordered, and for a fence.
const longAction = 15 * time.Minute

// hostOutcome is what the page after an action shows: each instance that it concerned.
type hostOutcome struct {
	Title, Name, Back string
	Error             string
	Rows              []outcomeRow
}

type outcomeRow struct {
	Name, Link string
	Project    croft.Project
	What, Next string
	Bad        bool
}

// actOnHost does an action, and leads to the page of the host. What happens to each instance is shown if some stay.
func (v *visit) actOnHost() error {
	q, h, err := v.hostQuestion()
	if err != nil {
		return err
	}
	if confirmed, err := v.answered(q); !confirmed {
		return err
	}
	if form := v.r.PostForm; v.r.PathValue("action") == "fence" && form.Get("how") == "" {
		return v.refused(q, croft.Errorf(croft.Invalid, "choose how it is known that the host is off"))
	}
	ctx, cancel := context.WithTimeout(from(v.r), longAction)
	defer cancel()
	form, named, name := v.r.PostForm, api.HostNamed{ID: string(h.ID)}, v.r.PathValue("action")
	shown := hostOutcome{Title: q.Title, Name: h.Name, Back: q.Back}
	switch name {
	case "drain":
		_, err = v.client.DrainHost(ctx, named)
		if err == nil && form.Get("move") == "yes" {
			name = "move"
			err = v.moveAll(ctx, named, &shown)
		}
	case "move":
		err = v.moveAll(ctx, named, &shown)
	case "enable":
		_, err = v.client.EnableHost(ctx, named)
	case "take-back":
		_, err = v.client.TakeHostBack(ctx, named)
	case "fence":
		var fenced api.Host
		fenced, err = v.client.FenceHost(ctx, api.HostFence{HostNamed: named, Confirm: form.Get("typed"),
			How: croft.FenceResult(form.Get("how"))})
		shown.lose(fenced.Lost)
	case "remove":
		var gone api.Host
		gone, err = v.client.ForgetHost(ctx, api.HostRemoval{HostNamed: named, Force: form.Get("force") == "yes"})
		shown.lose(gone.Lost)
		shown.Back = Root + "/hosts"
	}
	switch {
	case err != nil:
		return v.refused(q, err)
	case len(shown.Rows) > 0 || shown.Error != "":
		return v.show(http.StatusOK, "outcome", q.Title+": "+h.Name, shown)
	case name == "remove":
		return v.to("/hosts", "done", "host-"+name)
	}
	return v.to("/hosts/"+string(h.ID), "done", "host-"+name)
}

// moveAll orders the moves of all instances of a host. It shows the outcome if some of them stay.
func (v *visit) moveAll(ctx context.Context, named api.HostNamed, shown *hostOutcome) error {
	list, err := v.client.EmptyHost(ctx, api.HostEmptying{HostNamed: named})
	if err != nil {
		return err
	}
	stay := slices.ContainsFunc(list.Moves, func(m api.Move) bool { return m.Stays != "" })
	if shown.Error = list.Error; !stay && list.Error == "" {
		return nil // the page of the host shows the progress
	}
	for _, m := range list.Moves {
		one := outcomeRow{Name: m.Name, Project: m.Project, Link: link(m.Project, "/instances/"+string(m.Instance)),
			What: "moves to " + m.ToName}
		switch {
		case m.Stays != "":
			one.What, one.Bad = "stays: "+m.Stays, true
		case m.WithDisk:
			one.What += ", with its disk"
		default:
			one.What += ", recreated from its image"
		}
		shown.Rows = append(shown.Rows, one)
	}
	return nil
}

// lose lists the instances that were lost with a host.
func (o *hostOutcome) lose(all []hosts.LostInstance) {
	for _, l := range all {
		one := outcomeRow{Name: l.Name, Project: l.Project, Link: link(l.Project, "/instances/"+string(l.ID))}
		switch {
		case l.To != "" && l.Kept:
			one.What = "starts on " + l.ToName + ", with its disk"
		case l.To != "":
			one.What = "starts on " + l.ToName + strings.TrimSuffix(", from backup "+l.Backup, ", from backup ")
		default:
			one.What, one.Bad, one.Next = "lost: "+l.Lacks, true, "rebuild or remove it"
			if l.Stays != "" {
				one.What += "; " + l.Stays
			}
			if l.Backup != "" {
				one.Next = "restore it from backup " + l.Backup
			}
		}
		o.Rows = append(o.Rows, one)
	}
}

// leftoverQuestion returns the question before what an instance left on a host is removed.
func (v *visit) leftoverQuestion() (q question, h api.Host, err error) {
	h, err = v.client.GetHost(v.ctx, v.hostNamed())
	if err != nil {
		return q, h, err
	}
	list, err := v.client.ListLeftovers(v.ctx, api.HostNamed{ID: string(h.ID)})
	n := slices.IndexFunc(list.Leftovers, func(l hosts.Leftover) bool {
		return string(l.Instance) == v.r.PathValue("instance")
	})
	if err == nil && n < 0 {
		err = croft.Errorf(croft.NotFound, "the host has no leftover of this instance")
	}
	if err != nil {
		return q, h, err
	}
	at := Root + "/hosts/" + string(h.ID)
	return question{Title: "Remove leftover", Name: list.Leftovers[n].Name, Does: "Remove", Back: at, Final: true,
		About: "The guest and its disks on this host are removed, with everything on them.",
		Post:  at + "/leftovers/" + v.r.PathValue("instance"), Word: list.Leftovers[n].Name}, h, nil
}

func (v *visit) confirmLeftover() error {
	q, _, err := v.leftoverQuestion()
	if err != nil {
		return err
	}
	return v.askAbout(http.StatusOK, q)
}

func (v *visit) removeLeftover() error {
	q, h, err := v.leftoverQuestion()
	if err != nil {
		return err
	}
	if confirmed, err := v.answered(q); !confirmed {
		return err
	}
	named := api.LeftoverNamed{HostNamed: api.HostNamed{ID: string(h.ID)}, Instance: v.r.PathValue("instance")}
	if err := v.client.RemoveLeftover(v.ctx, named); err != nil {
		return v.refused(q, err)
	}
	return v.to("/hosts/"+string(h.ID), "done", "leftover")
}

// removeUnused removes the images of a host that nothing uses.
func (v *visit) removeUnused() error {
	if _, err := v.client.RemoveHostImages(v.ctx, api.HostImage{HostNamed: v.hostNamed()}); err != nil {
		return err
	}
	return v.to("/hosts/"+url.PathEscape(v.r.PathValue("id")), "done", "images")
}
