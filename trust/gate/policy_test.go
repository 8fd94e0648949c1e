package gate_test

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"croft/compute"
	"croft/trust/gate"
)

func TestEveryMethodOfComputesPortsHasARowInThePolicy(t *testing.T) {
	allows := gate.Policy()
	for _, port := range []reflect.Type{
		reflect.TypeFor[compute.Orders](), reflect.TypeFor[compute.Registry](), reflect.TypeFor[compute.Records](),
		reflect.TypeFor[compute.Inventory](),
	} {
		for i := range port.NumMethod() {
			name := port.Method(i).Name
			if name == "HostEvidence" {
				name = "HostBooks" // its name on the wire
			}
			if allows[name] == "" {
				t.Errorf("%s.%s has no row: say in trust/gate/policy.go what a host may do with it", port.Name(), name)
			}
		}
	}
}

func TestThePolicyIsInTheDocumentation(t *testing.T) {
	text, err := os.ReadFile("../../docs/contributors/gate.md")
	if err != nil {
		t.Fatal(err)
	}
	unwrapped := strings.Join(strings.Fields(string(text)), " ")
	for name, what := range gate.Policy() {
		if item := "- `" + name + "`: " + what + "."; !strings.Contains(unwrapped, item+" ") {
			t.Errorf("docs/contributors/gate.md lacks the item\n%s", item)
		}
	}
}
