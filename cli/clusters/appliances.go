package clusters

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"croft"
	"croft/cli/args"
	"croft/cli/verb"
	"croft/cluster"
	shippedtexts "croft/cluster/appliances"
	"croft/control/api"
	"croft/internal/out"
	"croft/schedule"
)

func applianceCommand() *cobra.Command {
	implementation := verb.Group("implementation", "Say how sites build an appliance", "", "", implementCommand(),
		implementationList(), implementationShow(), enableCommand(true), enableCommand(false), implementationRemove())
	return verb.CloudGroup("appliance", "Manage appliances: the purposes of clusters, and how sites build them",
		`appliance manages the purposes of clusters, such as slurm, and how each site builds
them: its implementations. For an OpenStack site, an implementation is a Heat template;
for the site local, a text that describes a master and a slave. It is checked before it
is stored, and errors name the line. A new text is a new revision; existing clusters are
not changed.`,
		`  croft cluster appliance create slurm --description "Slurm with a shared /home"
  croft cluster appliance implementation add slurm slurm.yaml --site lab
  croft cluster appliance implementation list slurm
  croft cluster appliance implementation disable slurm UUID`,
		appliances.List("List the appliances that the project may use"), applianceShow(), applianceCreate(),
		applianceSet(), appliances.Remove("Remove appliances without implementations",
			func(ctx context.Context, c *args.Client, name string) error {
				return c.RemoveAppliance(ctx, applianceNamed(c, name))
			}), implementation)
}

var appliances = verb.Noun[cluster.Appliance]{
	Name: "appliance",
	All: func(ctx context.Context, c *args.Client) ([]cluster.Appliance, error) {
		list, err := c.ListAppliances(ctx, api.InProject{Project: c.Project})
		return list.Appliances, err
	},
	Find: func(ctx context.Context, c *args.Client, name string) (cluster.Appliance, error) {
		return c.GetAppliance(ctx, applianceNamed(c, name))
	},
	Word: func(a cluster.Appliance) (string, string) { return a.Name, a.Description },
	Head: []string{"NAME", "PUBLIC", "PROJECT", "OWNER", "WHAT IT IS"},
	Row: func(a cluster.Appliance) []out.Cell {
		return verb.Texts(a.Name, verb.YesNo(a.Public), out.OrDash(string(a.Project)), a.Owner, a.Description)
	},
}

// applianceNamed names an appliance that the project of a command may use.
func applianceNamed(c *args.Client, name string) api.ApplianceNamed {
	return api.ApplianceNamed{InProject: api.InProject{Project: c.Project}, Name: name}
}

// implementationsOf lists how sites build an appliance.
func implementationsOf(ctx context.Context, c *args.Client, appliance string) ([]cluster.Implementation, error) {
	list, err := c.ListImplementations(ctx, applianceNamed(c, appliance))
	return list.Implementations, appliances.Near(ctx, c, appliance, err)
}

// implementationNamed names an implementation by the arguments APPLIANCE UUID.
func implementationNamed(c *args.Client) api.ImplementationNamed {
	return api.ImplementationNamed{ApplianceNamed: applianceNamed(c, c.Args[0]),
		ID: cluster.ImplementationID(c.Args[1])}
}

