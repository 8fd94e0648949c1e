// Package images has the commands for images: their names in the catalog, this host's cache, and downloads on other
// hosts.
package images

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/compute/image"
	"croft/control/api"
	"croft/internal/command"
	"croft/internal/nearest"
	"croft/internal/out"
)

// Command returns the command croft image.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "image",
		Short: "Manage the image catalog, and the image caches of hosts",
		Long: `image manages the catalog, which gives images names, and the cache of this host, where
its agent keeps the images that it has fetched. The catalog consists of croft's own
entries, /etc/croft/images.yaml and ~/.config/croft/images.yaml; later files override
earlier ones. It is read on the machine where an instance is requested.`,
		Example: `  croft image list
  croft image add web https://example.com/web.qcow2 --sha256 HEX --user debian
  croft image show web
  croft image pull web --hosts all`,
		Args: func(cmd *cobra.Command, given []string) error {
			if len(given) > 0 {
				return croft.Errorf(croft.Invalid, "%s has no command %q%s", cmd.CommandPath(), given[0],
					nearest.Hint(given[0], command.Subcommands(cmd)))
			}
			return nil
		},
	}
	cmd.AddCommand(listCommand(), showCommand(), addCommand(), removeCommand(), pullCommand(), pruneCommand(),
		saveCommand(), shareCommand(), unshareCommand())
	return cmd
}

// entry is an image as printed: from the catalog, the cache, or both.
type entry struct {
	image.Entry
	Reference string      `json:"reference"`
	Cached    *image.Held `json:"cached,omitempty"` // the copy on this host

	Stored *api.CatalogImage `json:"stored,omitempty"` // the image of the cloud's catalog that it is
}

// inCatalog returns the images of the catalog, with their copies in the cache.
func inCatalog(catalog image.Catalog, have image.Contents) ([]entry, error) {
	var all []entry
	for _, e := range catalog.List() {
		one, err := lookedUp(catalog, have, e.Name)
		if err != nil {
			return nil, err
		}
		one.Entry = e // keeps an alias as an alias
		all = append(all, one)
	}
	return all, nil
}

func lookedUp(catalog image.Catalog, have image.Contents, nameOrRef string) (entry, error) {
	e, err := catalog.Resolve(nameOrRef)
	if err != nil {
		return entry{}, err
	}
	one := entry{Entry: e}
	if one.Reference, err = e.Reference(); err != nil {
		return entry{}, err
	}
	if held, ok := have.Of(one.Reference); ok {
		one.Cached = &held
	}
	return one, nil
}

// unnamed returns the cached images without a name in the catalog.
func unnamed(named []entry, have image.Contents) []entry {
	var all []entry
	for _, held := range have.Images {
		if slices.ContainsFunc(named, func(one entry) bool {
			return one.Cached != nil && one.Cached.Path == held.Path
		}) {
			continue
		}
		one := entry{Cached: &held}
		if len(held.References) > 0 {
			one.Reference = held.References[0]
		}
		all = append(all, one)
	}
	return all
}

// catalogAndCache reads the catalog and the cache, which list and show compare, and the output format.
func catalogAndCache(cmd *cobra.Command) (catalog image.Catalog, have image.Contents, format string, err error) {
	dir, format, err := cacheOf(cmd)
	if err != nil {
		return catalog, have, format, err
	}
	if catalog, err = image.LoadCatalog(image.CatalogFiles(), nil); err != nil {
		return catalog, have, format, err
	}
	have, err = image.Look(dir)
	if errors.Is(err, fs.ErrPermission) { // the catalog's names may still be printed
		fmt.Fprintf(cmd.ErrOrStderr(), "the cache of this host is not shown: %v\n", err)
		err = nil
	}
	return catalog, have, format, err
}

func listCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the images of the catalog and of this host's cache",
		Long: `list prints the named images, and below them the images that this host has fetched by
address. The column DISKS counts the guests' disks that are based on an image in the
cache; croft image prune removes images without any. With CROFT_URL, or after croft
login, it prints the catalog of that cloud instead, and the prefixes of the other
addresses that its tenants may use. The images of the catalog of this machine's own cloud
come first. --state-dir lists this host's images even then, and
--hosts the caches of hosts of the cloud.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if on, err := onHosts(cmd); err != nil {
				return err
			} else if on {
				return listOnHosts(cmd)
			}
			if of, err := isOfCloud(cmd); err != nil {
				return err
			} else if of {
				return listOfCloud(cmd)
			}
			if err := only(cmd, "this host's images", ofCache); err != nil {
				return err
			}
			catalog, have, format, err := catalogAndCache(cmd)
			if err != nil {
				return err
			}
			all, err := inCatalog(catalog, have)
			if err != nil {
				return err
			}
			all = append(all, unnamed(all, have)...)
			if !cmd.Flags().Changed(args.StateDirFlag.Flag) {
				all = append(storedEntries(cmd), all...)
			}
			return out.Print(cmd.OutOrStdout(), format, all, func(t *out.Table) { rows(t, all) })
		},
	}
	addCacheFlags(cmd)
	addHostsFlag(cmd)
	addCloudFlags(cmd)
	return cmd
}

// listOfCloud prints the catalog of a cloud.
func listOfCloud(cmd *cobra.Command) error {
	if err := only(cmd, "the cloud's catalog", ofCloud); err != nil {
		return err
	}
	format, err := command.FormatOf(cmd)
	if err != nil {
		return err
	}
	s, err := args.LoadSettings(cmd.Flags())
	if err != nil {
		return err
	}
	return args.WithSettings(cmd.Context(), s, func(ctx context.Context, c *args.Client) error {
		ctx, cancel := context.WithTimeout(ctx, args.AnswerTimeout)
		defer cancel()
		list, err := c.ListImages(ctx)
		if err != nil {
			return err
		}
		stored, err := c.ListCatalogImages(ctx, api.InProject{Project: c.Project})
		if err != nil {
			return err
		}
		all := struct {
			api.Catalog
			Stored []api.CatalogImage `json:"stored"` // in the cloud's own catalog
		}{list, stored.Images}
		return out.Print(cmd.OutOrStdout(), format, all, func(t *out.Table) {
			t.Head("NAME", "STATE", "SIZE", "PROJECT", "VERIFIED BY", "WHAT IT IS")
			for _, one := range stored.Images {
				row := catalogRow(one)
				t.Row(row[0], row[1], row[2], row[5], out.Cell{Text: verifiedBy(one)}, row[6])
			}
			for _, one := range list.Images {
				what := cmp.Or(one.Description, one.URL, "-")
				if one.Alias != "" {
					what = "another name of " + one.Alias
				}
				t.Texts(one.Name, "-", "-", "-", one.VerifiedBy, what)
			}
			for _, prefix := range list.Sources {
				t.Texts(prefix+"...", "-", "-", "-", "-", "any image there")
			}
		})
	})
}

// verifiedBy says what verifies an image of the cloud's catalog. All hosts but the first compare it with its SHA-256.
func verifiedBy(i api.CatalogImage) string {
	if i.SHA256 == "" || i.State != string(croft.ImageReady) {
		return "-"
	}
	if i.Origin != "" && (image.Entry{URL: i.Origin}).Verification() == image.Unverified {
		return "sha256 of the first fetch" // whatever the origin gave
	}
	return "sha256"
}

// storedEntries returns the images of the catalog of the cloud that this machine knows, if any.
func storedEntries(cmd *cobra.Command) (all []entry) {
	err := withFoundCloud(cmd, func(ctx context.Context, c *args.Client) error {
		list, err := c.ListCatalogImages(ctx, api.InProject{Project: c.Project})
		for _, i := range list.Images {
			one := image.Entry{Name: i.Name, User: i.User, Description: i.Description}
			all = append(all, entry{Entry: one, Stored: &i})
		}
		return err
	})
	if err != nil { // this host's images may still be printed
		fmt.Fprintf(cmd.ErrOrStderr(), "the cloud's catalog is not shown: %v\n", err)
	}
	return all
}

func rows(t *out.Table, all []entry) {
	t.Head("NAME", "CACHED", "DISKS", "VERIFIED BY", "WHAT IT IS")
	for _, one := range all {
		size, disks := out.Cell{Text: "-"}, "-"
		if one.Cached != nil {
			size, disks = out.Cell{Text: out.Bytes(one.Cached.Bytes), Color: out.Green}, fmt.Sprint(one.Cached.Disks)
		}
		what := cmp.Or(one.Description, one.URL, one.Reference)
		verified := one.Verification()
		if i := one.Stored; i != nil {
			verified = verifiedBy(*i)
			what = strings.TrimPrefix(fmt.Sprintf("%s; of project %s, %s", what, i.Project, i.State), "; ")
		}
		if one.Alias != "" {
			what, verified = "another name of "+one.Alias, "-"
		}
		t.Row(out.Cell{Text: cmp.Or(one.Name, "-")}, size, out.Cell{Text: disks}, out.Cell{Text: verified},
			out.Cell{Text: what})
	}
}

func showCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "show NAME|URL|PATH",
		Short:             "Show an image: its address, how it is verified, and this host's copy",
		ValidArgsFunction: args.CompleteImage,
		RunE: func(cmd *cobra.Command, given []string) error {
			if of, err := isOfCloud(cmd); err != nil {
				return err
			} else if of {
				if err := only(cmd, "the cloud's catalog", ofCloud); err != nil {
					return err
				}
				return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
					return catalog.PrintOne(ctx, c, given[0])
				})
			}
			if err := only(cmd, "this host's images", ofCache); err != nil {
				return err
			}
			files, have, format, err := catalogAndCache(cmd)
			if err != nil {
				return err
			}
			if !image.IsReference(given[0]) && !cmd.Flags().Changed(args.StateDirFlag.Flag) {
				shown := false // requests prefer the cloud's catalog too
				err := withFoundCloud(cmd, func(ctx context.Context, c *args.Client) error {
					_, err := c.GetCatalogImage(ctx, inCloud(c, given[0]))
					if err == nil {
						shown, err = true, catalog.PrintOne(ctx, c, given[0])
					}
					return err
				})
				if shown {
					return err
				}
				if err != nil && !errors.Is(err, croft.NotFound) {
					fmt.Fprintf(cmd.ErrOrStderr(), "the cloud's catalog is not shown: %v\n", err)
				}
			}
			one, err := lookedUp(files, have, given[0])
			if err != nil {
				return err
			}
			return out.Print(cmd.OutOrStdout(), format, one, one.rows)
		},
	}
	addCacheFlags(cmd)
	addCloudFlags(cmd)
	return cmd
}

func (one entry) rows(t *out.Table) {
	t.Texts("name", one.Name)
	t.Texts("address", one.URL)
	t.Texts("verified by", one.Verification())
	for _, row := range [][2]string{{"what it is", one.Description}, {"log in as", one.User},
		{"architecture", string(one.Arch)}} {
		if row[1] != "" {
			t.Texts(row[0], row[1])
		}
	}
	if one.Cached == nil {
		t.Texts("cached", "not on this host")
		return
	}
	t.Texts("cached", out.Bytes(one.Cached.Bytes))
	t.Texts("disks on it", fmt.Sprint(one.Cached.Disks))
	t.Texts("file", one.Cached.Path)
	t.Texts("format", one.Cached.Format)
	t.Texts("disk", out.Bytes(one.Cached.VirtualSize))
	t.Texts("sha256", one.Cached.SHA256)
}
