package images

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"croft"
	"croft/cli/args"
	"croft/cli/verb"
	"croft/compute/image"
	"croft/control/api"
	"croft/internal/delay"
	"croft/internal/out"
	"croft/internal/userfile"
)

// cloudFlags are the flags that name a cloud or its catalog.
var cloudFlags = []string{"project", "public", "max-gb", "context", "partition", "etcd", "placement", "cloud"}

// isOfCloud reports whether a command is about the cloud's catalog: a flag says so, or the settings or a login name a
// cloud, and the command is not about files of this machine.
func isOfCloud(cmd *cobra.Command) (bool, error) {
	for _, name := range []string{"machine", "cached", "hosts", "state-dir", "replace"} {
		if cmd.Flags().Changed(name) {
			return false, nil
		}
	}
	if slices.ContainsFunc(cloudFlags, cmd.Flags().Changed) {
		return true, nil
	}
	s, err := args.RemoteSettings(cmd.Flags())
	return err == nil && s.Settings.Set() && !s.Settings.Found, err
}

// withFoundCloud calls do with the cloud that settings or this machine name; without one, it does nothing.
func withFoundCloud(cmd *cobra.Command, do func(context.Context, *args.Client) error) error {
	s, found, err := args.FindSettings(cmd.Flags())
	if err != nil || !found {
		return err
	}
	if f := cmd.Flags().Lookup("output"); f.Changed {
		s.Output = f.Value.String()
	}
	if f := cmd.Flags().Lookup("project"); f != nil && f.Changed {
		s.Project = f.Value.String()
	}
	return args.WithSettings(cmd.Context(), s, func(ctx context.Context, c *args.Client) error {
		c.Cmd = cmd
		ctx, cancel := context.WithTimeout(ctx, args.AnswerTimeout)
		defer cancel()
		return do(ctx, c)
	})
}

var catalog = verb.Noun[api.CatalogImage]{
	Name: "image",
	All: func(ctx context.Context, c *args.Client) ([]api.CatalogImage, error) {
		list, err := c.ListCatalogImages(ctx, api.InProject{Project: c.Project})
		return list.Images, err
	},
	Find: func(ctx context.Context, c *args.Client, name string) (api.CatalogImage, error) {
		return c.GetCatalogImage(ctx, inCloud(c, name))
	},
	Word: func(i api.CatalogImage) (string, string) { return i.Name, i.State },
	Head: catalogHead,
	Row:  catalogRow,
	Rows: func(t *out.Table, i api.CatalogImage) {
		var shares []string
		for _, p := range i.Shares {
			shares = append(shares, string(p))
		}
		for _, row := range [][2]string{{"name", i.Name}, {"id", string(i.ID)}, {"project", string(i.Project)},
			{"public", verb.YesNo(i.Public)}, {"state", i.State}, {"error", i.Error}, {"what it is", i.Description},
			{"log in as", i.User}, {"size", out.Bytes(i.SizeBytes)}, {"disk", bytesOf(i.DiskBytes)},
			{"format", i.Format}, {"architecture", string(i.Arch)},
			{"sha256", i.SHA256}, {"charged", fmt.Sprintf("IMAGE_GB:%d", i.ChargedGB)}, {"saved from", string(i.Saved)},
			{"shared with", strings.Join(shares, " ")}, {"copies", fmt.Sprint(i.Copies)},
			{"hosts", strings.Join(i.Hosts, " ")}, {"origin", i.Origin}, {"created", i.Made.Format(time.DateTime)}} {
			if row[1] != "" {
				t.Texts(row[0], row[1])
			}
		}
	},
}

var catalogHead = []string{"NAME", "STATE", "SIZE", "DISK", "COPIES", "PROJECT", "WHAT IT IS"}

func catalogRow(i api.CatalogImage) []out.Cell {
	owner := string(i.Project)
	if i.Public {
		owner = "public"
	}
	return verb.Texts(i.Name, i.State, out.Bytes(i.SizeBytes), cmp.Or(bytesOf(i.DiskBytes), "-"), fmt.Sprint(i.Copies),
		owner, cmp.Or(i.Description, "-"))
}