func applianceShow() *cobra.Command {
	return &cobra.Command{
		Use:               "show NAME",
		Short:             "Show an appliance, with the parameters that a request may give",
		ValidArgsFunction: appliances.Complete(1),
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			a, err := appliances.Find(ctx, c, c.Args[0])
			if err != nil {
				return appliances.Near(ctx, c, c.Args[0], err)
			}
			how, err := implementationsOf(ctx, c, c.Args[0])
			if err != nil {
				return err
			}
			sites, err := sites.All(ctx, c)
			if err != nil {
				return err
			}
			data := struct {
				cluster.Appliance
				Parameters []cluster.Parameter `json:"parameters"`
			}{a, cluster.RequestParameters(how, sites)}
			err = c.Print(data, func(t *out.Table) {
				t.Texts("name", a.Name)
				t.Texts("what it is", out.OrDash(a.Description))
				t.Texts("public", verb.YesNo(a.Public))
				t.Texts("owner", a.Owner+" of project "+out.OrDash(string(a.Project)))
				t.Texts("slaves at least", strconv.Itoa(a.MinSlaves))
				if a.Agent != nil {
					t.Texts("makes accounts", fmt.Sprintf("at port %d, %s", a.Agent.Port, a.Agent.Path))
				}
			})
			if err != nil || c.WantsData() || len(data.Parameters) == 0 {
				return err
			}
			fmt.Fprintln(c.Cmd.OutOrStdout())
			return c.Print(nil, func(t *out.Table) { parameterTable(t, data.Parameters) })
		}),
	}
}

// parameterTable lists the parameters that croft cluster create --parameter may give.
func parameterTable(t *out.Table, all []cluster.Parameter) {
	t.Head("PARAMETER", "TYPE", "DEFAULT", "ALLOWED", "SITES", "DESCRIPTION")
	for _, p := range all {
		value := out.OrDash(p.DefaultText())
		if p.Required {
			value = "(required)"
		} else if p.Hidden {
			value = "(hidden)"
		}
		t.Texts(p.Name, p.Type, value, out.OrDash(p.Allowed), strings.Join(p.Sites, ","), out.OrDash(p.Description))
	}
}

// applianceFlags are the properties of an appliance that flags set.
type applianceFlags struct {
	api.NewAppliance
	agent bool
	path  string
	port  int
}

func (a *applianceFlags) add(f *pflag.FlagSet) {
	f.StringVar(&a.Description, "description", "", "what it is, in a few words (`text`)")
	f.BoolVar(&a.Public, "public", false, "every project may use it; for operators")
	f.IntVar(&a.MinSlaves, "min-slaves", 0, "a cluster has at least this `number` of slaves")
	f.BoolVar(&a.agent, "agent", false, "its master makes accounts for users (croft cluster account)")
	f.IntVar(&a.port, "agent-port", 0, "at this `port` (80)")
	f.StringVar(&a.path, "agent-path", "", "at this `path` (/new_account/)")
}

// accounts returns the agent that creates accounts; nil: no agent.
func (a *applianceFlags) accounts() *cluster.Agent {
	if !a.agent && a.port == 0 && a.path == "" {
		return nil
	}
	return &cluster.Agent{Port: a.port, Path: a.path}
}

func applianceCreate() *cobra.Command {
	var a applianceFlags
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create an appliance of the project, or with --public one for all",
		RunE: func(cmd *cobra.Command, given []string) error {
			a.Name, a.Agent = given[0], a.accounts()
			return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
				if a.Project = c.Project; a.Public {
					a.Project = ""
				}
				made, err := c.CreateAppliance(ctx, a.NewAppliance)
				if err != nil {
					return err
				}
				return c.Report(made, "appliance %s is created; define with croft cluster appliance implementation "+
					"add %s "+
					"how a site builds it", made.Name, made.Name)
			})
		},
	}
	a.add(cmd.Flags())
	return cmd
}

func applianceSet() *cobra.Command {
	var a applianceFlags
	cmd := &cobra.Command{
		Use:               "set NAME",
		Short:             "Change an appliance; existing clusters are not changed",
		ValidArgsFunction: appliances.Complete(1),
		RunE: func(cmd *cobra.Command, given []string) error {
			f := cmd.Flags()
			change := cluster.ApplianceChange{Agent: a.accounts(),
				Description: verb.Given(f, "description", &a.Description), Public: verb.Given(f, "public", &a.Public),
				MinSlaves: verb.Given(f, "min-slaves", &a.MinSlaves)}
			if change == (cluster.ApplianceChange{}) {
				return croft.Errorf(croft.Invalid, "no change is given: see %s --help", cmd.CommandPath())
			}
			return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
				now, err := c.ChangeAppliance(ctx, api.ApplianceChange{ApplianceNamed: applianceNamed(c, given[0]),
					ApplianceChange: change})
				if err != nil {
					return appliances.Near(ctx, c, given[0], err)
				}
				return c.Report(now, "appliance %s is changed", now.Name)
			})
		},
	}
	a.add(cmd.Flags())
	return cmd
}

