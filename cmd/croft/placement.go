package main

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"

	"github.com/spf13/cobra"

	"croft"
	"croft/etcdstore"
)

func placementCommand() *cobra.Command {
	flags := []hostFlag{
		logLevelFlag, etcdFlag, tokenFlag,
		{"listen", "placement.listen", "address to serve on"},
	}
	cmd := &cobra.Command{
		Use:   "placement",
		Short: "Run croft's own Placement server alone",
		Long: `Run croft's own Placement server alone: the API of OpenStack Placement, its state
in the etcd at --etcd, or in an etcd of its own below --data-dir. Any number of
servers may run on one etcd.`,
		Args: count(0, 0),
	}
	cmd.AddCommand(placementExportCommand(), placementImportCommand())
	addHostFlags(cmd, flags...)
	dataDir := cmd.Flags().String("data-dir", "", "run an etcd of its own with its data here")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, log, err := loadHostSettings(cmd, flags...)
		if err != nil {
			return err
		}
		if *dataDir != "" && cmd.Flags().Changed("etcd") {
			return croft.Errorf(croft.Invalid, "give --etcd or --data-dir, not both")
		}
		return runPlacement(cmd.Context(), s, *dataDir, log)
	}
	return cmd
}

func runPlacement(ctx context.Context, s hostSettings, dataDir string, log *slog.Logger) (err error) {
	txnOps := 0 // etcd's own default
	if dataDir != "" {
		txnOps = etcdstore.EmbeddedTxnOps
		etcd, err := etcdstore.StartEmbedded(ctx, etcdstore.EmbeddedConfig{Dir: filepath.Join(dataDir, "etcd"), Listen: "127.0.0.1:0"})
		if err != nil {
			return err
		}
		defer etcd.Close()
		s.Etcd.Endpoints = []string{etcd.Endpoint()}
	}
	store, err := etcdstore.Open(ctx, etcdstore.Config{Endpoints: s.Etcd.Endpoints, Mint: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	p := newParts()
	defer func() { err = errors.Join(err, p.end()) }()
	endpoint, err := startPlacement(ctx, p, store.Placement(txnOps), s, log)
	if err != nil {
		return err
	}
	log.Info("serving the Placement API", "endpoint", endpoint)
	return p.wait(ctx)
}
