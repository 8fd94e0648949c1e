package resalloc

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"croft"
	"croft/internal/command"
)

func serverCommand(b Backend) *cobra.Command {
	return &cobra.Command{
		Use:   "resalloc-server",
		Short: "The server of resalloc: croft serve pool by its configuration",
		Long: `resalloc-server is croft serve pool with the settings of resalloc's server: server.yaml
and pools.yaml in $CONFIG_DIR, /etc/resallocserver by default. The database that db_url
names is only the name of a place: the state is beside it.`,
		Args: command.Count(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			c, pools, err := readServerYAML()
			if err != nil {
				return err
			}
			s, err := c.settings(pools)
			if err != nil {
				return err
			}
			dir, err := c.dataDir()
			if err != nil {
				return err
			}
			main, err := os.OpenFile(filepath.Join(c.LogDir, "main.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
			if err != nil {
				return croft.Errorf(croft.Invalid, "server.yaml: logdir: %w", err)
			}
			defer func() { err = errors.Join(err, main.Close()) }()
			lines := slog.NewTextHandler(io.MultiWriter(cmd.ErrOrStderr(), main), &slog.HandlerOptions{Level: s.Level})
			log := slog.New(lines).With("pid", os.Getpid())
			return b.Serve(cmd.Context(), s, dir, openSoon, log)
		},
	}
}