func implementCommand() *cobra.Command {
	var i api.NewImplementation
	var master, slave, file string
	var fixed []string
	cmd := &cobra.Command{
		Use:   "add APPLIANCE [FILE] --site SITE",
		Short: "Say how a site builds an appliance, from the next cluster on",
		Long: `add stores how a site builds an appliance: a file with a template of Heat, or for the
site local with a master and a slave; - reads stdin. With --image instead of a file, a
template with one machine is made of that image. With neither, it is the text that croft
ships for the appliance. --master and --slave give the resources of a host, so that
sites without room are skipped.`,
		Example: `  croft cluster appliance implementation add slurm slurm.yaml --site lab --master VCPU:2,MEMORY_MB:4096
  croft cluster appliance implementation add hosts --site lab
  croft cluster appliance implementation add desktop --image debian-13 --site lab`,
		ValidArgsFunction: func(cmd *cobra.Command, given []string, prefix string) ([]string,
			cobra.ShellCompDirective) {
			if len(given) > 0 {
				return nil, cobra.ShellCompDirectiveDefault // a file name
			}
			return appliances.Complete(1)(cmd, given, prefix)
		},
	}
	f := cmd.Flags()
	f.StringVar(&i.Site, "site", "", "the `site` that builds it with this template")
	f.StringVar(&i.Image, "image", "", "the `image` of which a template is made (croft cluster site image)")
	f.StringVar(&master, "master", "", "`resources` of the master, such as VCPU:2,MEMORY_MB:4096,DISK_GB:20")
	f.StringVar(&slave, "slave", "", "`resources` of a slave")
	f.StringArrayVar(&fixed, "parameter", nil, "`name=value` that is fixed; repeat for more")
	f.StringVar(&file, "parameters", "", "`file` with fixed parameters in YAML")
	_ = cmd.RegisterFlagCompletionFunc("site", sites.Complete(-1)) // the flag was defined above
	cmd.RunE = func(cmd *cobra.Command, given []string) (err error) {
		if i.Site == "" {
			return croft.Errorf(croft.Invalid, "name the site with --site")
		}
		if len(given) == 2 && i.Image != "" {
			return croft.Errorf(croft.Invalid, "give either a file with the template or --image")
		}
		if len(given) == 2 {
			text, err := readFile(cmd.InOrStdin(), given[1], cluster.MaxTemplate)
			if err != nil {
				return err
			}
			if i.Template = string(text); strings.TrimSpace(i.Template) == "" {
				return croft.Errorf(croft.Invalid, "%s is empty: give a file with a template, or none for what croft ships",
					given[1])
			}
		}
		if i.Resources, err = resources(master, slave); err != nil {
			return err
		}
		if i.Parameters, err = parameters(cmd.InOrStdin(), file, fixed); err != nil {
			return err
		}
		return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
			if i.Template == "" && i.Image == "" {
				site, err := sites.Find(ctx, c, i.Site)
				if err != nil {
					return sites.Near(ctx, c, i.Site, err)
				}
				if i.Template, err = shipped(given[0], site); err != nil {
					return err
				}
			}
			i.ApplianceNamed = applianceNamed(c, given[0])
			made, err := c.AddImplementation(ctx, i)
			if err != nil {
				return sites.Near(ctx, c, i.Site, appliances.Near(ctx, c, given[0], err))
			}
			return c.Report(made, "appliance %s has revision %d at site %s: %s", made.Appliance, made.Revision,
				made.Site, made.ID)
		})
	}
	return cmd
}

