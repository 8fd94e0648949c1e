// Package audit compares everything on record about instances with what hosts and
// Placement have of them, and mends what can harm no guest and no disk. The Auditor
// does so when an operator asks, for all records; the Caretaker does so by itself, for
// what belongs to no host. It believes only what two looks in a row found, and
// concludes nothing from what could not be read.
package audit