func bytesOf(n int64) string {
	if n == 0 {
		return ""
	}
	return out.Bytes(n)
}

func inCloud(c *args.Client, name string) api.CatalogImageNamed {
	return api.CatalogImageNamed{InProject: api.InProject{Project: c.Project}, Name: name}
}

// addCloudFlags defines the flags of commands that connect to a cloud, except the ones that the command has already.
func addCloudFlags(cmd *cobra.Command) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	args.AddCloudFlags(flags)
	cmd.Flags().AddFlagSet(flags)
}

// statePoll is how often a command looks whether an image is ready.
const statePoll = 200 * time.Millisecond

// awaitReady returns the image once it is ready. An error says why it is not going to be.
func awaitReady(ctx context.Context, c *args.Client, i api.CatalogImage) (api.CatalogImage, error) {
	said := ""
	for i.State == string(croft.ImagePending) {
		if i.Error != said {
			said = i.Error
			fmt.Fprintf(c.Cmd.ErrOrStderr(), "image %s: %s; that is tried again\n", i.Name, said)
		}
		now, err := i, delay.For(ctx, statePoll)
		if err == nil {
			now, err = verb.Asked(ctx, c.GetCatalogImage, inCloud(c, i.Name))
		}
		if err != nil {
			return i, fmt.Errorf("wait for image %s: %w; %s", i.Name, err, pendingRemedy(i))
		}
		i = now
	}
	if i.State != string(croft.ImageReady) {
		return i, croft.Errorf(croft.Invalid, "image %s is %s: %s; `%s` removes its name", i.Name, i.State,
			i.Error, commandFor("remove", i))
	}
	return i, nil
}

// commandFor returns a command for an image, which finds it wherever it is typed.
func commandFor(verb string, i api.CatalogImage) string {
	return fmt.Sprintf("croft image %s %s --project %s", verb, i.Name, i.Project)
}

// pendingRemedy says what becomes of an image that is not ready, and what to do about it.
func pendingRemedy(i api.CatalogImage) string {
	return fmt.Sprintf("it is pending, goes on without this command, and is charged IMAGE_GB:%d; `%s` shows its state, "+
		"and `%s` ends it", i.ChargedGB, commandFor("show", i), commandFor("remove", i))
}

// resumed returns a pending image that an earlier command of the same words requested. Otherwise it returns the error
// that the name is taken. The origin is compared, because another one may have another checksum; callers who do not see
// it cannot resume.
func resumed(ctx context.Context, c *args.Client, given api.NewCatalogImage, taken error) (api.CatalogImage, error) {
	was, err := verb.Asked(ctx, c.GetCatalogImage, inCloud(c, given.Name))
	if err != nil || was.State != string(croft.ImagePending) {
		return was, taken
	}
	if was.Origin != given.URL || was.Public != given.Public || was.User != given.User ||
		was.Description != given.Description || given.Arch != "" && was.Arch != given.Arch {
		return was, fmt.Errorf("%w; %s", taken, pendingRemedy(was))
	}
	return was, nil
}

// addToCloud adds an image to the cloud's catalog, and waits until it is ready.
// A file is compared with the checksums of want before it is uploaded.
func addToCloud(cmd *cobra.Command, given api.NewCatalogImage, source string, want image.Entry) error {
	return args.With(cmd, func(ctx context.Context, c *args.Client) (err error) {
		given.Project = c.Project
		var i api.CatalogImage
		if isFile(source) {
			i, err = upload(ctx, c, given, source, want)
		} else if given.Convert {
			return croft.Errorf(croft.Invalid, "%s is no file of this machine: only an upload is converted", source)
		} else {
			given.URL = source
			i, err = verb.Asked(ctx, c.CreateCatalogImage, given)
			if errors.Is(err, croft.Conflict) {
				i, err = resumed(ctx, c, given, err)
			}
			if err == nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "image %s is being fetched by a host\n", given.Name)
			}
		}
		if err == nil {
			i, err = awaitReady(ctx, c, i)
		}
		if err != nil {
			return err
		}
		return c.Report(i, "image %s is in the cloud's catalog: %s", i.Name, out.Bytes(i.SizeBytes))
	})
}

