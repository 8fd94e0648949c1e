package instances

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"croft"
	"croft/cli/args"
	"croft/compute/image"
	"croft/control/api"
	"croft/control/cloud/direct"
	"croft/internal/command"
	"croft/internal/out"
	"croft/internal/wording"
	"croft/schedule"
	"croft/schedule/sshkeys"
)

// asking is `schedule [QUERY] [IMAGE]` with its flags.
type asking struct {
	name, uuid, userData string
	size                 string
	metadata, imds       string
	restart              string
	keys, tags           []string
	count                int
	networks             []string
	address              string
	open                 []string
	volumes, disks       []string
	ephemeral, protect   bool
	storage              string
	arch                 string
	firmware, display    string
	devices, os          string
	iso, boot            string
	tpm                  bool
	properties           []string
	expires, hold        time.Duration
	together, apart      []string
	locations            locationRule
	near                 []string
	far                  []string
	distance             string
	bounds               bounds
	explain              bool
	allOrNone            bool

	noImage bool // an installer fills the empty disk

	names []string // names of stored keys; their text is added to keys later
}

func (a *asking) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&a.name, "name", "",
		"`name` of the instance, its host name too (vm- and the beginning of its UUID)")
	flags.StringVar(&a.size, "size", "", "`name` of the size (croft size list), instead of amounts in QUERY (the default one)")
	flags.StringVar(&a.uuid, "uuid", "", "`UUID` of the instance (a random one)")
	a.addGuestFlags(flags)
	flags.StringArrayVar(&a.networks, "network", nil,
		"`name` of a network of the hosts (networks in their settings), or default; repeat for more (default)")
	flags.StringVar(&a.address, "address", "",
		"`address` on the network default, such as 192.168.122.50 (chosen by the host)")
	flags.StringArrayVar(&a.open, "open", nil,
		"`port` that guests of other projects on the same host reach, such as tcp/80; repeat for more (none)")
	flags.StringArrayVar(&a.volumes, "volume", nil, "attach this `volume` (croft volume list), and run on a host "+
		"that has it; data:/srv/data or data:/srv/data:xfs lets cloud-init mount it there, and format it if it is "+
		"blank; repeat for more (none)")
	flags.StringArrayVar(&a.disks, "disk", nil, "create a volume of this `size` with the instance and attach it, such as "+
		"20G, or 20G:data to name it, or 20G:data:/srv/data to mount it too; it outlives the instance; repeat for more (none)")
	flags.StringVar(&a.storage, "storage", "", "where the disk lies: local, shared or the `name` of a shared storage (local)")
	flags.StringVar(&a.arch, "arch", "", "the `architecture` of the machine: x86_64 or aarch64 (x86_64)")
	flags.StringVar(&a.firmware, "firmware", "", "what starts the disk: `bios`, uefi, or uefi-secure for UEFI with "+
		"secure boot (bios, or uefi if only that boots the disk)")
	flags.BoolVar(&a.tpm, "tpm", false, "give the machine a TPM 2.0, whose state stays on its host")
	flags.StringVar(&a.display, "display", "", "the screen of the machine, for schedule screen: none or `vnc` (none)")
	flags.StringVar(&a.devices, "devices", "", "the disk and network cards: `virtio`, or plain for a guest without drivers "+
		"for those (virtio)")
	flags.StringVar(&a.os, "os", "", "the system of the guest, for which the clock of the machine is set: `linux` or "+
		"windows (linux)")
	flags.StringVar(&a.iso, "iso", "", "`image` of a CD in the CD drive of the machine, as for IMAGE; without IMAGE the disk is "+
		"empty, and the CD starts; see schedule eject")
	flags.StringVar(&a.boot, "boot", "", "what the machine starts, in this `order`: disk, cd and network, separated by commas "+
		"(disk, then cd)")
	flags.BoolVar(&a.ephemeral, "ephemeral", false, "mark the instance as ephemeral: it may be recreated on another host")
	flags.BoolVar(&a.protect, "protect", false, "protect the instance against removal, until schedule protect --off")
	command.DurationVar(flags, &a.hold, "hold", 0, "boot nothing, and hold the claim for this `time`, such as 2h, for croft claim "+
		"use")
	flags.String("policy", "", "which host with room to choose: spread (the most room), pack (the least room), or "+
		"crush:name (the first host by this croft `policy`) (policy)")
	flags.StringArrayVar(&a.together, string(croft.Together), nil,
		"run on the host of the other members of `group`; with group:soft, where there is room; repeat for more")
	flags.StringArrayVar(&a.apart, string(croft.Apart), nil,
		"run on a host without other members of `group`; with group:soft, where there is one; repeat for more")
	a.locations.addFlags(flags)
	a.bounds.addFlags(flags)
	flags.StringArrayVar(&a.near, "near", nil, "run near this instance, aggregate, host or `location`: as near as "+
		"there is room, or with name:rack (host, rack, row, site) in the same rack, or with name:7 at a distance of "+
		"at most 7; repeat for more")
	flags.StringArrayVar(&a.far, "far", nil, "run far from this instance, aggregate, host or `location`: with "+
		"name:rack not in the same rack, with name:7 at a distance of at least 7; repeat for more")
	flags.StringVar(&a.distance, "distance", "", "the `type` of the distances of --near and --far, as croft distance "+
		"list shows them (failure)")
	flags.BoolVar(&a.explain, "explain", false,
		"only print which hosts have room, in what order, and what excludes the others")
	flags.IntVar(&a.count, "count", 1, "ask for this `number` of instances, named name-1, name-2 ...")
	flags.BoolVar(&a.allOrNone, "all-or-none", false, "with --count: if there is no room for all, keep none")
}

