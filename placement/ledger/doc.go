// Package ledger keeps the books of Placement: which provider has how much of what, and which consumer has been granted
// how much of it. It promises that what consumers have been granted of a provider never exceeds its capacity, however
// many ledgers work on one Store, and that a read sees every write that the same ledger has confirmed.
//
// A Ledger holds the whole state in memory, fed by a watch on its Store. View reads it. Change is one transaction,
// which compares all that it read with what the Store has. The package knows no HTTP and no microversions.
package ledger