// isFile reports whether the source of an image is a file of this machine.
func isFile(source string) bool {
	info, err := os.Stat(source)
	return err == nil && info.Mode().IsRegular()
}

const (
	chunkSize   = 16 << 20
	uploadTries = 5 // that a chunk is sent without any progress
)

// upload uploads a file that has the checksums of want. An earlier upload of this file to an image of the name
// continues.
func upload(ctx context.Context, c *args.Client, given api.NewCatalogImage, path string,
	want image.Entry) (i api.CatalogImage, err error) {
	f, err := userfile.Open(path)
	if err != nil {
		return i, fmt.Errorf("upload %s: %w", path, err)
	}
	defer f.Close()
	sum, sum512 := sha256.New(), sha512.New()
	sums := []io.Writer{sum}
	if want.SHA512 != "" {
		sums = append(sums, sum512)
	}
	if given.SizeBytes, err = io.Copy(io.MultiWriter(sums...), contextReader{ctx, f}); err != nil {
		return i, croft.Errorf(croft.Invalid, "read %s: %w", path, err)
	}
	if given.SizeBytes == 0 {
		return i, croft.Errorf(croft.Invalid, "upload %s: the file is empty", path)
	}
	given.SHA256 = hex.EncodeToString(sum.Sum(nil))
	if want.SHA256 != "" && !strings.EqualFold(want.SHA256, given.SHA256) {
		return i, wrongSum(path, "SHA-256", given.SHA256)
	}
	if has := hex.EncodeToString(sum512.Sum(nil)); want.SHA512 != "" && !strings.EqualFold(want.SHA512, has) {
		return i, wrongSum(path, "SHA-512", has)
	}
	i, err = verb.Asked(ctx, c.CreateCatalogImage, given)
	if errors.Is(err, croft.Conflict) {
		was, found := verb.Asked(ctx, c.GetCatalogImage, inCloud(c, given.Name))
		switch {
		case found != nil || was.State != string(croft.ImagePending):
			return i, err
		case was.SHA256 != given.SHA256:
			return i, fmt.Errorf("%w; %s", err, pendingRemedy(was))
		}
		fmt.Fprintf(c.Cmd.ErrOrStderr(), "the upload of image %s continues\n", given.Name)
		i, err = was, nil
	}
	if err != nil {
		return i, err
	}
	if err := sendAll(ctx, c, i.Name, f, given.SizeBytes); err != nil {
		return i, fmt.Errorf("upload %s: %w; the same command continues", path, err)
	}
	return verb.Asked(ctx, c.CompleteImageUpload, inCloud(c, i.Name))
}

func wrongSum(path, algorithm, has string) error {
	return croft.Errorf(croft.Invalid, "upload %s: the file has the %s %s, not the given one: nothing was uploaded", path,
		algorithm, has)
}

// sendAll sends the rest of an upload.
func sendAll(ctx context.Context, c *args.Client, name string, f *os.File, size int64) error {
	now, err := verb.Asked(ctx, c.GetImageUpload, inCloud(c, name))
	for tries := 0; err == nil && now.Offset < size; {
		n := min(chunkSize, size-now.Offset)
		var next api.Upload
		next, err = c.UploadCatalogImage(ctx, api.UploadChunk{CatalogImageNamed: inCloud(c, name), Offset: now.Offset},
			io.NewSectionReader(f, now.Offset, n), n)
		if err == nil {
			now, tries = next, 0
			continue
		}
		tries++
		again := errors.Is(err, croft.Unavailable) || errors.Is(err, croft.Conflict)
		if !again || tries == uploadTries || delay.For(ctx, time.Second) != nil {
			return err
		}
		now, err = verb.Asked(ctx, c.GetImageUpload, inCloud(c, name))
	}
	return err
}

// contextReader reads until its context ends.
type contextReader struct {
	ctx context.Context
	io.Reader
}

