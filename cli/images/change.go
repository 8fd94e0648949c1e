package images

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/compute/image"
	"croft/control/api"
	"croft/internal/command"
	"croft/internal/out"
	"croft/internal/wording"
)

func addCommand() *cobra.Command {
	var e image.Entry
	var machine, replace bool
	var stored api.NewCatalogImage
	cmd := &cobra.Command{
		Use:   "add NAME URL|PATH|NAME",
		Short: "Give an image a name",
		Long: `add adds an image to the cloud's catalog if a project or --public is given, or CROFT_URL or
a login names a cloud: a file of this machine is uploaded, and an address is fetched once
by a host. Hosts get the image from each other. An upload that broke off continues with
the same command. The project is charged its IMAGE_GB. With --convert, a host converts an
OVA with one disk, or a VMDK, VHDX, VHD or VDI in one file, in a sandbox; drivers of the
guest are not changed.

Otherwise add writes a name into the catalog: your own, ~/.config/croft/images.yaml, or with
--machine the one of this machine, /etc/croft/images.yaml. The second argument is where
hosts fetch the image, or an existing name, of which the new name becomes an alias.

Without a checksum the image is not verified. Give one of --sha256, --sha512 and --sums;
an upload is compared with --sha256 or --sha512 before it is sent;
--sums names the publisher's own list, so that newer versions are accepted too. With
--signed-by that list must have a signature by a key in the keyring, a file on the hosts.
--signature names the file with the signature, if the list does not contain it. Addresses
of lists and signatures are relative to the image's.`,
		Example: `  croft image add web https://example.com/web.qcow2.xz --sums SHA256SUMS --user debian
  croft image add jammy https://cloud-images.ubuntu.com/jammy/current/jammy-server-cloudimg-amd64.img \
    --sums SHA256SUMS --signature SHA256SUMS.gpg \
    --signed-by /usr/share/keyrings/ubuntu-cloudimage-keyring.gpg --user ubuntu
  croft image add web web.qcow2 --project lab --user debian
  croft image add old-web web.ova --convert --project lab
  croft image add debian-13 debian-13 --public
  croft image add lab /srv/images/lab.raw
  croft image add latest debian-13`,
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, name := range checks {
				if f := cmd.Flags().Lookup(name); f.Changed && f.Value.String() == "" {
					return croft.Errorf(croft.Invalid, "--%s is empty: the image would not be verified; give its value, or "+
						"leave it out", name)
				}
			}
			if err := e.Arch.Check(); err != nil {
				return err
			}
			if of, err := isOfCloud(cmd); err != nil {
				return err
			} else if of {
				return addNamed(cmd, e, stored, args[0], args[1])
			}
			if stored.Convert {
				return croft.Errorf(croft.Invalid, "a host of a cloud converts a file: add --project or --public to --convert")
			}
			if err := only(cmd, "a catalog in a file", checks, []string{"user", "description", "arch", "machine",
				"replace"}); err != nil {
				return err
			}
			e.Name = args[0]
			if image.IsReference(args[1]) {
				e.URL = args[1]
			} else {
				e.Alias = args[1]
			}
			files := image.CatalogFiles()
			file, others := files[1], files[:1]
			if machine {
				file, others = files[0], nil
			}
			if err := image.AddToCatalog(file, others, e, replace); err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "image %s is in %s\n", e.Name, file)
			if !machine {
				fmt.Fprintln(cmd.ErrOrStderr(),
					"only your own commands know it; --machine adds it for pools, clusters and tenants too")
			}
			if e.Alias == "" && e.Verification() == image.Unverified {
				fmt.Fprintln(cmd.ErrOrStderr(), "it will not be verified: add --sha256 to verify it")
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&e.SHA256, "sha256", "", "its checksum (`HEX`)")
	f.StringVar(&e.SHA512, "sha512", "", "its checksum (`HEX`)")
	f.StringVar(&e.Sums, "sums", "", "`address` of the publisher's list of checksums")
	f.StringVar(&e.SignedBy, "signed-by", "", "`keyring` on the hosts, with a key that must have signed the list")
	f.StringVar(&e.Signature, "signature", "", "`address` of the list's signature, if the list does not contain one")
	f.StringVar(&e.User, "user", "", "whom to log in as")
	f.StringVar((*string)(&e.Arch), "arch", "", "the `architecture` of the machines that start from it: x86_64 or aarch64 (as "+
		"its name or address says, else x86_64)")
	f.StringVar(&e.Description, "description", "", "what it is, in a few words")
	f.BoolVar(&machine, "machine", false, "write the catalog of this machine, not your own")
	f.BoolVar(&replace, "replace", false, "replace an image of that name")
	f.BoolVar(&stored.Public, "public", false, "add it to the cloud's catalog for all projects; for operators")
	f.Int64Var(&stored.MaxGB, "max-gb", 0, "the most that an image in the cloud's catalog may have that is fetched or "+
		"converted, in GiB (`number`; 10)")
	f.BoolVar(&stored.Convert, "convert", false, "the file is an OVA, VMDK, VHDX, VHD or VDI; a host converts it")
	addCloudFlags(cmd)
	return cmd
}

