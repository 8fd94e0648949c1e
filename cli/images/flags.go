package images

import (
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"croft"
	"croft/cli/args"
)

// Several commands work on different objects, depending on their flags: the cloud's catalog, the catalogs in files,
// this host's cache, or the caches of hosts. These are the flags that each object has in all commands.
var (
	ofCloud = []string{"project", "partition", "context", "settings", "etcd", "placement", "cloud", "output"}
	ofHosts = append([]string{"hosts"}, ofCloud...)
	ofCache = []string{args.StateDirFlag.Flag, "settings", "output"}
)

// only returns an error of the kind Invalid if a flag was given that the command does not use for this object: a flag
// that is ignored silently, such as a checksum, would be worse than one that does not exist.
func only(cmd *cobra.Command, object string, used ...[]string) (err error) {
	all := slices.Concat(used...)
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if err == nil && !slices.Contains(all, f.Name) {
			err = croft.Errorf(croft.Invalid, "--%s has no effect on %s: leave it out", f.Name, object)
		}
	})
	return err
}
