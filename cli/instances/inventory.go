package instances

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/control/api"
	"croft/internal/command"
	"croft/internal/durable"
	"croft/internal/endpoint"
	"croft/internal/out"
	"croft/internal/shell"
)

// inventory configures an inventory of Ansible.
type inventory struct {
	list       bool
	host       string
	all        bool
	filters    []string
	user       string
	knownHosts string
}

// InventoryCommand returns the command inventory.
func InventoryCommand() *cobra.Command {
	var v inventory
	cmd := &cobra.Command{
		Use:   "inventory",
		Short: "Print the running instances as an inventory of Ansible",
		Long: `inventory prints the instances of the project that run and have an address, in JSON,
as Ansible reads it from a program: a script of two lines is an inventory,

  #!/bin/sh
  exec croft inventory --known-hosts ~/.cache/croft-known-hosts "$@"

and ansible-playbook -i ./inventory.sh site.yml works on them. A host has the name of
its instance, with a dot and the project if instances of several projects have the name,
or if it means something else to Ansible, such as localhost.
Groups are project_NAME and image_NAME, tag_KEY and tag_KEY_VALUE by the tags that an
instance got with its request, and label_KEY and label_KEY_VALUE by its properties;
characters that Ansible does not allow in groups are underscores there, and an empty
value makes no group. The variables
croft_id, croft_name, croft_project, croft_image, croft_tags and croft_labels say what
an instance is; Ansible takes them as they are, and evaluates no templates in them.

The login user is that of the image in the catalog, or --user. --known-hosts writes the
host keys that croft made for the instances to a file, and ssh then accepts no others.
With CROFT_URL ssh connects through the cloud.`,
		Example: `  croft inventory
  croft inventory --filter env=test --known-hosts known_hosts
  croft inventory --host web`,
		Args: command.Count(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := command.AtMostOne(cmd, "list", "host"); err != nil {
				return err
			}
			if o := cmd.Flag("output"); o.Changed && o.Value.String() != out.FormatJSON {
				return croft.Errorf(croft.Invalid, "inventory: Ansible reads JSON, not %s: leave --output out", o.Value)
			}
			return within(cmd, func(ctx context.Context, c *session) error { return v.print(ctx, cmd, c) })
		},
	}
	args.AddCloudFlags(cmd.Flags())
	flags := cmd.Flags()
	flags.BoolVar(&v.list, "list", false, "print all hosts and groups; this is the default, and the flag is Ansible's")
	flags.StringVar(&v.host, "host", "", "print only the variables of the host with this `name`")
	flags.BoolVarP(&v.all, "all", "a", false, "the instances of all projects")
	flags.StringArrayVar(&v.filters, "filter", nil, args.FilterUsage)
	flags.StringVarP(&v.user, "user", "l", "", "log in as this `user`")
	flags.StringVar(&v.knownHosts, "known-hosts", "", "write the host keys of the instances to this `file`, and let ssh "+
		"use it")
	return cmd
}

// ansibleNames are names of hosts and groups that mean something else to Ansible: localhost is the machine where it
// runs.
var ansibleNames = []string{"localhost", "all", "ungrouped"}

// inert makes Ansible take a text as it is. It evaluates templates in other texts on the machine where it runs, and
// members of a project choose these.
func inert(text string) any { return map[string]string{"__ansible_unsafe": text} }

// ansibleGroup is a group of an inventory.
type ansibleGroup struct {
	Hosts    []string `json:"hosts,omitempty"`
	Children []string `json:"children,omitempty"`
}

func (v inventory) print(ctx context.Context, cmd *cobra.Command, c *session) error {
	if v.all {
		c.Project = ""
	}
	if v.knownHosts != "" { // Ansible may run ssh in another directory
		path, err := filepath.Abs(v.knownHosts)
		if err != nil {
			return err
		}
		v.knownHosts = path
	}
	all, err := c.AllInstances(ctx, api.InstanceFilter{InProject: api.InProject{Project: c.Project},
		Filtered: api.Filtered{Filter: v.filters}})
	if err != nil {
		return err
	}
	elsewhere := endpoint.Elsewhere()
	all = slices.DeleteFunc(all, func(i api.Instance) bool {
		return i.State != string(croft.StateRunning) || !elsewhere(i.Address)
	})
	c.NoteUnknownProject(cmd, len(all))
	count := map[string]int{}
	for _, i := range all {
		count[i.Name]++
	}
	variables := map[string]map[string]any{}
	printed := map[string]any{}
	groups := map[string]*ansibleGroup{}
	users := map[string]string{} // by image
	for _, i := range all {
		name := i.Name
		if count[name] > 1 || slices.Contains(ansibleNames, name) {
			name += "." + string(i.Project)
		}
		if variables[name], err = v.variables(ctx, cmd, c, i, users); err != nil {
			return err
		}
		for _, group := range groupsOf(i) {
			if groups[group] == nil {
				groups[group] = &ansibleGroup{}
				printed[group] = groups[group]
			}
			groups[group].Hosts = append(groups[group].Hosts, name)
		}
	}
	if err := v.writeKnownHosts(all); err != nil {
		return err
	}
	if v.host != "" {
		one, has := variables[v.host]
		if !has {
			return croft.Errorf(croft.NotFound, "there is no running instance %q with an address: `croft inventory` lists "+
				"them", v.host)
		}
		return out.PrintData(cmd.OutOrStdout(), out.FormatJSON, one)
	}
	names := make([]string, 0, len(groups))
	for name, group := range groups {
		slices.Sort(group.Hosts)
		names = append(names, name)
	}
	slices.Sort(names)
	printed["all"] = ansibleGroup{Children: names}
	printed["_meta"] = map[string]any{"hostvars": variables}
	return out.PrintData(cmd.OutOrStdout(), out.FormatJSON, printed)
}

