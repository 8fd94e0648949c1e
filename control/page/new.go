package page

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"croft"
	"croft/control/api"
	"croft/internal/userdata"
	"croft/schedule"
	"croft/tenant"
	"croft/tenant/objects"
)

// newPage is what the form for a new instance shows.
type newPage struct {
	Given    url.Values // the fields, as they were sent
	Fresh    bool       // nothing was filled in yet
	ID       croft.InstanceID
	Images   []imageChoice
	Sizes    []croft.Size
	Keys     []schedule.Key
	Networks []string
	Volumes  []api.Volume // that can be attached
	Policies []string
	Missing  []string // parts that could not be read, and why
	Check    *check
	Says     string // why it was not created
	Kind     string
}

// imageChoice is an image that the form offers.
type imageChoice struct{ Name, About string }

// Has reports whether a field has one of several values.
func (d newPage) Has(field, value string) bool { return slices.Contains(d.Given[field], value) }

// Wrong lists the faults of fields.
func (d newPage) Wrong() (all problems) {
	if d.Check == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(d.Check.Problems), func(p problem) bool { return p.Field == "" })
}

// Bad returns the attribute that marks a field, if it is wrong.
func (d newPage) Bad(field string) template.HTMLAttr { return refusal{Problems: d.Wrong()}.Bad(field) }

// Any reports whether one of several fields is filled, so that their part of the form is open.
func (d newPage) Any(fields ...string) bool {
	return slices.ContainsFunc(fields, func(name string) bool { return d.Given.Get(name) != "" })
}

// selection is a field with a choice of words; empty stands for the default.
type selection struct {
	Name, Label, Default string
	Words                []string
	Chosen               string
	Bad                  template.HTMLAttr // marks a wrong one
}

// Machine lists the choices about the virtual machine.
func (d newPage) Machine() []selection {
	return d.chosen([]selection{
		{Name: "arch", Label: "Architecture", Default: "as the image says",
			Words: []string{string(croft.ArchX86), string(croft.ArchAArch64)}},
		{Name: "firmware", Label: "Firmware", Default: "as the disk needs",
			Words: []string{string(croft.FirmwareBIOS), string(croft.FirmwareUEFI), string(croft.FirmwareUEFISecure)}},
		{Name: "display", Label: "Display", Default: "none", Words: []string{string(croft.DisplayVNC)}},
		{Name: "devices", Label: "Devices", Default: "virtio", Words: []string{string(croft.DevicesPlain)}},
		{Name: "os", Label: "System of the guest", Default: "linux", Words: []string{string(croft.OSWindows)}},
	})
}

// Guest lists the choices about the guest.
func (d newPage) Guest() []selection {
	return d.chosen([]selection{
		{Name: "restart", Label: "Restart", Default: "on-failure", Words: slices.DeleteFunc(
			slices.Clone(schedule.Restarts), func(s string) bool { return s == string(croft.RestartOnFailure) })},
		{Name: "metadata", Label: "Metadata", Default: "auto", Words: schedule.Metadata[1:]},
		{Name: "imds", Label: "Token for metadata", Default: "optional", Words: schedule.IMDS[1:]},
	})
}

func (d newPage) chosen(all []selection) []selection {
	for n := range all {
		all[n].Chosen, all[n].Bad = d.Given.Get(all[n].Name), d.Bad(all[n].Name)
	}
	return all
}

// Choosing lists the policies that choose the host.
func (d newPage) Choosing() []string { return append(slices.Clone(schedule.Policies), d.Policies...) }

// newInstance shows the form. What the address has is filled in.
func (v *visit) newInstance() error {
	given := v.r.URL.Query()
	return v.showNew(http.StatusOK, newPage{Given: given}, len(given) > 0 && !(len(given) == 1 && given.Has("project")))
}

