package args_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/spf13/pflag"

	"croft/cli/args"
	"croft/control/cloud/direct"
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