// addGuestFlags adds the flags about the guest, which do not depend on the host.
func (a *asking) addGuestFlags(flags *pflag.FlagSet) {
	flags.StringArrayVar(&a.keys, "key", nil, "public SSH `key` that may log in: a file, a pattern of files, the name "+
		"of one that croft key list shows, agent, or the key itself; repeat for more (keys)")
	flags.StringVar(&a.userData, "user-data", "", "`file` that the guest gets as its user-data; - reads stdin")
	flags.StringVar(&a.metadata, "metadata", "",
		"`source` of the guest's metadata: auto, server, nocloud or config-drive (auto)")
	flags.StringVar(&a.imds, "imds", "",
		"whether the metadata server wants a token: optional, required or off (optional)")
	flags.StringVar(&a.restart, "restart", "", "when to restart a guest that is off without an order: always, "+
		"on-failure (not if it powered itself off), never, or elsewhere, elsewhere:disk, elsewhere:image or elsewhere:backup: also on another "+
		"host if its host dies (on-failure)")
	flags.StringArrayVar(&a.tags, "tag", nil, "`key=value` that the guest can read; repeat for more")
	flags.StringArrayVar(&a.properties, "property", nil, "`key=value` by which --filter selects the instance, as with "+
		"croft property set; repeat for more")
	command.DurationVar(flags, &a.expires, "expires", 0, "destroy the instance after this `time`, such as 8h; `schedule keep` "+
		"prolongs it (never)")
}

// run requests the instances. It validates everything possible before the first request.
func (a *asking) run(cmd *cobra.Command, given []string) error {
	s, err := args.LoadSettings(cmd.Flags())
	if err != nil {
		return err
	}
	if cmd.Flags().Changed("key") {
		s.Keys = a.keys
	}
	query, err := a.split(&s, given)
	if err != nil {
		return err
	}
	if a.explain && cmd.Flags().Changed("wait") {
		return croft.Errorf(croft.Invalid, "--explain creates no instance to wait for: leave out --wait")
	}
	if err := checkFlags(cmd.Flags(), "expires", "hold"); err != nil {
		return err
	}
	if a.hold != 0 && cmd.Flags().Changed("wait") {
		return croft.Errorf(croft.Invalid, "--hold boots no instance to wait for: leave out --wait")
	}
	wanted, err := a.requests(s, query, cmd.InOrStdin())
	if err != nil {
		return err
	}
	return args.WithSettings(cmd.Context(), s, func(ctx context.Context, connected *args.Client) error {
		c := &session{connected}
		wanted.one.Project = c.Project // the token may determine the project
		if a.explain {
			return c.explain(ctx, cmd, wanted.one)
		}
		found, err := c.StoredKeys(ctx, a.names)
		if err != nil {
			return err
		}
		wanted.one.Keys = slices.Concat(wanted.one.Keys, found)
		return c.Traced(ctx, "request", func(ctx context.Context) error { return c.request(ctx, cmd, wanted) })
	})
}

// split returns the query of the arguments, which may be empty, and puts the image into the settings.
func (a *asking) split(s *direct.Settings, given []string) (query string, err error) {
	if len(given) > 0 && isQuery(given[0]) {
		query, given = given[0], given[1:]
	}
	if len(given) > 1 {
		return "", croft.Errorf(croft.Invalid, "%q is not a query, and only a query may be followed by an image", given[0])
	}
	if len(given) > 0 {
		s.Image = given[0]
	}
	installs := !croft.Machine{ISO: a.iso, Boot: croft.Boot(a.boot)}.NeedsImage()
	a.noImage = len(given) == 0 && installs // and not the one in the settings
	return query, nil
}

