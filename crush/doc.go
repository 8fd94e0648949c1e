// Package crush computes where replicas go. It implements CRUSH, the algorithm of Weil and others ("CRUSH: Controlled,
// Scalable, Decentralized Placement of Replicated Data", SC 2006), as in Ceph since its release jewel: straw2 buckets,
// the hash rjenkins1, and the tunables that Ceph calls optimal. Every program with the map computes the same result
// without communication, and crushtool can check it.
//
// A Map is the editable form. Compile converts it to a Program, and a Mapper, one per goroutine, computes mappings from
// that without allocating.
//
// Ceph's logarithm comes from tables, one of which deviates from its own formula. This package computes the tables from
// the formulas, so that about one mapping in 6,000 differs from Ceph's if weights are uneven.
package crush
