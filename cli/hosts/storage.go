package hosts

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"croft/cli/args"
	"croft/cli/verb"
	"croft/hosts"
	"croft/internal/out"
)

// StorageCommand returns the command croft storage.
func StorageCommand() *cobra.Command {
	return verb.CloudGroup("storage", "Look at the storage that hosts share",
		`storage lists the directories that several hosts mount (storage.shared in their settings),
such as NFS exports. The disk of an instance lies there if its request says so.`, `  croft storage list
  schedule VCPU:1,MEMORY_MB:512,DISK_GB:5 debian-12 --storage nfs1 --restart elsewhere`,
		storages.List("List the storage that hosts share"))
}

var storages = verb.Noun[hosts.Storage]{
	Name: "storage",
	All: func(ctx context.Context, c *args.Client) ([]hosts.Storage, error) {
		list, err := c.ListStorages(ctx)
		return list.Storages, err
	},
	Word: func(s hosts.Storage) (string, string) { return s.Name, fmt.Sprintf("%d GiB free", s.FreeGB) },
	Head: []string{"NAME", "HOSTS", "DISK_GB", "CLAIMED", "FREE", "ID"},
	Row: func(s hosts.Storage) []out.Cell {
		return verb.Texts(s.Name, strings.Join(s.Hosts, ", "), fmt.Sprint(s.TotalGB), fmt.Sprint(s.ClaimedGB),
			fmt.Sprint(s.FreeGB), string(s.ID))
	},
}
