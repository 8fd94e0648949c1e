package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"croft"
	"croft/image"
	"croft/schedule"
)

// asking is `schedule QUERY [IMAGE]` with its flags.
type asking struct {
	name, uuid, userData string
	metadata, imds       string
	keys, tags           []string
	count                int
	networks             []string
	ephemeral            bool
	together, apart      []string
	explain              bool

	names []string // of stored keys, found in keys once these are read
}

func (a *asking) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&a.name, "name", "", "`name` of the instance, its host name too (vm- and the beginning of its UUID)")
	flags.StringVar(&a.uuid, "uuid", "", "`UUID` of the instance (a random one)")
	flags.StringArrayVar(&a.keys, "key", nil, "public SSH `key` that may log in: a file, a pattern of files, the name of one that croft key list shows, agent, or the key itself; repeat for more (keys)")
	flags.StringVar(&a.userData, "user-data", "", "`file` that the guest gets as its user-data; - reads stdin")
	flags.StringVar(&a.metadata, "metadata", "", "`where` the guest finds what it has to know: auto, server, nocloud or config-drive (auto)")
	flags.StringVar(&a.imds, "imds", "", "whether the metadata server wants a token: optional, required or off (optional)")
	flags.StringArrayVar(&a.tags, "tag", nil, "`key=value` that the guest can read; repeat for more")
	flags.StringArrayVar(&a.networks, "network", nil, "`name` of a network of the hosts (networks in their settings), or default; repeat for more (default)")
	flags.BoolVar(&a.ephemeral, "ephemeral", false, "mark the instance as one that need not last")
	flags.String("policy", "", "which of the hosts with room: spread, the one with the most left, or pack, the one with the least (policy)")
	flags.StringArrayVar(&a.together, string(croft.Together), nil, "run on the host of the other members of `group`; with group:soft, where there is room; repeat for more")
	flags.StringArrayVar(&a.apart, string(croft.Apart), nil, "run on a host without other members of `group`; with group:soft, where there is one; repeat for more")
	flags.BoolVar(&a.explain, "explain", false, "only say which hosts have room, in what order, and what drops the others")
	flags.IntVar(&a.count, "count", 1, "ask for this many instances at once, named name-1, name-2 ...")
}

// run asks for the instances. All that can be checked here is checked before
// anything is asked for.
func (a *asking) run(cmd *cobra.Command, args []string) error {
	s, err := loadSchedule(cmd.Flags())
	if err != nil {
		return err
	}
	if cmd.Flags().Changed("key") {
		s.Keys = a.keys
	}
	if len(args) > 1 {
		s.Image = args[1]
	}
	if a.explain && cmd.Flags().Changed("wait") {
		return croft.Errorf(croft.Invalid, "--explain asks for nothing that could be waited for: leave out --wait")
	}
	requests, err := a.requests(s, args[0], cmd.InOrStdin())
	if err != nil {
		return err
	}
	c, err := dial(cmd.Context(), s)
	if err != nil {
		return err
	}
	if a.explain {
		return c.do(cmd.Context(), func(ctx context.Context, c *client) error { return c.explain(ctx, cmd, requests[0]) })
	}
	return c.do(cmd.Context(), func(ctx context.Context, c *client) error {
		found, err := schedule.FindKeys(ctx, c.store, c.project, a.names)
		if err != nil {
			return err
		}
		for i := range requests {
			requests[i].Keys = slices.Concat(requests[i].Keys, found)
		}
		return c.traced(ctx, "request", func(ctx context.Context) error { return c.request(ctx, cmd, requests) })
	})
}

