// Package hosts lists the hosts of a cloud, keeps new claims away from them, moves their instances elsewhere,
// and forgets them. All operations may be interrupted anywhere and repeated.
package hosts
