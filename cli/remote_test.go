package cli

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"croft/cli/args"
)

// overAPI lists the commands that do the same over the API of a cloud, if the caller has the permissions.
const overAPI = `
schedule list show logs usage screen console ssh exec cp forward port-forward
schedule start stop reboot rebuild recreate resize move remove wait keep protect eject
instance create list show logs usage screen console ssh exec cp forward port-forward
instance start stop reboot rebuild recreate resize move remove wait keep protect eject
claim list use remove
cluster create explain list show events set resize grow shrink remove account output ssh
cluster use remove
cluster site list show create set remove health
cluster site image list add remove bring
cluster credential list show create set remove rewrap
cluster appliance list show create set remove
cluster appliance implementation add list show enable disable remove
host list show inventory drain enable accept remove fence
host leftover list remove
aggregate create list show change remove
distance list get set remove
size create list show remove default rename
policy list show set check remove explain
crush export
image list add show pull remove prune save share unshare
volume create list show grow attach detach remove
storage list
snapshot create list show rollback remove
backup create list show check restore remove overdue
backup store add list show check remove
backup schedule create list show remove
key add list remove
project create list show remove
project member add set remove
quota show set check
usage
pool list show set resources resource logs
pool ticket open check wait renew close list
pool runner github
pool runner gitlab prepare run cleanup config-toml
resource-type list
capability list add remove
user list
property get set remove
property tag add list remove
property definition get set remove check
partition list show export import remove card
partition peer add list show remove
partition key list remove
token create list remove
whoami
page
log
audit
inventory
apply
export
top`

// local lists the commands, and groups of commands, that do not work over an API, with the reason. Commands that a user
// could expect to work on a cloud refuse with the value; the others do not read whether a cloud is configured.
var local = map[string]string{
	"up": "runs this machine's part of a cloud", "down": "ends it",
	"serve":  "runs a server here, or copies the state of Placement between servers",
	"ca":     "has the keys of the cloud's authority, which are on this machine and never leave it",
	"doctor": "examines this machine", "crush show": "reads a file", "crush test": "computes from a file",
	"crush compare": "computes from files",
	"login":         "keeps what it is given on this machine", "logout": "forgets what is on this machine",
	"context":                   "is about what login keeps on this machine",
	"etcd restore":              "makes the data of a server that is on this machine",
	"cluster credential key":    "makes a file on this machine",
	"pool runner gitlab config": "prints settings for GitLab Runner",
	"completion":                "prints a script", "man": "writes files",
}

// denied lists commands for a cloud that its API does not offer, with the reason that the user is told.
var denied = map[string]string{
	"etcd snapshot":        "it has every secret of the cloud in it",
	"partition key rotate": "the key is made where the server runs that signs with it",
	"pool pause":           "a project has no say in how its manager runs", "pool resume": "likewise",
	"pool drain": "likewise", "pool remove": "likewise",
}

// decided returns the entry for a command or its group.
func decided(table map[string]string, path string) bool {
	for name := range table {
		if path == name || strings.HasPrefix(path, name+" ") {
			return true
		}
	}
	return false
}

// TestEveryCommandIsDecidedForClouds checks that each command either does the same over the API of a cloud, or is in a
// table with the reason. cmd/croft/testdata/script/remote.txtar runs the ones that do the same.
func TestEveryCommandIsDecidedForClouds(t *testing.T) {
	root, over := Program{}.Root("croft"), map[string]bool{}
	for line := range strings.Lines(strings.TrimSpace(overAPI)) {
		words := strings.Fields(line)
		group := words[:1]
		for n := 2; n < len(words); n++ {
			if cmd, rest, _ := root.Find(words[:n]); len(rest) == 0 && cmd.HasSubCommands() {
				group = words[:n]
			}
		}
		if len(words) == 1 || words[0] == "schedule" {
			over[words[0]] = true
		}
		for _, word := range words[len(group):] {
			over[strings.Join(append(slices.Clone(group), word), " ")] = true
		}
	}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		path := strings.TrimPrefix(strings.TrimPrefix(cmd.CommandPath(), "croft"), " ")
		if path == "" || cmd.HasSubCommands() && path != "schedule" {
			return
		}
		reached := cmd.Flag(args.ContextFlag) != nil
		// a group may contain a command that works over the API
		here, refused := decided(local, path) && !over[path], decided(denied, path)
		switch n := len(slices.DeleteFunc([]bool{over[path], here, refused}, func(is bool) bool { return !is })); {
		case n == 0:
			t.Errorf("croft %s: say whether it works over the API of a cloud, or why not", path)
		case n > 1:
			t.Errorf("croft %s is in several tables", path)
		case reached == here:
			t.Errorf("croft %s has the flag --%s: %v", path, args.ContextFlag, reached)
		}
		delete(over, path)
	}
	walk(root)
	if len(over) > 0 {
		t.Errorf("there are no commands %q", slices.Sorted(maps.Keys(over)))
	}
}