// showNew shows the form, with a check of its fields.
func (v *visit) showNew(status int, d newPage, checked bool) error {
	in := api.InProject{Project: v.project}
	d.Fresh = !checked
	var own api.CatalogImageList
	var named api.Catalog
	var err error
	d.Missing, err = readAll([]reading{
		{name: "sizes", read: func() error {
			list, err := v.client.ListSizes(v.ctx)
			d.Sizes = list.Sizes
			return err
		}},
		{name: "keys", read: func() error {
			list, err := v.client.ListKeys(v.ctx, in)
			d.Keys = list.Keys
			return err
		}},
		{name: "images", read: func() (err error) { own, err = v.client.ListCatalogImages(v.ctx, in); return err }},
		{name: "images", read: func() (err error) { named, err = v.client.ListImages(v.ctx); return err }},
		{name: "networks", read: func() error {
			list, err := v.client.ListCapabilities(v.ctx)
			for _, c := range list.Capabilities {
				if name, is := croft.NetworkOf(c.Name); is {
					d.Networks = append(d.Networks, name)
				}
			}
			return err
		}},
		{name: "volumes", read: func() error {
			list, err := v.client.ListVolumes(v.ctx, in, api.Listing{Limit: mostThings})
			d.Volumes = slices.DeleteFunc(list.Volumes, func(one api.Volume) bool { return one.Instance != "" })
			return err
		}},
		{name: "policies", read: func() error {
			list, err := v.client.ListPolicies(v.ctx)
			for _, p := range list.Policies {
				d.Policies = append(d.Policies, crushPolicy+p.Name)
			}
			return err
		}},
		{name: "check", read: func() error {
			c, err := v.check(d.Given, checked)
			d.Check = c
			return err
		}},
	})
	if err != nil {
		return err
	}
	d.Images = imageChoices(own, named)
	if d.ID = croft.InstanceID(d.Given.Get("id")); d.ID == "" {
		d.ID = croft.NewInstanceID()
	}
	return v.show(status, "new", "New instance", d)
}

// crushPolicy begins the name of a policy of CRUSH in a request.
const crushPolicy = "crush:"

// imageChoices returns the images that can be started now, by name.
func imageChoices(own api.CatalogImageList, named api.Catalog) (all []imageChoice) {
	for _, i := range own.Images {
		if i.State == "ready" {
			all = append(all, imageChoice{i.Name, i.Description})
		}
	}
	for _, i := range named.Images {
		all = append(all, imageChoice{i.Name, cmp.Or(i.Description, i.Alias)})
	}
	slices.SortStableFunc(all, func(a, b imageChoice) int { return cmp.Compare(a.Name, b.Name) })
	return slices.CompactFunc(all, func(a, b imageChoice) bool { return a.Name == b.Name })
}

// checkNew answers with the outcome of a check: for scripts the parts of the form that show it, else the whole form.
func (v *visit) checkNew() error {
	f := v.r.PostForm
	if amounts := f.Get("use"); amounts != "" {
		f = withAmounts(f, amounts)
	}
	if f.Get("part") == "" {
		return v.showNew(http.StatusOK, newPage{Given: f}, true)
	}
	c, err := v.check(f, true)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := pages["new"].ExecuteTemplate(&b, "checked", c); err != nil {
		return err
	}
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = v.w.Write(b.Bytes()) // ignore browsers that disconnected
	return nil
}

// withAmounts returns the form with other amounts, in the form of croft.Resources: VCPU:1,MEMORY_MB:256. Those that it
// has in a field are set there, and a size is replaced by its amounts.
func withAmounts(f url.Values, amounts string) url.Values {
	f = maps.Clone(f)
	for part := range strings.SplitSeq(amounts, ",") {
		if class, n, ok := strings.Cut(part, ":"); ok && slices.Contains(amountFields, class) {
			f.Set(class, n)
		}
	}
	f.Del("size")
	return f
}

// createInstance requests an instance. The form has its UUID, so that sending it twice makes one instance.
func (v *visit) createInstance() error {
	f := v.r.PostForm
	form := readNew(f)
	if len(form.Problems) > 0 {
		return v.showNew(http.StatusBadRequest, newPage{Given: f, Kind: string(api.CodeOf(croft.Invalid)),
			Says: "The instance is not created: " + form.Problems[0].Says}, true)
	}
	made, err := v.client.CreateInstance(v.ctx, api.NewInstance{InProject: api.InProject{Project: v.project},
		InstanceRequest: form.Request})
	if err == nil && len(form.Properties) > 0 {
		if err = v.setProperties(made, form.Properties); err != nil {
			err = fmt.Errorf("instance %s is created, and its properties are not set: %w", made.Name, err)
		}
	}
	if err == nil {
		v.project = made.Project
		return v.redirect("/instances/"+string(made.ID), "done", "create")
	}
	if ended(err) {
		return err
	}
	d := failureOf(v.r, err)
	return v.showNew(d.Status, newPage{Given: f, Says: d.Says, Kind: d.Kind}, true)
}

