package page

import (
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"croft"
	"croft/control/api"
	"croft/internal/wording"
	"croft/tenant/access"
	"croft/tenant/objects"
)

// action is something to do with an instance. Names and titles are as on the command line.
type action struct {
	Name  string
	Title string
	Done  string // a sentence for afterwards
	About string // what the page that asks for a confirmation says
	Final bool   // it cannot be undone: the user types the name of the instance
	Asks  bool   // it has a separate page with its fields and a confirmation
	Bulk  bool   // it can be done with several instances

	do func(*visit, api.InstanceNamed, url.Values) (api.Instance, error)
}

// actions lists the actions in the order of their buttons.
func actions() []action {
	changed := func(in api.InstanceNamed) api.InstanceChange { return api.InstanceChange{InstanceNamed: in} }
	return []action{
		{Name: "start", Title: "Start", Done: "The guest is being started.", Bulk: true,
			do: func(v *visit, in api.InstanceNamed, _ url.Values) (api.Instance, error) {
				return v.client.StartInstance(v.ctx, changed(in))
			}},
		{Name: "stop", Title: "Stop", Done: "The guest is asked to shut down.", Bulk: true,
			do: func(v *visit, in api.InstanceNamed, _ url.Values) (api.Instance, error) {
				return v.client.StopInstance(v.ctx, api.InstanceStop{InstanceChange: changed(in)})
			}},
		{Name: "reboot", Title: "Reboot", Done: "The guest is being rebooted.", Bulk: true,
			do: func(v *visit, in api.InstanceNamed, _ url.Values) (api.Instance, error) {
				return v.client.RebootInstance(v.ctx, changed(in))
			}},
		{Name: "hard-stop", Title: "Hard stop", Done: "The power is cut.", Asks: true, Bulk: true,
			About: "The power is cut at once, without asking the guest to shut down: it may lose what it has not " +
				"written to its disks yet.",
			do: func(v *visit, in api.InstanceNamed, _ url.Values) (api.Instance, error) {
				return v.client.StopInstance(v.ctx, api.InstanceStop{InstanceChange: changed(in), Force: true})
			}},
		{Name: "resize", Title: "Resize", Done: "The instance gets its new size.", Asks: true,
			About: "The instance stays on its host. Its processors and memory change while it is stopped. Its disk " +
				"only grows, also while the guest is on.",
			do: (*visit).resize},
		{Name: "move", Title: "Move", Done: "The instance moves.", Asks: true,
			About: "The guest is shut down, and the instance moves to another host with room, with its disk. Then it " +
				"starts again.",
			do: func(v *visit, in api.InstanceNamed, f url.Values) (api.Instance, error) {
				return v.client.MoveInstance(v.ctx, api.InstanceMove{InstanceChange: changed(in), Host: f.Get("host")})
			}},
		{Name: "cancel-move", Title: "Cancel the move", Done: "The instance stays where it is.",
			do: func(v *visit, in api.InstanceNamed, _ url.Values) (api.Instance, error) {
				return v.client.CancelMove(v.ctx, changed(in))
			}},
		{Name: "recreate", Title: "Recreate", Done: "The instance is scheduled again.", Asks: true,
			About: "The instance was lost with its host: it starts on another one, with a new disk from its image.",
			do: func(v *visit, in api.InstanceNamed, _ url.Values) (api.Instance, error) {
				return v.client.RecreateInstance(v.ctx, changed(in))
			}},
		{Name: "eject", Title: "Eject the CD", Done: "The drive is empty.",
			do: func(v *visit, in api.InstanceNamed, _ url.Values) (api.Instance, error) {
				return v.client.EjectInstance(v.ctx, changed(in))
			}},
		{Name: "snapshot", Title: "Take snapshot", Done: "The snapshot is being taken.", Asks: true,
			About: "A snapshot keeps the state of all disks at this moment, on the host of the instance.",
			do: func(v *visit, in api.InstanceNamed, f url.Values) (i api.Instance, err error) {
				_, err = v.client.CreateSnapshot(v.ctx, api.NewSnapshot{InstanceNamed: in, Name: f.Get("name")})
				return i, err
			}},
		{Name: "rollback", Title: "Roll back", Done: "The disks go back to the snapshot.", Asks: true, Final: true,
			About: "All disks go back to the snapshot. Everything that was written since then is lost. A guest that " +
				"runs is stopped first, and started again afterwards.",
			do: func(v *visit, in api.InstanceNamed, f url.Values) (i api.Instance, err error) {
				named := api.SnapshotNamed{InstanceNamed: in, Snapshot: f.Get("snapshot")}
				_, err = v.client.RollBackSnapshot(v.ctx, api.SnapshotRollback{SnapshotNamed: named, Stop: true})
				return i, err
			}},
		{Name: "remove-snapshot", Title: "Remove snapshot", Done: "The snapshot is being removed.", Asks: true,
			Final: true,
			About: "The state that the snapshot keeps is lost; the disks stay as they are now.",
			do: func(v *visit, in api.InstanceNamed, f url.Values) (i api.Instance, err error) {
				named := api.SnapshotNamed{InstanceNamed: in, Snapshot: f.Get("snapshot")}
				return i, v.client.RemoveSnapshot(v.ctx, named)
			}},
		{Name: "backup", Title: "Make backup", Done: "The backup is being made.", Asks: true,
			About: "A backup copies all disks to a store outside of the hosts. It outlives the instance.",
			do: func(v *visit, in api.InstanceNamed, f url.Values) (i api.Instance, err error) {
				wanted := api.NewBackup{InstanceNamed: in, Name: f.Get("name"), Store: f.Get("store")}
				_, err = v.client.CreateBackup(v.ctx, wanted)
				return i, err
			}},
		{Name: "rebuild", Title: "Rebuild", Done: "The instance gets a new disk from its image.", Asks: true,
			Final: true,
			About: "The disk is made again from the image. Everything on it is lost; name and address stay.",
			do: func(v *visit, in api.InstanceNamed, _ url.Values) (api.Instance, error) {
				return v.client.RebuildInstance(v.ctx, changed(in))
			}},
		{Name: "remove", Title: "Remove", Done: "The instance is being removed.", Asks: true, Final: true, Bulk: true,
			About: "The instance, its disk and everything on it are destroyed. Volumes and backups stay.",
			do: func(v *visit, in api.InstanceNamed, f url.Values) (api.Instance, error) {
				return v.client.DestroyInstance(v.ctx, api.InstanceRemoval{InstanceChange: changed(in),
					Snapshots: f.Get("snapshots") == "yes"})
			}},
		{Name: "change", Title: "Change", Done: "The change is stored.", do: (*visit).changeInstance},
	}
}

