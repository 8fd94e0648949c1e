// Package hosts lists the hosts of a cloud, keeps new claims away from them, moves their instances elsewhere, and
// forgets them. All operations can be interrupted at any point and repeated.
package hosts
