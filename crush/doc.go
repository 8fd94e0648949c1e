// Package crush computes where replicas go: CRUSH, the algorithm of Weil and others ("CRUSH: Controlled, Scalable,
// Decentralized Placement of Replicated Data", SC 2006), as Ceph has had it since its release jewel: buckets of the
// kind straw2, the hash rjenkins1, and the tunables that Ceph calls optimal. Whoever has the map computes the same
// places, without asking anybody, and crushtool can check them.
//
// A Map is what people write; Compile makes a Program of it, and a Mapper, one for each goroutine, computes places from
// that without allocating.
//
// Ceph's logarithm comes from tables of which one departs from its own formula. Here they are computed from the
// formulas, so that about one mapping in 6,000 differs from Ceph's where weights are uneven.
package crush
