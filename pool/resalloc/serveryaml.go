package resalloc

import (
	"crypto/sha256"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"croft"
)

// serverYAML has the keys of resalloc's server.yaml, and croft's: tokens, certificates, and the etcd of several
// managers. Unknown keys are ignored, as in resalloc.
type serverYAML struct {
	DBURL    string `yaml:"db_url"`
	LogDir   string `yaml:"logdir"`
	Hostname string `yaml:"hostname"`
	Port     int    `yaml:"port"`
	LogLevel string `yaml:"loglevel"`

	SleepTime float64 `yaml:"sleeptime"` // in seconds; the pace of livechecks is half of it

	Etcd     []string `yaml:"etcd_endpoints"`
	Address  string   `yaml:"address"`
	Tokens   string   `yaml:"tokens"`
	Cert     string   `yaml:"cert"`
	Key      string   `yaml:"key"`
	CA       string   `yaml:"ca"`
	Insecure bool     `yaml:"insecure"`
}

// readServerYAML reads server.yaml, and returns the path of pools.yaml in the same directory.
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

// dataDir returns the directory of the state that resalloc keeps in its database: next to an SQLite file, or, for other
// databases, in the log directory under the database's name.
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

// settings converts the file's settings.
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
