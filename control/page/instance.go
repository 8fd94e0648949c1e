package page

import (
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"croft"
	"croft/control/api"
	"croft/internal/wording"
)

// instancePage is what the page of an instance shows.
type instancePage struct {
	api.Instance
	Operator  bool
	Changes   bool
	Deeds     []deed
	Buttons   []action
	Snapshots []api.Snapshot
	Backups   []api.Backup
	Log       []logLine
	Timeline  *timeline
	Usage     *measured
	Placement []fact
	Facts     map[string]string // what the forms remember
	Missing   []string          // parts that could not be read, and why
	Follow    string
	Refusal   refusal    // why an action was not done
	Given     url.Values // the fields, as they were sent
}

// Screen reports whether the instance has a screen.
func (d *instancePage) Screen() bool { return d.Machine.Display == croft.DisplayVNC }

// Silent reports whether the host of the instance does not answer.
func (d *instancePage) Silent() bool { return d.HostAlive != nil && !*d.HostAlive }

// DiskGB is the size of the disk without volumes, in GiB.
func (d *instancePage) DiskGB() int64 { return d.Resources["DISK_GB"] }

// fact is a line of a list of facts.
type fact struct{ Name, Value string }

// logLine is an entry of the action log.
type logLine struct {
	At                  time.Time
	User, What, Outcome string
}

// mostLogLines is the number of entries of the action log on the page of an instance.
const mostLogLines = 50

func (v *visit) showInstance() error { return v.showInstanceAs(http.StatusOK, instancePage{}) }

func (v *visit) showInstanceAs(status int, d instancePage) error {
	i, err := v.client.GetInstance(v.ctx, api.InstanceShown{InstanceNamed: v.named()})
	if err != nil {
		return err
	}
	v.project = i.Project // links of the page are about its project
	d = instancePage{Instance: i, Operator: v.caller.Operator(), Changes: v.mayChange(), Facts: facts(i),
		Timeline: timelineOf(i), Placement: placementOf(i), Follow: v.link("/instances/events"), Refusal: d.Refusal,
		Given: d.Given}
	if d.Changes {
		d.Buttons = buttonsFor(i, d.Operator)
		d.Deeds = v.deeds(i.Project, []string{"id", string(i.ID)}, "instances.volumes.attach", "instances.save",
			"instances.exec", "instances.properties")
	}
	d.Missing, err = readAll([]reading{
		{name: "snapshots", read: func() error { return d.readSnapshots(v) }},
		{name: "backups", read: func() error { return d.readBackups(v) }},
		{name: "log", read: func() error { return d.readLog(v) }},
		{name: "usage", read: func() (err error) { d.Usage, err = v.readMeasured(i); return err }},
		{name: "policy", read: func() error { return d.readStanding(v) }},
	})
	if err != nil {
		return err
	}
	return v.show(status, "instance", i.Name, &d)
}

// buttonsFor returns the actions that fit the state of an instance. Only operators move instances.
func buttonsFor(i api.Instance, operator bool) []action {
	hidden := map[string]bool{"start": !off(i), "stop": off(i), "reboot": off(i), "hard-stop": off(i),
		"move":        !operator,
		"cancel-move": !operator || i.MovingTo == "", "recreate": i.State != string(croft.StateLost),
		"eject": i.Machine.ISO == "", "rollback": true, "remove-snapshot": true, "change": true, "snapshot": true,
		"backup": true}
	return slices.DeleteFunc(actions(), func(a action) bool { return hidden[a.Name] })
}

func (d *instancePage) readSnapshots(v *visit) (err error) {
	d.Snapshots, err = v.snapshotsOf(d.Instance)
	return err
}

// snapshotsOf lists the snapshots of an instance.
func (v *visit) snapshotsOf(i api.Instance) ([]api.Snapshot, error) {
	list, err := v.client.ListSnapshots(v.ctx, api.InProject{Project: i.Project})
	return slices.DeleteFunc(list.Snapshots, func(s api.Snapshot) bool { return s.Instance != i.ID }), err
}

func (d *instancePage) readBackups(v *visit) error {
	list, err := v.client.ListBackups(v.ctx, api.InProject{Project: d.Project})
	for _, b := range list.Backups {
		if b.Instance == d.ID {
			d.Backups = append(d.Backups, b)
		}
	}
	return err
}

func (d *instancePage) readLog(v *visit) error {
	log, err := v.client.ListActions(v.ctx, api.LogFilter{InProject: api.InProject{Project: d.Project},
		Object: "instance/" + string(d.ID), Limit: mostLogLines})
	for _, e := range log.Entries {
		d.Log = append(d.Log, logLine{At: e.Time, User: e.User, What: e.Operation, Outcome: e.Result})
	}
	return err
}

// readStanding reads why the policy chose the host.
func (d *instancePage) readStanding(v *visit) error {
	if d.Policy == "" || !d.Operator {
		return nil
	}
	s, err := v.client.GetStanding(v.ctx, api.InstanceNamed{ID: string(d.ID), Project: d.Project})
	if err == nil {
		d.Placement = append(d.Placement, fact{"now", s.Why})
	}
	return err
}

