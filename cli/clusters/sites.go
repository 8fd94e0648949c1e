package clusters

import (
	"context"
	"fmt"
	"maps"
	"reflect"
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
		`site manages where clusters can be built: local, the hosts of this cloud, which always
exists, and OpenStack clouds with Heat. A site has the address of its Keystone, and no
password: each user stores credentials (croft cluster credential). Only operators change
sites; all users can see the address to which a password would be sent.`,
		`  croft cluster site create lab openstack --auth-url https://lab.example:5000/v3 --region one
  croft cluster site set lab --default network_name=private --default flavor_name=m1.small
  croft cluster site health lab
  croft cluster site set lab --enabled=false`,
		sites.List("List the sites"), sites.Show("Show a site"), siteCreate(), siteSet(),
		sites.Remove("Remove sites that no implementation, credential or cluster uses",
			func(ctx context.Context, c *args.Client, name string) error {
				return c.RemoveSite(ctx, api.SiteNamed{Name: name})
			}), siteHealth(), imageCommand())
}

var sites = verb.Noun[cluster.Site]{
	Name: "site",
	All: func(ctx context.Context, c *args.Client) ([]cluster.Site, error) {
		list, err := c.ListSites(ctx)
		return list.Sites, err
	},
	Find: func(ctx context.Context, c *args.Client, name string) (cluster.Site, error) {
		return c.GetSite(ctx, api.SiteNamed{Name: name})
	},
	Word: func(s cluster.Site) (string, string) { return s.Name, string(s.Type) },
	Head: []string{"NAME", "TYPE", "ENABLED", "PRIORITY", "HEALTH", "ADDRESS"},
	Row: func(s cluster.Site) []out.Cell {
		return append(verb.Texts(s.Name, string(s.Type), verb.YesNo(s.Enabled), strconv.Itoa(s.Priority)),
			health(s.Health), out.Cell{Text: out.OrDash(s.AuthURL)})
	},
	Rows: siteRows,
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
		t.Texts("time for a build", wording.Duration(time.Duration(s.BuildTimeout)))
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
	api.NewSite
	caFile   string
	enabled  bool
	defaults []string
}

func (s *siteFlags) add(f *pflag.FlagSet) {
	f.StringVar(&s.AuthURL, "auth-url", "", "`URL` of its Keystone, or of the API of a croft")
	f.StringVar(&s.Region, "region", "", "`name` of its region in the catalogue of Keystone")
	f.StringVar(&s.Interface, "interface", "", "`name` of the interface in the catalogue (public)")
	f.StringVar(&s.caFile, "ca", "", "`file` with authorities to trust in addition to the system's")
	f.BoolVar(&s.enabled, "enabled", true, "new clusters may be built there")
	f.IntVar(&s.Priority, "priority", 0, "sites with a higher `number` come first")
	f.IntVar(&s.MaxClusters, "max-clusters", 0, "the most clusters there (`number`; 0: no limit)")
	f.StringArrayVar(&s.defaults, "default", nil,
		"`name=value` for templates that declare it, such as network_name=private; repeat for more")
	command.DurationVar(f, &s.BuildTimeout, "build-timeout", 0,
		"how long a build may take (`time`; 1h)")
}

// read completes the properties by the file and the defaults that the flags name. Invalid.
func (s *siteFlags) read(cmd *cobra.Command) error {
	s.Enabled = &s.enabled
	if s.caFile != "" {
		pem, err := readFile(cmd.InOrStdin(), s.caFile, 64<<10)
		if err != nil {
			return err
		}
		s.CACert = string(pem)
	}
	var err error
	s.Defaults, err = parameters(nil, "", s.defaults)
	return err
}

