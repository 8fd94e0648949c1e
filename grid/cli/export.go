package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go4.org/netipx"

	"croft"
	"croft/grid/export"
	"croft/grid/ipam/nft"
	"croft/internal/command"
	"croft/internal/durable"
)

func othersCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write the cluster as Kubernetes and its installers read it",
		Long: `export writes the cluster's jobs and nodes for others. What they have no words for is
listed on stderr, and nothing is dropped silently. A secret's content is never written.`,
		Args: command.OnlySubcommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(kubernetesCommand(o), k0sctlCommand(o), k3sCommand(o))
	return cmd
}

func kubernetesCommand(o *options) *cobra.Command {
	var to, namespace string
	cmd := &cobra.Command{
		Use:   "k8s",
		Short: "Write manifests for Kubernetes: one file for each job, and one for the nodes",
		Long: `k8s writes a Deployment for each job, a StatefulSet for an instance of a template, a
DaemonSet for a job with the policy every; with ConfigMaps for files, Services for ports,
PodDisruptionBudgets for replicas.min and topologySpreadConstraints for what a policy
selects. Nodes get labels: the directory below nodes/ is the region, the one that holds
the node the zone, each bucket grid.croft/TYPE, each fact grid.croft/fact-NAME. They have
to be in the cluster under the same names already (kubectl apply adds the labels).`,
		Example: `  croft grid export k8s --to manifests --namespace web
  croft grid export k8s | kubectl apply --dry-run=client -f -`,
		Args: command.Count(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := o.load(cmd)
			if err != nil {
				return err
			}
			access, err := accessOf(o.dir)
			if err != nil {
				return err
			}
			files, unsaid, err := export.Kubernetes(cmd.Context(), s,
				export.Options{Namespace: namespace, Access: access})
			if err != nil {
				return err
			}
			if to == "" {
				for _, f := range files {
					if err := export.Write(cmd.OutOrStdout(), f.Objects...); err != nil {
						return err
					}
				}
			} else if err := writeFiles(to, files); err != nil {
				return err
			}
			return o.tell(cmd, unsaid)
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "write files into this `directory`; without it everything goes to stdout")
	cmd.Flags().StringVar(&namespace, "namespace", "", "the `namespace` of what has one; none is written without it")
	return cmd
}

// accessOf reads the rules of net/access, and replaces the addresses of jobs by the jobs.
func accessOf(dir string) (all []export.Access, err error) {
	net, err := readNet(dir)
	if err != nil || net == nil {
		return nil, err
	}
	rules, err := net.Rules()
	if err != nil {
		return nil, err
	}
	for _, r := range rules {
		a := export.Access{Name: r.Name, Proto: strings.ToLower(r.Protocol)}
		if r.Protocol == nft.Any {
			a.Proto = ""
		}
		var rest netipx.IPSetBuilder
		rest.AddSet(r.From)
		for _, lease := range net.Sorted() {
			if lease.Freed() {
				continue
			}
			rest.Remove(lease.Addr)
			if r.From.Contains(lease.Addr) && !slices.Contains(a.FromJobs, lease.Owner.Job) {
				a.FromJobs = append(a.FromJobs, lease.Owner.Job)
			}
			if r.To.Contains(lease.Addr) && !slices.Contains(a.To, lease.Owner.Job) {
				a.To = append(a.To, lease.Owner.Job)
			}
		}
		others, err := rest.IPSet()
		if err != nil {
			return nil, err
		}
		if len(others.Prefixes()) > 0 { // not only jobs
			for _, p := range r.From.Prefixes() {
				a.From = append(a.From, p.String())
			}
		}
		for _, p := range r.Ports {
			a.Ports = append(a.Ports, export.Ports{First: int(p.First), Last: int(p.Last)})
		}
		all = append(all, a)
	}
	return all, nil
}

// writeFiles writes files into a directory, which it creates.
func writeFiles(dir string, files []export.File) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return croft.Errorf(croft.Invalid, "export: %w", err)
	}
	for _, f := range files {
		var text bytes.Buffer
		if err := export.Write(&text, f.Objects...); err != nil {
			return err
		}
		if err := durable.Write(filepath.Join(dir, f.Name), text.Bytes(), 0o644); err != nil {
			return croft.Errorf(croft.Invalid, "export: %w", err)
		}
	}
	return nil
}

// tell prints the parts that could not be exported.
func (o *options) tell(cmd *cobra.Command, unsaid []export.Unsaid) error {
	for _, u := range unsaid {
		fmt.Fprintf(cmd.ErrOrStderr(), "not exported: %s: %s\n", u.About, u.What)
	}
	return nil
}

func k0sctlCommand(o *options) *cobra.Command {
	var name string
	var controllers []string
	cmd := &cobra.Command{
		Use:     "k0sctl",
		Short:   "Write the cluster file of k0sctl",
		Example: "  croft grid export k0sctl --controllers n1,n2,n3 > k0sctl.yaml",
		Args:    command.Count(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := o.load(cmd)
			if err != nil {
				return err
			}
			file, unsaid, err := export.K0sctl(s, name, controllers)
			if err != nil {
				return err
			}
			if err := export.Write(cmd.OutOrStdout(), file); err != nil {
				return err
			}
			return o.tell(cmd, unsaid)
		},
	}
	cmd.Flags().StringVar(&name, "name", "grid", "the `name` of the cluster")
	cmd.Flags().StringSliceVar(&controllers, "controllers", nil,
		"the `nodes` that are controllers, separated by commas")
	return cmd
}

func k3sCommand(o *options) *cobra.Command {
	var controllers []string
	cmd := &cobra.Command{
		Use:     "k3s",
		Short:   "Write the inventory with which k3s-ansible makes a cluster",
		Example: "  croft grid export k3s --controllers n1,n2,n3 > inventory.yml",
		Args:    command.Count(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := o.load(cmd)
			if err != nil {
				return err
			}
			file, unsaid, err := export.K3s(s, controllers)
			if err != nil {
				return err
			}
			if err := export.Write(cmd.OutOrStdout(), file); err != nil {
				return err
			}
			return o.tell(cmd, unsaid)
		},
	}
	cmd.Flags().StringSliceVar(&controllers, "controllers", nil, "the `nodes` that are servers, separated by commas")
	return cmd
}