func actionNamed(name string) (action, bool) {
	all := actions()
	i := slices.IndexFunc(all, func(a action) bool { return a.Name == name })
	if i < 0 {
		return action{}, false
	}
	return all[i], true
}

// notices are the sentences about what was done, except for the actions of instances.
var notices = map[string]string{
	"create":         "The instance is being created.",
	"policy":         "The policy is stored.",
	"host-drain":     "The host gets no new instances.",
	"host-move":      "The instances move to other hosts: their progress is below.",
	"host-enable":    "New instances come to the host again.",
	"host-take-back": "The host is taken back.",
	"host-fence":     "The host is declared dead. It had no instances.",
	"host-remove":    "The host is forgotten.",
	"leftover":       "The leftover is removed as soon as the agent of the host is alive.",
	"images":         "The images that nothing used are removed.",
	"member":         "The user has the role.",
	"member-removed": "The user is no member any more.",
	"key":            "The key is kept.",
	"key-removed":    "The key is removed.",
	"token-removed":  "The token is revoked.",
	"limit":          "The limit is set.",
	"project":        "The project is created.",
}

// notice returns the sentence about the action that an address says was done.
func notice(q url.Values) string {
	if says, other := notices[q.Get("done")]; other {
		return says
	}
	if f, is := formNamed()[q.Get("done")]; is {
		return f.Done
	}
	a, _ := actionNamed(q.Get("done"))
	return a.Done
}

// mayChange reports whether to offer changes. The API decides about each.
func (v *visit) mayChange() bool { return access.MayAnywhere(access.Changes, v.caller.Roles) }

// each runs do for the numbers below n, several at a time.
func each(n int, do func(int)) {
	var work sync.WaitGroup
	turns := make(chan struct{}, 8)
	for i := range n {
		turns <- struct{}{}
		work.Go(func() { defer func() { <-turns }(); do(i) })
	}
	work.Wait()
}