// requests turns flags and arguments into one request for each instance.
func (a *asking) requests(s scheduleSettings, query string, stdin io.Reader) ([]schedule.Request, error) {
	one, err := a.request(s, query, stdin)
	switch {
	case err != nil:
		return nil, err
	case a.explain && a.count != 1:
		return nil, croft.Errorf(croft.Invalid, "--explain looks for room for one instance: leave out --count")
	case a.count < 1:
		return nil, croft.Errorf(croft.Invalid, "--count %d: ask for at least one", a.count)
	case a.count == 1:
		return []schedule.Request{one}, nil
	case a.uuid != "":
		return nil, croft.Errorf(croft.Invalid, "--uuid names one instance, and --count asks for %d", a.count)
	}
	var all []schedule.Request
	for i := range a.count {
		next := one
		next.ID = croft.NewInstanceID()
		if a.name != "" {
			next.Name = fmt.Sprintf("%s-%d", a.name, i+1)
			if err := schedule.CheckName(next.Name); err != nil {
				return nil, err
			}
		}
		all = append(all, next)
	}
	return all, nil
}

func (a *asking) request(s scheduleSettings, query string, stdin io.Reader) (r schedule.Request, err error) {
	r = schedule.Request{Project: croft.Project(s.Project), Name: a.name, Networks: a.networks, Ephemeral: a.ephemeral}
	if r.Query, err = schedule.ParseQuery(query); err != nil {
		return r, err
	}
	if r.Policy, err = schedule.PolicyNamed(s.Policy); err != nil {
		return r, err
	}
	if r.Affinities, err = a.affinities(); err != nil {
		return r, err
	}
	if a.name != "" {
		if err := schedule.CheckName(a.name); err != nil {
			return r, err
		}
	}
	r.ID = croft.NewInstanceID()
	if a.uuid != "" {
		if r.ID, err = croft.ParseInstanceID(a.uuid); err != nil {
			return r, err
		}
	}
	if r.Keys, a.names, err = readKeys(s.Keys); err != nil {
		return r, err
	}
	if r.UserData, err = a.readUserData(stdin); err != nil {
		return r, err
	}
	r.Metadata, r.IMDS = croft.Metadata(a.metadata), croft.IMDS(a.imds)
	if r.Tags, err = parseTags(a.tags); err != nil {
		return r, err
	}
	if err := schedule.CheckGuest(croft.Spec{UserData: r.UserData, Metadata: r.Metadata, IMDS: r.IMDS, Tags: r.Tags}); err != nil {
		return r, err
	}
	r.Image, err = resolveImage(s.Image)
	return r, err
}

// affinities are the groups that the flags name.
func (a *asking) affinities() ([]croft.Affinity, error) {
	var all []croft.Affinity
	for _, flag := range []struct {
		rule   croft.AffinityRule
		groups []string
	}{{croft.Together, a.together}, {croft.Apart, a.apart}} {
		for _, text := range flag.groups {
			one, err := croft.ParseAffinity(flag.rule, text)
			if err != nil {
				return nil, err
			}
			all = append(all, one)
		}
	}
	return all, schedule.CheckAffinities(all)
}

// parseTags takes key=value apart.
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

// resolveImage is the reference that the hosts get for a name.
func resolveImage(name string) (string, error) {
	catalog, err := image.LoadCatalog(image.CatalogFiles(), nil)
	if err != nil {
		return "", err
	}
	entry, err := catalog.Resolve(name)
	if err != nil {
		return "", err
	}
	return entry.Reference()
}

// readUserData reads no more than an instance may carry, and a byte to tell.
func (a *asking) readUserData(stdin io.Reader) ([]byte, error) {
	from := stdin
	switch a.userData {
	case "":
		return nil, nil
	case "-":
	default:
		f, err := os.Open(a.userData)
		if err != nil {
			return nil, croft.Errorf(croft.Invalid, "read the user-data: %w", err)
		}
		defer f.Close()
		from = f
	}
	data, err := io.ReadAll(io.LimitReader(from, croft.MaxUserData+1))
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "read the user-data: %w", err)
	}
	if len(data) > croft.MaxUserData {
		return nil, croft.Errorf(croft.Invalid, "the user-data has more than 64 KiB, the most that an instance may carry: let it fetch the rest")
	}
	return data, nil
}

// outcome is what became of one request.
type outcome struct {
	decision schedule.Decision
	err      error
}

