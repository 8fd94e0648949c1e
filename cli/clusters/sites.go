package clusters

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"croft"
	"croft/cli/args"
	"croft/cli/verb"
	"croft/cluster"
	"croft/control/api"
	"croft/internal/command"
	"croft/internal/nearest"
	"croft/internal/out"
	"croft/internal/wording"
)

func siteCommand() *cobra.Command {
	return verb.CloudGroup("site", "Manage where clusters can be built",
		`site manages where clusters can be built: local, which is the hosts of this cloud and is
there by itself, and OpenStacks with Heat. A site says where its Keystone is, and holds no
password: each user has credentials of their own (croft cluster credential). Operators
write sites, and everybody sees where a password would be sent.`,
		`  croft cluster site create lab openstack --auth-url https://lab.example:5000/v3 --region one
  croft cluster site set lab --default network_name=private --default flavor_name=m1.small
  croft cluster site health lab
  croft cluster site set lab --enabled=false`,
		sites.List("List the sites"), sites.Show("Show a site"), siteCreate(), siteSet(),
		sites.Remove("Remove sites that no implementation, credential or cluster uses", func(ctx context.Context, c *args.Client, name string) error {
			return c.Sites.Remove(ctx, name)
		}), siteHealth(), imageCommand())
}

var sites = verb.Noun[cluster.Site]{
	Name: "site",
	All:  func(ctx context.Context, c *args.Client) ([]cluster.Site, error) { return c.Sites.List(ctx) },
	Find: func(ctx context.Context, c *args.Client, name string) (cluster.Site, error) {
		return c.Sites.Find(ctx, name)
	},
	Word: func(s cluster.Site) (string, string) { return s.Name, string(s.Type) },
	Head: []string{"NAME", "TYPE", "ENABLED", "PRIORITY", "HEALTH", "ADDRESS"},
	Row: func(s cluster.Site) []out.Cell {
		return append(verb.Texts(s.Name, string(s.Type), verb.YesNo(s.Enabled), strconv.Itoa(s.Priority)),
			health(s.Health), out.Cell{Text: out.OrDash(s.AuthURL)})
	},
	Rows: siteRows,
	Data: func(s cluster.Site) any { return api.SiteOf(s) },
}

// health describes the state of a site at the last check.
func health(h cluster.Health) out.Cell {
	switch {
	case h.OK:
		return out.Cell{Text: "ok", Color: out.Green}
	case h.Since.IsZero() && h.Error == "":
		return out.Cell{Text: "-"}
	}
	return out.Cell{Text: strings.TrimSpace("failing since " + moment(h.Since) + " " + h.Error), Color: out.Red}
}

func siteRows(t *out.Table, s cluster.Site) {
	t.Texts("name", s.Name)
	t.Texts("type", string(s.Type))
	t.Texts("enabled", verb.YesNo(s.Enabled))
	t.Texts("priority", strconv.Itoa(s.Priority))
	t.Row(out.Cell{Text: "health"}, health(s.Health))
	for _, row := range [][2]string{{"address", s.AuthURL}, {"region", s.Region}, {"interface", s.Interface}} {
		if row[1] != "" {
			t.Texts(row[0], row[1])
		}
	}
	if s.BuildTimeout > 0 {
		t.Texts("time for a build", wording.Duration(s.BuildTimeout))
	}
	if s.MaxClusters > 0 {
		t.Texts("clusters at most", strconv.Itoa(s.MaxClusters))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Defaults)) {
		t.Texts("default "+name, fmt.Sprint(s.Defaults[name]))
	}
}

// siteFlags are the properties of a site that flags set.
type siteFlags struct {
	authURL, region, face, caFile string
	enabled                       bool
	priority, most                int
	defaults                      []string
	build                         time.Duration
}

func (s *siteFlags) add(f *pflag.FlagSet) {
	f.StringVar(&s.authURL, "auth-url", "", "`URL` of its Keystone, or of the API of a croft")
	f.StringVar(&s.region, "region", "", "`name` of its region in the catalogue of Keystone")
	f.StringVar(&s.face, "interface", "", "`name` of the interface in the catalogue (public)")
	f.StringVar(&s.caFile, "ca", "", "`file` with authorities to trust beside the system's")
	f.BoolVar(&s.enabled, "enabled", true, "new clusters may be built there")
	f.IntVar(&s.priority, "priority", 0, "sites with a higher `number` come first")
	f.IntVar(&s.most, "max-clusters", 0, "the most clusters there (`number`; 0: no limit)")
	f.StringArrayVar(&s.defaults, "default", nil,
		"`name=value` for templates that declare it, such as network_name=private; repeat for more")
	command.DurationVar(f, &s.build, "build-timeout", 0, "how long a build may take (`time`; 1h)")
}