// placementOf returns what decided about the host of an instance.
func placementOf(i api.Instance) []fact {
	var all []fact
	add := func(name, value string) {
		if value != "" {
			all = append(all, fact{name, value})
		}
	}
	add("query", i.Query)
	add("policy", i.Policy)
	for _, a := range i.Affinities {
		add("group", a.String())
	}
	for _, b := range i.In {
		add("placed", b.String())
	}
	if len(i.Where) > 0 {
		add("placed", "where "+strings.Join(i.Where, " or "))
	}
	for _, filter := range i.WhereNot {
		add("placed", "not where "+filter)
	}
	for _, near := range i.Near {
		word, text, _ := strings.Cut(near.String(), " ")
		add(word, text)
	}
	for _, r := range i.Refused {
		add("refused", string(r.Host)+": "+r.Why)
	}
	add("not moved", i.Unmoved)
	return all
}

// timeline is the newest boot of an instance as a picture. Its lengths are in units of the picture.
type timeline struct {
	Width, Height int
	Total         string
	Steps         []step
}

// step is a part of the boot: from the end of the step before to its own.
type step struct {
	Name, About   string
	At            time.Time
	Took, After   string
	X, Width, Y   int
	TextX, TextY  int
	Anchor, Class string
}

// What the steps of a boot are called, and what happens in each.
var stepWords = map[croft.EventName][2]string{
	croft.EventClaimed: {"claim and order", "a host was chosen, its resources claimed, and the order written"},
	croft.EventImage:   {"image", "the host fetched and verified the image"},
	croft.EventDefined: {"disk", "disk and domain were made"},
	croft.EventRunning: {"boot", "the domain was started"},
	croft.EventAddress: {"address", "the guest acquired its address"},
	"cloud-init":       {"ready", "the guest finished its set-up"},
}

const (
	timelineWidth = 300
	timelineLeft  = 110
	timelineRow   = 26
)

// timelineOf draws the newest boot. The first one starts with the request. Nil: there are no events.
func timelineOf(i api.Instance) *timeline {
	events := slices.Clone(i.Events)
	if len(events) == 0 {
		return nil
	}
	if c := i.CloudInit; c.Current() && !c.At.Before(events[len(events)-1].At) {
		events = append(events, croft.Event{Name: "cloud-init", At: c.At})
	}
	start := events[0].At
	if events[0].Name == croft.EventClaimed && !i.Created.After(start) {
		start = i.Created
	}
	end := events[len(events)-1].At
	total := max(end.Sub(start), time.Millisecond)
	t := &timeline{Width: timelineLeft + timelineWidth + 70, Height: timelineRow*len(events) + 8,
		Total: wording.Exact(rounded(end.Sub(start)))}
	before := start
	for n, e := range events {
		words, known := stepWords[e.Name]
		if !known {
			words = [2]string{string(e.Name), ""}
		}
		scale := func(at time.Time) int { return int(int64(timelineWidth) * int64(at.Sub(start)) / int64(total)) }
		s := step{Name: words[0], About: words[1], At: e.At, Took: wording.Exact(rounded(e.At.Sub(before))),
			After: wording.Exact(rounded(e.At.Sub(start))), X: timelineLeft + scale(before), Y: timelineRow*n + 6,
			Width: max(2, scale(e.At)-scale(before))}
		s.TextX, s.TextY = s.X+s.Width+8, s.Y+12
		t.Steps = append(t.Steps, s)
		before = e.At
	}
	return t
}

func rounded(d time.Duration) time.Duration {
	if d < 10*time.Second {
		return d.Round(10 * time.Millisecond)
	}
	return d.Round(100 * time.Millisecond)
}

// mostOutput is how much of the end of the console's log is shown.
const mostOutput = 128 << 10

// outputPage is what the page of the console's log shows.
type outputPage struct {
	Instance api.Instance
	Lines    []string
	Cut      bool
}

func (v *visit) showLog() error {
	i, err := v.client.GetInstance(v.ctx, api.InstanceShown{InstanceNamed: v.named()})
	if err != nil {
		return err
	}
	tail, cut, err := v.readOutput(mostOutput)
	if err != nil {
		return err
	}
	return v.show(http.StatusOK, "log", "Log of "+i.Name, outputPage{i, linesOf(tail), cut})
}

// readOutput reads the end of what a guest wrote to its console.
func (v *visit) readOutput(most int) (tail []byte, cut bool, err error) {
	err = v.client.ReadLog(v.ctx, api.ConsoleLog{InstanceNamed: v.named()}, func(r io.Reader) (err error) {
		tail, cut, err = tailOf(r, most)
		return err
	})
	return tail, cut, err
}

func linesOf(output []byte) (all []string) {
	for line := range strings.Lines(strings.ToValidUTF8(string(output), "�")) {
		all = append(all, strings.TrimRight(line, "\r\n"))
	}
	return all
}

// tailOf returns the last bytes of a stream, and whether it had more.
func tailOf(r io.Reader, most int) (tail []byte, cut bool, err error) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := r.Read(buffer)
		tail = append(tail, buffer[:n]...)
		if over := len(tail) - most; over > 0 {
			tail, cut = slices.Delete(tail, 0, over), true
		}
		if err == io.EOF {
			return tail, cut, nil
		}
		if err != nil {
			return tail, cut, err
		}
	}
}
