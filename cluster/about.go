package cluster

import (
	"strings"

	"croft"
)

// AboutCredential says what the secret of a credential belongs to, for Vault.
func AboutCredential(p croft.PartitionID, c Credential) string {
	return strings.Join([]string{"credential", string(p), string(c.Project), c.User, string(c.ID), c.Site}, "\x00")
}

// AboutValue says what a secret output or parameter of a cluster belongs to; name is as in Cluster.Sealed.
func AboutValue(p croft.PartitionID, c croft.ClusterID, name string) string {
	return strings.Join([]string{"value", string(p), string(c), name}, "\x00")
}

// AboutAccount says what the password of an account belongs to.
func AboutAccount(p croft.PartitionID, c croft.ClusterID, user string) string {
	return strings.Join([]string{"account", string(p), string(c), user}, "\x00")
}