// labels returns properties with the types that their definition has. Invalid.
func (v *visit) labels(pairs []string) (map[string]*objects.Value, error) {
	labels := map[string]*objects.Value{}
	if len(pairs) == 0 {
		return labels, nil
	}
	set, err := v.client.ReadProperties(v.ctx, objects.Instance, pairs)
	for key, value := range set {
		labels[key] = &value
	}
	return labels, err
}

// setProperties sets the properties of a new instance.
func (v *visit) setProperties(i api.Instance, pairs []string) error {
	labels, err := v.labels(pairs)
	if err != nil {
		return err
	}
	_, err = v.client.ChangeInstance(v.ctx, api.InstancePatch{Labels: labels,
		InstanceNamed: api.InstanceNamed{ID: string(i.ID), Project: i.Project}})
	return err
}

// newForm is the form for a new instance as it was sent.
type newForm struct {
	Request    api.InstanceRequest
	Properties []string // key=value
	Problems   problems // what is wrong with it; then Request is incomplete
}

func (n *newForm) fail(field, label string, err error) {
	if err != nil {
		n.Problems = append(n.Problems, problem{field, label, err.Error()})
	}
}

// amountFields are the fields for amounts, named by their resource classes.
var amountFields = []string{string(croft.VCPU), string(croft.MemoryMB), string(croft.DiskGB)}

// readNew reads the form of a new instance.
func readNew(f url.Values) (n newForm) {
	field := func(name string) string { return strings.TrimSpace(f.Get(name)) }
	r := &n.Request
	r.Name, r.Size, r.Image, r.Policy = field("name"), field("size"), field("image"), field("policy")
	if r.Name != "" {
		n.fail("name", "Name", schedule.CheckName(r.Name))
	}
	n.readAmounts(f)
	r.Machine = croft.Machine{Arch: croft.Arch(field("arch")), Firmware: croft.Firmware(field("firmware")),
		TPM: field("tpm") == "yes", Display: croft.Display(field("display")), Devices: croft.Devices(field("devices")),
		OS: croft.GuestOS(field("os")), ISO: field("iso"), Boot: croft.Boot(field("boot"))}
	n.fail("firmware", "Machine", r.Machine.Check())
	if r.Image == "" && r.Machine.NeedsImage() {
		n.fail("image", "Image", errors.New("choose an image, or an ISO that installs one"))
	}
	r.Keys = append(slices.Clone(given(f["key"])), linesIn(f.Get("keys"))...)
	r.Restart, r.Metadata = croft.Restart(field("restart")), croft.Metadata(field("metadata"))
	r.IMDS = croft.IMDS(field("imds"))
	n.fail("restart", "Guest", schedule.CheckGuest(croft.GuestSettings{Restart: r.Restart, Metadata: r.Metadata,
		IMDS: r.IMDS}))
	var err error
	r.Tags, err = tagsIn(f.Get("tags"))
	n.fail("tags", "Tags", cmp.Or(err, schedule.CheckGuest(croft.GuestSettings{Tags: r.Tags})))
	n.Properties = linesIn(f.Get("properties"))
	if i := slices.IndexFunc(n.Properties, func(s string) bool { return !strings.Contains(s, "=") }); i >= 0 {
		n.fail("properties", "Properties", fmt.Errorf("%.80q: write key=value, one in a line", n.Properties[i]))
	}
	r.UserData = userDataIn(f.Get("user_data"))
	n.fail("user_data", "User-data", userdata.Check(r.UserData))
	r.Networks, r.FixedAddress = given(f["network"]), field("address")
	r.Open = strings.Fields(strings.ReplaceAll(f.Get("open"), ",", " "))
	n.readVolumes(f)
	r.Storage, r.Ephemeral = field("storage"), field("ephemeral") == "yes"
	n.fail("storage", "Storage", schedule.CheckStorage(r.InstanceSettings, r.Restart, len(r.Disks)))
	for name, rule := range map[string]croft.AffinityRule{"together": croft.Together, "apart": croft.Apart} {
		for group := range strings.FieldsSeq(strings.ReplaceAll(f.Get(name), ",", " ")) {
			a, err := croft.ParseAffinity(rule, group)
			n.fail(name, "Groups", err)
			r.Affinities = append(r.Affinities, a)
		}
	}
	slices.SortFunc(r.Affinities, func(a, b croft.Affinity) int {
		return cmp.Or(cmp.Compare(b.Rule, a.Rule), cmp.Compare(a.Group, b.Group))
	})
	r.Protected = f.Get("protected") == "yes"
	if text := field("expires"); text != "" {
		r.Expires, err = lifeOf(text)
		n.fail("expires", "Expiry", err)
	}
	if id := field("id"); id != "" {
		r.ID, err = croft.ParseInstanceID(id)
		n.fail("name", "UUID of the form", err)
	}
	return n
}

