// Package hosts lists the hosts of a cloud, keeps new claims away from them, moves what is
// on them, and forgets them. Everything here may be interrupted anywhere and done again.
package hosts
