package node

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
)

// machineFiles hold what no two machines have in common; a copy of a machine's disk
// differs in the second, if in anything.
var machineFiles = []string{"/etc/machine-id", "/sys/class/dmi/id/product_uuid"}

// placeOf tells a state directory on this machine from all others, copies of it too,
// as far as the machine can tell, and is the same after a reboot.
func placeOf(dir string) string {
	sum := sha256.New()
	for _, name := range machineFiles {
		text, err := os.ReadFile(name)
		if err != nil {
			text = nil // what is not there tells nothing
		}
		fmt.Fprintln(sum, strings.TrimSpace(string(text)))
	}
	fmt.Fprintln(sum, dir)
	return hex.EncodeToString(sum.Sum(nil)[:8])
}