// readAmounts reads the size, the amounts and the conditions.
func (n *newForm) readAmounts(f url.Values) {
	r, more := &n.Request, strings.TrimSpace(f.Get("query"))
	var parts []string
	for _, class := range amountFields {
		text := strings.TrimSpace(f.Get(class))
		if text == "" {
			continue
		}
		if amount, err := strconv.ParseInt(text, 10, 64); err != nil || amount < 1 {
			n.fail(class, "Size", croft.Errorf(croft.Invalid, "%s is %.40q: write a whole number from 1", class, text))
		}
		parts = append(parts, class+":"+text)
	}
	if r.Size != "" && len(parts) > 0 {
		n.fail("size", "Size", croft.Errorf(croft.Invalid, "the size %s has the amounts: choose the amounts below instead, or "+
			"leave them empty", r.Size))
	}
	r.Query = strings.Join(parts, ",")
	switch at := strings.IndexAny(more, ":=&"); {
	case r.Query == "":
		r.Query = more
	case more != "" && at >= 0 && more[at] == ':': // further amounts
		r.Query += "," + more
	case more != "":
		r.Query += "&" + more
	}
	if r.Query != "" && r.Size == "" { // the server knows the amounts of sizes
		_, err := schedule.ParseQuery(r.Query)
		n.fail("query", "Size", err)
	}
}

// readVolumes reads which volumes to attach and to create, and where cloud-init mounts them.
func (n *newForm) readVolumes(f url.Values) {
	var all schedule.Attachments
	for _, name := range given(f["volume"]) {
		if path := strings.TrimSpace(f.Get("mount-" + name)); path != "" {
			name += ":" + path
		}
		n.fail("volumes", "Volumes", all.AddVolume(name))
	}
	for _, text := range linesIn(f.Get("disks")) {
		n.fail("disks", "New volumes", all.AddDisk(text))
	}
	n.Request.Volumes, n.Request.Disks, n.Request.Mounts = all.Volumes, all.Disks, all.Mounts
}

// linesIn returns the lines of a field that are not blank.
func linesIn(text string) (all []string) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			all = append(all, line)
		}
	}
	return all
}

// tagsIn reads tags, one in a line. Invalid.
func tagsIn(text string) (tags map[string]string, err error) {
	for _, line := range linesIn(text) {
		key, value, ok := strings.Cut(line, "=")
		if _, twice := tags[key]; !ok || twice {
			return tags, croft.Errorf(croft.Invalid, "%.80q: write key=value, one in a line, and each key once", line)
		}
		if tags == nil {
			tags = map[string]string{}
		}
		tags[key] = value
	}
	return tags, nil
}

// userDataIn returns the user-data of a field, with the ends of lines that guests expect; nil: there is none.
func userDataIn(text string) []byte {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return []byte(text)
}

// check is the result of checking a request before it is made.
type check struct {
	At       string // where the form is checked
	Verdict  string
	Good     bool
	Problems problems
	UserData string // what the user-data is; empty: there is none, or it is wrong
	Wrong    string // what is wrong with the user-data
	Room     *schedule.Explanation
	Says     string // why the API does not say which hosts have room
	Kind     string
	Use      string // amounts that would fit, see withAmounts
	Quota    []quotaLeft
	Same     []equivalent
}

// quotaLeft is what a project may still use of a measure.
type quotaLeft struct {
	Name, Wanted, Left string
	Project            croft.Project // whose limit leaves the least; empty: there is no limit
	Own                bool          // it is the limit of the project itself
	Exceeded           bool
}

// mostHosts is the number of lines about hosts in a check.
const mostHosts = 6

