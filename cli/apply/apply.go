// Package apply has the commands that make a project what a file says, and that write such a file: croft apply and
// croft export.
package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cli/verb"
	"croft/control/api"
	"croft/internal/command"
	"croft/internal/delay"
	"croft/internal/out"
	"croft/internal/userfile"
	"croft/internal/wording"
	"croft/pool/vm"
	"croft/tenant/objects"
)

// Command returns the command apply.
func Command() *cobra.Command {
	var file string
	var yes, dry bool
	cmd := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Make the instances, volumes and keys of a project what a file says",
		Long: `apply compares the project with a file, prints the changes as a plan, and makes them after
a question; --yes answers it, and --dry-run prints only the plan. croft export prints the
file of a project. A file has three parts, each of which may be missing:

  keys:
    laptop: ssh-ed25519 AAAAC3Nza... me@laptop
  volumes:
    data: {size: 20G}                   # storage: shared, for one on shared storage
  instances:
    web:
      query: VCPU:2,MEMORY_MB:2048,DISK_GB:10
      image: debian-12
      keys: [laptop]
      volumes: [data]
      user_data: |
        #!/bin/sh
        apt-get install -y nginx
      labels: {env: prod}

The fields of an instance are those of a request in the API: also tags, restart, networks,
open, mounts, storage, ephemeral, protected, machine, metadata, imds, affinities, policy,
in, where, where_not, near, far and distance; policy and the last six decide the host when
the instance is created, and are not compared later. size: NAME is possible instead of
amounts in the query: the instance has the amounts that the size has when the file is
applied. Without both a new instance gets the default size. expires: 8h counts from its
creation.

What is missing is created: a new volume of a new instance on the same host. Keys are
added; volumes grow, and are attached and detached; instances get labels and another size.
If the file asks for a change that cannot be made, such as another image, nothing is
changed, and the error names every such change. apply removes nothing, and leaves alone
what the file leaves out: instances, volumes, keys and labels, which it names, and fields
of instances. Only a list of volumes is complete: what it leaves out is detached. apply
does not wait for new instances: schedule wait does.

Before the question, and with --dry-run, the server checks the requests for new instances
as it does when it gets them: images, ISOs, sizes, networks and everything else that they
name. It says which of them no host has room for now, and the first change that a quota
would refuse; whether hosts have room for all of them shows when the changes are made. A
refusal by a quota ends apply, with the changes that were not tried.

If apply is interrupted, apply the file again: it makes the changes that are missing.`,
		Example: `  croft export > cloud.yaml
  croft apply -f cloud.yaml --dry-run
  croft apply -f cloud.yaml --yes`,
		Args: command.Count(0, 0),
	}
	args.AddCloudFlags(cmd.Flags())
	cmd.Flags().StringVarP(&file, "file", "f", "", "the `file`, or - for stdin (required)")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "print the plan, and change nothing")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		want, err := read(cmd, file)
		if err != nil {
			return err
		}
		return verb.Wait(func(ctx context.Context, c *args.Client) error {
			r := &run{ctx, c}
			return r.apply(want, dry, yes)
		})(cmd, nil)
	}
	return cmd
}

// read reads the file of a command.
func read(cmd *cobra.Command, file string) (document, error) {
	if file == "" {
		return document{}, croft.Errorf(croft.Invalid, "apply: name the file with --file")
	}
	var content []byte
	var err error
	if file == "-" {
		content, err = userfile.ReadFrom(cmd.InOrStdin(), userfile.Most)
		file = "stdin"
	} else {
		content, err = userfile.Read(file)
	}
	if err != nil {
		return document{}, fmt.Errorf("apply: %w", err)
	}
	return parse(file, content)
}

// run is one use of a command.
type run struct {
	ctx context.Context
	*args.Client
}

func (r *run) project() api.InProject { return api.InProject{Project: r.Project} }

// apply plans, asks, and carries the plan out.
func (r *run) apply(want document, dry, yes bool) error {
	have, err := r.state(want.names)
	if err != nil {
		return err
	}
	steps, err := plan(want, have)
	if err != nil {
		return err
	}
	if others := unnamed(want, have); len(others) > 0 {
		r.Say("left alone, since the file does not name them: %s", strings.Join(others, ", "))
	}
	if err := r.check(want, have, steps); err != nil {
		return fmt.Errorf("nothing was changed: %w", err)
	}
	if err := r.print(steps); err != nil {
		return err
	}
	if dry || len(steps) == 0 {
		return nil
	}
	if err := r.confirm(steps, yes); err != nil {
		return err
	}
	if done, err := r.repeat(want, steps); err != nil {
		return fmt.Errorf("apply: %d of %s done; apply the file again to go on: %w", done,
			wording.Count(len(steps), "change"), err)
	}
	r.Say("the project is as the file says")
	return nil
}

