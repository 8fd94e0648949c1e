package images

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/compute"
	"croft/compute/image"
	"croft/control/api"
	"croft/internal/out"
	"croft/internal/plain"
)

// allHosts stands for all hosts.
const allHosts = "all"

// maxPulls is the number of hosts that download at the same time.
const maxPulls = 64

func pullCommand() *cobra.Command {
	var hosts []string
	cmd := &cobra.Command{
		Use:   "pull NAME|URL|PATH",
		Short: "Have hosts fetch an image before it is needed",
		Long: `pull has hosts fetch, verify and keep an image, so that the first instance of it starts
as quickly as the next. A NAME is one of the project's images, of the cloud's public ones
or of the catalog. A host that has the image checks that it is the newest. If a host
fails, the error is on stderr and the others continue; the exit code is that of the first
failure.`,
		Example: `  croft image pull debian-12
  croft image pull web --project lab --hosts host1,host2`,
		ValidArgsFunction: args.CompleteImage,
		RunE: func(cmd *cobra.Command, given []string) error {
			s, err := args.LoadSettings(cmd.Flags())
			if err != nil {
				return err
			}
			reference := given[0]
			if here := image.IsReference(reference); here ||
				!s.Settings.Set() { // otherwise the cloud has its own catalog
				found, err := image.ReferenceFor(reference)
				if _, is := stored(cmd, reference, err); err != nil && !is {
					return err
				}
				if here {
					reference = found
				}
			}
			return args.WithSettings(cmd.Context(), s, func(ctx context.Context, c *args.Client) error {
				chosen, err := chooseHosts(ctx, c, hosts)
				if err != nil {
					return err
				}
				return pullTo(ctx, c, cmd, given[0], reference, chosen)
			})
		},
	}
	args.AddCloudFlags(cmd.Flags())
	cmd.Flags().StringSliceVar(&hosts, "hosts", []string{allHosts},
		"which `hosts`, by name or UUID, separated by commas")
	return cmd
}

// chooseHosts returns the hosts with these names or UUIDs, ordered by name.
func chooseHosts(ctx context.Context, c *args.Client, wanted []string) ([]croft.Host, error) {
	ctx, cancel := context.WithTimeout(ctx, args.AnswerTimeout)
	defer cancel()
	known, err := c.HostRecords(ctx)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(known, func(a, b croft.Host) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	return pickHosts(known, wanted)
}

func pickHosts(known []croft.Host, wanted []string) ([]croft.Host, error) {
	if len(known) == 0 {
		return nil, croft.Errorf(croft.NotFound, "there is no host yet: croft serve compute makes this machine one")
	}
	if slices.Equal(wanted, []string{allHosts}) {
		return known, nil
	}
	picked := map[croft.HostID]bool{}
	for _, want := range wanted {
		h, err := args.HostCalled(known, want)
		if err != nil {
			return nil, err
		}
		picked[h.ID] = true
	}
	return slices.DeleteFunc(known, func(h croft.Host) bool { return !picked[h.ID] }), nil
}

// pulled is the outcome on a host, as printed.
type pulled struct {
	Host  croft.HostID    `json:"host"`
	Name  string          `json:"name"`
	Image *compute.Pulled `json:"image,omitempty"`
	Error string          `json:"error,omitempty"`
}

// pullTo makes the hosts download the image and prints the outcome.
func pullTo(ctx context.Context, c *args.Client, cmd *cobra.Command, name, reference string, hosts []croft.Host) error {
	show := newPullProgress(cmd, hosts)
	results, errs := make([]pulled, len(hosts)), make([]error, len(hosts))
	slots := make(chan struct{}, maxPulls)
	var work sync.WaitGroup
	for i, host := range hosts {
		work.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			results[i] = pulled{Host: host.ID, Name: host.Name}
			in := api.NewImage{HostNamed: api.HostNamed{ID: string(host.ID)},
				InProject: api.InProject{Project: c.Project}, Image: reference}
			results[i].Image, errs[i] = c.PullImage(ctx, in, func(p croft.Progress) { show.update(i, p) })
			if errs[i] != nil {
				results[i].Error = errs[i].Error()
			}
			show.end(i, errs[i])
		})
	}
	work.Wait()
	show.close()
	return errors.Join(append([]error{printPulled(cmd, c.Settings.Output, results)}, errs...)...)
}

func printPulled(cmd *cobra.Command, format string, results []pulled) error {
	if out.IsData(format) {
		return out.PrintData(cmd.OutOrStdout(), format, results)
	}
	t := &out.Table{Color: out.IsColored(cmd.OutOrStdout())}
	t.Head("HOST", "IMAGE", "FORMAT", "DISK", "SHA256")
	for _, r := range results {
		if r.Image == nil {
			t.Row(out.Cell{Text: r.Name}, out.Cell{Text: "failed", Color: out.Red}, out.Cell{Text: "-"},
				out.Cell{Text: "-"},
				out.Cell{Text: "-"})
			continue
		}
		t.Row(out.Cell{Text: r.Name}, out.Cell{Text: "there", Color: out.Green}, out.Cell{Text: r.Image.Format},
			out.Cell{Text: out.Bytes(r.Image.VirtualSize)}, out.Cell{Text: cmp.Or(r.Image.SHA256, "-")})
	}
	return t.Print(cmd.OutOrStdout())
}

// pullProgress shows the progress of an image on hosts. Calls for different hosts may overlap.
type pullProgress interface {
	update(i int, p croft.Progress)
	end(i int, err error)
	close()
}

func newPullProgress(cmd *cobra.Command, hosts []croft.Host) pullProgress {
	var names []string
	for _, h := range hosts {
		names = append(names, plain.Line(h.Name))
	}
	if stderr := cmd.ErrOrStderr(); out.Draws(stderr) {
		return pullBars{out.NewBars(stderr, names, "asked")}
	}
	return &pullLines{w: cmd.ErrOrStderr(), name: names, began: make([]bool, len(names))}
}

// pullBars is the progress on a terminal.
type pullBars struct{ *out.Bars }

func (b pullBars) update(i int, p croft.Progress) {
	l := b.Line(i)
	switch {
	case p.Total > 0 && p.Done >= p.Total:
		l.Say("verifying")
	case p.Done > 0:
		l.Say("fetching")
	}
	if p.Done > 0 {
		l.Count(&p)
	}
}

func (b pullBars) end(i int, err error) {
	l := b.Line(i)
	switch {
	case errors.Is(err, context.Canceled): // by the user; the host may continue
		l.Leave()
	case err != nil: // this includes hosts that do not answer, for the wait itself did not time out
		l.Say("failed")
	default:
		l.Say("there")
	}
	l.End()
}

func (b pullBars) close() { b.Wait() }

// pullLines is the progress for logs: one line when the first bytes arrive and one at the end.
type pullLines struct {
	mu    sync.Mutex
	w     io.Writer
	name  []string
	began []bool
}

func (l *pullLines) update(i int, p croft.Progress) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.began[i] || p.Done == 0 {
		return
	}
	l.began[i] = true
	if p.Total == 0 {
		fmt.Fprintf(l.w, "host %s: fetching the image\n", l.name[i])
		return
	}
	fmt.Fprintf(l.w, "host %s: fetching the image, %s\n", l.name[i], out.Bytes(p.Total))
}

func (l *pullLines) end(i int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		fmt.Fprintf(l.w, "host %s: the image is in the cache\n", l.name[i])
	}
}

func (*pullLines) close() {}
