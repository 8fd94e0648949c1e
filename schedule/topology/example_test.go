package topology_test

import (
	"fmt"

	"croft/schedule/topology"
)

// Locations are paths from a site down to a host. The distance of two is the number of levels to climb from
// one to the other.
func Example() {
	a, err := topology.Parse("paris/row1/rack1")
	if err != nil {
		fmt.Println(err)
		return
	}
	b, err := topology.Parse("paris.row1.rack2")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(a, b, topology.Distance(a, b), b.In(a.Parent()))
	// Output:
	// paris/row1/rack1 paris/row1/rack2 2 true
}
