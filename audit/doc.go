// Package audit compares everything on record about instances with what hosts and Placement have of them, and
// mends what can harm no guest and no disk. The Auditor does so at an operator's request, for all records;
// the Caretaker does so periodically, for what belongs to no host. Both act only on what two looks in a row
// found, and conclude nothing from what could not be read.
package audit