// fitting is a host with room.
type fitting struct {
	Rank       int
	Host, Free string
}

// lacking is a host without room, and the number of others that lack the same.
type lacking struct {
	Host    string
	More    int
	Missing []string
}

// Fits lists the first hosts with room.
func (c *check) Fits() (all []fitting) {
	for _, f := range c.Room.Fits[:min(mostHosts, len(c.Room.Fits))] {
		all = append(all, fitting{f.Rank, f.Host, fmt.Sprintf("%.0f %%", 100*f.Free)})
	}
	return all
}

// Others lists why the nearest of the other hosts have no room.
func (c *check) Others() (all []lacking) {
	for _, row := range c.Room.Rows[:min(mostHosts, len(c.Room.Rows))] {
		all = append(all, lacking{row.Hosts[0], len(row.Hosts) - 1, row.Missing})
	}
	return all
}

// MoreFits is the number of hosts with room that are not listed.
func (c *check) MoreFits() int { return max(0, len(c.Room.Fits)-mostHosts) }

// MoreOthers is the number of reasons that are not listed.
func (c *check) MoreOthers() int { return max(0, len(c.Room.Rows)-mostHosts) }

// check examines the fields of a form. Without them it only reads the quota.
func (v *visit) check(f url.Values, filled bool) (*check, error) {
	c := &check{At: v.link("/instances/new/check"), Verdict: "Nothing is chosen yet: an image is enough."}
	form := readNew(f)
	project := cmp.Or(v.projectName(), croft.DefaultProject)
	var chain []tenant.Account
	var defaults tenant.Limits
	var taken bool
	reads := []reading{{name: "quota", read: func() error {
		p, err := v.client.GetProject(v.ctx, api.ProjectNamed{Project: project})
		if croft.KindOf(err) == croft.NotFound { // names without a record are used, too
			p, err = tenant.Tenant{Name: project}, nil
		}
		if err == nil {
			chain, defaults, err = v.client.QuotaChain(v.ctx, p)
		}
		return err
	}}}
	if filled {
		c.Problems = form.Problems
		c.describe(form.Request.UserData)
		reads = append(reads, reading{name: "name", read: func() (err error) {
			taken, err = v.isTaken(project, form.Request)
			return err
		}}, reading{name: "room", read: func() error { return c.readRoom(v, form) }})
	}
	missing, err := readAll(reads)
	if err != nil {
		return nil, err
	}
	for _, text := range missing {
		c.Problems = append(c.Problems, problem{Says: "not known: " + text})
	}
	if taken {
		c.Problems = append(c.Problems, problem{"name", "Name", "another instance of the project has this name"})
	}
	if len(chain) > 0 {
		c.Quota = quotaLeftOf(chain, defaults, c.wants(form.Request))
	}
	if !filled {
		return c, nil
	}
	if len(c.Problems) == 0 {
		if c.Same, err = v.sameElsewhere(project, form); err != nil {
			return nil, err
		}
	}
	c.judge()
	return c, nil
}

// describe says what the user-data is.
func (c *check) describe(data []byte) {
	if err := userdata.Check(data); err != nil {
		c.Wrong = err.Error()
	} else if len(data) > 0 {
		c.UserData = map[userdata.Kind]string{
			userdata.CloudConfig: "cloud-config, and its YAML is sound",
			userdata.Script:      "a script, which cloud-init runs at the first boot",
			userdata.Boothook:    "a script, which cloud-init runs early in each boot",
			userdata.Multipart:   "MIME, and its parts are sound",
		}[userdata.KindOf(data)]
		c.UserData = cmp.Or(c.UserData, "begins with neither #cloud-config nor #!: the guest decides what it is")
	}
}

// isTaken reports whether another instance has the name of a request.
func (v *visit) isTaken(project croft.Project, r api.InstanceRequest) (bool, error) {
	if r.Name == "" || schedule.CheckName(r.Name) != nil {
		return false, nil
	}
	i, err := v.client.GetInstance(v.ctx, api.InstanceShown{InstanceNamed: api.InstanceNamed{ID: r.Name,
		Project: project}})
	if croft.KindOf(err) == croft.NotFound {
		return false, nil
	}
	return err == nil && i.ID != r.ID, err
}