// request asks for all instances at once, says what became of each in their order,
// and waits for those that were scheduled.
func (c *client) request(ctx context.Context, cmd *cobra.Command, requests []schedule.Request) error {
	outcomes := c.askAll(ctx, requests)
	text := c.settings.Output == formatText
	if text {
		printOutcomes(cmd.OutOrStdout(), outcomes)
	}
	errs := make([]error, len(outcomes))
	var instances []croft.Instance
	for i, o := range outcomes {
		if errs[i] = o.err; o.err == nil {
			instances = append(instances, o.decision.Instance)
		}
	}
	errs = append(errs, c.printWhyNot(cmd, outcomes, len(instances) > 0))
	if c.settings.Wait.any() {
		errs = append(errs, c.waitForNew(ctx, cmd, instances))
	}
	if !text && len(instances) > 0 {
		errs = append(errs, c.printInstances(ctx, cmd, instances, len(requests) > 1))
	}
	return errors.Join(errs...)
}

// askAll asks for all instances at once.
func (c *client) askAll(ctx context.Context, requests []schedule.Request) []outcome {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	outcomes := make([]outcome, len(requests))
	var work sync.WaitGroup
	for i, r := range requests {
		work.Go(func() { outcomes[i].decision, outcomes[i].err = c.Request(ctx, r) })
	}
	work.Wait()
	return outcomes
}

// printOutcomes prints the lines that scripts look for.
func printOutcomes(w io.Writer, outcomes []outcome) {
	for _, o := range outcomes {
		switch {
		case o.err == nil:
			fmt.Fprintf(w, "NOTIFIED TARGET, %s, OF INSTANCE %s\n", o.decision.Host.ID, o.decision.Instance.ID)
		case errors.Is(o.err, croft.NoCapacity):
			fmt.Fprintln(w, "NO ALLOCATIONS LEFT")
		}
	}
}

// waitForNew waits until the instances run. One that fails is destroyed again, so
// that a failed command leaves nothing; one that takes too long is left to go on.
func (c *client) waitForNew(ctx context.Context, cmd *cobra.Command, instances []croft.Instance) error {
	errs := c.wait(ctx, cmd, instances, c.settings.Wait.running())
	var failed []croft.Instance
	for i, err := range errs {
		if _, ok := errors.AsType[*schedule.Failure](err); ok {
			failed = append(failed, instances[i])
		} else if errors.Is(err, croft.Unavailable) {
			errs[i] = croft.Errorf(croft.Unavailable, "%w; it goes on: `schedule %s` shows it, `schedule destroy %s` ends it", err, instances[i].Name, instances[i].Name)
		}
	}
	return errors.Join(append(errs, c.remove(ctx, failed))...)
}

// remove destroys instances that failed and waits for a while until they are gone.
func (c *client) remove(ctx context.Context, instances []croft.Instance) error {
	ctx, cancel := context.WithTimeout(ctx, removalTimeout)
	defer cancel()
	errs := make([]error, len(instances))
	var work sync.WaitGroup
	for i, inst := range instances {
		work.Go(func() {
			if _, err := c.Destroy(ctx, inst.Project, string(inst.ID), false); err != nil {
				errs[i] = fmt.Errorf("remove what is left of it: %w", err)
				return
			}
			errs[i] = c.Wait(ctx, inst, schedule.Gone, nil)
		})
	}
	work.Wait()
	return errors.Join(errs...)
}

// printInstances prints everything about the instances, as they are now.
func (c *client) printInstances(ctx context.Context, cmd *cobra.Command, instances []croft.Instance, list bool) error {
	var all []croft.Status
	for _, inst := range instances {
		st, err := c.find(ctx, string(inst.ID))
		if errors.Is(err, croft.NotFound) {
			continue // it failed and was removed
		}
		if err != nil {
			return err
		}
		all = append(all, st)
	}
	if len(all) == 0 {
		return nil
	}
	return printStatuses(cmd, cmp.Or(c.settings.Output, formatText), all, list)
}