func siteCreate() *cobra.Command {
	var s siteFlags
	cmd := &cobra.Command{
		Use:   "create NAME TYPE",
		Short: "Create a site: openstack, croft, or sim, which simulates a site",
		RunE: func(cmd *cobra.Command, given []string) (err error) {
			s.Name = given[0]
			if s.Type, err = siteType(given[1]); err != nil {
				return err
			}
			if err := cluster.CheckName("a site", s.Name); err != nil {
				return err
			}
			if err := s.read(cmd); err != nil {
				return err
			}
			return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
				made, err := c.CreateSite(ctx, s.NewSite)
				if err != nil {
					return err
				}
				return c.Report(made, "site %s is created; check it with croft cluster site health "+
					"%s", made.Name, made.Name)
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
		Short: "Change a site; existing clusters are not changed",
		Long: `set changes what its flags say. --default replaces all defaults; --ca '' trusts only the
system's authorities.`,
		ValidArgsFunction: sites.Complete(1),
		RunE: func(cmd *cobra.Command, given []string) error {
			if err := s.read(cmd); err != nil {
				return err
			}
			f := cmd.Flags()
			change := cluster.SiteChange{AuthURL: verb.Given(f, "auth-url", &s.AuthURL),
				Region: verb.Given(f, "region", &s.Region), Interface: verb.Given(f, "interface", &s.Interface),
				CACert: verb.Given(f, "ca", &s.CACert), Enabled: verb.Given(f, "enabled", s.Enabled),
				Priority: verb.Given(f, "priority", &s.Priority), Defaults: s.Defaults,
				BuildTimeout: verb.Given(f, "build-timeout", &s.BuildTimeout),
				MaxClusters:  verb.Given(f, "max-clusters", &s.MaxClusters)}
			if reflect.ValueOf(change).IsZero() {
				return croft.Errorf(croft.Invalid, "no change is given: see %s --help", cmd.CommandPath())
			}
			return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
				now, err := c.ChangeSite(ctx, api.SiteChange{SiteNamed: api.SiteNamed{Name: given[0]},
					SiteChange: change})
				if err != nil {
					return sites.Near(ctx, c, given[0], err)
				}
				return c.Report(now, "site %s is changed", now.Name)
			})
		},
	}
	s.add(cmd.Flags())
	return cmd
}

func siteHealth() *cobra.Command {
	return &cobra.Command{
		Use:   "health NAME",
		Short: "Check whether a site works, with your credential if you have one",
		Long: `health calls the site now. It exits with 6 if the site does not answer, and with 7 if it
refuses your credential.`,
		ValidArgsFunction: sites.Complete(1),
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			h, err := c.GetSiteHealth(ctx, api.SiteInProject{SiteNamed: api.SiteNamed{Name: c.Args[0]},
				InProject: api.InProject{Project: c.Project}})
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
	return verb.Group("image", "Manage the images that implementations of appliances use at sites",
		`An image for sites is a name with an address and a checksum. An image that an
implementation names is uploaded to the site before the first build. bring uploads it
earlier, or records the name of an image that the site already has. The images of this
cloud's own instances are in croft image.`, "", imageList(), imageAdd(), images.Remove("Remove images for sites; at "+
			"the sites they stay",
			func(ctx context.Context, c *args.Client, name string) error {
				return c.RemoveImage(ctx, api.ImageNamed{Name: name})
			}), imageBring())
}

var images = verb.Noun[cluster.SiteImage]{
	Name: "image",
	All: func(ctx context.Context, c *args.Client) ([]cluster.SiteImage, error) {
		catalog, err := c.ListImages(ctx)
		return catalog.SiteImages, err
	},
	Word: func(i cluster.SiteImage) (string, string) { return i.Name, i.Format },
}

func imageList() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the images for sites, and where they are",
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			all, err := images.All(ctx, c)
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
	var i api.NewSiteImage
	cmd := &cobra.Command{
		Use:   "add NAME",
		Short: "Add an image for sites",
		RunE: func(cmd *cobra.Command, given []string) error {
			i.Name = given[0]
			return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
				made, err := c.AddImage(ctx, i)
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

func imageBring() *cobra.Command {
	var ref string
	cmd := &cobra.Command{
		Use:   "bring NAME SITE...",
		Short: "Upload an image to sites, with your credential",
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			return verb.Each(c.Args[1:], sites.Known(ctx, c), func(site string) error {
				now, err := c.BringImage(ctx, api.ImageAtSite{ImageNamed: api.ImageNamed{Name: c.Args[0]},
					InProject: api.InProject{Project: c.Project}, Site: site, Ref: ref})
				if err != nil {
					return sites.Near(ctx, c, site, err)
				}
				return c.Report(now, "image %s is brought to site %s: croft cluster site image list", now.Name, site)
			})
		}),
	}
	cmd.Flags().StringVar(&ref, "ref", "", "the site already has the image, under this `name`")
	return cmd
}