// shipped returns the text that croft has for an appliance at a type of site. Invalid: croft has none.
func shipped(appliance string, at cluster.Site) (string, error) {
	kinds := map[cluster.SiteType]string{cluster.Local: "local", cluster.OpenStack: "heat"}
	text, is := shippedtexts.Text(appliance, kinds[at.Type])
	if !is {
		return "", croft.Errorf(croft.Invalid, "croft ships no text for appliance %s at a site of type %s: give a file "+
			"with one, or --image", appliance, at.Type)
	}
	return text, nil
}

// resources parses the resources that a host of each role needs. Invalid.
func resources(master, slave string) (map[cluster.Role]croft.Resources, error) {
	all := map[cluster.Role]croft.Resources{}
	for role, text := range map[cluster.Role]string{cluster.Master: master, cluster.Slave: slave} {
		if text == "" {
			continue
		}
		q, err := schedule.ParseQuery(text)
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", role, err)
		}
		all[role] = q.Total()
	}
	if len(all) == 0 {
		return nil, nil
	}
	return all, nil
}

func implementationList() *cobra.Command {
	return &cobra.Command{
		Use:               "list APPLIANCE",
		Short:             "List how sites build an appliance",
		ValidArgsFunction: appliances.Complete(1),
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			all, err := implementationsOf(ctx, c, c.Args[0])
			if err != nil {
				return err
			}
			return c.Print(append([]cluster.Implementation{}, all...), func(t *out.Table) {
				t.Head("UUID", "SITE", "REVISION", "ENABLED", "BUILT BY")
				for _, i := range all {
					built := out.Bytes(int64(len(i.Template))) + " of template"
					if i.Image != "" {
						built = "image " + i.Image
					}
					t.Texts(string(i.ID), i.Site, strconv.Itoa(i.Revision), verb.YesNo(i.Enabled), built)
				}
			})
		}),
	}
}

func implementationShow() *cobra.Command {
	return &cobra.Command{
		Use:   "show APPLIANCE UUID",
		Short: "Print the template of an implementation as it was stored",
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			i, err := c.GetImplementation(ctx, implementationNamed(c))
			if err != nil {
				return appliances.Near(ctx, c, c.Args[0], err)
			}
			if c.WantsData() {
				return c.PrintData(i)
			}
			_, err = fmt.Fprint(c.Cmd.OutOrStdout(), i.Template)
			return err
		}),
		ValidArgsFunction: appliances.Complete(1),
	}
}

// enableCommand returns the command enable, or disable.
func enableCommand(enable bool) *cobra.Command {
	word, short := "disable", "End the use of an implementation for new clusters"
	if enable {
		word, short = "enable", "Permit the use of an implementation for new clusters"
	}
	return &cobra.Command{
		Use:               word + " APPLIANCE UUID",
		Short:             short,
		ValidArgsFunction: appliances.Complete(1),
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			now, err := c.ChangeImplementation(ctx, api.ImplementationChange{
				ImplementationNamed: implementationNamed(c), Enabled: enable})
			if err != nil {
				return appliances.Near(ctx, c, c.Args[0], err)
			}
			return c.Report(now, "revision %d of appliance %s at site %s is %sd", now.Revision, now.Appliance,
				now.Site, word)
		}),
	}
}

func implementationRemove() *cobra.Command {
	return &cobra.Command{
		Use:               "remove APPLIANCE UUID",
		Short:             "Remove an implementation that no cluster was built by",
		ValidArgsFunction: appliances.Complete(1),
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			if err := c.RemoveImplementation(ctx, implementationNamed(c)); err != nil {
				return appliances.Near(ctx, c, c.Args[0], err)
			}
			c.Say("implementation %s is removed", c.Args[1])
			return nil
		}),
	}
}
