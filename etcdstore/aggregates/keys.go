package aggregates

// Keys builds the keys of aggregates; it is the prefix of the partition. The list of all keys is in etcdstore.
type Keys string

func (k Keys) all() string { return string(k) + "aggregates/" }

// Aggregate is the key of an aggregate.
func (k Keys) Aggregate(name string) string { return k.all() + name }
