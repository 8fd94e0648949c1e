package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/compute"
	"croft/etcdstore"
	"croft/mdserver"
	"croft/node/settings"
	"croft/trust"
	"croft/trust/gate"
)

func computeCommand() *cobra.Command {
	flags := append([]args.HostFlag{args.StateDirFlag, args.LogLevelFlag, args.EtcdFlag, args.PlacementFlag, args.CloudFlag, args.TokenFlag}, args.AgentFlags...)
	cmd := &cobra.Command{
		Use:   "compute",
		Short: "Run the agent of this host",
		Long: `Run the agent of this host: it offers the host's inventory to Placement and
carries out the orders that it finds in etcd. It serves metadata to its guests
unless that is done already. Guests outlive it.

On a host that joined a cloud with croft up --join it runs the agent of that one, as
croft up does.`,
		Args: args.Count(0, 0),
	}
	args.AddHostFlags(cmd, flags...)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, log, err := args.LoadHostSettings(cmd, flags...)
		if err != nil {
			return err
		}
		if cmd.Flags().Changed("cloud") && cmd.Flags().Changed("token") {
			return croft.Errorf(croft.Invalid, "give --cloud or --token, not both: a cloud gets its tokens from Keystone")
		}
		s, of, err := joinedSettings(cmd, s)
		if err != nil {
			return err
		}
		return supervised(cmd.Context(), log, func(ready func()) error {
			return runJoined(cmd.Context(), s, log, of, func() { tellReady(cmd.ErrOrStderr()); ready() })
		})
	}
	return cmd
}

// runJoined runs the agent until ctx ends or a part fails: of the cloud that the host
// joined, or where it joined none of the one in etcd, which it may begin.
func runJoined(ctx context.Context, s settings.Settings, log *slog.Logger, of *trust.Membership, ready func()) (err error) {
	me, err := newSelf(ctx, &s, "croft-compute", log)
	defer me.end()
	if err := errors.Join(err, s.NeedsHypervisor(), s.Placement.Check()); err != nil {
		return err
	}
	dir, err := compute.OpenStateDir(s.StateDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	own, err := joinedCredentials(of, s.StateDir, log)
	if err != nil {
		return err
	}
	store, err := openCloud(ctx, &s, of == nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	h := &host{settings: s, log: log, dir: dir, store: store, trust: own}
	if of != nil {
		if store.Partition() != of.Partition {
			return of.ErrOther()
		}
		switch store := store.(type) {
		case *etcdstore.Store:
			h.following = func(ctx context.Context) error { return h.follow(ctx, store, of) }
		case *gate.Client:
			h.following = func(ctx context.Context) error { return h.followGates(ctx, store, of) }
		}
	}
	if err := errors.Join(mayServe(ctx, own, store), followServers(ctx, of, own, store)); err != nil {
		return err
	}
	p := newParts()
	p.self = me
	if err := keepJoined(ctx, &s, p, own); err != nil {
		return err
	}
	return runHost(ctx, p, h, ready)
}

func mdserverCommand() *cobra.Command {
	flags := []args.HostFlag{args.StateDirFlag, args.LogLevelFlag, args.EtcdFlag, args.AgentFlags[2], args.AgentFlags[3],
		{Flag: "listen", Setting: "metadata.listen", Usage: "address of /livez, /readyz and /metrics"}}
	cmd := &cobra.Command{
		Use:   "mdserver",
		Short: "Run the metadata server of this host",
		Long: `Run the metadata server of this host alone, for the guests of the agent that has
the same state directory and metadata.server: false in its settings. What it tells of
itself, /livez, /readyz and /metrics, is at --listen, which guests do not reach.`,
		Args: args.Count(0, 0),
	}
	args.AddHostFlags(cmd, flags...)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, log, err := args.LoadHostSettings(cmd, flags...)
		if err != nil {
			return err
		}
		if s, _, err = joinedSettings(cmd, s); err != nil {
			return err
		}
		return runMetadata(cmd.Context(), s, log)
	}
	return cmd
}

func runMetadata(ctx context.Context, s settings.Settings, log *slog.Logger) (err error) {
	if err := s.NeedsHypervisor(); err != nil {
		return err
	}
	if s.Hypervisor == "sim" {
		return croft.Errorf(croft.Invalid, "simulated guests ask for no metadata; run mdserver where hypervisor is libvirt")
	}
	me, err := newSelf(ctx, &s, "croft-mdserver", log)
	defer me.end()
	if err != nil {
		return err
	}
	id, err := compute.ReadHostID(s.StateDir, false)
	if err != nil {
		return err
	}
	store, err := openCloud(ctx, &s, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	h := &host{settings: s, log: log, id: id, store: store, dir: &compute.StateDir{Path: s.StateDir}}
	defer h.closeHypervisor()
	if err := h.openHypervisor(ctx, ""); err != nil {
		return err
	}
	if err := h.readVendor(); err != nil {
		return err
	}
	server, err := h.metadata(nil)
	if err != nil {
		return err
	}
	l, err := listen(ctx, s.Metadata.Listen, "metadata.listen")
	if err != nil {
		return err
	}
	me.ofStore(store)
	me.counts(server, h.hv)
	me.checks.Add("metadata server", server.Ready)
	mux := http.NewServeMux()
	me.serves(mux, s.Metadata.Listen)
	watch := newParts()
	defer func() { err = errors.Join(err, watch.end()) }()
	watch.start(ctx, "what the process tells of itself", func(ctx context.Context) error { return serve(ctx, l, calledAt(&s, s.Metadata.Listen, mux)) })
	// Leases that change make what Owner remembers stale.
	watch.start(ctx, "libvirt's events", func(ctx context.Context) error { return h.hv.Watch(ctx, func(croft.InstanceID) {}) })
	watch.start(ctx, "the metadata server on IPv6", func(ctx context.Context) error { return server.RunIPv6(ctx, h.bridge) })
	return server.Run(ctx, h.bridge, mdserver.Address)
}