// readRoom asks which hosts have room. Fields that do not matter for that are left out while they are wrong.
func (c *check) readRoom(v *visit, form newForm) error {
	r := form.Request
	r.ID, r.Name, r.UserData, r.Tags, r.Keys, r.Expires = "", "", nil, nil, nil, 0
	harmless := []string{"name", "user_data", "tags", "properties", "expires"}
	if slices.ContainsFunc(form.Problems, func(p problem) bool { return !slices.Contains(harmless, p.Field) }) {
		return nil
	}
	room, err := v.client.ExplainRequest(v.ctx, api.Candidates{InProject: api.InProject{Project: v.project},
		InstanceRequest: r})
	if ended(err) {
		return err
	}
	if err != nil {
		f := failureOf(v.r, err)
		c.Says, c.Kind = f.Says, f.Kind
		return nil
	}
	c.Room = room
	if room.Change != nil && hasFields(room.Change.Resources) {
		amounts := maps.Clone(room.Wanted)
		for _, d := range r.Disks {
			amounts[croft.DiskGB] -= d.SizeGB
		}
		maps.Copy(amounts, room.Change.Resources)
		c.Use = amounts.String()
	}
	return nil
}

// hasFields reports whether there are amounts, and the form has fields for all of them.
func hasFields(r croft.Resources) bool {
	for class := range r {
		if !slices.Contains(amountFields, string(class)) {
			return false
		}
	}
	return len(r) > 0
}

// wants returns what a request is charged with; nil: it is not known.
func (c *check) wants(r api.InstanceRequest) tenant.Amounts {
	if c.Room == nil {
		return nil
	}
	all := tenant.Amounts{tenant.CountInstances: 1}
	if len(r.Disks) > 0 {
		all[tenant.CountVolumes] = int64(len(r.Disks))
	}
	for class, n := range c.Room.Wanted {
		all[measureOf(class)] = n
	}
	return all
}

// quotaLeftOf compares what a request wants with what the limits of a project, and of those above it, leave.
func quotaLeftOf(chain []tenant.Account, defaults tenant.Limits, wants tenant.Amounts) (all []quotaLeft) {
	shown := append([]tenant.Measure{tenant.CountInstances}, mainMeasures...)
	for _, m := range slices.Sorted(maps.Keys(wants)) {
		if !slices.Contains(shown, m) {
			shown = append(shown, m)
		}
	}
	for _, m := range shown {
		line := quotaLeft{Name: measureName(m), Wanted: "–", Left: "no limit"}
		if n, is := wants[m]; is {
			line.Wanted = amountOf(m, n)
		}
		least, found := int64(0), false
		for _, a := range chain {
			limit, limited := a.Limit(defaults, m)
			if left := limit - a.Used[m]; limited && (!found || left < least) {
				least, found = left, true
				line.Project, line.Own = a.Project, a.Project == chain[0].Project
			}
		}
		if found {
			line.Left, line.Exceeded = amountOf(m, max(least, 0)), wants[m] > least
		}
		all = append(all, line)
	}
	return all
}

// sameElsewhere writes a request for other programs.
func (v *visit) sameElsewhere(home croft.Project, form newForm) ([]equivalent, error) {
	labels, err := v.labels(form.Properties)
	if err != nil {
		return nil, err
	}
	return same{project: v.project, home: home, request: form.Request, properties: form.Properties,
		labels: labels}.texts()
}

// judge sums a check up in a sentence.
func (c *check) judge() {
	var over []string
	for _, q := range c.Quota {
		if q.Exceeded {
			over = append(over, q.Name+" (limit of "+string(q.Project)+")")
		}
	}
	switch {
	case len(c.Problems) > 0:
		c.Verdict = c.Problems[0].Says
		if label := c.Problems[0].Label; label != "" {
			c.Verdict = label + ": " + c.Verdict
		}
	case c.Says != "":
		c.Verdict = c.Says
	case len(over) > 0:
		c.Verdict = "Over the quota: " + strings.Join(over, ", ")
	case c.Room != nil && len(c.Room.Fits) == 0:
		c.Verdict = "No host has room now."
	case c.Room != nil:
		c.Good, c.Verdict = true, fmt.Sprintf("Room on %d of %d hosts.", len(c.Room.Fits), c.Room.Hosts)
		if c.Room.Hosts == 1 {
			c.Verdict = "The host has room."
		}
	}
}