// isQuery distinguishes a query from an image, and from an instance.
func isQuery(text string) bool { return schedule.LooksLikeQuery(text) && !isAddress(text) }

// isAddress reports whether a text is the address of an image: a URL, or a path on the hosts.
func isAddress(text string) bool {
	scheme, _, url := strings.Cut(text, "://")
	return url && !strings.ContainsAny(scheme, "=:&,") || strings.HasPrefix(text, "/")
}

// asks reports whether a flag was given that is only of use for a request.
func (a *asking) asks(flags *pflag.FlagSet) bool {
	own, found := pflag.NewFlagSet("", pflag.ContinueOnError), false
	new(asking).addFlags(own)
	flags.Visit(func(f *pflag.Flag) { found = found || own.Lookup(f.Name) != nil })
	return found
}

// checkFlags returns Invalid for durations that are not positive, and for flags with empty values.
func checkFlags(flags *pflag.FlagSet, times ...string) error {
	for _, name := range times {
		life, err := flags.GetDuration(name)
		if err == nil && flags.Changed(name) {
			if err = schedule.CheckLife(life); life <= 0 {
				err = croft.Errorf(croft.Invalid, "--%s %s: write a time such as 8h, or leave it out", name,
					wording.Duration(life))
			}
		}
		if err != nil {
			return err
		}
	}
	for _, name := range []string{"name", "uuid", "user-data", "size", "iso", "boot"} {
		if f := flags.Lookup(name); f != nil && f.Changed && f.Value.String() == "" {
			return croft.Errorf(croft.Invalid, "--%s is empty: leave it out, or say which", name)
		}
	}
	return nil
}

// requests are count requests that differ only in their names. They are for instances unless they hold claims.
type requests struct {
	one       api.ClaimRequest
	count     int
	allOrNone bool
	// pairs of keys and values
	properties []string
}

// nth returns the request with this index, starting at 0.
func (r requests) nth(i int) api.ClaimRequest {
	if r.count == 1 {
		return r.one
	}
	next := r.one
	next.ID = croft.NewInstanceID()
	if next.Name != "" {
		next.Name = fmt.Sprintf("%s-%d", next.Name, i+1)
	}
	return next
}

// requests turns flags and arguments into requests.
func (a *asking) requests(s direct.Settings, query string, stdin io.Reader) (requests, error) {
	one, err := a.request(s, query, stdin)
	wanted := requests{one: one, count: a.count, allOrNone: a.allOrNone, properties: a.properties}
	switch {
	case err != nil:
		return wanted, err
	case a.hold != 0 && len(a.properties) > 0:
		return wanted, croft.Errorf(croft.Invalid, "--hold makes no instance yet: set its properties with `croft property set`")
	case a.explain && a.count != 1:
		return wanted, croft.Errorf(croft.Invalid, "--explain looks for room for one instance: leave out --count")
	case a.address != "" && a.count > 1:
		return wanted, croft.Errorf(croft.Invalid, "--address is for one instance: leave out --count")
	case a.count < 1:
		return wanted, croft.Errorf(croft.Invalid, "--count %d: ask for at least one", a.count)
	case a.allOrNone && a.protect:
		return wanted, croft.Errorf(croft.Invalid, "--all-or-none removes the instances again unless there is room for all, "+
			"and --protect forbids that: protect them afterwards with `schedule protect`")
	case a.allOrNone && a.count == 1:
		return wanted, croft.Errorf(croft.Invalid, "--all-or-none needs several instances: give --count")
	case a.count > 1 && slices.ContainsFunc(one.Disks, func(d croft.NewDisk) bool { return d.Name != "" }):
		return wanted, croft.Errorf(croft.Invalid, "--disk names one volume, and --count asks for %d instances: leave out "+
			"the name, and each volume is named after its instance", a.count)
	case a.uuid != "" && a.count > 1:
		return wanted, croft.Errorf(croft.Invalid, "--uuid names one instance, and --count asks for %d", a.count)
	case a.name != "":
		return wanted, schedule.CheckName(wanted.nth(a.count - 1).Name) // the longest name
	}
	return wanted, nil
}

