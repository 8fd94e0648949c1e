package aggregates

import "croft"

// Keys builds the keys of aggregates; it is the prefix of the partition. The list of all keys is in etcdstore.
type Keys string

func (k Keys) all() string { return string(k) + "aggregates/" }

// Aggregate returns the key of an aggregate.
func (k Keys) Aggregate(name string) string { return k.all() + name }

// based returns the key of an aggregate, or of distances, on which the choice of a host is based; the name has the form
// in croft.Instance.
func (k Keys) based(name string) string {
	if _, distances := croft.DistancesOf(name); distances {
		return string(k) + name
	}
	return k.Aggregate(name)
}
