// Package operator is what an operator does to the whole: look at the hosts, keep new
// claims away from one, move what is on it, forget it, and audit the books. Everything
// here may be interrupted anywhere and done again.
package operator
