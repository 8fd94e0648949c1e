package main

import (
	"cmp"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"croft"
	"croft/internal/nearest"
	"croft/internal/settings"
	"croft/poolclient"
	"croft/schedule"
)

// scheduleFile is the name of the file with the settings of schedule.
const scheduleFile = "schedule.yaml"

// scheduleSettings are what schedule.yaml may say; the file of that name at the
// top of the source explains each and holds the defaults.
type scheduleSettings struct {
	Etcd      EtcdSettings      `yaml:"etcd"`
	Placement PlacementSettings `yaml:"placement"`
	Project   string            `yaml:"project"`
	Image     string            `yaml:"image"`
	Keys      []string          `yaml:"keys"`
	Wait      waiting           `yaml:"wait"`
	Timeout   time.Duration     `yaml:"timeout"`
	Output    string            `yaml:"output"`
	Policy    string            `yaml:"policy"`
	Traces    TraceSettings     `yaml:"traces"`
	Pool      PoolSettings      `yaml:"pool"`
}

func scheduleDefaults() scheduleSettings {
	s := scheduleSettings{
		Project: string(croft.DefaultProject),
		Image:   "tiny",
		Keys:    []string{autoKeys},
		Wait:    waitNot,
		Timeout: 5 * time.Minute,
		Output:  formatText,
		Policy:  schedule.PolicySpread,
	}
	s.Etcd.Endpoints = etcdFromEnv(os.Getenv)
	s.Placement.Token = defaultToken
	s.Pool.Endpoints = []string{poolclient.DefaultEndpoint}
	return s
}

// longestTimeout bounds how long a command waits.
const longestTimeout = 30 * 24 * time.Hour

// Validate checks what the types do not.
func (s *scheduleSettings) Validate() error {
	if err := croft.Project(s.Project).Check(); err != nil {
		return err
	}
	if len(s.Etcd.Endpoints) == 0 {
		return fmt.Errorf("etcd.endpoints is empty: name at least one, such as http://127.0.0.1:2379")
	}
	for _, endpoint := range append(slices.Clone(s.Etcd.Endpoints), strings.Split(cmp.Or(s.Placement.Endpoint, defaultPlacement), ",")...) {
		if u, err := url.Parse(endpoint); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return fmt.Errorf("%q is no address of a server, such as http://127.0.0.1:2379", endpoint)
		}
	}
	if s.Placement.Cloud != "" && s.Placement.Token != defaultToken {
		return fmt.Errorf("placement.cloud and placement.token are both set: a cloud gets its tokens from Keystone, so leave one out")
	}
	if !slices.Contains(formats, s.Output) {
		return fmt.Errorf("output %q is none of text, table, wide, json and yaml%s", s.Output, nearest.Hint(s.Output, formats))
	}
	if !slices.Contains(waitings, string(s.Wait)) {
		return fmt.Errorf("wait %q is none of false, true, address and ready%s", s.Wait, nearest.Hint(string(s.Wait), waitings))
	}
	if _, err := schedule.PolicyNamed(s.Policy); err != nil {
		return err
	}
	if s.Timeout <= 0 {
		return fmt.Errorf("timeout %s is not longer than nothing", s.Timeout)
	}
	if s.Timeout > longestTimeout {
		return fmt.Errorf("timeout %s is longer than %s, for which nobody waits", s.Timeout, longestTimeout)
	}
	if s.Project == "" {
		return fmt.Errorf("project is empty: leave it out, which means %s, or name one", croft.DefaultProject)
	}
	return s.Traces.validate()
}

// scheduleFlags are the flags that stand for settings, by their paths.
var scheduleFlags = map[string]string{
	"etcd": "etcd.endpoints", "placement": "placement.endpoint", "cloud": "placement.cloud", "project": "project",
	"output": "output", "wait": "wait", "timeout": "timeout", "policy": "policy",
	"server": "pool.endpoints",
}

// addScheduleFlags defines the flags that all commands of schedule share.
func addScheduleFlags(flags *pflag.FlagSet) {
	flags.String("settings", "", "read settings from this `file` instead of searching schedule.yaml")
	flags.String("etcd", "", "`URLs` of etcd, with commas (etcd.endpoints)")
	flags.String("placement", "", "`URL` of Placement (placement.endpoint)")
	flags.String("cloud", "", "cloud of clouds.yaml whose Keystone knows us to Placement (`name`; placement.cloud)")
	flags.String("project", "", "`name` of the project that owns the instances (project)")
	flags.StringP("output", "o", "", "print text, table, wide, json or yaml (`format`; output)")
}

// waiting says what to wait for after an order.
type waiting string

// The answers. A command that makes nothing run takes every one but waitNot alike.
const (
	waitNot     waiting = "false"
	waitYes     waiting = "true"
	waitAddress waiting = "address" // the same
	waitReady   waiting = "ready"
)

var waitings = []string{string(waitNot), string(waitYes), string(waitAddress), string(waitReady)}

// any tells whether to wait at all.
func (w waiting) any() bool { return w != waitNot }

// running is what to wait for where instances are to run.
func (w waiting) running() schedule.Goal {
	if w == waitReady {
		return schedule.Ready
	}
	return schedule.Running
}

// addWaitFlags defines the flags of commands that can wait for what they ordered.
func addWaitFlags(flags *pflag.FlagSet, what string) {
	flags.String("wait", "", "wait until "+what+" (wait)")
	flags.Lookup("wait").NoOptDefVal = string(waitYes)
	flags.Duration("timeout", 0, "wait no longer than this `duration` (timeout)")
}

// loadSchedule reads the settings with the flags that were given over them.
func loadSchedule(flags *pflag.FlagSet) (scheduleSettings, error) {
	given := map[string]string{}
	flags.Visit(func(f *pflag.Flag) {
		if path, ok := scheduleFlags[f.Name]; ok {
			given[path] = f.Value.String()
		}
	})
	file, err := flags.GetString("settings")
	if err != nil {
		return scheduleSettings{}, err
	}
	if err := checkEnvironment(os.Environ()); err != nil {
		return scheduleSettings{}, err
	}
	s, from, err := settings.Load(scheduleDefaults(), settings.Source{Name: scheduleFile, File: file, Flags: given, Former: formerSettings})
	if err == nil {
		s.beside(from)
		err = addLocal(localStateDir(), &s.Etcd, &s.Placement)
	}
	if err == nil && given["timeout"] != "" && !s.Wait.any() && flags.Lookup("wait") != nil {
		err = croft.Errorf(croft.Invalid, "--timeout says how long --wait waits: add --wait")
	}
	return s, err
}