// print prints the plan.
func (r *run) print(steps []step) error {
	if r.WantsData() {
		return r.PrintData(append([]step{}, steps...)) // never null
	}
	if len(steps) == 0 {
		r.Say("nothing to do: the project is as the file says")
		return nil
	}
	var t out.Table
	t.Head("ACTION", "KIND", "NAME", "CHANGE")
	for _, s := range steps {
		t.Texts(string(s.Action), s.Kind, s.Name, s.What)
	}
	return t.Print(r.Cmd.OutOrStdout())
}

func (r *run) confirm(steps []step, yes bool) error {
	if yes {
		return nil
	}
	count := wording.Count(len(steps), "change")
	if !out.IsTerminal(r.Cmd.InOrStdin()) {
		return croft.Errorf(croft.Invalid, "apply: %s planned, and nobody is there to confirm them: give --yes", count)
	}
	return verb.Confirm(r.Cmd, "apply", "Make "+count)
}

// carryOut carries out the steps in their order, also after one that fails, unless the others would fail alike.
func (r *run) carryOut(steps []step) (done int, err error) {
	var errs []error
	for n, s := range steps {
		if r.ctx.Err() != nil {
			errs = append(errs, r.ctx.Err())
			break
		}
		err := s.do(r)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s %s %s: %w", s.Action, s.Kind, s.Name, err))
		}
		if lasts(err) && n+1 < len(steps) {
			errs = append(errs, fmt.Errorf("not tried after that: %s", named(steps[n+1:])))
			break
		}
		if err != nil {
			continue
		}
		done++
		if !r.WantsData() {
			r.Say("%s %s: %s", s.Kind, s.Name, past(s))
		}
	}
	return done, errors.Join(errs...)
}

// lasts reports whether an error is a refusal that further requests meet too.
func lasts(err error) bool { return errors.Is(err, croft.OverQuota) || errors.Is(err, croft.Denied) }

// mostNamed bounds the steps that an error names.
const mostNamed = 10