// change returns the changes that the given flags make. Invalid.
func (s *siteFlags) change(cmd *cobra.Command) (change cluster.SiteChange, err error) {
	f := cmd.Flags()
	for name, set := range map[string]func(){
		"auth-url": func() { change.AuthURL = &s.authURL }, "region": func() { change.Region = &s.region },
		"interface": func() { change.Interface = &s.face }, "enabled": func() { change.Enabled = &s.enabled },
		"priority":      func() { change.Priority = &s.priority },
		"max-clusters":  func() { change.MaxClusters = &s.most },
		"build-timeout": func() { change.BuildTimeout = (*cluster.Seconds)(&s.build) },
	} {
		if f.Changed(name) {
			set()
		}
	}
	if f.Changed("ca") {
		pem := []byte{}
		if s.caFile != "" {
			if pem, err = readFile(cmd.InOrStdin(), s.caFile, 64<<10); err != nil {
				return change, err
			}
		}
		text := string(pem)
		change.CACert = &text
	}
	if f.Changed("default") {
		if change.Defaults, err = parameters(nil, "", s.defaults); err != nil {
			return change, err
		}
	}
	return change, nil
}

func siteCreate() *cobra.Command {
	var s siteFlags
	cmd := &cobra.Command{
		Use:   "create NAME TYPE",
		Short: "Create a site: openstack, croft, or sim, which only pretends",
		RunE: func(cmd *cobra.Command, given []string) error {
			kind, err := siteType(given[1])
			if err != nil {
				return err
			}
			if err := cluster.CheckName("a site", given[0]); err != nil {
				return err
			}
			change, err := s.change(cmd)
			if err != nil {
				return err
			}
			wanted := cluster.Site{Name: given[0], Type: kind, AuthURL: s.authURL, Region: s.region, Interface: s.face,
				Enabled: s.enabled, Priority: s.priority, Defaults: change.Defaults, BuildTimeout: s.build,
				MaxClusters: s.most}
			if change.CACert != nil {
				wanted.CACert = *change.CACert
			}
			return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
				made, err := c.Sites.Create(ctx, wanted)
				if err != nil {
					return err
				}
				return c.Report(api.SiteOf(made), "site %s is there; croft cluster site health %s asks it", made.Name,
					made.Name)
			})
		},
		ValidArgsFunction: func(_ *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(given) != 1 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return newTypes, cobra.ShellCompDirectiveNoFileComp
		},
	}
	s.add(cmd.Flags())
	return cmd
}

// newTypes are the types of sites that can be created.
var newTypes = []string{string(cluster.OpenStack), string(cluster.Croft), string(cluster.Sim)}

func siteType(word string) (cluster.SiteType, error) {
	if !slices.Contains(newTypes, word) {
		return "", croft.Errorf(croft.Invalid, "%.40q is not a type of a site: use %s%s", word,
			strings.Join(newTypes, ", "), nearest.Hint(word, newTypes))
	}
	return cluster.SiteType(word), nil
}

func siteSet() *cobra.Command {
	var s siteFlags
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Change a site; clusters that are there stay",
		Long: `set changes what its flags say. --default replaces all defaults; --ca '' trusts the system's
authorities alone.`,
		ValidArgsFunction: sites.Complete(1),
		RunE: func(cmd *cobra.Command, given []string) error {
			change, err := s.change(cmd)
			if err != nil {
				return err
			}
			if change.AuthURL == nil && change.Region == nil && change.Interface == nil && change.CACert == nil &&
				change.Enabled == nil && change.Priority == nil && change.MaxClusters == nil &&
				change.Defaults == nil && change.BuildTimeout == nil {
				return croft.Errorf(croft.Invalid, "nothing is to be changed: see %s --help", cmd.CommandPath())
			}
			return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
				now, err := c.Sites.Change(ctx, given[0], change, nil)
				if err != nil {
					return sites.Near(ctx, c, given[0], err)
				}
				return c.Report(api.SiteOf(now), "site %s is changed", now.Name)
			})
		},
	}
	s.add(cmd.Flags())
	return cmd
}

func siteHealth() *cobra.Command {
	return &cobra.Command{
		Use:   "health NAME",
		Short: "Ask a site how it is, with a credential of yours if there is one",
		Long: `health asks the site now, and ends with exit code 6 where it does not answer, and 7 where it
refuses your credential.`,
		ValidArgsFunction: sites.Complete(1),
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			user, err := c.User(ctx)
			if err != nil {
				return err
			}
			h, err := c.Sites.Health(ctx, c.Args[0], c.Project, user)
			if err != nil {
				return sites.Near(ctx, c, c.Args[0], err)
			}
			if err := c.Print(h, func(t *out.Table) { healthRows(t, h) }); err != nil || h.Reachable {
				return err
			}
			return croft.Errorf(croft.Unavailable, "site %s does not answer", h.Site)
		}),
	}
}

