package crush_test

import (
	"fmt"
	"strings"

	"croft/crush"
)

// Each input x gets two devices in different racks. Any program with the same map computes the same result.
func Example() {
	m, err := crush.ReadText(strings.NewReader(`
device 0 disk.a
device 1 disk.b
device 2 disk.c
type 0 disk
type 1 rack
type 2 root
rack r1 { alg straw2 item disk.a weight 1.0 item disk.b weight 1.0 }
rack r2 { alg straw2 item disk.c weight 2.0 }
root default { alg straw2 item r1 item r2 }
rule apart { id 0 step take default step chooseleaf firstn 0 type rack step emit }
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	program, err := crush.Compile(m)
	if err != nil {
		fmt.Println(err)
		return
	}
	rule, _ := program.Rule("apart")
	mapper := program.NewMapper()
	for x := range uint32(3) {
		fmt.Println(x, mapper.Map(rule, x, 2, nil, nil))
	}
	// Output:
	// 0 [0 2]
	// 1 [0 2]
	// 2 [1 2]
}