// named names steps, for people.
func named(steps []step) string {
	var words []string
	for _, s := range steps[:min(len(steps), mostNamed)] {
		words = append(words, s.Kind+" "+s.Name)
	}
	text := strings.Join(words, ", ")
	if more := len(steps) - mostNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// past describes a step that is done.
func past(s step) string {
	if s.Action == create {
		return "created"
	}
	return "done: " + s.What
}

// tries is how often apply makes a plan when another one changes the project at the same time.
const tries = 4

// repeat carries out the steps. After a conflict it carries out the ones that are left, if another run of apply made
// some of them at the same time.
func (r *run) repeat(want document, steps []step) (done int, err error) {
	for range tries {
		var made int
		made, err = r.carryOut(steps)
		done += made
		if !errors.Is(err, croft.Conflict) || lasts(err) {
			return done, err
		}
		left, again := r.left(want, steps)
		if again != nil {
			return done, err
		}
		if len(left) == 0 {
			return done, nil
		}
		steps = left
	}
	return done, err
}

// left returns which of the steps are still to be done. A step that changes what another run has created belongs to
// the step that was to create it.
func (r *run) left(want document, steps []step) (left []step, err error) {
	have, err := r.state(want.names)
	if err != nil {
		return nil, err
	}
	again, err := plan(want, have)
	return slices.DeleteFunc(again, func(s step) bool {
		return !slices.ContainsFunc(steps, func(was step) bool { return was.Kind == s.Kind && was.Name == s.Name })
	}), err
}

// state reads what the project has. Of instances for which whole returns false, it has only what lists show.
func (r *run) state(whole func(name string) bool) (s state, err error) {
	s = state{map[string]string{}, map[string]api.Volume{}, map[string]api.Instance{}, map[string]croft.Resources{}}
	err = verb.Within(r.ctx, func(ctx context.Context) error {
		sizes, err := r.ListSizes(ctx)
		for _, size := range sizes.Sizes {
			s.sizes[size.Name] = size.Resources
		}
		return err
	})
	if err != nil {
		return s, err
	}
	keys, err := verb.Asked(r.ctx, func(ctx context.Context, in api.InProject) (api.KeyList, error) {
		return r.ListKeys(ctx, in)
	}, r.project())
	if err != nil {
		return s, err
	}
	for _, k := range keys.Keys {
		s.keys[k.Name] = k.Line
	}
	volumes, err := verb.Asked(r.ctx, func(ctx context.Context, in api.InProject) (api.VolumeList, error) {
		return r.ListVolumes(ctx, in)
	}, r.project())
	if err != nil {
		return s, err
	}
	for _, v := range volumes.Volumes {
		s.volumes[v.Name] = v
	}
	list, err := verb.Asked(r.ctx, r.AllInstances, api.InstanceFilter{InProject: r.project()})
	if err != nil {
		return s, err
	}
	for _, i := range list {
		if i.Cluster != "" {
			continue // its cluster makes and ends it
		}
		if i.Tags[vm.Tag] != "" {
			continue // its pool makes and ends it
		}
		if !whole(i.Name) {
			s.instances[i.Name] = i
			continue
		}
		full, err := verb.Asked(r.ctx, r.GetInstance, api.InstanceShown{InstanceNamed: r.Named(string(i.ID))})
		if errors.Is(err, croft.NotFound) {
			continue // it was removed meanwhile
		}
		if err != nil {
			return s, err
		}
		s.instances[i.Name] = full
	}
	return s, nil
}

func (r *run) addKey(name, line string) error {
	_, err := verb.Asked(r.ctx, r.AddKey, api.NewKey{InProject: r.project(), Name: name, Line: line})
	return err
}

func (r *run) volume(name string) api.VolumeNamed {
	return api.VolumeNamed{InProject: r.project(), Name: name}
}

func (r *run) createVolume(name string, v volume, near string) error {
	_, err := verb.Asked(r.ctx, r.CreateVolume, api.NewVolume{InProject: r.project(), Name: name, SizeGB: v.sizeGB,
		Near: near, Storage: v.Storage})
	return err
}

func (r *run) growVolume(name string, sizeGB int64) error {
	_, err := verb.Asked(r.ctx, r.GrowVolume, api.VolumeSize{VolumeNamed: r.volume(name), SizeGB: sizeGB})
	return err
}

func (r *run) attach(volume, instance string) error {
	_, err := verb.Asked(r.ctx, r.AttachVolume, api.VolumeAttachment{VolumeNamed: r.volume(volume), Instance: instance})
	return err
}

// detachPatience is how long apply waits for a guest to release a volume.
const detachPatience = time.Minute

// detach detaches a volume, and waits until the guest has released it.
func (r *run) detach(name string) error {
	v, err := verb.Asked(r.ctx, r.DetachVolume, r.volume(name))
	for end := time.Now().Add(detachPatience); err == nil && v.Instance != "" && time.Now().Before(end); {
		if err = delay.For(r.ctx, 100*time.Millisecond); err == nil {
			v, err = verb.Asked(r.ctx, r.GetVolume, r.volume(name))
		}
	}
	if err == nil && v.Instance != "" {
		err = croft.Errorf(croft.Unavailable, "the guest has not released volume %s yet: unmount it there", name)
	}
	return err
}

func (r *run) createInstance(request api.InstanceRequest, labels map[string]objects.Value) error {
	if _, err := verb.Asked(r.ctx, r.CreateInstance, api.NewInstance{InProject: r.project(),
		InstanceRequest: request}); err != nil || len(labels) == 0 {
		return err
	}
	wanted := map[string]*objects.Value{}
	for key, v := range labels {
		wanted[key] = &v
	}
	return r.label(request.Name, wanted)
}

func (r *run) label(name string, labels map[string]*objects.Value) error {
	_, err := verb.Asked(r.ctx, r.ChangeInstance, api.InstancePatch{InstanceNamed: r.Named(name), Labels: labels})
	return err
}

func (r *run) protect(name string, protected bool) error {
	_, err := verb.Asked(r.ctx, r.ChangeInstance, api.InstancePatch{InstanceNamed: r.Named(name),
		Protected: &protected})
	return err
}

func (r *run) resize(name string, to api.InstanceSize) error {
	to.InstanceNamed = r.Named(name)
	_, err := verb.Asked(r.ctx, r.ResizeInstance, to)
	return err
}