// named names the instance of the address.
func (v *visit) named() api.InstanceNamed {
	return api.InstanceNamed{ID: v.r.PathValue("id"), Project: v.project}
}

// confirmation is what the page that asks for a confirmation shows.
type confirmation struct {
	Action   action
	Instance api.Instance
	refusal  // why it was not done
	Advice   advice
	Given    url.Values // the fields, as they were sent
	Snapshot string
	// Snapshots of an instance to remove, which are removed with it.
	Snapshots []api.Snapshot
	Sizes     []croft.Size // that a resize can choose
}

// confirm asks for a confirmation, and for the fields of an action.
func (v *visit) confirm() error {
	a, known := actionNamed(v.r.PathValue("action"))
	if !known || !a.Asks {
		return croft.Errorf(croft.NotFound, "there is no such page")
	}
	return v.ask(http.StatusOK, a, confirmation{Given: v.r.URL.Query()})
}

func (v *visit) ask(status int, a action, d confirmation) error {
	var err error
	if d.Instance, err = v.client.GetInstance(v.ctx, api.InstanceShown{InstanceNamed: v.named()}); err != nil {
		return err
	}
	if d.Advice, err = v.advise(a, d.Instance); err != nil {
		return err
	}
	d.Action, d.Snapshot = a, d.Given.Get("snapshot")
	if a.Name == "remove" {
		if d.Snapshots, err = v.snapshotsOf(d.Instance); err != nil {
			return err
		}
	}
	if a.Name == "resize" {
		list, err := v.client.ListSizes(v.ctx, api.Listing{Limit: mostNames})
		if err != nil {
			return err
		}
		d.Sizes = list.Sizes
	}
	return v.show(status, "confirm", a.Title+" "+d.Instance.Name, d)
}

// act does an action, and leads to the page of the instance.
func (v *visit) act() error {
	a, known := actionNamed(v.r.PathValue("action"))
	if !known {
		return croft.Errorf(croft.NotFound, "there is no such action")
	}
	form := v.r.PostForm
	if a.Final {
		i, err := v.client.GetInstance(v.ctx, api.InstanceShown{InstanceNamed: v.named()})
		if err != nil {
			return err
		}
		if form.Get("typed") != i.Name {
			return v.ask(http.StatusUnprocessableEntity, a, confirmation{Given: form, refusal: refusal{
				Says: "the typed name is not that of the instance: type " + i.Name + " to confirm"}})
		}
	}
	_, err := a.do(v, v.named(), form)
	if p, is := errors.AsType[*api.Problem](err); is && p.Code == api.GenerationMismatch {
		i, read := v.client.GetInstance(v.ctx, api.InstanceShown{InstanceNamed: v.named()})
		if read != nil || i.ETag != form.Get("version") {
			return v.showDifference(err)
		} // the change itself is refused
	}
	switch status := failureOf(v.r, err).Status; {
	case err == nil:
	case ended(err):
		return err
	case a.Asks:
		return v.ask(status, a, confirmation{Given: form, refusal: v.refusalOf(err)})
	default:
		return v.showInstanceAs(status, instancePage{Refusal: v.refusalOf(err), Given: form})
	}
	if a.Name == "remove" {
		return v.redirect("/instances", "done", a.Name)
	}
	return v.redirect("/instances/"+url.PathEscape(v.r.PathValue("id")), "done", a.Name)
}

