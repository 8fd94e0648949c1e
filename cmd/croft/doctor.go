package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cli/out"
	"croft/compute"
	"croft/doctor"
	"croft/hypervisor/libvirt"
	"croft/node"
	"croft/node/settings"
	"croft/trust"
)

var doctorFormats = []string{out.FormatText, out.FormatJSON, out.FormatYAML}

// doctorCommand checks the host that it runs on.
func doctorCommand() *cobra.Command {
	flags := append([]args.HostFlag{args.StateDirFlag, args.LogLevelFlag, args.EtcdFlag}, args.AgentFlags...)
	flags = append(flags, args.EmbeddedFlags...)
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check this host, and say in one line each what to do",
		Long: `doctor looks at what the agent needs of this host, with the settings that the
agent would have, and changes nothing. Each line says ok, warn (it works, slower
or with less) or fail; the exit code is 1 where anything failed.`,
		Args: args.Count(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			format, err := cmd.Flags().GetString("output")
			if err != nil {
				return err
			}
			if !slices.Contains(doctorFormats, format) {
				return croft.Errorf(croft.Invalid, "output %q is none of text, json and yaml", format)
			}
			s, _, err := args.LoadHostSettings(cmd, flags...)
			if err != nil {
				return err
			}
			s, of, err := args.JoinedSettings(cmd, s)
			if err != nil {
				return err
			}
			findings, err := examine(cmd.Context(), s, of)
			if err != nil {
				return err
			}
			if err := printFindings(cmd.OutOrStdout(), format, findings); err != nil {
				return err
			}
			if !doctor.Healthy(findings) {
				return errors.New("this host is not ready: see the lines that say fail")
			}
			return nil
		},
	}
	args.AddHostFlags(cmd, flags...)
	cmd.Flags().StringP("output", "o", out.FormatText, "print text, json or yaml (`format`)")
	return cmd
}

// port is an address that croft up listens on here.
type port struct{ use, setting, listen string }

// portsOf are those that croft up would listen on, as a host of the cloud that it joined
// or of its own.
func portsOf(s *settings.Settings, of *trust.Membership) []port {
	var all []port
	if of == nil || of.Etcd.Member {
		all = append(all, port{"etcd", "etcd.listen", s.Etcd.Listen})
		if s.ServesPlacement() {
			all = append(all, port{"placement", "placement.listen", s.Placement.Listen})
		}
	}
	if s.Hypervisor != settings.NoHypervisor {
		all = append(all, port{"api", "api.listen", s.API.Listen})
	}
	return all
}

// examine makes the checks that these settings ask for.
func examine(ctx context.Context, s settings.Settings, of *trust.Membership) ([]doctor.Finding, error) {
	c := doctor.Config{
		StateDir: s.StateDir, Libvirt: s.Hypervisor == "libvirt", VirtType: s.Libvirt.VirtType,
		Arch: runtime.GOARCH, Network: s.Network.Name, Bridge: s.Network.Bridge,
		Named: map[string]doctor.NamedNetwork{}, Spoofing: s.Libvirt.AllowSpoofing,
		Metadata: s.Metadata.Server && s.Hypervisor == "libvirt",
	}
	for name, n := range s.Networks {
		c.Named[name] = doctor.NamedNetwork{Network: n.Network, Bridge: n.Bridge}
	}
	for _, p := range portsOf(&s, of) {
		addr, err := netip.ParseAddrPort(p.listen)
		if err != nil {
			return nil, croft.Errorf(croft.Invalid, "%s is %q: use an IP address and a port, such as 127.0.0.1:2379",
				p.setting, p.listen)
		}
		c.Ports = append(c.Ports, doctor.Port{Use: p.use, Addr: addr})
	}
	probes := doctor.System()
	if c.Libvirt {
		driver, err := libvirt.New(libvirt.Config{URI: s.Libvirt.URI, VirtType: s.Libvirt.VirtType})
		if err != nil {
			return nil, err
		}
		defer driver.Close()
		probes.KVM = libvirt.ProbeKVM
		probes.Libvirt = driver.Version
		probes.Filter = driver.Filterable
		probes.Guests = func(ctx context.Context) ([]string, error) {
			domains, err := driver.List(ctx)
			var ids []string
			for _, d := range domains {
				ids = append(ids, string(d.ID))
			}
			return ids, err
		}
		probes.MetadataServer = func(ctx context.Context, bridge string, pid int32) (string, bool, error) {
			return lookMetadataServer(ctx, &s, bridge, pid)
		}
		probes.Network = func(ctx context.Context, name string) (doctor.Network, error) {
			return lookAtNetwork(ctx, driver, name)
		}
	}
	cloud, err := lookCloud(s)
	if err != nil {
		return nil, err
	}
	checks := append(doctor.Checks(c, probes), cloud, doctor.Check{Name: "certificates",
		Look: lookCertificates(s.StateDir)})
	if s.Hypervisor != settings.NoHypervisor {
		checks = append(checks,
			doctor.Check{Name: "offer", Look: func(ctx context.Context) doctor.Finding { return lookOffer(ctx, &s) }})
	}
	return doctor.Run(ctx, checks), nil
}

// lookOffer checks that the host has what it keeps back for itself.
func lookOffer(ctx context.Context, s *settings.Settings) doctor.Finding {
	dir := s.StateDir
	for _, err := os.Stat(dir); err != nil && dir != filepath.Dir(dir); _, err = os.Stat(dir) {
		dir = filepath.Dir(dir) // it will be made
	}
	facts, err := compute.ReadFacts(ctx, dir, 0)
	if err == nil {
		err = node.CheckReserves(s, facts)
	}
	if err != nil {
		return doctor.Finding{Level: doctor.Fail, Found: err.Error(), Do: "change the settings below offer"}
	}
	return doctor.Finding{Level: doctor.OK,
		Found: fmt.Sprintf("of %d CPUs, %d MiB of memory and %d GiB of disk, %d, %d and %d are kept back",
			facts.CPUs, facts.MemoryMiB, facts.DiskGiB, s.Offer.ReservedVCPUs, s.Offer.ReservedMemoryMiB,
			s.Offer.ReservedDiskGiB)}
}

// lookAtNetwork turns a network that is missing or stopped from an error into
// something to report.
func lookAtNetwork(ctx context.Context, driver *libvirt.Driver, name string) (doctor.Network, error) {
	n, active, err := driver.FindNetwork(ctx, name)
	switch {
	case errors.Is(err, croft.NotFound):
		return doctor.Network{}, nil
	case err != nil:
		return doctor.Network{}, err
	}
	return doctor.Network{Defined: true, Active: active, Bridge: n.Bridge, Subnet: n.Subnet}, nil
}

// printFindings prints one line for each thing, what is wrong being followed by
// what to do.
func printFindings(w io.Writer, format string, findings []doctor.Finding) error {
	if format != out.FormatText {
		return out.PrintData(w, format, findings)
	}
	for _, f := range findings {
		line := fmt.Sprintf("%-4s  %-14s  %s", f.Level, f.Check, f.Found)
		if f.Do != "" {
			line += "; do: " + f.Do
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}
