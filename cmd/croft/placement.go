package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/etcdstore"
	"croft/node/settings"
)

func placementCommand() *cobra.Command {
	flags := []args.HostFlag{
		args.LogLevelFlag, args.EtcdFlag, args.TokenFlag, args.InsecureFlag,
		{Flag: "keystone", Setting: "placement.keystone.cloud", Usage: "cloud of clouds.yaml as which to ask Keystone about the tokens of others; env is what OS_* say"},
		{Flag: "listen", Setting: "placement.listen", Usage: "address to serve on"},
		{Flag: "consistent-reads", Setting: "placement.consistent_reads", Usage: "reads that see what other servers have stored: none, claims or all"},
		{Flag: "randomize", Setting: "placement.randomize", Usage: "answer allocation candidates in random order"},
		{Flag: "access-log", Setting: "placement.access_log", Usage: "log every request"},
		{Flag: "etcd-listen", Setting: "etcd.listen", Usage: "address of the etcd of --data-dir, for others to use; a free port of this machine where not given"},
	}
	cmd := &cobra.Command{
		Use:   "placement",
		Short: "Run croft's own Placement server alone",
		Long: `Run croft's own Placement server alone: the API of OpenStack Placement, its state
in the etcd at --etcd, or in an etcd of its own below --data-dir. Any number of
servers may run on one etcd; a claim never takes more than there is, through
whichever of them it comes. Where etcd does not answer they answer 503 until it
does again.

Besides the API it serves /readyz (200 or 503), /livez and /metrics.`,
		Args: args.Count(0, 0),
	}
	cmd.AddCommand(placementExportCommand(), placementImportCommand())
	args.AddHostFlags(cmd, flags...)
	for _, name := range []string{"randomize", "access-log", args.InsecureFlag.Flag} {
		cmd.Flags().Lookup(name).NoOptDefVal = "true"
	}
	dataDir := cmd.Flags().String("data-dir", "", "run an etcd of its own with its data here")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, log, err := args.LoadHostSettings(cmd, flags...)
		if err != nil {
			return err
		}
		if *dataDir != "" && cmd.Flags().Changed("etcd") {
			return croft.Errorf(croft.Invalid, "give --etcd or --data-dir, not both")
		}
		if !cmd.Flags().Changed("etcd-listen") {
			s.Etcd.Listen = "127.0.0.1:0"
		} else if *dataDir == "" {
			return croft.Errorf(croft.Invalid, "--etcd-listen is where the etcd of --data-dir listens: give both")
		}
		return supervised(cmd.Context(), log, func(ready func()) error {
			return runPlacement(cmd.Context(), s, *dataDir, log, ready)
		})
	}
	return cmd
}

// runPlacement serves until ctx ends or a part fails.
func runPlacement(ctx context.Context, s settings.Settings, dataDir string, log *slog.Logger, ready func()) (err error) {
	if err := errors.Join(prepareOwnPlacement(&s), checkToken(s.Placement.Listen, s.Placement.Token)); err != nil {
		return err // before an etcd is made
	}
	me, err := newSelf(ctx, &s, "croft-placement", log)
	defer me.end()
	if err != nil {
		return err
	}
	p := newParts()
	p.self = me
	config, err := s.Etcd.Config(os.Getenv)
	if dataDir != "" {
		p.start(ctx, "the limit of memory", limitMemory)
		var etcd *etcdstore.Embedded
		if etcd, config, err = startEtcd(ctx, &s, etcdstore.EmbeddedConfig{Dir: filepath.Join(dataDir, "etcd"), Log: log}, nil); err == nil {
			defer etcd.Close()
			me.ofEtcd(etcd)
			p.start(ctx, "the embedded etcd", etcd.Wait)
		}
	}
	if err != nil {
		return err
	}
	config.Mint = true
	store, err := etcdstore.Open(ctx, config)
	if err != nil {
		return errors.Join(err, p.end())
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	defer func() { err = errors.Join(err, p.end()) }()
	me.ofStore(store)
	me.ofCloud(ctx, p, store)
	txnOps, err := store.MaxTxnOps(ctx)
	if err != nil {
		return err
	}
	endpoint, err := startPlacement(ctx, p, store.Placement(txnOps), s, nil, nil, log)
	if err != nil {
		return err
	}
	log.Info("serving the Placement API", "endpoint", endpoint)
	ready()
	return p.wait(ctx)
}