func (a *asking) request(s direct.Settings, query string, stdin io.Reader) (r api.ClaimRequest, err error) {
	r = api.ClaimRequest{InProject: api.InProject{Project: croft.Project(s.Project)}, Hold: int64(a.hold / time.Second),
		InstanceRequest: api.InstanceRequest{ID: croft.NewInstanceID(), Name: a.name, Query: query, Size: a.size,
			Expires: int64(a.expires / time.Second), Protected: a.protect, Where: a.bounds.where,
			WhereNot: a.bounds.whereNot,
			Near:     a.near, Far: a.far, Distance: a.distance}}
	if err := croft.CheckFixedAddress(a.address, a.networks); err != nil {
		return r, err
	}
	r.FixedAddress = a.address
	r.Networks, r.Open, r.Ephemeral, r.Storage = a.networks, a.open, a.ephemeral, a.storage
	if err := schedule.CheckStorage(r.InstanceSettings, croft.Restart(a.restart), len(a.disks)); err != nil {
		return r, err
	}
	r.Machine = croft.Machine{Arch: croft.Arch(a.arch), Firmware: croft.Firmware(a.firmware), TPM: a.tpm,
		Display: croft.Display(a.display), Devices: croft.Devices(a.devices), OS: croft.GuestOS(a.os),
		Boot: croft.Boot(a.boot)}
	if r.Machine.ISO, err = imageOf(a.iso); err != nil {
		return r, err
	}
	if err := r.Machine.Check(); err != nil {
		return r, err
	}
	if err = a.addVolumes(&r.InstanceRequest); err != nil {
		return r, err
	}
	if query != "" && a.size == "" { // the server knows the sizes
		if _, err = schedule.ParseQuery(query); err != nil {
			return r, err
		}
	}
	policy, err := schedule.PolicyNamed(s.Policy)
	if err != nil {
		return r, err
	}
	r.Policy = policy.Name()
	if r.Affinities, err = a.affinities(); err != nil {
		return r, err
	}
	if r.In, err = a.bounds.all(); err != nil {
		return r, err
	}
	if err := a.bounds.checkFilters(); err != nil {
		return r, err
	}
	if _, err := croft.ParseNears(a.near, a.far, a.distance); err != nil {
		return r, err
	}
	if a.name != "" {
		if err := schedule.CheckName(a.name); err != nil {
			return r, err
		}
	}
	if a.uuid != "" {
		if r.ID, err = croft.ParseInstanceID(a.uuid); err != nil {
			return r, err
		}
	}
	if r.GuestSettings, err = a.guest(s.Keys, stdin); err != nil {
		return r, err
	}
	if a.noImage {
		return r, nil
	}
	r.Image, err = imageOf(s.Image)
	r.InstanceRequest.Image = r.Image
	return r, err
}

// addVolumes adds the volumes of the flags --volume and --disk.
func (a *asking) addVolumes(r *api.InstanceRequest) error {
	var all schedule.Attachments
	for _, text := range a.volumes {
		if err := all.AddVolume(text); err != nil {
			return fmt.Errorf("--volume %s: %w", text, err)
		}
	}
	for _, text := range a.disks {
		if err := all.AddDisk(text); err != nil {
			return fmt.Errorf("--disk %s: %w", text, err)
		}
	}
	r.Volumes, r.Disks, r.Mounts = all.Volumes, all.Disks, all.Mounts
	return nil
}

// guest returns the values of the flags about the guest, which do not depend on the host.
func (a *asking) guest(keys []string, stdin io.Reader) (u croft.GuestSettings, err error) {
	u = croft.GuestSettings{Metadata: croft.Metadata(a.metadata), IMDS: croft.IMDS(a.imds),
		Restart: croft.Restart(a.restart)}
	if u.Keys, a.names, err = sshkeys.Read(keys); err != nil {
		return u, err
	}
	if u.UserData, err = a.readUserData(stdin); err != nil {
		return u, err
	}
	if u.Tags, err = parseTags(a.tags); err != nil {
		return u, err
	}
	return u, schedule.CheckGuest(u)
}

// imageOf returns an image in the form that the cloud accepts. Names of the catalog stay names: the server resolves
// them, in the process of the command by the catalog of this machine.
func imageOf(given string) (string, error) {
	if !image.IsReference(given) {
		return given, nil
	}
	return image.ReferenceFor(given)
}

// parseTags parses key=value texts.
func parseTags(texts []string) (map[string]string, error) {
	if len(texts) == 0 {
		return nil, nil
	}
	tags := map[string]string{}
	for _, text := range texts {
		key, value, ok := strings.Cut(text, "=")
		if _, twice := tags[key]; !ok || twice {
			return nil, croft.Errorf(croft.Invalid, "--tag %q: write key=value, and each key once", text)
		}
		tags[key] = value
	}
	return tags, nil
}

