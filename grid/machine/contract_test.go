package machine_test

import (
	"testing"

	"croft/grid/machine"
	"croft/grid/machine/machinetest"
)

func TestThisMachineIsOne(t *testing.T) {
	machinetest.Run(t, func(*testing.T) machine.Machine { return machine.Local{} }, nil)
}
