package policies

import "croft"

// Keys builds the keys of policies and of the numbers for CRUSH; it is the prefix of the partition. The list of all
// keys is in etcdstore.
type Keys string

func (k Keys) all() string { return string(k) + "policies/" }

func (k Keys) last() string                { return string(k) + "crush/last" }
func (k Keys) hosts() string               { return string(k) + "crush/hosts/" }
func (k Keys) locations() string           { return string(k) + "crush/locations/" }
func (k Keys) location(name string) string { return k.locations() + name }

// Host returns the key of a host's number.
func (k Keys) Host(h croft.HostID) string { return k.hosts() + string(h) }
