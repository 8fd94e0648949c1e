// Package audit compares all records about instances with the guests and disks of hosts and the claims in Placement,
// and mends differences if that can harm no guest and no disk. The Auditor does so at an operator's request, for all
// records; the Caretaker does so periodically, for the records that belong to no host. Both act only on differences
// that two consecutive looks found, and conclude nothing from data that could not be read.
package audit
