package images

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/compute"
	"croft/compute/image"
	"croft/control/api"
	"croft/internal/command"
	"croft/internal/out"
	"croft/internal/plain"
)

// addHostsFlag defines the flag --hosts. Commands work on this host's cache, or with the flag on the caches of hosts of
// a cloud.
func addHostsFlag(cmd *cobra.Command) {
	args.AddContextFlag(cmd.Flags())
	cmd.Flags().StringSlice("hosts", nil, "the caches of these `hosts` of the cloud, by name or UUID, or all")
}

// onHosts reports whether a command works on hosts of a cloud. It returns an error of the kind Invalid if the command
// then has a flag without effect, apart from the more.
func onHosts(cmd *cobra.Command, more ...string) (bool, error) {
	if !cmd.Flags().Changed("hosts") {
		return false, nil
	}
	if cmd.Flags().Changed(args.StateDirFlag.Flag) {
		return false, croft.Errorf(croft.Invalid,
			"--%s selects this host, and --hosts hosts of a cloud: give one of them", args.StateDirFlag.Flag)
	}
	return true, only(cmd, "the caches of hosts", ofHosts, more)
}

// heldOn is a cached image on a host, as printed.
type heldOn struct {
	Host croft.HostID `json:"host"`
	Name string       `json:"name"`
	compute.Held
}

// askHosts asks the hosts of --hosts about their caches, and prints their answers. A host that does not answer does not
// stop the others. With missing, an image that no host has is an error; an image that only some hosts have is not.
func askHosts(cmd *cobra.Command, missing bool,
	do func(ctx context.Context, c *args.Client, h api.HostNamed) (api.HeldList, error)) error {
	format, err := command.FormatOf(cmd)
	if err != nil {
		return err
	}
	wanted, err := cmd.Flags().GetStringSlice("hosts")
	if err != nil {
		return err
	}
	return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
		chosen, err := chooseHosts(ctx, c, wanted)
		if err != nil {
			return err
		}
		found, errs := make([]api.HeldList, len(chosen)), make([]error, len(chosen))
		slots := make(chan struct{}, maxPulls)
		var work sync.WaitGroup
		for i, h := range chosen {
			work.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				found[i], errs[i] = do(ctx, c, api.HostNamed{ID: string(h.ID)})
			})
		}
		work.Wait()
		all, lacking := []heldOn{}, 0
		for i, h := range chosen {
			for _, held := range found[i].Images {
				all = append(all, heldOn{h.ID, h.Name, held})
			}
			if missing && errors.Is(errs[i], croft.NotFound) {
				lacking++
			}
		}
		for i := range errs {
			if missing && lacking < len(chosen) && errors.Is(errs[i], croft.NotFound) {
				errs[i] = nil // other hosts had it
			}
		}
		return errors.Join(append([]error{printHeld(cmd, format, all)}, errs...)...)
	})
}

func printHeld(cmd *cobra.Command, format string, all []heldOn) error {
	if out.IsData(format) {
		return out.PrintData(cmd.OutOrStdout(), format, all)
	}
	if len(all) == 0 {
		return nil
	}
	t := &out.Table{Color: out.IsColored(cmd.OutOrStdout())}
	t.Head("HOST", "SIZE", "DISKS", "FORMAT", "SHA256", "FETCHED AS")
	for _, h := range all {
		as := "-"
		if len(h.References) > 0 {
			as = h.References[0]
		}
		t.Texts(h.Name, out.Bytes(h.Bytes), fmt.Sprint(h.Disks), h.Format, h.SHA256, plain.Line(as))
	}
	return t.Print(cmd.OutOrStdout())
}

// listOnHosts prints the contents of the caches of hosts.
func listOnHosts(cmd *cobra.Command) error {
	return askHosts(cmd, false, func(ctx context.Context, c *args.Client, h api.HostNamed) (api.HeldList, error) {
		return c.ListHostImages(ctx, h)
	})
}

// removeOnHosts removes an image from the caches of hosts; without a name, all unused images.
func removeOnHosts(cmd *cobra.Command, name string) error {
	s, err := args.LoadSettings(cmd.Flags())
	if err != nil {
		return err
	}
	reference := name
	if name != "" && !isSHA256(name) && (!s.Settings.Set() || image.IsReference(name)) {
		// otherwise the cloud has its own catalog
		found, err := image.ReferenceFor(name)
		if err == nil {
			reference = found
		} else if _, is := stored(cmd, name, err); !is {
			return err
		}
	}
	return askHosts(cmd, name != "", func(ctx context.Context, c *args.Client, h api.HostNamed) (api.HeldList, error) {
		return c.RemoveHostImages(ctx, api.HostImage{HostNamed: h, InProject: api.InProject{Project: c.Project},
			Image: reference})
	})
}