// checks are the flags that say how an image is verified.
var checks = []string{"sha256", "sha512", "sums", "signed-by", "signature"}

// addNamed adds an image to the cloud's catalog, with the data that verifies it.
func addNamed(cmd *cobra.Command, e image.Entry, given api.NewCatalogImage, name, source string) error {
	object, used := "an image that a host fetches", append([]string{"max-gb"}, checks...)
	switch {
	case given.Convert && !isFile(source):
		return croft.Errorf(croft.Invalid, "%s is no file of this machine: only an upload is converted", source)
	case given.Convert:
		object, used = "a file that is uploaded", []string{"sha256", "sha512", "convert", "max-gb"}
	case isFile(source):
		object, used = "a file that is uploaded", []string{"sha256", "sha512"}
	case !image.IsReference(source):
		object, used = "an image that already has a name, and its own verification", []string{"max-gb"}
	}
	if err := only(cmd, object, ofCloud, []string{"public", "user", "description", "arch"}, used); err != nil {
		return err
	}
	given.Name, given.User, given.Description, given.Arch = name, e.User, e.Description, e.Arch
	e.Name, e.URL = name, source
	switch {
	case isFile(source):
		// The reference is of no use to hosts, but its checks must be well-formed.
		path, err := filepath.Abs(source)
		if err != nil {
			return croft.Errorf(croft.Invalid, "upload %s: %w", source, err)
		}
		e.URL = (&url.URL{Scheme: "file", Path: path}).String()
		if _, err := e.Reference(); err != nil {
			return err
		}
	case slices.ContainsFunc(checks, cmd.Flags().Changed):
		var err error
		if source, err = e.Reference(); err != nil {
			return err
		}
	}
	return addToCloud(cmd, given, source, e)
}

func removeCommand() *cobra.Command {
	var machine, cached bool
	cmd := &cobra.Command{
		Use:   "remove NAME|URL|PATH|SHA256",
		Short: "Remove a name from the catalog, or an image from this host's cache",
		Long: `remove removes an image of the cloud's catalog if a project is given, or CROFT_URL or a
login names a cloud. Instances that were made from it keep their disks, and cannot be
rebuilt.

Otherwise remove removes a name that croft image add has written from the catalog: from
your own, or with --machine from the one of this machine.

With --cached it removes an image from this host's cache, by its name, URL, path or
SHA-256, so that it is fetched again. Guests whose disks are based on it keep it: its
space becomes free with the last of those disks. With --hosts it does so on hosts of the
cloud.`,
		Example: `  croft image remove web
  croft image remove --cached debian-12
  croft image remove --cached debian-12 --hosts all`,
		ValidArgsFunction: args.CompleteImage,
		RunE: func(cmd *cobra.Command, given []string) error {
			switch {
			case cached && machine:
				return croft.Errorf(croft.Invalid, "give one of --cached and --machine")
			case !cached && cmd.Flags().Changed("hosts"):
				return croft.Errorf(croft.Invalid, "--hosts selects caches of hosts: add --cached")
			case cached:
				return removeCached(cmd, given[0])
			}
			files := image.CatalogFiles()
			file, others := files[1], files[:1]
			if machine {
				file, others = files[0], nil
			}
			if of, err := isOfCloud(cmd); err != nil {
				return err
			} else if of {
				if err := only(cmd, "the cloud's catalog", ofCloud); err != nil {
					return err
				}
				return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
					if err := c.RemoveCatalogImage(ctx, inCloud(c, given[0])); err != nil {
						return catalog.Near(ctx, c, given[0], err)
					}
					fmt.Fprintf(cmd.ErrOrStderr(), "image %s is removed from the cloud's catalog\n", given[0])
					return nil
				})
			}
			if err := only(cmd, "a catalog in a file", []string{"machine"}); err != nil {
				return err
			}
			if err := image.RemoveFromCatalog(file, others, given[0]); err != nil {
				return storedInstead(cmd, given[0], err)
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "image %s is no longer in %s\n", given[0], file)
			return nil
		},
	}
	cmd.Flags().BoolVar(&machine, "machine", false, "from the catalog of this machine, not your own")
	cmd.Flags().BoolVar(&cached, "cached", false, "from this host's cache, and not from a catalog")
	addCacheFlags(cmd)
	addHostsFlag(cmd)
	addCloudFlags(cmd)
	return cmd
}

