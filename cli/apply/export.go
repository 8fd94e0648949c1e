package apply

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	"gopkg.in/yaml.v3"

	"croft"
	"croft/cli/args"
	"croft/cli/verb"
	"croft/control/api"
	"croft/internal/command"
	"croft/internal/out"
	"croft/schedule"
	"croft/schedule/sshkeys"
)

// ExportCommand returns the command export.
func ExportCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Print the instances, volumes and keys of a project as a file for croft apply",
		Long: `export prints what the project has, in YAML: croft apply makes it again, in this cloud or
in another one. The file has the user-data of the instances, and the secrets in it. It has
no data of disks: see croft backup. Members of clusters, machines of pools, held claims,
lost instances and expiries are left out, and sizes are printed as amounts.`,
		Example: `  croft export > cloud.yaml
  croft export --project lab --context home | croft apply -f - --project lab --context work --yes`,
		Args: command.Count(0, 0),
	}
	args.AddCloudFlags(cmd.Flags())
	cmd.RunE = verb.Wait(func(ctx context.Context, c *args.Client) error {
		r := &run{ctx, c}
		have, err := r.state(func(string) bool { return true })
		if err != nil {
			return err
		}
		for _, i := range have.instances {
			if i.State == string(croft.StateLost) || i.State == string(croft.StateHeld) {
				c.Say("instance %s is left out: it is %s", i.Name, i.State)
				delete(have.instances, i.Name)
			}
		}
		return write(c.Cmd.OutOrStdout(), c.Settings.Output, exported(have))
	})
	return cmd
}

// write prints a document. Unlike out.PrintData it changes no character of the YAML, because apply compares user-data.
func write(w io.Writer, format string, d document) error {
	if format == out.FormatJSON {
		return out.PrintData(w, format, d)
	}
	plain := fields(d)
	if len(plain) == 0 {
		_, err := fmt.Fprintln(w, "# the project has no instances, volumes or keys")
		return err
	}
	for _, part := range []string{"keys", "volumes", "instances"} {
		if of, has := plain[part]; has {
			if err := encodePart(w, part, of); err != nil {
				return err
			}
		}
	}
	return nil
}

// encodePart prints a part of the document; the parts are in the order of their use.
func encodePart(w io.Writer, name string, of any) error {
	encoder := yaml.NewEncoder(w)
	encoder.SetIndent(2)
	if err := encoder.Encode(map[string]any{name: of}); err != nil {
		return err
	}
	return encoder.Close()
}

// exported returns the document of what a project has.
func exported(have state) document {
	d := document{Keys: have.keys, Volumes: map[string]volume{}, Instances: map[string]instance{}}
	attached := map[croft.InstanceID][]string{}
	for _, name := range slices.Sorted(maps.Keys(have.volumes)) {
		v := have.volumes[name]
		d.Volumes[name] = volume{Size: fmt.Sprintf("%dG", v.SizeGB), Storage: v.Storage}
		attached[v.Instance] = append(attached[v.Instance], name)
	}
	for name, i := range have.instances {
		d.Instances[name] = described(i, attached[i.ID], have.keys)
	}
	return d
}

// described returns the request for an instance like this one.
func described(i api.Instance, volumes []string, keys map[string]string) instance {
	d := instance{Query: query(i), Image: i.Image, Policy: i.Policy, UserData: string(i.UserData), Volumes: volumes,
		Labels: i.Labels, Where: i.Where, WhereNot: i.WhereNot, GuestSettings: i.GuestSettings,
		InstanceSettings: i.InstanceSettings}
	d.GuestSettings.Keys, d.GuestSettings.UserData, d.Tags = nil, nil, i.Tags
	if i.Ejected && i.Image != "" {
		d.Machine.ISO = "" // it has been used
	}
	if i.Protected {
		d.Protected = &i.Protected
	}
	for _, b := range i.In {
		d.In = append(d.In, string(b))
	}
	for _, line := range i.Keys {
		d.Keys = append(d.Keys, keyName(line, keys))
	}
	for _, n := range i.Near {
		text := n.To
		if !n.Soft {
			text += fmt.Sprintf(":%d", n.Distance)
		}
		d.Distance = n.Type
		if n.Far {
			d.Far = append(d.Far, text)
		} else {
			d.Near = append(d.Near, text)
		}
	}
	return d
}

// keyName returns the name of a stored key, or the line itself.
func keyName(line string, keys map[string]string) string {
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		if sshkeys.Same(keys[name], line) {
			return name
		}
	}
	return line
}

// query returns the query of an instance with the resources that it has now: it may have been resized.
func query(i api.Instance) string {
	q, err := schedule.ParseQuery(i.Query)
	if err != nil {
		return i.Query
	}
	traits := i.Machine.Traits() // the field machine says them, and may be changed
	q.RootRequired = slices.DeleteFunc(q.RootRequired, func(t string) bool {
		return slices.Contains(traits, croft.Trait(t))
	})
	if len(q.Groups) == 1 {
		q.Groups[0].Resources = i.Resources
	}
	return q.Encode()
}
