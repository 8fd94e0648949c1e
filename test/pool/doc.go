// Package pool tests the manager of pools as a whole: with etcd, a shell, and a process that is killed.
package pool