func (r contextReader) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(b)
}

func saveCommand() *cobra.Command {
	var in api.SavedImage
	cmd := &cobra.Command{
		Use:   "save INSTANCE NAME",
		Short: "Make an image of the disk of an instance",
		Long: `save makes an image of the project from the disk of an instance, which may run: a snapshot
is taken and removed again. Its volumes are left out. Until the image is ready the project
is charged IMAGE_GB for the whole disk.

The image has everything that is on the disk, also the machine's identity. --generalize
removes that: the machine ID, SSH host keys, DHCP leases, the MAC addresses in network
settings, and enrolments in Kerberos, IPA, Samba and subscription services. Passwords,
authorized keys and data stay. The host needs virt-sysprep (guestfs-tools) for it.`,
		Example: `  schedule stop web --wait
  croft image save web web-2 --user debian --generalize`,
		ValidArgsFunction: args.CompleteInstances(1),
		RunE: func(cmd *cobra.Command, given []string) error {
			return args.With(cmd, func(ctx context.Context, c *args.Client) error {
				in.Project, in.ID, in.Name = c.Project, given[0], given[1]
				i, err := verb.Asked(ctx, c.SaveInstance, in)
				if err == nil {
					i, err = awaitReady(ctx, c, i)
				}
				if err != nil {
					return err
				}
				return c.Report(i, "image %s is saved from %s: %s", i.Name, given[0], out.Bytes(i.SizeBytes))
			})
		},
	}
	args.AddCloudFlags(cmd.Flags())
	cmd.Flags().StringVar(&in.User, "user", "", "whom to log in as")
	cmd.Flags().StringVar(&in.Description, "description", "", "what it is, in a few words")
	cmd.Flags().BoolVar(&in.Generalize, "generalize", false, "remove the machine's identity from the image")
	return cmd
}

func shareCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "share NAME PROJECT...",
		Short: "Let other projects use an image of the project",
		Long: `share lets projects request instances of an image. There it has the name NAME@PROJECT, with
the project that shares it. It warns of projects that do not exist; later ones of their
names may not use it.`,
		ValidArgsFunction: catalog.Complete(1),
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			return changeShares(ctx, c, func(in *api.CatalogImageChange, all []croft.Project) { in.Share = all })
		}),
	}
	args.AddCloudFlags(cmd.Flags())
	return cmd
}

func unshareCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "unshare NAME PROJECT...",
		Short: "Let other projects no longer use an image of the project",
		Long: `unshare ends what croft image share began. Instances of the other projects keep their disks,
and can be rebuilt from the image until it is removed; no further ones can be made.`,
		ValidArgsFunction: catalog.Complete(1),
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			return changeShares(ctx, c, func(in *api.CatalogImageChange, all []croft.Project) { in.Unshare = all })
		}),
	}
	args.AddCloudFlags(cmd.Flags())
	return cmd
}

func changeShares(ctx context.Context, c *args.Client, set func(*api.CatalogImageChange, []croft.Project)) error {
	in := api.CatalogImageChange{CatalogImageNamed: inCloud(c, c.Args[0])}
	var all []croft.Project
	for _, p := range c.Args[1:] {
		all = append(all, croft.Project(p))
	}
	set(&in, all)
	i, err := c.ChangeCatalogImage(ctx, in)
	if err != nil {
		return catalog.Near(ctx, c, c.Args[0], err)
	}
	for _, p := range in.Share {
		if err := args.UnknownProject(ctx, c, p); errors.Is(err, croft.NotFound) {
			fmt.Fprintf(c.Cmd.ErrOrStderr(), "%v, at least none that you see; if one of the name is created later, it may "+
				"not use the image until you unshare it and share it again\n", err)
		}
	}
	return c.Report(i, "image %s is shared with %s", i.Name, wordsOf(i.Shares))
}

func wordsOf(all []croft.Project) string {
	if len(all) == 0 {
		return "no other project"
	}
	var words []string
	for _, p := range all {
		words = append(words, string(p))
	}
	return strings.Join(words, ", ")
}