// variables returns the variables of a host. users has the login users that are known already, by image.
func (v inventory) variables(ctx context.Context, cmd *cobra.Command, c *session, i api.Instance,
	users map[string]string) (map[string]any, error) {
	all := map[string]any{"ansible_host": i.Address, "croft_id": i.ID, "croft_name": inert(i.Name),
		"croft_project": inert(string(i.Project)), "croft_image": inert(i.Image)}
	tags, labels := map[string]any{}, map[string]any{}
	for key, value := range i.Tags {
		tags[key] = inert(value)
	}
	for key, value := range i.Labels {
		labels[key] = inert(value.String())
	}
	if len(tags) > 0 {
		all["croft_tags"] = tags
	}
	if len(labels) > 0 {
		all["croft_labels"] = labels
	}
	image := string(i.Project) + " " + i.Image
	user, known := users[image]
	if !known {
		var err error
		user, err = Login{User: v.user}.as(ctx, c.Client, i)
		if err != nil && !errors.Is(err, croft.Invalid) { // Invalid: the catalog has no user, and ssh has a default
			return nil, err
		}
		users[image] = user
	}
	if user != "" {
		all["ansible_user"] = inert(user)
	}
	if key := Identities(i.Keys); len(key) > 0 {
		all["ansible_ssh_private_key_file"] = key[1]
	}
	var ssh []string
	if v.knownHosts != "" && i.HostKey != "" {
		ssh = append(ssh, OnlyHostKey(v.knownHosts, string(i.ID), i.HostKey)...)
	}
	if c.Settings.Settings.Set() {
		through, err := ProxyCommand(cmd, i.ID)
		if err != nil {
			return nil, err
		}
		ssh = append(ssh, through...)
	}
	if len(ssh) > 0 {
		all["ansible_ssh_common_args"] = quoted(ssh)
	}
	return all, nil
}

// quoted joins words to a line that a shell splits into them again.
func quoted(words []string) string {
	line := make([]string, len(words))
	for n, word := range words {
		line[n] = word
		if strings.ContainsAny(word, " \t\n'\"\\$`&|;<>()*?[]#~!{}") {
			line[n] = shell.Quote(word)
		}
	}
	return strings.Join(line, " ")
}

// groupsOf returns the groups of an instance.
func groupsOf(i api.Instance) []string {
	groups := []string{"project_" + string(i.Project)}
	add := func(group, value string) {
		if value != "" { // such as the image of an instance that was installed from a CD
			groups = append(groups, group+"_"+value)
		}
	}
	add("image", i.Image)
	for k, value := range i.Tags {
		groups = append(groups, "tag_"+k)
		add("tag_"+k, value)
	}
	for k, value := range i.Labels {
		groups = append(groups, "label_"+k)
		add("label_"+k, value.String())
	}
	for n, name := range groups {
		groups[n] = groupName(name)
	}
	slices.Sort(groups)
	return slices.Compact(groups)
}

// groupName replaces each character that Ansible does not allow in the name of a group.
func groupName(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, s)
}

// writeKnownHosts writes the host keys of the instances to the file for ssh, by their UUIDs.
func (v inventory) writeKnownHosts(all []api.Instance) error {
	if v.knownHosts == "" {
		return nil
	}
	var text []byte
	slices.SortFunc(all, func(a, b api.Instance) int { return cmp.Compare(a.ID, b.ID) })
	for _, i := range all {
		if i.HostKey != "" {
			text = fmt.Appendf(text, "%s %s\n", i.ID, i.HostKey)
		}
	}
	if err := durable.Write(v.knownHosts, text, 0o600); err != nil {
		return fmt.Errorf("write the host keys: %w", err)
	}
	return nil
}
