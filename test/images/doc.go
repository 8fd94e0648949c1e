// Package images tests an agent with its real image cache and real disks: how often an image is fetched, which disks
// are based on it, and that instances leave no files behind. Guests are simulated, etcd is real.
package images
