// Package direct implements a cloud over its etcd and its Placement, for callers who may use both: operators on a host
// of the cloud, or operators with certificates of their own. It also finds etcd and Placement: Settings holds the
// settings of schedule.yaml, and unset ones come from Local, the note that croft up writes on its own machine.
package direct

import (
	"cmp"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"croft"
	"croft/client"
	"croft/internal/nearest"
	"croft/internal/traces"
	"croft/internal/wording"
	"croft/schedule"
	"croft/schedule/sshkeys"
)

// SettingsFile is the name of the settings file of schedule.
const SettingsFile = "schedule.yaml"

// Settings are the settings of schedule.yaml; the file of that name in the source's top directory explains each setting
// and holds the defaults.
type Settings struct {
	// for a cloud that is reached over its API; then Etcd and Placement are ignored
	client.Settings `yaml:",inline"`

	Etcd      EtcdSettings      `yaml:"etcd"`
	Placement PlacementSettings `yaml:"placement"`
	Project   string            `yaml:"project"`
	Image     string            `yaml:"image"`
	Keys      []string          `yaml:"keys"`
	Wait      Wait              `yaml:"wait"`
	Timeout   time.Duration     `yaml:"timeout"`
	Output    string            `yaml:"output"`
	Policy    string            `yaml:"policy"`
	Traces    traces.Settings   `yaml:"traces"`
	Pool      PoolSettings      `yaml:"pool"`
	Fence     string            `yaml:"fence"`
}

func Defaults() Settings {
	s := Settings{
		Project: string(croft.DefaultProject),
		Image:   "tiny",
		Keys:    []string{sshkeys.Auto},
		Wait:    waitNot,
		Timeout: 5 * time.Minute,
		Output:  outputs[0],
		Policy:  schedule.PolicySpread,
	}
	s.Etcd.Endpoints = EndpointsFromEnv(os.Getenv)
	s.Placement.Token = DefaultToken
	s.Pool.Endpoints = []string{}
	return s
}

// longestTimeout bounds how long a command waits.
const longestTimeout = 30 * 24 * time.Hour

// outputs are the values of the setting output; the first is the default.
var outputs = []string{"text", "table", "wide", "json", "yaml"}

// Validate checks what the types cannot express.
func (s *Settings) Validate() error {
	if err := croft.Project(s.Project).Check(); err != nil {
		return err
	}
	if err := s.Settings.Check(); err != nil {
		return err
	}
	for _, endpoint := range append(slices.Clone(s.Etcd.Endpoints),
		strings.Split(cmp.Or(s.Placement.Endpoint, DefaultPlacement), ",")...) {
		if u, err := url.Parse(endpoint); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return fmt.Errorf("%q is not an address of a server, such as http://127.0.0.1:2379", endpoint)
		}
	}
	if s.Placement.Cloud != "" && s.Placement.Token != DefaultToken {
		return fmt.Errorf(
			"placement.cloud and placement.token are both set: a cloud gets its tokens from Keystone, so " +
				"leave one out")
	}
	if !slices.Contains(outputs, s.Output) {
		return fmt.Errorf("output %q is not one of text, table, wide, json and yaml%s", s.Output,
			nearest.Hint(s.Output, outputs))
	}
	if !slices.Contains(Waits, string(s.Wait)) {
		return fmt.Errorf("wait %q is not one of false, true, address and ready%s", s.Wait,
			nearest.Hint(string(s.Wait), Waits))
	}
	if _, err := schedule.PolicyNamed(s.Policy); err != nil {
		return err
	}
	if s.Fence != "" && !filepath.IsAbs(s.Fence) {
		return fmt.Errorf("fence is %q, which is not an absolute path of a file", s.Fence)
	}
	if s.Timeout <= 0 {
		return fmt.Errorf("timeout %s is not longer than nothing", wording.Duration(s.Timeout))
	}
	if s.Timeout > longestTimeout {
		return fmt.Errorf("timeout %s is longer than %s, the longest that is allowed", wording.Duration(s.Timeout),
			wording.Duration(longestTimeout))
	}
	if s.Project == "" {
		return fmt.Errorf("project is empty: leave it out, which means %s, or name one", croft.DefaultProject)
	}
	return s.Traces.Check()
}

// Wait says what to wait for after an order.
type Wait string

// These are the values of Wait. For commands that do not make instances run, all except waitNot mean the same.
const (
	waitNot     Wait = "false"
	WaitYes     Wait = "true"
	waitAddress Wait = "address" // the same as WaitYes
	waitReady   Wait = "ready"
)

var Waits = []string{string(waitNot), string(WaitYes), string(waitAddress), string(waitReady)}

// Any reports whether to wait.
func (w Wait) Any() bool { return w != waitNot }

// Goal returns the goal to wait for when instances are to run.
func (w Wait) Goal() schedule.Goal {
	if w == waitReady {
		return schedule.Ready
	}
	return schedule.Running
}
