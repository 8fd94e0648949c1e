package args_test

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"testing"

	"github.com/spf13/pflag"

	"croft/cli/args"
	"croft/control/cloud/direct"
	"croft/node/settings"
)

// An address that is given is used even if it is the default one: the cloud of this machine does not take its place.
func TestAGivenAddressOfEtcdIsUsedAlthoughItIsTheDefault(t *testing.T) {
	const noted = "https://10.0.0.1:2379"
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("HOME", dir)
	t.Setenv("XDG_CONFIG_HOME", dir)
	t.Setenv("CROFT_STATE_DIR", dir)
	var note direct.Local
	note.Etcd.Endpoints = []string{noted}
	if err := note.Write(direct.LocalFile(dir), ""); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "mine.yaml")
	if err := os.WriteFile(file, []byte("etcd: {endpoints: [\""+direct.DefaultEtcd+"\"]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, variable, want string
		flags                []string
	}{
		{name: "nothing is given", want: noted},
		{name: "by a flag", flags: []string{"--etcd", direct.DefaultEtcd}, want: direct.DefaultEtcd},
		{name: "by a file", flags: []string{"--settings", file}, want: direct.DefaultEtcd},
		{name: "by a variable", variable: "CROFT_ETCD_ENDPOINTS", want: direct.DefaultEtcd},
		{name: "by a variable of etcdctl", variable: "ETCDCTL_ENDPOINTS", want: direct.DefaultEtcd},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.variable != "" {
				t.Setenv(c.variable, direct.DefaultEtcd)
			}
			flags := pflag.NewFlagSet("croft", pflag.ContinueOnError)
			args.AddCloudFlags(flags)
			if err := flags.Parse(c.flags); err != nil {
				t.Fatal(err)
			}
			s, err := args.LoadSettings(flags)
			if err != nil || !slices.Equal(s.Etcd.Endpoints, []string{c.want}) {
				t.Errorf("etcd is at %v (%v), want %s", s.Etcd.Endpoints, err, c.want)
			}
		})
	}
}

// A test that runs croft passes it the variables of make and the scripts.
func TestVariablesOfScriptsAndTestsAreNoUnknownSettings(t *testing.T) {
	root := filepath.Join("..", "..")
	files, err := filepath.Glob(filepath.Join(root, "scripts", "*"))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	exported := regexp.MustCompile(`\bexport (CROFT_[A-Z_]+)|\$\{(CROFT_[A-Z_]+)`)
	for _, file := range append(files, filepath.Join(root, "Makefile")) {
		text, err := os.ReadFile(file)
		if errors.Is(err, syscall.EISDIR) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range exported.FindAllStringSubmatch(string(text), -1) {
			found = append(found, cmp.Or(m[1], m[2])+"=1")
		}
	}
	found = append(found, "CROFT_SAMPLE=1") // internal/testing/sample
	if len(found) < 10 {
		t.Fatalf("%d variables found in the scripts, want more", len(found))
	}
	if err := direct.CheckEnvironment(found, settings.EnvNames()); err != nil {
		t.Error(err)
	}
}