// readUserData reads the user-data, which may be empty. Invalid.
func (a *asking) readUserData(stdin io.Reader) ([]byte, error) {
	if a.userData == "" {
		return nil, nil
	}
	data, err := args.ReadFile(stdin, "the user-data", a.userData, croft.MaxUserData)
	if err == nil && len(data) > croft.MaxUserData {
		return nil, croft.Errorf(croft.Invalid,
			"the user-data has more than 64 KiB, the most that an instance may carry: let it fetch the rest")
	}
	return data, err
}

// briefRows limits the rows of each kind unless a table was requested.
const briefRows = 12

// explain lists the hosts with room for a request, without making the request.
func (c *session) explain(ctx context.Context, cmd *cobra.Command, r api.ClaimRequest) error {
	ctx, cancel := context.WithTimeout(ctx, args.AnswerTimeout)
	defer cancel()
	why, err := c.ExplainRequest(ctx, api.Candidates{InProject: r.InProject, InstanceRequest: r.InstanceRequest})
	if err != nil {
		return err
	}
	stdout, format := cmd.OutOrStdout(), c.Settings.Output
	if format == out.FormatJSON || format == out.FormatYAML {
		err = out.PrintData(stdout, format, why)
	} else {
		rows := briefRows
		if out.IsTable(format) {
			rows = why.Hosts
		}
		err = printExplanation(stdout, why, rows)
	}
	if err == nil && len(why.Fits) == 0 {
		err = croft.Errorf(croft.NoCapacity, "%w", why)
	}
	return err
}

// printWhyNot explains why no host was left, if that is the reason. It prints on stdout if data is wanted and there is
// no other result, else on stderr.
func (c *session) printWhyNot(cmd *cobra.Command, reason error, some bool) error {
	why, explained := errors.AsType[*schedule.Explanation](reason)
	if !explained {
		return nil
	}
	switch format := c.Settings.Output; {
	case some, format == out.FormatText:
		return printExplanation(cmd.ErrOrStderr(), why, briefRows)
	case out.IsTable(format):
		return printExplanation(cmd.ErrOrStderr(), why, why.Hosts)
	default:
		return out.PrintData(cmd.OutOrStdout(), format, why)
	}
}

// printExplanation prints tables of the hosts that fit, of the effects of the requirements, and of what the other
// hosts lack, with at most most rows each.
func printExplanation(w io.Writer, why *schedule.Explanation, most int) error {
	var tables []*out.Table
	if len(why.Fits) > 0 {
		tables = append(tables, fitTable(why, most))
	}
	if len(why.Rows) > 0 {
		tables = append(tables, requirementTable(why, most), missingTable(why, most))
	}
	if len(why.Trace) > 0 {
		tables = append(tables, traceTable(why, most))
	}
	for i, t := range tables {
		if i > 0 {
			fmt.Fprintln(w)
		}
		t.Color = out.IsColored(w)
		if err := t.Print(w); err != nil {
			return err
		}
	}
	if why.Change != nil {
		fmt.Fprintf(w, "\nThe smallest change: %s.\n", why.Change)
	}
	return nil
}

func fitTable(why *schedule.Explanation, most int) *out.Table {
	t := &out.Table{}
	t.Head("RANK", "HOST", "FREE AFTER")
	for _, fit := range why.Fits[:min(most, len(why.Fits))] {
		t.Texts(fmt.Sprint(fit.Rank), fit.Host, fmt.Sprintf("%.0f %%", 100*fit.Free))
	}
	return t.AndMore(len(why.Fits) - most)
}

func requirementTable(why *schedule.Explanation, most int) *out.Table {
	t := &out.Table{}
	t.Head("REQUIREMENT", "DROPS", "NEAREST MISS")
	for _, r := range why.Requirements[:min(most, len(why.Requirements))] {
		t.Texts(r.Requirement, fmt.Sprintf("%d of %d", r.Dropped, why.Hosts), r.Nearest+": "+r.Miss)
	}
	return t.AndMore(len(why.Requirements) - most)
}

func missingTable(why *schedule.Explanation, most int) *out.Table {
	t := &out.Table{}
	t.Head("HOST", "MISSING")
	for _, row := range why.Rows[:min(most, len(why.Rows))] {
		host := row.Hosts[0]
		if n := len(row.Hosts) - 1; n > 0 {
			host = fmt.Sprintf("%s and %d more", host, n)
		}
		t.Texts(host, strings.Join(row.Missing, ", "))
	}
	return t.AndMore(len(why.Rows) - most)
}
