package resalloc

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"gopkg.in/yaml.v3"

	"croft"
	"croft/cli/args"
)

// serverYAML has the keys of resalloc's server.yaml, and ours: tokens, certificates, and the
// etcd of several managers. Unknown keys are ignored, as in resalloc.
type serverYAML struct {
	DBURL    string `yaml:"db_url"`
	LogDir   string `yaml:"logdir"`
	Hostname string `yaml:"hostname"`
	Port     int    `yaml:"port"`
	LogLevel string `yaml:"loglevel"`

	SleepTime float64 `yaml:"sleeptime"` // seconds; livechecks have half of it between them

	Etcd     []string `yaml:"etcd_endpoints"`
	Address  string   `yaml:"address"`
	Tokens   string   `yaml:"tokens"`
	Cert     string   `yaml:"cert"`
	Key      string   `yaml:"key"`
	CA       string   `yaml:"ca"`
	Insecure bool     `yaml:"insecure"`
}

// readServerYAML reads server.yaml, and finds pools.yaml beside it.
func readServerYAML() (c serverYAML, pools string, err error) {
	dir := os.Getenv("CONFIG_DIR")
	if dir == "" {
		dir = "/etc/resallocserver"
	}
	c = serverYAML{
		DBURL: "sqlite:////var/lib/resalloc-server/db.sqlite", LogDir: "/var/log/resallocserver",
		Hostname: "localhost", Port: 49100, LogLevel: "info", SleepTime: 20,
	}
	file := filepath.Join(dir, "server.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		return c, "", croft.Errorf(croft.Invalid, "%w: CONFIG_DIR names the directory with server.yaml and pools.yaml",
			err)
	}
	if err := yaml.Unmarshal(text, &c); err != nil {
		return c, "", croft.Errorf(croft.Invalid, "%s: %w", file, err)
	}
	if c.Port < 1 || c.Port > 65535 {
		return c, "", croft.Errorf(croft.Invalid, "%s: port is %d, and those are 1 to 65535", file, c.Port)
	}
	if c.SleepTime < 0 || c.SleepTime > 1e6 {
		return c, "", croft.Errorf(croft.Invalid, "%s: sleeptime is %g: use a number of seconds", file, c.SleepTime)
	}
	return c, filepath.Join(dir, "pools.yaml"), nil
}

// endpoint is the URL of the server.
func (c serverYAML) endpoint() string {
	scheme := "http://"
	if c.Cert != "" {
		scheme = "https://"
	}
	return scheme + net.JoinHostPort(c.Hostname, strconv.Itoa(c.Port))
}

// dataDir returns where the state is that the file has in a database: beside the file of
// SQLite, and for other databases below the logs, by name.
func (c serverYAML) dataDir() (string, error) {
	if name, ok := strings.CutPrefix(c.DBURL, "sqlite:///"); ok && name != "" && name != ":memory:" {
		name, _, _ = strings.Cut(name, "?")
		return filepath.Abs(name + ".croft")
	}
	u, err := url.Parse(c.DBURL)
	if err != nil || c.DBURL == "" {
		return "", croft.Errorf(croft.Invalid, "server.yaml: db_url %q is no URL of a database", c.DBURL)
	}
	name := strings.Trim(filepath.Base(u.Path), "/.")
	hash := sha256.Sum256([]byte(c.DBURL))
	return filepath.Abs(filepath.Join(c.LogDir, fmt.Sprintf("state-%s-%x", name, hash[:4])))
}

// Settings are what server.yaml means for `croft pool serve`.
type Settings struct {
	Etcd                  []string // endpoints; none: the manager has its own
	Pools                 string   // the file
	Logs                  string   // directory
	Listen, Address       string
	Tokens, Cert, Key, CA string // files
	Insecure              bool
	Level                 slog.Level
	Pace                  time.Duration // between livechecks; see pool.Config
	Began                 time.Time     // likewise
}

// settings maps what the file says.
func (c serverYAML) settings(pools string) (Settings, error) {
	s := Settings{
		Etcd: c.Etcd, Pools: pools, Logs: c.LogDir,
		Listen: net.JoinHostPort(c.Hostname, strconv.Itoa(c.Port)), Address: c.Address,
		Tokens: c.Tokens, Cert: c.Cert, Key: c.Key, CA: c.CA, Insecure: c.Insecure,
		Pace: time.Duration(c.SleepTime / 2 * float64(time.Second)), Began: time.Now(),
	}
	level := strings.ToLower(c.LogLevel)
	switch level {
	case "warning":
		level = "warn"
	case "critical", "fatal":
		level = "error"
	case "notset":
		level = "debug"
	}
	if err := s.Level.UnmarshalText([]byte(level)); err != nil {
		return s, croft.Errorf(croft.Invalid, "server.yaml: loglevel is %q: use debug, info, warning or error",
			c.LogLevel)
	}
	return s, nil
}

func serverCommand(b Backend) *cobra.Command {
	return &cobra.Command{
		Use:   "resalloc-server",
		Short: "The server of resalloc: croft pool serve by its configuration",
		Long: `resalloc-server is croft pool serve with the settings of resalloc's server: server.yaml
and pools.yaml in $CONFIG_DIR, /etc/resallocserver by default. The database that db_url
names is only the name of a place: the state is beside it.`,
		Args: args.Count(0, 0),
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
