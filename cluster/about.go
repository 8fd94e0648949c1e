package cluster

import (
	"strings"

	"croft"
)

// AboutCredential returns the text that binds a sealed secret to its credential, for Vault.
func AboutCredential(p croft.PartitionID, c Credential) string {
	return strings.Join([]string{"credential", string(p), string(c.Project), c.User, string(c.ID), c.Site}, "\x00")
}

// AboutValue returns the text that binds a sealed output or parameter to its cluster; name is as in Cluster.Sealed.
func AboutValue(p croft.PartitionID, c croft.ClusterID, name string) string {
	return strings.Join([]string{"value", string(p), string(c), name}, "\x00")
}

// AboutAccount returns the text that binds a sealed password to its account.
func AboutAccount(p croft.PartitionID, c croft.ClusterID, user string) string {
	return strings.Join([]string{"account", string(p), string(c), user}, "\x00")
}