func healthRows(t *out.Table, h cluster.SiteHealth) {
	t.Texts("site", h.Site)
	t.Texts("answers", verb.YesNo(h.Reachable))
	if h.Error != "" {
		t.Row(out.Cell{Text: "error"}, out.Cell{Text: h.Error, Color: out.Red})
	}
	if !h.Reachable {
		return
	}
	if h.Version != "" {
		t.Texts("version", h.Version)
	}
	t.Texts("builds clusters", verb.YesNo(h.Builds))
	t.Texts("accepts your credential", verb.YesNo(h.Accepted))
	for _, class := range slices.Sorted(maps.Keys(h.Free)) {
		t.Texts("free "+string(class), fmt.Sprint(h.Free[class]))
	}
}

// imageCommand returns the command croft cluster site image.
func imageCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "image",
		Short: "Bring images to sites that implementations of appliances name",
		Long: `An image for sites is a name with an address and a checksum. An implementation that names
it has it brought to its site before the first build; bring does so before that, or says
what the image is called where it is already. Images that instances boot from are those
of croft image.`,
	}
	cmd.AddCommand(imageList(), imageAdd(), imageRemove(), imageBring())
	return cmd
}

var images = verb.Noun[cluster.SiteImage]{
	Name: "image",
	All:  func(ctx context.Context, c *args.Client) ([]cluster.SiteImage, error) { return c.SiteImages.List(ctx) },
	Word: func(i cluster.SiteImage) (string, string) { return i.Name, i.Format },
}

func imageList() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the images for sites, and where they are",
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			all, err := c.SiteImages.List(ctx)
			if err != nil {
				return err
			}
			return c.Print(append([]cluster.SiteImage{}, all...), func(t *out.Table) {
				t.Head("NAME", "SITE", "STATE", "CALLED THERE", "SOURCE")
				for _, i := range all {
					imageRows(t, i)
				}
			})
		}),
	}
}

func imageRows(t *out.Table, i cluster.SiteImage) {
	if len(i.On) == 0 {
		t.Texts(i.Name, "-", "-", "-", out.OrDash(i.URL))
	}
	for _, site := range slices.Sorted(maps.Keys(i.On)) {
		at := i.On[site]
		text := string(at.State)
		if at.State == cluster.ImageUploading && at.Total > 0 {
			text += fmt.Sprintf(" %d %%", 100*at.Done/at.Total)
		}
		if at.Error != "" {
			text += ": " + at.Error
		}
		t.Texts(i.Name, site, text, out.OrDash(at.Ref), out.OrDash(i.URL))
	}
}

func imageAdd() *cobra.Command {
	var i cluster.SiteImage
	cmd := &cobra.Command{
		Use:   "add NAME",
		Short: "Add an image for sites",
		RunE: func(cmd *cobra.Command, given []string) error {
			i.Name = given[0]
			return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
				made, err := c.SiteImages.Create(ctx, i)
				if err != nil {
					return err
				}
				return c.Report(made, "image %s can be brought to sites", made.Name)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&i.URL, "url", "", "`address` where it is fetched")
	f.StringVar(&i.SHA256, "sha256", "", "its checksum (`HEX`)")
	f.StringVar(&i.Format, "format", "", "qcow2 or raw (`format`)")
	f.IntVar(&i.MinDiskGB, "min-disk", 0, "the disk that it needs, in GB (`number`)")
	f.IntVar(&i.MinRAMMB, "min-ram", 0, "the memory that it needs, in MB (`number`)")
	return cmd
}

func imageRemove() *cobra.Command {
	return images.Remove("Remove images for sites; at the sites they stay",
		func(ctx context.Context, c *args.Client, name string) error { return c.SiteImages.Remove(ctx, name) })
}

func imageBring() *cobra.Command {
	var ref string
	cmd := &cobra.Command{
		Use:   "bring NAME SITE...",
		Short: "Bring an image to sites, with a credential of yours",
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			user, err := c.User(ctx)
			if err != nil {
				return err
			}
			var errs []error
			for _, site := range c.Args[1:] {
				now, err := c.SiteImages.Bring(ctx, c.Args[0], site, ref, c.Project, user)
				if errs = append(errs, sites.Near(ctx, c, site, err)); err == nil {
					_ = c.Report(now, "image %s is brought to site %s: croft cluster site image list", now.Name, site)
				}
			}
			return errors.Join(errs...)
		}),
	}
	cmd.Flags().StringVar(&ref, "ref", "", "it is there already, and is called `this`")
	return cmd
}