// storedInstead adds to the error about a name that a catalog in a file lacks how the image of that name in the cloud's
// catalog is removed. It is not removed without a word about the cloud: a file can be added again.
func storedInstead(cmd *cobra.Command, name string, lacks error) error {
	if !errors.Is(lacks, croft.NotFound) || cmd.Flags().Changed("machine") {
		return lacks
	}
	var remedy string
	_ = withFoundCloud(cmd, func(ctx context.Context, c *args.Client) error {
		i, err := c.GetCatalogImage(ctx, inCloud(c, name))
		if err == nil {
			remedy = commandFor("remove", i)
		}
		return err
	}) // the error about the file is the one that matters
	if remedy == "" {
		return lacks
	}
	return fmt.Errorf("%w; the cloud's catalog has one: `%s` removes that", lacks, remedy)
}

// stored returns the image with a name that no file has, according to an error, from the catalog of a cloud; false: no
// cloud was found, or its catalog has no such image.
func stored(cmd *cobra.Command, name string, lacks error) (i api.CatalogImage, is bool) {
	if !errors.Is(lacks, croft.NotFound) {
		return i, false
	}
	err := withFoundCloud(cmd, func(ctx context.Context, c *args.Client) (err error) {
		i, err = c.GetCatalogImage(ctx, inCloud(c, name))
		return err
	}) // the error about the files is the one that matters
	return i, err == nil && i.SHA256 != ""
}

func removeCached(cmd *cobra.Command, what string) error {
	if on, err := onHosts(cmd, "cached"); err != nil {
		return err
	} else if on {
		return removeOnHosts(cmd, what)
	}
	if err := only(cmd, "the cache of this host", ofCache, []string{"cached"}); err != nil {
		return err
	}
	dir, format, err := cacheOf(cmd)
	if err != nil {
		return err
	}
	reference := what
	if !isSHA256(what) {
		reference, err = image.ReferenceFor(what)
		if i, is := stored(cmd, what, err); is {
			reference, err = i.SHA256, nil
		}
		if err != nil {
			return err
		}
	}
	held, err := image.Remove(dir, reference)
	if err != nil {
		return fmt.Errorf("remove image %s: %w", what, err)
	}
	if held.Disks > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "its space stays in use by %s that the host made of it\n",
			wording.Count(held.Disks, "disk"))
	}
	return printPruned(cmd, format, []image.Held{held})
}

// isSHA256 reports whether s is a checksum, not a name.
func isSHA256(s string) bool { return regexp.MustCompile("^[0-9a-f]{64}$").MatchString(s) }

func pruneCommand() *cobra.Command {
	var dry bool
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove unused images from this host's cache",
		Long: `prune removes from this host's cache the images that are not the base of a guest's disk
and were not used in the last ten minutes, and prints them. The agent may run meanwhile:
an image that is requested again is fetched again. With --hosts it does so on hosts of
the cloud.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if on, err := onHosts(cmd, "dry-run"); err != nil {
				return err
			} else if on {
				if dry {
					return croft.Errorf(croft.Invalid, "--dry-run works only for this host: croft image list "+
						"--hosts lists the images of hosts")
				}
				return removeOnHosts(cmd, "")
			}
			if err := only(cmd, "the cache of this host", ofCache, []string{"dry-run"}); err != nil {
				return err
			}
			dir, format, err := cacheOf(cmd)
			if err != nil {
				return err
			}
			removed, err := image.Prune(dir, dry)
			if printed := printPruned(cmd, format, removed); err == nil {
				err = printed
			}
			if err != nil {
				return err
			}
			var sum int64
			for _, h := range removed {
				sum += h.Bytes
			}
			done := "removed"
			if dry {
				done = "would be removed"
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: %d, of %s\n", done, len(removed), out.Bytes(sum))
			return nil
		},
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "print what would be removed and remove nothing")
	addCacheFlags(cmd)
	addHostsFlag(cmd)
	return cmd
}

func printPruned(cmd *cobra.Command, format string, removed []image.Held) error {
	if out.IsData(format) {
		return out.PrintData(cmd.OutOrStdout(), format, append([]image.Held{}, removed...)) // never null
	}
	t := &out.Table{Color: out.IsColored(cmd.OutOrStdout())}
	t.Head("SIZE", "FORMAT", "SHA256", "FETCHED AS")
	for _, h := range removed {
		t.Texts(out.Bytes(h.Bytes), h.Format, h.SHA256, strings.Join(h.References, " "))
	}
	if len(removed) == 0 {
		return nil
	}
	return t.Print(cmd.OutOrStdout())
}

// addCacheFlags defines the flags of commands that read this host's cache.
func addCacheFlags(cmd *cobra.Command) {
	args.AddHostFlags(cmd, args.StateDirFlag)
	command.AddFormat(cmd)
}

// cacheOf returns the directory of this host's cache and the format of the output.
func cacheOf(cmd *cobra.Command) (dir, format string, err error) {
	if format, err = command.FormatOf(cmd); err != nil {
		return "", "", err
	}
	s, _, err := args.LoadHostSettings(cmd, args.StateDirFlag)
	return image.CacheDir(s.StateDir), format, err
}
