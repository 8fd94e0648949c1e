package node

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
)

// machineFiles differ between any two machines; for a copy of a machine's disk only the second may differ.
var machineFiles = []string{"/etc/machine-id", "/sys/class/dmi/id/product_uuid"}

// fingerprint identifies a state directory on this machine: copies of the directory differ, as far as the machine
// can tell, and it survives a reboot.
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