// resize reads the named size or the amounts of the form.
func (v *visit) resize(in api.InstanceNamed, f url.Values) (api.Instance, error) {
	to := croft.Resources{}
	for _, class := range []croft.ResourceClass{"VCPU", "MEMORY_MB", "DISK_GB"} {
		text := strings.TrimSpace(f.Get(string(class)))
		if text == "" {
			continue
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 1 {
			return api.Instance{}, wrongField(string(class), "%s is %.40q: write a whole number from 1", class, text)
		}
		to[class] = n
	}
	if len(to) > 0 && f.Get("size") != "" {
		return api.Instance{}, croft.Errorf(croft.Invalid, "the form has a named size and amounts: leave one of them empty")
	}
	return v.client.ResizeInstance(v.ctx, api.InstanceSize{InstanceChange: api.InstanceChange{InstanceNamed: in},
		Resources: to, Size: f.Get("size")})
}

// changeInstance changes labels, expiry and protection, from the version of the instance that the form was made of.
func (v *visit) changeInstance(in api.InstanceNamed, f url.Values) (api.Instance, error) {
	patch := api.InstancePatch{InstanceNamed: in}
	version, err := versionIn(f)
	if err == nil {
		err = patch.Base.UnmarshalText([]byte(version))
	}
	if err != nil {
		return api.Instance{}, err
	}
	if text := f.Get("protected"); text != "" {
		patch.Protected = new(text == "yes")
	}
	if text := strings.TrimSpace(f.Get("expires")); text != "" {
		seconds, err := lifeOf(text)
		if err != nil {
			return api.Instance{}, err
		}
		patch.Expires = &seconds
	}
	if key := strings.TrimSpace(f.Get("label")); key != "" {
		patch.Labels = map[string]*objects.Value{key: nil}
		if f.Get("remove") == "" {
			patch.Labels[key] = new(objects.Text(f.Get("value")))
		}
	}
	return v.client.ChangeInstance(v.ctx, patch)
}

// lifeOf reads a time until the expiry in seconds; never: 0. Invalid.
func lifeOf(text string) (int64, error) {
	if text == "never" {
		return 0, nil
	}
	life, err := wording.ParseDuration(text)
	if err != nil || life < time.Second {
		return 0, wrongField("expires", "the expiry is %.40q: write a duration such as 8h or 30d, or never", text)
	}
	return int64(life / time.Second), nil
}

// difference is what the page about two changes of the same thing shows.
type difference struct {
	Name string
	Says string
	Rows []differing
	Sent url.Values // what stores the change over the other one
	Post string     // where to send that
	Back string
}

type differing struct{ What, Was, Now, Want string }

// showDifference shows what another request changed since the form was made, and what this one wanted.
func (v *visit) showDifference(refused error) error {
	i, err := v.client.GetInstance(v.ctx, api.InstanceShown{InstanceNamed: v.named()})
	if err != nil {
		return err
	}
	f, at := v.r.PostForm, link(i.Project, "/instances/"+string(i.ID))
	d := difference{Name: i.Name, Says: refused.Error(), Sent: maps.Clone(f), Back: at,
		Post: link(i.Project, "/instances/"+string(i.ID)+"/change")}
	d.Sent.Set("version", i.ETag)
	now := facts(i)
	add := func(what, want string) {
		d.Rows = append(d.Rows, differing{what, f.Get("was-" + what), now[what], want})
	}
	if f.Has("protected") {
		add("protected", f.Get("protected"))
	}
	if text := f.Get("expires"); text != "" {
		add("expires", text)
	}
	if key := f.Get("label"); key != "" {
		want := f.Get("value")
		if f.Get("remove") != "" {
			want = "(removed)"
		}
		was := labelIn(f.Get("was-labels"), key)
		d.Rows = append(d.Rows, differing{"property " + key, was, i.Labels[key].String(), want})
	}
	for _, what := range []string{"protected", "expires", "labels"} {
		was, know := f.Get("was-"+what), f.Has("was-"+what)
		changed := slices.ContainsFunc(d.Rows, func(one differing) bool { return one.What == what })
		if know && was != now[what] && !changed {
			add(what, "(unchanged)")
		}
	}
	return v.show(http.StatusPreconditionFailed, "difference", "Changed meanwhile", d)
}

// facts returns what forms remember of an instance, to show a difference.
func facts(i api.Instance) map[string]string {
	protected, expires := "no", "never"
	if i.Protected {
		protected = "yes"
	}
	if !i.Expires.IsZero() {
		expires = i.Expires.UTC().Format(time.RFC3339)
	}
	return map[string]string{"protected": protected, "expires": expires, "labels": labelText(i)}
}

// labelText writes the properties of an instance, one in a line.
func labelText(i api.Instance) string {
	var lines []string
	for key, value := range i.Labels {
		lines = append(lines, key+"="+value.String())
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// labelIn returns the value of a property in a text of labelText.
func labelIn(text, key string) string {
	for line := range strings.Lines(text) {
		if name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "="); name == key {
			return value
		}
	}
	return ""
}
