// Package ledger keeps the accounts of Placement: how much each provider has of each class, and how much each consumer
// has been granted. It promises that grants never exceed a provider's capacity, however many ledgers work on one Store,
// and that a read sees every write that the same ledger has confirmed.
//
// A Ledger holds the whole state in memory, updated by a watch on its Store. View reads it. Change is one transaction,
// which succeeds only if everything it read is unchanged in the Store. The package does not depend on HTTP or
// microversions.
package ledger
