package cli

import (
	"os"

	"filippo.io/age"
	"github.com/spf13/cobra"

	"croft/grid/machine"
	"croft/grid/runtime"
	"croft/grid/secret"
	"croft/grid/ssh"
	"croft/grid/state"
	"croft/grid/unit"
)

// machines reaches nodes.
type machines struct{ dialer *ssh.Dialer }

func newMachines(s *state.State, config string) machines {
	return machines{ssh.New(dialing(s, config))}
}

// of returns the machine of a node, which its first program connects, and a function that ends the connection.
func (m machines) of(n unit.Node) (machine.Machine, func()) {
	if n.Local {
		return machine.Local{}, func() {}
	}
	r := m.dialer.Remote(n)
	return r, r.Close
}

// reached returns the properties of a node that are needed to reach it.
func reached(s *state.State, n *state.Node) unit.Node {
	return s.Reach(n)
}

// runtimes returns where the runtimes of the cluster come from.
func (o *options) runtimes(s *state.State) runtime.Config {
	return runtime.Config{Repository: os.DirFS(o.dir), StateDir: s.Cluster.StateDir}
}

// keeper returns a keeper that opens the secrets of the cluster with the identities in files; without files, with the
// identities in their usual places.
func (o *options) keeper(files []string) *secret.Keeper { return keeperOf(o.dir, files...) }

func keeperOf(dir string, files ...string) *secret.Keeper {
	return &secret.Keeper{Repository: os.DirFS(dir),
		Identities: func() ([]age.Identity, error) { return secret.Identities(files...) }}
}

// identityFlag defines --identity.
func identityFlag(cmd *cobra.Command, to *[]string) {
	cmd.Flags().StringArrayVarP(to, "identity", "i", nil, "a `file` of age-keygen, or an SSH key, that opens secrets "+
		"(repeatable; $AGE_IDENTITY_FILE, $AGE_IDENTITY, croft/age.txt of your configuration, or your SSH keys)")
}
