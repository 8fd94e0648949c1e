// Package call measures one request on an idle cloud of one host: the time of the whole schedule process, of its start
// alone, and from the order until the host acts on it. The cloud is croft up, with simulated guests.
package call
