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

// fingerprint identifies a state directory on this machine: it differs for copies of the directory,
// as far as the machine can tell, and is the same after a reboot.
func fingerprint(dir string) string {
	sum := sha256.New()
	for _, name := range machineFiles {
		text, err := os.ReadFile(name)
		if err != nil {
			text = nil // a missing file distinguishes nothing
		}
		fmt.Fprintln(sum, strings.TrimSpace(string(text)))
	}
	fmt.Fprintln(sum, dir)
	return hex.EncodeToString(sum.Sum(nil)[:8])
}
